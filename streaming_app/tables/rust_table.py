"""Writes one Delta table.

Theory of operation
-------------------
A write starts from the newest version of the table (see `kept_table`): if the table was deleted meanwhile, a commit
would only leave the remains of a log. Each write is one commit, which succeeds as a whole or not at all; in a store it
is a conditional put. If another process has changed the same rows, Delta rejects the commit, and the write is repeated
on the new version. Within this process a table has one writer at a time: both streams write some of the tables.

A write does no maintenance: see `maintenance`.

If the job has a `Fence`, each commit carries its term, and fails once a later job has claimed the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from streaming_app.tables.arrow import to_arrow
from streaming_app.tables.data_files import EncodedFile, write_file
from streaming_app.tables.fence import HOOKS, Fence
from streaming_app.tables.group_files import stored_files
from streaming_app.tables.kept_table import KNOWN_SECONDS, KeptTable, doubt, newest_table, repeating, table_to_write
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS, describe_error
from streaming_app.tables.own_files import OwnFiles, are_set_back, changes_of, hash_of, own_files
from streaming_app.tables.reader import quote
from streaming_app.threads import in_parallel


class CommitOptions(TypedDict):
    """The keyword arguments of delta-rs for one commit."""

    commit_properties: CommitProperties
    post_commithook_properties: PostCommitHookProperties


Write = Callable[[DeltaTable, CommitOptions], object]
"""Makes one commit to a table with these arguments."""
Opened = Callable[[Location], AbstractContextManager[KeptTable]]
"""Gives the newest version of a table to a writer."""

_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)


class BatchId(NamedTuple):
    """Identifies a batch to Delta, which keeps it in the log together with the rows."""

    writers: Sequence[str]
    """The first writer is asked whether it has written the batch; the commit notes the batch for all of them."""
    number: int
    """The number of the batch; the numbers of a writer only grow."""

    def of_table(self, name: str) -> BatchId:
        """Return the batch as a table notes it: another table may have it, or not."""
        return self._replace(writers=[f"{writer}-{name}" for writer in self.writers])

    def is_in(self, table: KeptTable) -> bool:
        """Return whether the table has the batch."""
        written = table.transaction_version(self.writers[0])
        return written is not None and written >= self.number


@dataclass
class Uses:
    """What this process has committed to a table, whichever object did."""

    commits: int = 0
    """By their weight: see `RustTable.change`."""
    version: int = 0
    """The table's version after the newest one."""


_USES: defaultdict[tuple[str, str], Uses] = defaultdict(Uses)
"""By table and cluster."""


class RustTable:
    """The rows of one cluster in a table.

    Methods that write raise OSError, in one line, if the table cannot be written, and OtherOwnerError once a later job
    has claimed it.
    """

    def __init__(
        self, location: Location, cluster: str, fence: Fence | None = None, *, is_checked: bool = False
    ) -> None:
        """Take the table; `fence` is the job's, None outside a job.

        With `is_checked` no row is written to a table that was set back since the last commit (see `own_files`).
        """
        self.location, self.cluster = location, cluster
        self.own_rows = f"cluster = {quote(cluster)}"
        self.uses = _USES[str(location), cluster]
        self._fence = fence
        self._schema: pa.Schema | None = None
        self._is_checked, self._noting = is_checked, Lock()
        self.files: dict[str, OwnFiles] = {}
        """By reader, the files of the cluster after the last commits that followed from those which it noted."""

    def open(self) -> DeltaTable:
        """Return the newest version of the table, for reading: in a job, as it was checked. Raises delta-rs' errors."""
        return newest_table(self.location, KNOWN_SECONDS if self._fence else 0.0)

    def forget(self) -> None:
        """Forget what is known of the table: this may be another one than before, or an older copy."""
        self._schema = None
        doubt(self.location)

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
        """Return whether the table was set back since the reader noted its files; else note them as they are now.

        It is not known during a write. Raises as `was_set_back`.
        """
        lock, known = _LOCKS[str(self.location)], self.files.get(reader)
        if known is None or not lock.acquire(blocking=False):
            return False
        try:
            if hash_of(self.open(), self.cluster) == known.hash:
                return False
            kept = KeptTable(self.location)
            now = own_files(kept, self.cluster)
            if are_set_back(kept, self.cluster, known, now):
                return True
            self._follow({reader: known}, now)
            return False
        finally:
            lock.release()

    def _follow(self, known: Mapping[str, OwnFiles], now: OwnFiles) -> None:
        """Note the files `now` for readers, but for one for which another thread has noted others than `known`."""
        with self._noting:
            self.files.update((reader, now) for reader, files in known.items() if self.files.get(reader) == files)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table, which its rows must have. It is read once."""
        if self._schema is None:
            with self.errors():
                self._schema = pa.schema(self.open().schema().to_arrow())
        return self._schema

    def to_table(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Return rows in the schema of the table, with its cluster; missing columns become null."""
        return pa.Table.from_pylist([{"cluster": self.cluster, **row} for row in rows], self.schema())

    def is_empty(self) -> bool:
        """Return whether the table has no row of the cluster. Raises delta-rs' errors."""
        return not stored_files(self.open(), self.cluster)

    def count_rows(self) -> int:
        """Return the number of rows, of all clusters; from the log, in milliseconds. Raises delta-rs' errors."""
        return int(pc.sum(pa.table(self.open().get_add_actions())["num_records"]).as_py() or 0)

    def append(self, rows: pa.Table | Sequence[EncodedFile], batch: BatchId | None = None, weight: int = 1) -> int:
        """Append rows, or those of files, of a batch exactly once; return the version of the table."""
        if isinstance(rows, pa.Table):  # in a store this takes fewer requests than a file of our own
            return self.change(
                lambda target, commit: write_deltalake(target, rows, mode="append", **commit), batch, weight
            )
        added: list[AddAction] = []  # written once, however often the commit is tried

        def write(target: DeltaTable, commit: CommitOptions) -> None:
            if not added:
                added.extend(in_parallel(partial(write_file, self.location, self.cluster), rows, REQUESTS))
            partitions = target.metadata().partition_columns
            target.create_write_transaction([*added], "append", target.schema(), partitions, **commit)
            target.update_incremental()

        return self.change(write, batch, weight)

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
        with self.errors("read"):
            return to_arrow(QueryBuilder().register("t", newest_table(self.location)).execute(query))

    def delete_rows(self, rows: pa.Table, key: Sequence[str]) -> int:
        """Delete the rows of the table that have the key of one of `rows` (null equals null); return the version."""
        same = " AND ".join(f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in key)

        def write(target: DeltaTable, commit: CommitOptions) -> None:
            merge = target.merge(rows.select(key), same, source_alias="s", target_alias="t", **commit)
            merge.when_matched_delete().execute()

        return self.change(write)

    def merge(self, rows: pa.Table, key: Iterable[str], removed: str | None = None) -> int:
        """Insert or update rows of the cluster by their key; return the version of the table.

        Rows that match `removed`, a condition on the new row `s`, are deleted instead.
        """
        of_key = (f't."{name}" = s."{name}"' for name in ("cluster", *key))
        same = " AND ".join([f"t.cluster = {quote(self.cluster)}", *of_key])

        def write(target: DeltaTable, commit: CommitOptions) -> None:
            merge = target.merge(rows, same, "s", "t", **commit)
            if removed:
                merge = merge.when_matched_delete(removed)
            merge.when_matched_update_all().when_not_matched_insert_all(removed and f"NOT ({removed})").execute()

        return self.change(write)

    def change(self, write: Write, batch: BatchId | None = None, weight: int = 1) -> int:
        """Call `write` with the table, again after a conflict; return the version that the table then has.

        It is not called for a batch that is noted as written. `weight` is for how many commits it counts.
        """
        self.uses.commits += weight
        with self.errors(), _LOCKS[str(self.location)]:
            self.uses.version = self._attempt(write, batch, table_to_write)
            return self.uses.version

    def change_apart(self, write: Write, opened: Opened, transactions: Sequence[Transaction] | None) -> None:
        """Change the table as `change` does, but no other writer waits for it: it has a handle of its own, `opened`.

        Of such a commit, and one that is made at the same time, the second one is rejected, and made again. That is not
        so if it changes no rows: then it carries `transactions` instead of the term of the job.
        """
        with self.errors():
            self._attempt(write, None, opened, transactions)
        doubt(self.location)

    def _own(self, condition: str | None) -> str:
        return f"{self.own_rows} AND ({condition})" if condition else self.own_rows

    def _attempt(
        self, write: Write, batch: BatchId | None, opened: Opened, transactions: Sequence[Transaction] | None = None
    ) -> int:
        def once() -> int:
            with opened(self.location) as kept:
                if self._fence:
                    self._fence.check(kept)
                files = self._checked_files(kept)
                if batch is None or not batch.is_in(kept):
                    with kept.conflicts():
                        write(kept.table, self._commit(batch, files) if transactions is None else _commit(transactions))
                if files:
                    self._note_commit(kept, files, counts=transactions is None)
                return kept.table.version()

        return repeating(self._fence.stop if self._fence else None)(once)

    def _checked_files(self, kept: KeptTable) -> OwnFiles | None:
        """Return the files of the cluster, if the table is checked. Raises OSError if it was set back for all readers.

        A reader that has not noticed that yet keeps what it has noted, whatever others write.
        """
        if not self._is_checked:
            return None
        now, known = own_files(kept, self.cluster), {**self.files}
        are_same = any(files[1:] == now[1:] for files in known.values())
        follow = {
            reader: files
            for reader, files in known.items()
            if files[1:] == now[1:] or (not are_same and not are_set_back(kept, self.cluster, files, now))
        }
        if known and not follow:
            raise OSError("it was restored to an earlier version")
        self._follow(follow, now)
        return now

    def _note_commit(self, kept: KeptTable, files: OwnFiles, *, counts: bool) -> None:
        """Note the files after a commit, `files` before it, and those of other threads and jobs that are known with it.

        If they cannot be read, the next write does it.
        """
        version = kept.table.version()
        if version == files.version:
            return
        with suppress(DeltaError, OSError):  # the commit is made
            if counts and version == files.version + 1:
                new = own_files(kept, self.cluster, (files.changes or 0) + 1)
            else:
                kept.note_commits()
                new = own_files(kept, self.cluster)
            self._follow({reader: one for reader, one in {**self.files}.items() if one == files}, new)

    def _commit(self, batch: BatchId | None, files: OwnFiles | None) -> CommitOptions:
        own = [self._fence.transaction()] if self._fence else []
        counted = [Transaction(changes_of(self.cluster), (files.changes or 0) + 1)] if files else []
        noted = [Transaction(one, batch.number) for one in batch.writers] if batch else []
        return _commit([*own, *counted, *noted])

    @contextmanager
    def errors(self, verb: str = "write") -> Iterator[None]:
        """Raise the errors of delta-rs, and of files, as OSError in one line that names the table."""
        try:
            yield
        except (DeltaError, OSError) as error:
            raise OSError(f"Cannot {verb} the table {self.location.name}: {describe_error(error)}") from None


def _commit(transactions: Sequence[Transaction]) -> CommitOptions:
    properties = CommitProperties(app_transactions=[*transactions])
    return {"commit_properties": properties, "post_commithook_properties": HOOKS}
