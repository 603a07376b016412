"""The state of a stream: one record next to its checkpoint, written before the first row of a batch and after the last.

It says of which topic and tables the checkpoint is, up to where records may be in the tables and which leader epochs
these have, how the current batch is divided, and which versions the tables had after the last batch.

There are two copies, and each write replaces the older one. If the newer one is damaged, the older one counts: it is
one write older, so at most the state of a batch is lost. `start` has a table of what follows from a state that is
missing, or does not fit topic, checkpoint or tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from zlib import crc32

from pydantic import TypeAdapter

from streaming_app.errors import StorageError
from streaming_app.stream.epoch_chain import Chain
from streaming_app.tables.location import Location
from streaming_app.tables.own_files import OwnFiles

_FORMAT = 1
_OF_0_3 = ("topic", "epochs", "tables", "slices")  # names of the files that 0.3 has instead
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError)  # raised for JSON of another form
POSITIONS = 1 << 32
"""The number of positions in a batch."""
Offsets = Mapping[int, int]
"""By partition of the topic."""


class TableVersion(NamedTuple):
    """The id of a table, and its files."""

    id: str
    files: OwnFiles


class Slice(NamedTuple):
    """A part of a batch: the records from the end of the previous slice to `end`, or to the end of the batch."""

    end: tuple[int, int] | None
    """Partition and offset: the slice ends before it. Lower partitions come before it, too."""
    position: int
    """Orders the slices of a batch; the last one has the highest."""
    is_apart: bool = False
    """It has only the groups that are written apart; earlier slices have all others."""

    def version(self, batch: int) -> int:
        """Return the version of an append of this slice: it increases with each slice and batch."""
        return batch * POSITIONS + self.position


@dataclass(frozen=True)
class BatchPlan:
    """How a batch is divided."""

    writer: str
    batch: int
    halvings: int = 0
    """How often the whole batch is to be halved if there are no slices yet; with them, it counts for later batches."""
    slices: tuple[Slice, ...] = ()
    """Empty until the batch was read, and if it is not divided."""
    apart: tuple[int, ...] = ()
    """The groups that are written apart, each as the hash of its id; a group with the same hash is also apart."""
    alone: tuple[int, int, int] | None = None
    """Partition and offset of a record that has failed alone, and how often."""


@dataclass(frozen=True)
class StreamState:
    """What is stored; without a topic nothing is known."""

    cluster_id: str = ""
    topic: str = ""
    topic_id: str = ""
    partitions: int = 0
    """Of the topic; 0: not known."""
    partitions_grew: bool = False
    """The topic once had fewer partitions, see `FoldOptions`."""
    rows: str = ""
    """The identity of the table with the rows of this topic; empty while a start is being prepared."""
    history: Mapping[str, Offsets] = field(default_factory=dict)
    """Up to where each history table reached when a reading from the start began."""
    history_after: str | None = None
    """The rows of the history up to this time, in ISO-8601, are of another topic."""
    starting: Offsets = field(default_factory=dict)
    """Where a query without a checkpoint starts; empty: at the start of all partitions."""
    until: Offsets = field(default_factory=dict)
    """Rows that are still marked when these offsets are reached are deleted."""
    ends: Offsets = field(default_factory=dict)
    """Up to where records may be in the tables."""
    epochs: Mapping[int, Chain] = field(default_factory=dict)
    plan: BatchPlan | None = None
    """How the current batch is divided; None if it is not."""
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    """By name, after the last batch."""
    acts: tuple[Mapping[str, Any], ...] = ()
    """Those that wait for the query of the groups, see `offset_acts`."""


_FORM = TypeAdapter(StreamState)


class StateFile:
    """The stored state of one stream. The start of the stream and its batches use it, which never run together."""

    def __init__(self, checkpoint: Location) -> None:
        self._checkpoint = checkpoint
        self._copies = [Location(f"{checkpoint}.state{number}.json") for number in (0, 1)]
        self._number = 0  # of the last write
        self.state = StreamState()
        """As last read or written; empty before `read`."""

    def read(self) -> StateFile:
        """Read the newest copy that is intact. Raises OSError, and StorageError if a newer release wrote it."""
        found = [one for one in map(_read_copy, self._copies) if one]
        self._number, self.state = max(found, key=lambda one: one[0], default=(0, StreamState()))
        if len(found) < len(self._copies):  # the files of 0.3 are replaced by both copies
            files = [Location(f"{self._checkpoint}.{name}.json") for name in _OF_0_3]
            if not self._number and (state := _of_0_3(files)):
                self.replace(state)
            for file in files:
                file.remove()
        return self

    def replace(self, state: StreamState) -> None:
        """Store another state, in both copies. Raises OSError."""
        self.state = state
        for _ in self._copies:
            self.write()

    def write(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the state
        """Change fields, and store the state. Raises OSError."""
        self.note(**changes)
        stored = _FORM.dump_python(self.state, mode="json")
        copy = {"format": _FORMAT, "number": self._number + 1, "crc32": _sum(stored), "state": stored}
        self._copies[(self._number + 1) % 2].write_text(json.dumps(copy))
        self._number += 1

    def note(self, **changes: Any) -> None:  # noqa: ANN401 - as above
        """Change fields, which the next `write` stores."""
        self.state = replace(self.state, **changes)


def _read_copy(file: Location) -> tuple[int, StreamState] | None:
    """Return the number of a copy, and what it holds; None if it is missing or damaged."""
    try:
        found = json.loads(file.find_text() or "")
        if found["format"] > _FORMAT:
            raise StorageError(f"A newer release wrote {file}: use that release, or restore a copy of the warehouse")
        if found["crc32"] == _sum(found["state"]):
            return int(found["number"]), _FORM.validate_python(found["state"])
    except _DAMAGED:
        pass
    return None


def _sum(stored: Any) -> int:  # noqa: ANN401 - JSON
    return crc32(json.dumps(stored).encode())


def _of_0_3(files: Sequence[Location]) -> StreamState | None:
    """Return the state in the four files; None if there is none, or one is damaged.

    Of the tables it has ids and versions: 0.3 hashed the paths of their files, which an upgrade changes.
    """
    try:
        record, epochs, versions, plan = (json.loads(file.find_text() or "{}") for file in files)
        read = epochs["partitions"] if epochs.get("topic_id") == record["topic_id"] else {}
        return _FORM.validate_python(
            {
                **{("rows" if name == "groups" else name): value for name, value in record.items()},
                "ends": {partition: one["end"] for partition, one in read.items()},
                "epochs": {partition: one["epochs"] for partition, one in read.items()},
                "plan": plan or None,
                "tables": {name: (one["id"], (one["version"],)) for name, one in versions.items()},
            }
        )
    except _DAMAGED:
        return None
