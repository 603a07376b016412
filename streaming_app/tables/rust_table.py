"""Writes one Delta table by delta-rs, in a small part of the time that Spark takes to plan a write.

Theory of operation
-------------------
A write opens the table anew, which takes milliseconds: a table that is kept open does not notice that it was deleted,
and a commit would leave the remains of a log in its place. It is one commit, which is there as a whole or not at all:
in a store by a conditional put. Where another process has changed the same rows meanwhile, Delta rejects the commit,
and the write is done again with what is there now. In this process there is one writer of a table at a time, of Spark
or of delta-rs, see `writing`.

Each commit leaves files that readers of older versions need: `maintain` removes them once the table's retention has
passed.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.reader import quote, time_literal

_ATTEMPTS = 12  # a commit is rejected for what jobs for other clusters change meanwhile, too
_PAUSE_SECONDS = 0.05, 0.5
_MAINTAINED_AFTER = 100  # commits, each of which leaves a file or two
_MAINTAINED_SECONDS = 1_800.0  # or so long, as old versions of some tables are kept
_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)
_MIN_AGE_SECONDS = 60  # of a checksum that is removed: the file of a newer one may just be written


@contextmanager
def writing(table: Location) -> Iterator[None]:
    """Run the block while nobody else in this process writes the table.

    Both streams write some tables, by Spark or by delta-rs. Each waits for the other anyway where the store lets a
    commit fail that another one has overtaken; Spark's commits to S3 exclude each other only within the same JVM.
    """
    with _LOCKS[str(table)]:
        yield


class Batch(NamedTuple):
    """Identifies a batch to Delta, which keeps it in the log with the rows."""

    writers: Sequence[str]
    """The first is asked whether it has written the batch, which is then noted for all of them."""
    number: int
    """Of a writer's batches; they only grow."""


class RustTable:
    """The rows of one cluster in a table. What writes raises OSError, in one line, if the table cannot be written."""

    def __init__(self, location: Location, cluster: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.location, self.cluster = location, cluster
        self.own_rows = f"cluster = {quote(cluster)}"
        """The condition that a row is of the cluster."""
        self._clock = clock
        self._commits = 0
        self._maintained_at: float | None = None

    def open(self) -> DeltaTable:
        """Return the table as it is now. Raises delta-rs' errors."""
        return self.location.delta_table()

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table, which its rows must have."""
        with self._errors():
            return pa.schema(self.open().schema().to_arrow())

    def append(self, rows: pa.Table, batch: Batch | None = None) -> int:
        """Append rows, of a batch exactly once; return the version of the table."""

        def write(target: DeltaTable) -> None:
            properties = None
            if batch:
                written = target.transaction_version(batch.writers[0])
                if written is not None and written >= batch.number:
                    return
                noted = [Transaction(one, batch.number) for one in batch.writers]
                properties = CommitProperties(app_transactions=noted)
            write_deltalake(target, rows, mode="append", commit_properties=properties)

        return self.change(write)

    def replace(self, rows: pa.Table, condition: str | None = None) -> int:
        """Replace all rows of the cluster, or those that match, by `rows`; return the version of the table."""
        if not rows.num_rows:
            return self.delete(condition)
        where = self._own(condition)
        return self.change(lambda target: write_deltalake(target, rows, mode="overwrite", predicate=where))

    def delete(self, condition: str | None = None) -> int:
        """Delete all rows of the cluster, or those that match; return the version of the table."""
        where = self._own(condition)
        return self.change(lambda target: target.delete(where))

    def delete_rows(self, rows: pa.Table, key: Sequence[str]) -> int:
        """Delete the rows of the table that have the key of one of `rows`, null like null; return its version."""
        same = " AND ".join(f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in key)

        def write(target: DeltaTable) -> None:
            merge = target.merge(rows.select(key), same, source_alias="s", target_alias="t")
            merge.when_matched_delete().execute()

        return self.change(write)

    def change(self, write: Callable[[DeltaTable], object]) -> int:
        """Call `write` with the table, again after a conflict, and return the version that the table has then."""
        self._commits += 1
        with self._errors(), writing(self.location):
            return int(self._attempt(write).version())

    def maintain(self, expired: str | None = None) -> None:
        """Delete the rows that match, compact the files, and remove those that no reader needs; all if it is due.

        It is after a start, after a hundred commits, and after half an hour.
        """
        if not self._is_due():
            return
        self._maintained_at, self._commits = self._clock(), 0
        with self._errors(), writing(self.location):
            if expired:
                self._attempt(lambda target: target.delete(self._own(expired)))
            self._attempt(lambda target: target.optimize.compact(partition_filters=[("cluster", "=", self.cluster)]))
            target = self.open()
            target.vacuum(dry_run=False)
            target.cleanup_metadata()
            if self.location.is_local:
                remove_orphan_checksums((self.location / "_delta_log").path)

    def _is_due(self) -> bool:
        if self._maintained_at is None or self._commits >= _MAINTAINED_AFTER:
            return True
        return not 0 <= self._clock() - self._maintained_at < _MAINTAINED_SECONDS

    def _own(self, condition: str | None) -> str:
        return f"{self.own_rows} AND ({condition})" if condition else self.own_rows

    def _attempt(self, write: Callable[[DeltaTable], object]) -> DeltaTable:
        def once() -> DeltaTable:
            target = self.open()
            write(target)
            return target

        again = retry_if_exception_type(CommitFailedError)
        wait = wait_random(*_PAUSE_SECONDS)
        return Retrying(retry=again, stop=stop_after_attempt(_ATTEMPTS), wait=wait, reraise=True)(once)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise OSError(f"Cannot write the table {self.location.name}: {describe_error(error)}") from None


def older_than(column: str, days: float) -> str:
    """Return the condition that the time in a column is more than `days` ago."""
    return f"{column} < {time_literal(datetime.now(timezone.utc) - timedelta(days=days))}"


def remove_orphan_checksums(log: Path) -> None:
    """Remove the checksums that Hadoop left in the log of a table in a local directory, of files that are gone.

    Its local file system writes a file `.NAME.crc` for each file, and deletes both. delta-rs, which deletes the log of
    old versions, leaves the checksum files of commits by Spark: they would pile up. Raises OSError.
    """
    with os.scandir(log) as entries:
        files = {entry.name: entry for entry in entries}
    newest = time.time() - _MIN_AGE_SECONDS
    for name, entry in files.items():
        if not (name.startswith(".") and name.endswith(".crc")) or name[1 : -len(".crc")] in files:
            continue
        with suppress(FileNotFoundError):  # Hadoop has just removed it
            if entry.stat().st_mtime < newest:
                Path(entry).unlink()
