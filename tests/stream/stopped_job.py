"""A warehouse whose job has ended, written without Spark, and what happens to it before the next start."""

import itertools
import json
import shutil
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from streaming_app.groups.group import READ_AGAIN
from streaming_app.kafka.offsets_topic import OffsetsTopic
from streaming_app.stream.log_positions import Cut
from streaming_app.stream.slices import WHOLE
from streaming_app.stream.start import QueryTables, StartPosition, prepare_start
from streaming_app.stream.stream_state import StateFile, StreamState
from streaming_app.stream.table_versions import TableVersions, batch_writers
from streaming_app.tables.checkpoint_offsets import checkpoint_location, commits_checkpoint_location
from streaming_app.tables.newest_tables import COMMITS, NAMES, NewestTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import BatchId
from streaming_app.tables.writer import TableWriter
from tests.support.rows import group_row
from tests.support.warehouses import copy_warehouse

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
TOPIC = OffsetsTopic("offsets", "first-id", "kafka", {0: 40}, delete_retention_ms=24 * 3_600_000)
PER_BATCH = 10
"""Offsets; the last one is of a record that cannot be decoded, the one before it of an event."""
CUT = Cut("offsets", 0, 15, 30, 7, 9, AT.isoformat())


class Stopped:
    """A warehouse whose job has written three batches, and has ended."""

    def __init__(self, directory: Path) -> None:
        """Take the tables in `directory`; next to it are a copy made after the second batch, and empty tables."""
        self.directory, self.older, self._queries = directory, directory.with_name("older"), itertools.count()
        self.created = directory.with_name("created")
        self.writer = TableWriter(Mock(), directory, "default")  # where a job starts is decided without its session
        self.checkpoint = checkpoint_location(self.writer.location, "default")

    def write_batches(self) -> None:
        assert self.start().message == "reading from the beginning"
        for number in range(2):
            self.write_batch(number)
        copy_warehouse(self.directory, self.older)
        self.write_batch(2)

    def start(
        self, topic: OffsetsTopic = TOPIC, *, reset: bool = False, away: timedelta | None = HOUR, **named: Any
    ) -> StartPosition:
        state = named.pop("state", None) or self.state()
        return prepare_start(self.writer, self.checkpoint, state, topic, reset=reset, away=away, **named)

    def state(self) -> StateFile:
        return StateFile(self.checkpoint).read()

    def begin_batch(self, number: int) -> int:
        """Write what Spark writes first; return the offset after the last one of the batch."""
        end = PER_BATCH * (number + 1)
        (self.checkpoint / "offsets").path.mkdir(parents=True, exist_ok=True)
        if not (metadata := (self.checkpoint / "metadata").path).exists():
            metadata.write_text(json.dumps({"id": f"{self.directory}-{next(self._queries)}"}), "utf-8")
        ends = json.dumps({"offsets": {"0": end}})
        (self.checkpoint / "offsets" / str(number)).path.write_text(f"v1\n{{}}\n{ends}\n", "utf-8")
        return end

    def write_batch(self, number: int) -> None:
        """As a job writes a batch."""
        end = self.begin_batch(number)
        row = group_row("g", group_epoch=number + 2, last_offset=end - 2, cluster=self.writer.cluster)
        event = {"group_id": "g", "kind": "state", "at": AT, "source_partition": 0, "offset": end - 2}
        kept = {"partition": 0, "offset": end - 1, "timestamp": AT, "error_kind": "Unknown"}
        groups = self.writer.table("groups")
        groups.replace(groups.to_table([row]))
        query = json.loads((self.checkpoint / "metadata").path.read_text("utf-8"))["id"]
        appended, _ = batch_writers(self.writer.cluster, query)
        for name, of_history in (("group_events", event), ("quarantine", kept)):
            table = self.writer.table(name)
            table.append(table.to_table([of_history]), BatchId([f"{appended}-{name}"], WHOLE[0].version(number)))
        TableVersions(self.writer, self.checkpoint, self.state()).write()
        (self.checkpoint / "commits").path.mkdir(exist_ok=True)
        (self.checkpoint / "commits" / str(number)).path.write_text("v1\n{}\n", "utf-8")

    def append_event(self, offset: int) -> None:
        table = self.writer.table("group_events")
        event = {"group_id": "g", "kind": "state", "at": AT + HOUR, "source_partition": 0, "offset": offset}
        table.append(table.to_table([event]))

    def epochs(self, where: str = f"last_offset > {READ_AGAIN}") -> list[int]:
        """The epochs of the group's row, if there is one that counts."""
        rows = WarehouseReader(self.directory).rows(f"SELECT group_epoch FROM groups WHERE {where}")
        return [row["group_epoch"] for row in rows]

    def copies(self) -> list[Path]:
        """The copies of the state, the newer one first."""
        found = [Path(f"{self.checkpoint}.state{number}.json") for number in (0, 1)]
        return sorted(found, key=lambda one: json.loads(one.read_text("utf-8"))["number"], reverse=True)

    def known(self) -> StreamState:
        return self.state().state


class Commits:
    """The second stream of a stopped job, with a committed batch up to offset 30."""

    def __init__(self, stopped: Stopped) -> None:
        self.stopped, self.state = stopped, stopped.state()
        stopped.checkpoint = commits_checkpoint_location(stopped.writer.location, "default")
        self.state = stopped.state()
        newest = NewestTables(stopped.writer, "default", 30)
        versions = TableVersions(stopped.writer, stopped.checkpoint, self.state, NAMES)
        own_rows = {"group_events": "kind = 'group_type'", "quarantine": "true"}
        self.tables = QueryTables(stopped.writer, NAMES, newest.mark, versions, own_rows)
        self.start()
        for kind in ("offsets", "commits"):
            stopped.begin_batch(0)
            (stopped.checkpoint / kind).path.mkdir(exist_ok=True)
            (stopped.checkpoint / kind / "0").path.write_text('v1\n{}\n{"offsets": {"0": 30}}\n', "utf-8")

    def start(self, topic: OffsetsTopic = TOPIC, **named: Any) -> StartPosition:
        return self.stopped.start(topic, tables=self.tables, state=self.state, **named)

    def append(self, **commits: int) -> None:
        """Append commits of groups, by the offset of the record; each commits the same number."""
        table = self.stopped.writer.table(COMMITS)
        same = {"topic": "in", "partition": 0, "source_partition": 0}
        rows = [{"group_id": name, "last_offset": n, "committed_offset": n, **same} for name, n in commits.items()]
        table.append(table.to_table(rows))

    def seen(self) -> dict[str, int]:
        """What users see: the committed offset of each group."""
        rows = WarehouseReader(self.stopped.directory).rows("SELECT group_id, committed_offset FROM offsets")
        assert len({row["group_id"] for row in rows}) == len(rows)
        return {row["group_id"]: row["committed_offset"] for row in rows}


def replace_tables(stopped: Stopped, source: Path, names: Iterable[str]) -> None:
    for name in names:
        shutil.rmtree(stopped.directory / name)
        shutil.copytree(source / name, stopped.directory / name)


def lose(stopped: Stopped, *names: str) -> None:
    """Delete tables, which the start of the job creates again."""
    replace_tables(stopped, stopped.created, names)


def remove(stopped: Stopped, *names: str) -> None:
    """Delete what is next to the tables."""
    for name in names:
        path = Path(f"{stopped.checkpoint}{name}")
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def forget_last_batch(stopped: Stopped) -> None:
    """Let the checkpoint be one that was copied after the second batch."""
    for kind in ("offsets", "commits"):
        (stopped.checkpoint / kind / "2").path.unlink()


def empty(stopped: Stopped, kind: str) -> None:
    """As a power cut leaves the newest file: its length is written, or not even that."""
    (stopped.checkpoint / kind / "2").path.write_bytes(b"")
