"""Writes one Delta table.

Theory of operation
-------------------
A write starts from the newest version of the table (see `kept_table`): if the table was deleted meanwhile, a commit
would only leave the remains of a log. Each write is one commit, which succeeds as a whole or not at all; in a store it
is a conditional put. If another process has changed the same rows, Delta rejects the commit, and the write is repeated
on the new version. Within this process a table has one writer at a time: both streams write some of the tables.

Each commit leaves files that readers of older versions need until the table's retention is over. Tombstones in the log
say which files were replaced, and when. But a checkpoint omits tombstones that are older than the retention. So the
files that these name are removed before each checkpoint, and by `maintain`. No tombstone names some other files, such
as those of a rejected commit. One of the clusters that share the table finds them once an hour by listing its files. A
file younger than a day stays: it may belong to a batch that is paused and will commit it later. A commit itself does
not look for log entries to remove, since it would have to list the whole log.

If the job has a `Fence`, each commit carries its term, and fails once a later job has claimed the table.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from threading import Lock
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from streaming_app.tables.fence import HOOKS, Fence, HasTransactions
from streaming_app.tables.kept_table import newest_table, table_to_write
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.reader import query_table, quote, time_literal


class Commit(TypedDict):
    """The keyword arguments of delta-rs for one commit."""

    commit_properties: CommitProperties
    post_commithook_properties: PostCommitHookProperties


Write = Callable[[DeltaTable, Commit], object]
"""Makes one commit to a table with these arguments."""

_ATTEMPTS = 12  # jobs for other clusters also cause conflicts
_PAUSE_SECONDS = 0.05, 0.5
_MAINTAINED_AFTER = 100  # commits; each leaves one or two files
_MAINTAINED_SECONDS = 1_800.0  # or after this time, which is the retention of some tables
_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)
_COMMITS_PER_CHECKPOINT = 50
_LISTED = "streams-groups-listed-files"  # the transaction of this application is the hour of the last listing
_HOUR_SECONDS = 3600
_UNNAMED_HOURS = 24  # the age at which a file that no version names is removed


class Batch(NamedTuple):
    """Identifies a batch to Delta, which keeps it in the log together with the rows."""

    writers: Sequence[str]
    """The first writer is asked whether it has written the batch; the commit notes the batch for all of them."""
    number: int
    """The number of the batch; the numbers of a writer only grow."""

    @property
    def transactions(self) -> list[Transaction]:
        """The transactions that the commit of the batch carries."""
        return [Transaction(one, self.number) for one in self.writers]

    def is_in(self, table: HasTransactions) -> bool:
        """Return whether the table has the batch."""
        written = table.transaction_version(self.writers[0])
        return written is not None and written >= self.number


class RustTable:
    """The rows of one cluster in a table.

    Methods that write raise OSError, in one line, if the table cannot be written, and OtherOwnerError once a later job
    has claimed it.
    """

    def __init__(
        self,
        location: Location,
        cluster: str,
        fence: Fence | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the table; `fence` is the job's, None outside a job."""
        self.location, self.cluster = location, cluster
        self.own_rows = f"cluster = {quote(cluster)}"
        """SQL condition for the rows of the cluster."""
        self._fence, self._clock, self._wall_clock = fence, clock, wall_clock
        self._commits = 0
        self._maintained_at: float | None = None

    def open(self) -> DeltaTable:
        """Return the newest version of the table, for reading. Raises delta-rs' errors."""
        return newest_table(self.location)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table, which new rows must have."""
        with self._errors():
            return pa.schema(self.open().schema().to_arrow())

    def to_table(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Return rows in the schema of the table, with its cluster; missing columns become null."""
        return pa.Table.from_pylist([{"cluster": self.cluster, **row} for row in rows], self.schema())

    def holds(self, batch: Batch) -> bool:
        """Return whether the table has a batch. Raises OtherOwnerError once a later job has claimed the table."""
        with self._errors():
            table = self.open()
            if self._fence:
                self._fence.check(table)
            return batch.is_in(table)

    def append(self, rows: pa.Table, batch: Batch | None = None) -> int:
        """Append rows, exactly once if `batch` is given; return the version of the table."""

        def write(target: DeltaTable, commit: Commit) -> None:
            write_deltalake(target, rows, mode="append", **commit)

        return self.change(write, batch)

    def append_files(self, files: Sequence[AddAction], batch: Batch | None = None) -> int:
        """Append the rows of existing files, exactly once if `batch` is given; return the version of the table."""

        def write(target: DeltaTable, commit: Commit) -> None:
            partitions = target.metadata().partition_columns
            target.create_write_transaction(list(files), "append", target.schema(), partitions, **commit)
            target.update_incremental()

        return self.change(write, batch)

    def replace(self, rows: pa.Table, condition: str | None = None) -> int:
        """Replace the rows of the cluster that match, by default all, by `rows`; return the version of the table."""
        if not rows.num_rows:
            return self.delete(condition)
        where = self._own(condition)
        return self.change(
            lambda target, commit: write_deltalake(target, rows, mode="overwrite", predicate=where, **commit)
        )

    def delete(self, condition: str | None = None) -> int:
        """Delete the rows of the cluster that match, by default all; return the version of the table."""
        where = self._own(condition)
        return self.change(lambda target, commit: target.delete(where, **commit))

    def update(self, values: Mapping[str, str], condition: str) -> None:
        """Set columns to values in SQL, in the rows of the cluster that match."""
        where = self._own(condition)
        if self.select("count(*)", condition).column(0)[0].as_py():
            self.change(lambda target, commit: target.update(updates=dict(values), predicate=where, **commit))

    def select(self, columns: str, condition: str | None = None, rest: str = "") -> pa.Table:
        """Return columns, in SQL, of the rows of the cluster that match; `rest` is appended to the query."""
        query = f"SELECT {columns} FROM t WHERE {self._own(condition)} {rest}"  # noqa: S608 - the callers quote
        with self._errors("read"):
            return query_table(self.location, query)

    def delete_rows(self, rows: pa.Table, key: Sequence[str]) -> int:
        """Delete the rows of the table that have the key of one of `rows` (null equals null); return the version."""
        same = " AND ".join(f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in key)

        def write(target: DeltaTable, commit: Commit) -> None:
            merge = target.merge(rows.select(key), same, source_alias="s", target_alias="t", **commit)
            merge.when_matched_delete().execute()

        return self.change(write)

    def merge(self, rows: pa.Table, key: Iterable[str], removed: str | None = None) -> int:
        """Insert or update rows of the cluster by their key; return the version of the table.

        Rows that match `removed`, a condition on the new row `s`, are deleted instead.
        """
        of_key = (f't."{name}" = s."{name}"' for name in ("cluster", *key))
        same = " AND ".join([f"t.cluster = {quote(self.cluster)}", *of_key])

        def write(target: DeltaTable, commit: Commit) -> None:
            merge = target.merge(rows, same, "s", "t", **commit)
            if removed:
                merge = merge.when_matched_delete(removed)
            merge.when_matched_update_all().when_not_matched_insert_all(removed and f"NOT ({removed})").execute()

        return self.change(write)

    def change(self, write: Write, batch: Batch | None = None) -> int:
        """Call `write` with the table, again after a conflict; return the version that the table then has.

        It is not called for a batch that the table already has.
        """
        self._commits += 1
        with self._errors(), _LOCKS[str(self.location)]:
            version = self._attempt(write, batch)
            if version % _COMMITS_PER_CHECKPOINT == 0:
                with suppress(DeltaError, OSError):  # the rows are written; `maintain` reports the error
                    self._checkpoint()
            return version

    def maintain(self, expired: str | None = None) -> None:
        """If it is due: delete the rows that match, compact the files, and remove files that no reader needs.

        It is due after a start, after a hundred commits, and after half an hour.
        """
        if not self._is_due():
            return
        self._maintained_at, self._commits = self._clock(), 0
        with self._errors(), _LOCKS[str(self.location)]:
            if expired:
                self._attempt(lambda target, commit: target.delete(self._own(expired), **commit))
            with suppress(CommitFailedError):  # jobs of other clusters write all the time; the next call tries again
                self._attempt(self._compacted())
            self._checkpoint()
            self._remove_unnamed_files()
            self._clean_up_log()

    def compact(self, file_bytes: int) -> None:
        """Compact the files of the cluster that are smaller than `file_bytes`."""
        self.change(self._compacted(file_bytes))

    def _compacted(self, file_bytes: int | None = None) -> Write:
        own = [("cluster", "=", self.cluster)]
        return lambda target, commit: target.optimize.compact(partition_filters=own, target_size=file_bytes, **commit)

    def clean_up_log(self) -> None:
        """Remove the log entries of versions that are older than the table's log retention."""
        with self._errors(), _LOCKS[str(self.location)]:
            self._clean_up_log()

    def _clean_up_log(self) -> None:
        with table_to_write(self.location) as kept:
            kept.table.cleanup_metadata()

    def vacuum(self) -> None:
        """Remove data files that are older than the table's retention and that no newer version needs."""
        with self._errors(), _LOCKS[str(self.location)]:
            self._checkpoint()
            self._remove_unnamed_files()

    def _checkpoint(self) -> None:
        """Make a checkpoint. Before, remove the files whose tombstones it omits."""
        with table_to_write(self.location) as kept:
            kept.table.vacuum(dry_run=False)
            kept.table.create_checkpoint()

    def _remove_unnamed_files(self) -> None:
        """Remove files older than a day that the log does not name, unless that was done in this hour."""
        hour = int(self._wall_clock() // _HOUR_SECONDS)
        with table_to_write(self.location) as kept:
            if kept.transaction_version(_LISTED) == hour:  # not >=: another machine's clock may have been ahead
                return
        note = Batch([_LISTED], hour)
        self._attempt(lambda target, _: self._note(target, note))
        with table_to_write(self.location) as kept:
            try:
                kept.table.vacuum(dry_run=False, full=True, retention_hours=_UNNAMED_HOURS)
            except DeltaError:  # for example for a table that keeps its versions for more than a day
                kept.table.vacuum(dry_run=False, full=True)

    def _note(self, target: DeltaTable, batch: Batch) -> None:
        """Make a commit without rows that only carries the transactions of `batch`."""
        none = pa.schema(target.schema().to_arrow()).empty_table()
        write_deltalake(target, none, mode="append", **self._commit(batch))

    def _is_due(self) -> bool:
        if self._maintained_at is None or self._commits >= _MAINTAINED_AFTER:
            return True
        return not 0 <= self._clock() - self._maintained_at < _MAINTAINED_SECONDS

    def _own(self, condition: str | None) -> str:
        return f"{self.own_rows} AND ({condition})" if condition else self.own_rows

    def _attempt(self, write: Write, batch: Batch | None = None) -> int:
        def once() -> int:
            with table_to_write(self.location) as kept:
                if self._fence:
                    self._fence.check(kept)
                if batch is None or not batch.is_in(kept):
                    write(kept.table, self._commit(batch))
                return kept.table.version()

        again = retry_if_exception_type(CommitFailedError)
        wait = wait_random(*_PAUSE_SECONDS)
        return Retrying(retry=again, stop=stop_after_attempt(_ATTEMPTS), wait=wait, reraise=True)(once)

    def _commit(self, batch: Batch | None) -> Commit:
        own = [self._fence.transaction()] if self._fence else []
        properties = CommitProperties(app_transactions=[*own, *(batch.transactions if batch else ())])
        return {"commit_properties": properties, "post_commithook_properties": HOOKS}

    @contextmanager
    def _errors(self, verb: str = "write") -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise OSError(f"Cannot {verb} the table {self.location.name}: {describe_error(error)}") from None


def older_than(column: str, days: float) -> str:
    """Return the SQL condition that the time in a column is more than `days` ago."""
    return f"{column} < {time_literal(datetime.now(timezone.utc) - timedelta(days=days))}"
