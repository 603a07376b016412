"""A warehouse that holds the commits of a real broker's log, without Spark, and passes over its lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from offsets_decoder import decode
from streaming_app.config.sections import LagSettings
from streaming_app.job.lag_pass import LagPass, PassResult
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.lag.model import LagRow, ReadUntil
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import GroupWork
from streaming_app.tables.lag_tables import LagTables
from tests.support.offsets_log import RawRecord
from tests.support.warehouses import make_warehouse, replace_rows

CLUSTER = "default"
_COMMIT = 1


class LagCluster:
    """Reads the log of one broker into the tables, and does passes at times that a test chooses."""

    def __init__(
        self, path: Path, client: StreamsGroupClient, read: Callable[..., list[RawRecord]], server: str
    ) -> None:
        self.path = make_warehouse(path)
        self.client, self._read, self._server = client, read, server
        self.now = datetime.now(timezone.utc).timestamp()
        self.store = LagTables(self.path, CLUSTER)
        self.commits_read_at: float | None = None
        """When the stream of commits was last at the end of the topic; None: now."""
        self.restart()

    def restart(self, settings: LagSettings | None = None) -> None:
        """Begin again with what is in the tables."""
        self.passes = LagPass(
            self.store, LagTracker((settings or LagSettings()).allowed_for), lambda: self.now, self.read_until
        )
        self.passes.restore()

    def read_until(self) -> ReadUntil:
        return ReadUntil(self.commits_read_at or self.now, self.now)

    def read_log(self, *group_ids: str) -> None:
        """Replace the commits in the tables by those in the log."""
        rows = [row for group_id in group_ids for row in map(_to_row, self._read(self._server, group_id)) if row]
        self.replace("offset_commits", rows)

    def replace(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace the rows of a table; columns that are not given are null."""
        replace_rows(self.path, name, *rows)

    def run(self, seconds: float = 30.0) -> PassResult:
        """Do a pass so many seconds later, with the log as it is then."""
        self.now += seconds
        return self.passes.run(self.client.admin)

    def rows(self, group_id: str, seconds: float = 30.0) -> dict[tuple[str, int], LagRow]:
        """Do a pass and return the rows of one group."""
        return {(row.topic, row.partition): row for row in self.run(seconds).rows if row.group_id == group_id}

    def passes_with_work(self, group_id: str, count: int) -> list[tuple[list[LagRow], GroupWork]]:
        """Do so many passes; return the rows and the work of one group after each."""
        found = []
        for _ in range(count):
            result = self.run()
            found.append(([row for row in result.rows if row.group_id == group_id], result.work[group_id]))
        return found


def _to_row(raw: RawRecord) -> dict[str, Any] | None:
    if raw.record_type != _COMMIT:
        return None
    record = decode(raw.key, raw.value)
    value = record.value or {}
    at = datetime.fromtimestamp(raw.timestamp_ms / 1000, timezone.utc)
    topic_id = value.get("topic_id")
    return {
        "group_id": record.key["group"],
        "topic": record.key["topic"],
        "partition": record.key["partition"],
        "topic_id": None if topic_id in {None, "AAAAAAAAAAAAAAAAAAAAAA"} else topic_id,
        "committed_offset": value.get("offset"),
        "committed_at": datetime.fromtimestamp(value["commit_timestamp"] / 1000, timezone.utc) if value else None,
        "recorded_at": at,
        "source_partition": raw.partition,
        "last_offset": raw.offset,
    }
