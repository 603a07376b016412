"""A warehouse with the commits of a real broker's log, without Spark, and lag passes over it."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from streaming_app.job.lag_pass import LagPass, PassResult
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.lag.model import LagRow, ReadUntil
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import GroupWork
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.newest_records import COMMIT, to_rows
from streaming_app.tables.lag_tables import LagTables
from tests.support.offsets_log import TOPIC, RawRecord
from tests.support.warehouses import make_warehouse, replace_rows

CLUSTER = "default"


class LagCluster:
    """Reads the log of one broker into the tables, and makes lag passes at times that a test chooses."""

    def __init__(
        self, path: Path, client: StreamsGroupClient, read: Callable[..., list[RawRecord]], server: str
    ) -> None:
        self.path = make_warehouse(path)
        self.client, self._read, self._server = client, read, server
        self.now = datetime.now(timezone.utc).timestamp()
        self.store = LagTables(self.path, CLUSTER)
        self.restart()

    def restart(self) -> None:
        """Start again from the tables."""
        self.passes = LagPass(self.store, LagTracker(), lambda: self.now, lambda: ReadUntil(self.now, self.now))
        self.passes.restore(self.store)

    def time(self) -> datetime:
        """Return `now` as a datetime."""
        return datetime.fromtimestamp(self.now, timezone.utc)

    def read_log(self, *group_ids: str) -> None:
        """Replace the commits in the tables by the commits in the log."""
        records = [
            {**raw._asdict(), "timestamp": 1_000 * raw.timestamp_ms}
            for group_id in group_ids
            for raw in self._read(self._server, group_id)
            if raw.record_type == COMMIT
        ]
        self.replace("offset_commits", to_rows(records, FoldOptions(CLUSTER, TOPIC)).offset_commits)

    def replace(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace the rows of a table; missing columns are null."""
        replace_rows(self.path, name, *rows)

    def run(self, seconds: float = 30.0) -> PassResult:
        """Make a pass `seconds` later, with the log as it is then."""
        self.now += seconds
        return self.passes.run(self.client)

    def rows(self, group_id: str, seconds: float = 30.0) -> dict[tuple[str, int], LagRow]:
        """Make a pass, and return the rows of one group."""
        return {(row.topic, row.partition): row for row in self.run(seconds).rows if row.group_id == group_id}

    def passes_with_work(self, group_id: str, count: int) -> list[tuple[list[LagRow], GroupWork]]:
        """Make so many passes; return the rows and the work of one group after each."""
        found = []
        for _ in range(count):
            result = self.run()
            found.append(([row for row in result.rows if row.group_id == group_id], result.work[group_id]))
        return found
