"""Maintains every table: removes expired rows, old versions and the files that no version names; merges small files.

Theory of operation
-------------------
Each commit leaves files that readers of older versions need until the table's retention is over. Tombstones in the log
say which files were replaced, and when. But a checkpoint omits tombstones that are older than the retention. So the
files that these name are removed before each checkpoint. What no tombstone names, such as the files of a commit
that was rejected, is found by listing the table: once an hour, by one of the clusters that share it. A file that is
younger than a day may be that of a batch that is paused and commits it later, so it stays. A commit itself does not
look for log entries to remove, for which it would list the whole log. The log also says in which hour the rows of a
cluster were last maintained: a job that runs at intervals (`--once`) does it once an hour, and deletes expired rows
daily.

One service of the job does all this in a thread of its own, and nobody waits for it (see `table_files`): a store that
answers late delays no batch and no alert. Each of its writes is whole, so it may end at any point.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from streaming_app.report import Report
from streaming_app.tables.definitions import table, tables
from streaming_app.tables.expiry import delete_expired
from streaming_app.tables.kept_table import ConflictError
from streaming_app.tables.newest_tables import NAMES, NewestTables
from streaming_app.tables.object_store import REQUESTS
from streaming_app.tables.rust_table import CommitOptions, RustTable
from streaming_app.tables.table_files import MAINTAINED_AFTER, TableFiles
from streaming_app.tables.writer import TableWriter
from streaming_app.threads import in_parallel

_MAINTAINED_SECONDS = 1_800.0  # or after this time, which is the retention of some tables
_IDLE_SECONDS = 86_400.0
_SLOW_SECONDS = 0.5
"""If a store takes longer for two small files, no files are merged: a commit that a writer makes meanwhile would be
rejected, and be made again, which takes as long again."""
_COMMITS_PER_CHECKPOINT = 50
_LISTED = "streams-groups-listed-files"  # the transaction of this application is the hour of the last listing
_MAINTAINED = "streams-groups-maintained"  # that of a cluster has the hour in which its rows were last maintained
_HOUR_SECONDS, _HOURS = 3600, 24  # of a day
_MIN_FILE_BYTES = 32 << 20  # files of this size or larger stay as they are: a compaction never takes longer than that
_UNNAMED_HOURS = 24  # the age at which a file that no version names is removed

Compact = Callable[[TableFiles], object]


class MaintainedTable:
    """The rows of one cluster in a table. Methods that write raise as those of `RustTable`."""

    def __init__(  # noqa: PLR0913 - the clocks are for tests
        self,
        own: RustTable,
        days: float = 0.0,
        groups: RustTable | None = None,
        compact: Compact | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the table; its rows expire after so many days, if they do. `groups` has the groups that exist.

        `compact` is instead of merging small files.
        """
        self.own, self._days, self._groups, self._compact = own, days, groups, compact or self.merge_files
        self._clock, self._wall_clock = clock, wall_clock
        self._maintained = f"{_MAINTAINED}-{own.cluster}"
        self._maintained_at: float | None = None
        self._known, self._checkpoint = own.uses.commits, own.uses.version

    @property
    def has_grown(self) -> bool:
        """Whether there were a hundred commits since it was maintained."""
        return self.own.uses.commits - self._known >= MAINTAINED_AFTER

    def is_due(self) -> bool:
        """Return whether the table is to be maintained: after a hundred commits, or half an hour if there was any.

        Without commits it is once a day, since rows expire; after a start, if that was not done in this hour.
        """
        if self._maintained_at is None:
            with suppress(DeltaError, OSError):  # which `maintain` raises, too
                if self.own.open().transaction_version(self._maintained) == self._hour():
                    self._maintained_at = self._clock()
        if self._maintained_at is None or self.has_grown:
            return True
        is_idle = self.own.uses.commits == self._known
        return not 0 <= self._clock() - self._maintained_at < (_IDLE_SECONDS if is_idle else _MAINTAINED_SECONDS)

    def maintain_if(self, is_due: bool) -> int:  # noqa: FBT001 - the answer of `is_due`
        """Maintain the table if that is due, or only make a checkpoint if that is; return how many rows were deleted.

        After a failure it is not due, as after a success.
        """
        if is_due:
            return self.maintain()
        if self._checkpoint == 0:
            self._checkpoint = self.own.uses.version
        elif self.own.uses.version - self._checkpoint >= _COMMITS_PER_CHECKPOINT:
            self._checkpoint = self.own.uses.version
            with self.own.errors():
                _make_checkpoint(TableFiles(self.own))
        return 0

    def maintain(self) -> int:
        """Delete expired rows, once a day, remove files that no reader needs, and compact the others.

        Returns how many rows were deleted.
        """
        has_grown, deleted = self.has_grown, 0
        self._maintained_at, self._known, self._checkpoint = self._clock(), self.own.uses.commits, self.own.uses.version
        with self.own.errors():
            current = TableFiles(self.own, has_grown=has_grown)
            asked_at = self._clock()
            current.update()
            is_slow = self._clock() - asked_at > _SLOW_SECONDS
            noted, hour = current.kept.transaction_version(self._maintained), self._hour()
            _make_checkpoint(current)
            if noted != hour:
                self._note(current, hour)
            current.table.cleanup_metadata()
            if table(self.own.location.name).expires_by and (noted is None or noted // _HOURS != hour // _HOURS):
                deleted = delete_expired(self.own, current, self._groups, self._days)
            if not is_slow:
                self._compact(current)
        return deleted

    def merge_files(self, current: TableFiles) -> None:
        """Merge the small files of the cluster."""
        own = [("cluster", "=", self.own.cluster)]

        def write(target: DeltaTable, commit: CommitOptions) -> None:
            target.optimize.compact(partition_filters=own, target_size=_MIN_FILE_BYTES, **commit)

        # Rows of any cluster are deleted all the time: what other commits prevent, the next compaction does.
        with suppress(ConflictError):
            current.change(write, ())

    def _hour(self) -> int:
        return int(self._wall_clock()) // _HOUR_SECONDS

    def _note(self, current: TableFiles, hour: int) -> None:
        """Let the log say that the rows were maintained, and list all files, unless that was done in this hour.

        Removes those, a day old, that the log does not name.
        """
        # Not >=: the clock of another machine may be ahead.
        is_listed = current.kept.transaction_version(_LISTED) == hour
        noted = [Transaction(one, hour) for one in (self._maintained, *(() if is_listed else (_LISTED,)))]

        def write(target: DeltaTable, commit: CommitOptions) -> None:
            none = pa.schema(target.schema().to_arrow()).empty_table()
            write_deltalake(target, none, mode="append", **commit)

        current.change(write, noted)
        if is_listed:
            return
        try:
            current.table.vacuum(dry_run=False, full=True, retention_hours=_UNNAMED_HOURS)
        except DeltaError:  # for example for a table that keeps its versions for more than a day
            current.table.vacuum(dry_run=False, full=True)


def maintained_tables(writer: TableWriter, retention_days: float, history_days: float) -> list[MaintainedTable]:
    """Return all tables; `groups` comes first, since the history of a group expires with its row.

    Rows expire after `retention_days`, those of the history of lag after `history_days`.
    """
    newest, groups = NewestTables(writer, writer.cluster, retention_days), writer.table("groups")
    compact: dict[str, Compact] = {name: partial(newest.compact, name) for name in NAMES}
    compact["groups"], days = writer.groups.compact, {"lag_history": history_days}
    names = [one.name for one in tables()]
    return [
        MaintainedTable(writer.table(name), days.get(name, retention_days), groups, compact.get(name)) for name in names
    ]


def _make_checkpoint(current: TableFiles) -> None:
    """Make a checkpoint. Before, remove the files whose tombstones it omits."""
    current.table.vacuum(dry_run=False)
    current.table.create_checkpoint()


def maintain_all(found: Sequence[MaintainedTable], is_stopping: Callable[[], bool], report: Report) -> None:
    """Do what is due for these tables, one after the other; nothing begins while `is_stopping`.

    A failure keeps no other table from its maintenance, and is raised after that.
    """
    failure: Exception | None = None
    due = in_parallel(MaintainedTable.is_due, found, REQUESTS)  # after a start it takes some requests
    for one, is_due in zip(found, due, strict=True):
        if is_stopping():
            return
        try:
            if deleted := one.maintain_if(is_due):
                report(f"maintenance: {deleted:,} expired rows of {one.own.location.name} deleted")
        except Exception as error:  # noqa: BLE001 - Delta and stores raise many kinds
            failure = failure or error
    if failure:
        raise failure
