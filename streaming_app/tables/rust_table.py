"""Writes one Delta table.

Theory of operation
-------------------
A write starts from the newest version of the table (see `kept_table`): if the table was deleted meanwhile, a commit
would only leave the remains of a log. Each write is one commit, which succeeds as a whole or not at all; in a store it
is a conditional put. If another process has changed the same rows, Delta rejects the commit, and the write is repeated
on the new version. Within this process a table has one writer at a time: both streams write some of the tables.

Each commit leaves files that readers of older versions need until the table's retention is over. Tombstones in the log
say which files were replaced, and when. But a checkpoint omits tombstones that are older than the retention. So the
files that these name are removed before each checkpoint. What no tombstone names, such as the files of a commit
that was rejected, is found by listing the table: once an hour, by one of the clusters that share it. A file that is
younger than a day may be that of a batch that is paused and commits it later, so it stays. A commit itself does not
look for log entries to remove, for which it would list the whole log. The log also says in which hour the rows of a
cluster were last maintained: a job that runs at intervals (`--once`) does it once an hour, and deletes expired rows
daily.

If the job has a `Fence`, each commit carries its term, and fails once a later job has claimed the table.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from streaming_app.tables.conflicts import ConflictError, conflicts, repeating
from streaming_app.tables.data_files import EncodedFile, write_file
from streaming_app.tables.fence import HOOKS, Fence, HasTransactions
from streaming_app.tables.group_files import file_paths
from streaming_app.tables.kept_table import KeptTable, newest_table, table_to_write
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS, describe_error
from streaming_app.tables.own_files import OwnFiles, are_set_back, changes_of, hash_of, own_files
from streaming_app.tables.reader import query_table, quote, time_literal
from streaming_app.threads import in_parallel


class Commit(TypedDict):
    """The keyword arguments of delta-rs for one commit."""

    commit_properties: CommitProperties
    post_commithook_properties: PostCommitHookProperties


Write = Callable[[DeltaTable, Commit], object]
"""Makes one commit to a table with these arguments."""

MAINTAINED_AFTER = 100
"""Commits, each of which leaves a file or two."""
_MAINTAINED_SECONDS = 1_800.0  # or after this time, which is the retention of some tables
_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)
_COMMITS_PER_CHECKPOINT = 50
_LISTED = "streams-groups-listed-files"  # the transaction of this application is the hour of the last listing
_MAINTAINED = "streams-groups-maintained"  # that of a cluster has the hour in which its rows were last maintained
_HOUR_SECONDS, _HOURS = 3600, 24  # of a day
_MIN_FILE_BYTES = 32 << 20  # files of this size or larger stay as they are: a compaction never takes longer than that
SORT_MEMORY = "256M"
"""Of a query that sorts rows of any number; what it sorts beyond that goes to temporary files."""
_UNNAMED_HOURS = 24  # the age at which a file that no version names is removed


class Batch(NamedTuple):
    """Identifies a batch to Delta, which keeps it in the log together with the rows."""

    writers: Sequence[str]
    """The first writer is asked whether it has written the batch; the commit notes the batch for all of them."""
    number: int
    """The number of the batch; the numbers of a writer only grow."""

    def of_table(self, name: str) -> Batch:
        """Return the batch as a table notes it: another table may have it, or not."""
        return self._replace(writers=[f"{writer}-{name}" for writer in self.writers])

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

    def __init__(  # noqa: PLR0913 - two are for tests
        self,
        location: Location,
        cluster: str,
        fence: Fence | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        *,
        is_checked: bool = False,
    ) -> None:
        """Take the table; `fence` is the job's, None outside a job.

        With `is_checked` no row is written to a table that was set back since the last commit (see `own_files`).
        """
        self.location, self.cluster = location, cluster
        self.own_rows = f"cluster = {quote(cluster)}"
        """SQL condition for the rows of the cluster."""
        self._fence, self._clock, self._wall_clock = fence, clock, wall_clock
        self._commits = 0
        self._schema: pa.Schema | None = None
        self._is_checked = is_checked
        self.files: dict[str, OwnFiles] = {}
        """By reader, the files of the cluster after the last write that followed from those which it noted."""
        self._maintained_at: float | None = None

    def open(self) -> DeltaTable:
        """Return the newest version of the table, for reading. Raises delta-rs' errors."""
        return newest_table(self.location)

    def forget(self) -> None:
        """Forget what is known of the table: this may be another one than before, or an older copy."""
        self._schema = None

    def table_id(self) -> str | None:
        """Return the id of the table, which differs after it was created again; None if there is no table."""
        try:
            return str(self.open().metadata().id)
        except TableNotFoundError:
            return None

    def open_files(self, reader: str) -> OwnFiles:
        """Return the files of the cluster as they are now, and note them for a reader. Raises delta-rs' errors."""
        with table_to_write(self.location) as kept:
            self.files[reader] = own_files(kept, self.cluster)
        return self.files[reader]

    def was_set_back(self, reader: str, known: OwnFiles) -> bool:
        """Return whether the table was set back since its files were `known`; else note the files for a reader.

        Raises OSError and delta-rs' errors.
        """
        self.files.pop(reader, None)
        with table_to_write(self.location) as kept:
            now = own_files(kept, self.cluster)
            if are_set_back(kept, self.cluster, known, now):
                return True
        self.files[reader] = now
        return False

    def is_set_back(self, reader: str) -> bool:
        """Return whether the table was set back since the reader noted its files; not known during a write.

        Raises as `was_set_back`.
        """
        lock, known = _LOCKS[str(self.location)], self.files.get(reader)
        if known is None or not lock.acquire(blocking=False):
            return False
        try:
            if hash_of(self.open(), self.cluster) == known.hash:
                return False
            kept = KeptTable(self.location)
            return are_set_back(kept, self.cluster, self.files[reader], own_files(kept, self.cluster))
        finally:
            lock.release()

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table, which its rows must have. It is read once."""
        if self._schema is None:
            with self._errors():
                self._schema = pa.schema(self.open().schema().to_arrow())
        return self._schema

    def to_table(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Return rows in the schema of the table, with its cluster; missing columns become null."""
        return pa.Table.from_pylist([{"cluster": self.cluster, **row} for row in rows], self.schema())

    def is_empty(self) -> bool:
        """Return whether the table has no row of the cluster. Raises delta-rs' errors."""
        return not file_paths(self.open(), self.cluster)

    def count_rows(self) -> int:
        """Return the number of rows, of all clusters; from the log, in milliseconds. Raises delta-rs' errors."""
        return int(pc.sum(pa.table(self.open().get_add_actions())["num_records"]).as_py() or 0)

    def append(self, rows: pa.Table | Sequence[EncodedFile], batch: Batch | None = None, weight: int = 1) -> int:
        """Append rows, or those of files, of a batch exactly once; return the version of the table."""
        if isinstance(rows, pa.Table):  # in a store this takes fewer requests than a file of our own
            return self.change(
                lambda target, commit: write_deltalake(target, rows, mode="append", **commit), batch, weight
            )
        added: list[AddAction] = []  # written once, however often the commit is tried

        def write(target: DeltaTable, commit: Commit) -> None:
            added.extend(self._write_files(rows) if not added else ())
            partitions = target.metadata().partition_columns
            target.create_write_transaction([*added], "append", target.schema(), partitions, **commit)
            target.update_incremental()

        return self.change(write, batch, weight)

    def _write_files(self, files: Iterable[EncodedFile]) -> list[AddAction]:
        """Write files, which have rows of the table once they are committed. Raises OSError."""
        return in_parallel(partial(write_file, self.location, self.cluster), files, REQUESTS)

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

    def change(self, write: Write, batch: Batch | None = None, weight: int = 1) -> int:
        """Call `write` with the table, again after a conflict; return the version that the table then has.

        It is not called for a batch that is noted as written. `weight` is for how many commits it counts.
        """
        self._commits += weight
        with self._errors(), _LOCKS[str(self.location)]:
            version = self._attempt(write, batch)
            if version % _COMMITS_PER_CHECKPOINT == 0:
                with suppress(DeltaError, OSError):  # the rows are written; `maintain` reports the error
                    self._checkpoint()
            return version

    @property
    def has_grown(self) -> bool:
        """Whether there were a hundred commits since it was maintained."""
        return self._commits >= MAINTAINED_AFTER

    def is_due(self) -> bool:
        """Return whether the table is to be maintained: after a hundred commits, and after half an hour.

        After a start it is if that was not done in this hour.
        """
        if self._maintained_at is None:
            with suppress(OSError):  # which `maintain` raises, too
                if self._noted_hour() == self._hour():
                    self._maintained_at = self._clock()
        if self._maintained_at is None or self.has_grown:
            return True
        return not 0 <= self._clock() - self._maintained_at < _MAINTAINED_SECONDS

    def maintain_if_due(self, expired: str | None = None) -> None:
        """Do what `maintain` does if it is due; after a failure it is not, as after a success."""
        if self.is_due():
            self.maintain(expired)

    def maintain(
        self,
        expired: str | None = None,
        *,
        find_kept: Callable[[str], pa.Table] | None = None,
        compact: Callable[[], object] | None = None,
    ) -> int:
        """Delete the rows that match, compact the files, and remove those that no reader needs.

        Rows are deleted once a day, but for those that `find_kept` returns of that condition; `compact` is instead of
        merging small files. Returns how many were deleted.
        """
        self._maintained_at, self._commits, deleted = self._clock(), 0, 0
        noted, hour = self._noted_hour(), self._hour()
        if expired and (noted is None or noted // _HOURS != hour // _HOURS):
            deleted = self.delete_expired(expired, find_kept)
        with self._errors(), _LOCKS[str(self.location)]:
            self._checkpoint()
            if noted != hour:
                self._note(hour)
            with table_to_write(self.location) as kept:
                kept.table.cleanup_metadata()
        (compact or self.compact)()
        return deleted

    def delete_expired(self, condition: str, find_kept: Callable[[str], pa.Table] | None = None) -> int:
        """Delete the rows that match, but for those that `find_kept` returns; return how many there were."""
        count = int(self.select("count(*)", condition).column(0)[0].as_py())
        kept: pa.Table = find_kept(condition) if count and find_kept else self.schema().empty_table()
        if count > kept.num_rows:
            self.replace(kept, condition)
        return count - int(kept.num_rows)

    def compact(self) -> None:
        """Merge the small files of the cluster."""
        own = [("cluster", "=", self.cluster)]

        def write(target: DeltaTable, commit: Commit) -> None:
            target.optimize.compact(partition_filters=own, target_size=_MIN_FILE_BYTES, **commit)

        # Rows of any cluster are deleted all the time: what other commits prevent, the next compaction does.
        with self._errors(), _LOCKS[str(self.location)], suppress(ConflictError):
            self._attempt(write)

    def _checkpoint(self) -> None:
        """Make a checkpoint. Before, remove the files whose tombstones it omits."""
        with table_to_write(self.location) as kept:
            kept.table.vacuum(dry_run=False)
            kept.table.create_checkpoint()

    def _hour(self) -> int:
        return int(self._wall_clock()) // _HOUR_SECONDS

    def _noted_hour(self) -> int | None:
        """Return the hour in which the rows of the cluster were last maintained, by the log."""
        with self._errors():
            return self.open().transaction_version(f"{_MAINTAINED}-{self.cluster}")

    def _note(self, hour: int) -> None:
        """Let the log say that the rows were maintained, and list all files, unless that was done in this hour.

        Removes those, a day old, that the log does not name.
        """
        with table_to_write(self.location) as kept:
            is_listed = kept.transaction_version(_LISTED) == hour  # not >=: the clock of another machine may be ahead
        note = Batch([f"{_MAINTAINED}-{self.cluster}", *([] if is_listed else [_LISTED])], hour)

        def write(target: DeltaTable, commit: Commit) -> None:
            none = pa.schema(target.schema().to_arrow()).empty_table()
            commit["commit_properties"].app_transactions = [
                *(commit["commit_properties"].app_transactions or ()),
                *note.transactions,
            ]
            write_deltalake(target, none, mode="append", **commit)

        self._attempt(write)
        if is_listed:
            return
        with table_to_write(self.location) as kept:
            try:
                kept.table.vacuum(dry_run=False, full=True, retention_hours=_UNNAMED_HOURS)
            except DeltaError:  # for example for a table that keeps its versions for more than a day
                kept.table.vacuum(dry_run=False, full=True)

    def _own(self, condition: str | None) -> str:
        return f"{self.own_rows} AND ({condition})" if condition else self.own_rows

    def _attempt(self, write: Write, batch: Batch | None = None) -> int:
        def once() -> int:
            with table_to_write(self.location) as kept:
                if self._fence:
                    self._fence.check(kept)
                files = self._checked_files(kept)
                if batch is None or not batch.is_in(kept):
                    with conflicts(kept):
                        write(kept.table, self._commit(batch, files))
                version = kept.table.version()
                if files and version > files.version:
                    new = own_files(kept, self.cluster, (files.changes or 0) + 1)
                    self.files.update((one, new) for one, known in [*self.files.items()] if known == files)
                return version

        return repeating(self._fence.stop if self._fence else None)(once)

    def _checked_files(self, kept: KeptTable) -> OwnFiles | None:
        """Return the files of the cluster, if the table is checked. Raises OSError if it was set back for all readers.

        A reader that has not noticed that yet keeps what it has noted, whatever others write.
        """
        if not self._is_checked:
            return None
        now, known = own_files(kept, self.cluster), [*self.files.items()]
        are_same = any(files[1:] == now[1:] for _, files in known)
        follow = [
            reader
            for reader, files in known
            if files[1:] == now[1:] or (not are_same and not are_set_back(kept, self.cluster, files, now))
        ]
        if known and not follow:
            raise OSError("it was restored to an earlier version")
        self.files.update(dict.fromkeys(follow, now))
        return now

    def _commit(self, batch: Batch | None, files: OwnFiles | None = None) -> Commit:
        own = [self._fence.transaction()] if self._fence else []
        if files:
            own.append(Transaction(changes_of(self.cluster), (files.changes or 0) + 1))
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
