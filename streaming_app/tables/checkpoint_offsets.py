"""Reads from Spark's checkpoint which offsets of the topic the job has processed, without Spark.

Spark writes `offsets/N`, the end offsets of batch N, before the batch starts. It writes `commits/N` when the rows of
the batch are in the tables. So the newest batch that has both files is the newest processed one.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.errors import WarehouseError
from streaming_app.tables.location import Location, warehouse_errors

_VERSION = "v1"
_NO_OFFSETS = "-"  # Spark writes this for a source that has no offsets yet
_ATTEMPTS = 3  # Spark may delete the files of old batches between listing and reading


class CheckpointOffsets(NamedTuple):
    """The offsets in the tables: for each partition of `topic`, the first offset that is not processed yet."""

    topic: str
    offsets: Mapping[int, int]

    def offsets_behind(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Return how many offsets remain before these end offsets, by partition; partitions with none are missing."""
        remaining = {partition: end - self.offsets.get(partition, 0) for partition, end in ends.items()}
        return {partition: count for partition, count in remaining.items() if count > 0}


class BatchOffsets:
    """The offsets of the batches of one query. The checkpoint has them before a batch starts."""

    def __init__(self, checkpoint: Location) -> None:
        self._checkpoint = checkpoint
        self._last = -1  # the number of the last batch
        self.ends: Mapping[int, int] | None = {}
        """The end offsets of the last batch, by partition; None if they are not known."""

    def most_records(self, batch_id: int) -> int | None:
        """Return the number of offsets of the batch; None if not known. Compaction may have left fewer records."""
        starts = self.ends if self._last == batch_id - 1 else read_batch_ends(self._checkpoint, batch_id - 1)
        ends = read_batch_ends(self._checkpoint, batch_id)
        self._last, self.ends = batch_id, ends
        if starts is None or ends is None:
            return None
        counts = [end - starts.get(partition, 0) for partition, end in ends.items()]  # the log may start after 0
        return sum(counts) if min(counts, default=0) >= 0 else None


def checkpoint_location(warehouse: Location | Path, cluster: str) -> Location:
    """Return the location of Spark's checkpoint for the job that writes `cluster`."""
    return Location.of(warehouse) / "_checkpoints" / cluster


def commits_checkpoint_location(warehouse: Location | Path, cluster: str) -> Location:
    """Return the location of the checkpoint of the query that reads committed offsets."""
    return Location.of(warehouse) / "_checkpoints" / f"{cluster}~offsets"  # names of clusters have no tilde


def read_checkpoint_offsets(warehouse: Location | Path, cluster: str) -> CheckpointOffsets | None:
    """Return what the job that writes `cluster` has processed; None before its first batch is done.

    Raises WarehouseError when the checkpoint cannot be read, or was written in another format.
    """
    checkpoint = checkpoint_location(warehouse, cluster)
    for _ in range(_ATTEMPTS):
        with warehouse_errors("read", checkpoint):
            batch_id = newest_batch(checkpoint / "commits")
        if batch_id < 0:
            return None
        place = checkpoint / "offsets" / str(batch_id)
        try:
            with warehouse_errors("read", place), suppress(FileNotFoundError):
                return _parse(place.read_text())
        except (ValueError, AttributeError):
            raise WarehouseError(f"{place} is not a Spark offset log that this release can read") from None
    raise WarehouseError(f"{place} is missing: the checkpoint was modified by another program")


def read_batch_ends(checkpoint: Location, batch_id: int) -> Mapping[int, int] | None:
    """Return the end offset of each partition for a batch that has started; None if the checkpoint does not have it.

    Raises OSError if it cannot be read now: what is not known yet must not be taken for nothing.
    """
    try:
        begun = _parse((checkpoint / "offsets" / str(batch_id)).read_text())
    except (FileNotFoundError, ValueError, AttributeError):
        return None
    return begun and begun.offsets


def find_damage(checkpoint: Location) -> str | None:
    """Return what is damaged in the newest batch of a checkpoint; None if it is intact. Raises OSError."""
    offsets, commits = newest_batch(checkpoint / "offsets"), newest_batch(checkpoint / "commits")
    if commits > offsets:
        return f"offsets/{commits} is missing"
    for kind, newest in (("offsets", offsets), ("commits", commits)):
        file = checkpoint / kind / str(newest)
        try:
            with suppress(FileNotFoundError):  # there is none, or Spark has just removed it
                version, *rest = file.read_text().splitlines()
                if version != _VERSION or not rest:
                    raise ValueError  # noqa: TRY301 - handled like a line that is no JSON
                for line in rest:
                    json.loads("0" if line == _NO_OFFSETS else line)
        except ValueError:
            return f"{kind}/{newest} cannot be read"
    return None


class BatchEnds(NamedTuple):
    """End offsets by partition: of a checkpoint's newest committed batch, and of its newest started batch."""

    committed: Mapping[int, int] = MappingProxyType({})
    begun: Mapping[int, int] = MappingProxyType({})


def newest_batch_ends(checkpoint: Location) -> BatchEnds:
    """Return the end offsets of the newest batches of a checkpoint; empty if it has none. Raises OSError."""
    newest = (newest_batch(checkpoint / kind) for kind in ("commits", "offsets"))
    return BatchEnds(*(read_batch_ends(checkpoint, one) or {} for one in newest))


def newest_batch(directory: Location) -> int:
    """Return the newest batch number among the files in this directory of a checkpoint; -1 if none. Raises OSError."""
    return max((int(name) for name in directory.names() if name.isdecimal()), default=-1)


def _parse(text: str) -> CheckpointOffsets | None:
    """Parse an offset log. Lines: the version, the batch's settings, one per source (here: one source, one topic)."""
    version, _, source = text.splitlines()[:3]
    if version != _VERSION:
        raise ValueError(version)
    if source == _NO_OFFSETS:
        return None
    ((topic, offsets),) = json.loads(source).items()
    return CheckpointOffsets(topic, {int(partition): int(offset) for partition, offset in offsets.items()})
