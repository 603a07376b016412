"""Which job owns a cluster's rows: a record in the warehouse, taken by a conditional commit and read by its owner.

Theory of operation
-------------------
The record is the only row of a small Delta table, so that it is taken by what the tables are committed with: a
conditional put in a store, a file that may not exist yet in a directory. Of two jobs that take it at the same moment
one gets it. Each owner has a term, one higher than the last.

A job may take it from an owner that has ended. That is known of one that said so, and of one that held the same lock
as this job (see `lock`), which an id next to the lock tells: neither the name of a host nor a clock does. Of any other
one this job waits for a sign of life, a heartbeat, for as long as one would take at most. Clocks only shorten the wait,
where an owner's last sign is older than that.

An owner that was only paused may go on after another job has taken the record. It reads the record before each batch
and with each check of the topic, and ends with a line that names the new owner. What it was about to commit is refused
by the tables, to which the new owner commits its term before it reads them, see `tables.fence`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming_app.errors import JobError, OtherOwnerError, WarehouseError
from streaming_app.job.lock import already_written
from streaming_app.job.stopping import StopRequestedError
from streaming_app.tables.definitions import tables
from streaming_app.tables.fence import Fence, application_of, term_in
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.text import utc, utc_clock

if TYPE_CHECKING:
    from deltalake import DeltaTable

_POLL_SECONDS = 2.0
_SILENT_SECONDS = 120.0
"""A job that has taken the record begins to write heartbeats within this time, and writes to a store every 35 s."""
_UNNAMED_HOURS = 24  # so old is a file that no version names before it is removed
_KEPT_COMMITS = 20  # of the record: one for each start and each end of a job
_APPLICATION = "owner"
_UNKNOWN = "another job"


class OwnerRecord(NamedTuple):
    """The record of one owner."""

    term: int
    run_id: str
    lock_id: str
    """Of the lock that it holds."""
    pid: int
    host: str
    taken_at: datetime
    ended: bool = False
    """The job ended in an orderly way."""

    @property
    def text(self) -> str:
        """The owner, for people."""
        return f"process {self.pid} on {self.host}, since {utc(self.taken_at)}"


@dataclass(frozen=True)
class Clock:
    """The time, and how it passes while a job waits for a sign of the last owner."""

    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    monotonic: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    """Waits for an event for so many seconds; returns whether it is set."""


def owner_location(warehouse: Location, cluster: str) -> Location:
    """Return where the record of a cluster is."""
    return warehouse / "_jobs" / f"{cluster}.owner"


def read_owner(warehouse: Location, cluster: str) -> OwnerRecord | None:
    """Return the record; None if no job has taken it yet. Raises JobError if it cannot be read."""
    return _Store(owner_location(warehouse, cluster)).read()[0]


class Ownership:
    """The record as this job has taken it; every method may be called from any thread."""

    def __init__(self, warehouse: Location, cluster: str, record: OwnerRecord) -> None:
        self._store, self._cluster, self.record = _Store(owner_location(warehouse, cluster)), cluster, record
        self._version: int | None = None
        self.fence = Fence(cluster, record.term, self.check)
        """What keeps this job from writing the tables once another one has taken the record."""

    def check(self) -> None:
        """Raise OtherOwnerError if another job has taken the record, JobError if it cannot be read."""
        version = self._store.version()
        if version is None or version == self._version:  # nobody has written it since the last check
            return
        newest = self._store.read()[0]
        if newest is not None and newest.run_id != self.record.run_id:
            self.fence.is_lost = True
            raise OtherOwnerError(
                f"Another job has taken over cluster {self._cluster!r}: {newest.text}; this one was paused, or cut off "
                "from the warehouse, and writes no more batches"
            )
        self._version = version

    def end(self) -> None:
        """Record that this job has ended, unless another one has taken over."""
        newest, table = self._store.read()
        if newest is not None and newest.run_id == self.record.run_id:
            self._store.write(table, newest._replace(ended=True))


@contextmanager
def owning(  # noqa: PLR0913, PLR0917 - each is one thing it needs
    warehouse: Location,
    cluster: str,
    lock_id: str,
    report: Callable[[str], None],
    stop: threading.Event,
    clock: Clock = Clock(),
) -> Iterator[Ownership]:
    """Own the rows of a cluster until the end of the block, while holding the lock of this id.

    Waits to see whether the last owner is alive. Raises JobError if it is, or if another job takes the record at the
    same moment, and StopRequestedError once `stop` is set.
    """
    last = _wait_for_silence(warehouse, cluster, lock_id, report, stop, clock)
    term = max(0 if last is None else last.term, _newest_term(warehouse, cluster)) + 1
    record = OwnerRecord(term, uuid.uuid4().hex, lock_id, os.getpid(), socket.gethostname(), clock.now())
    store = _Store(owner_location(warehouse, cluster))
    newest, table = store.read()
    if newest != last or not store.write(table, record):
        owner = store.read()[0]
        raise already_written(cluster, owner.text if owner else _UNKNOWN)
    ownership = Ownership(warehouse, cluster, record)
    try:
        yield ownership
    finally:
        with suppress(JobError):  # e.g. a store that is away: what ended the job matters more
            ownership.end()


def _newest_term(warehouse: Location, cluster: str) -> int:
    """Return the newest term in the tables, which have it also where the record is lost; 0 if there is none."""
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - loaded when it is needed

    places = [warehouse / one.name for one in tables()]
    try:
        opened = [place.delta_table() for place in places if place.is_delta_table()]
        return max((term_in(table, application_of(cluster)) for table in opened), default=0)
    except (DeltaError, OSError) as error:
        raise JobError(f"Cannot read the warehouse {warehouse}: {describe_error(error)}") from None


class _Sign(NamedTuple):
    """What shows that an owner lives: it differs after each of its heartbeats."""

    run_id: str | None
    heartbeat_at: datetime | None


def _wait_for_silence(  # noqa: PLR0913, PLR0917 - as above
    warehouse: Location,
    cluster: str,
    lock_id: str,
    report: Callable[[str], None],
    stop: threading.Event,
    clock: Clock,
) -> OwnerRecord | None:
    """Return the record of the last owner once that has ended; None if there is none. Raises as `owning` does."""
    owner, heartbeat = read_owner(warehouse, cluster), _read_heartbeat(warehouse, cluster)
    seconds = _seconds_to_wait(owner, heartbeat, lock_id, clock.now())
    if not seconds:
        return owner
    who = owner.text if owner else f"process {heartbeat.pid} on {heartbeat.host}" if heartbeat else _UNKNOWN
    first, end = _sign(owner, heartbeat), clock.monotonic() + seconds
    since = f" ({utc_clock(heartbeat.at)})" if heartbeat else ""
    report(f"The last heartbeat of {who} is recent{since}: waiting to see whether another follows")
    while clock.monotonic() < end:
        if clock.wait(stop, _POLL_SECONDS):
            raise StopRequestedError
        owner, heartbeat = read_owner(warehouse, cluster), _read_heartbeat(warehouse, cluster)
        if owner and owner.ended:
            return owner
        if _sign(owner, heartbeat) != first:
            raise already_written(cluster, owner.text if owner else who)
        if not _seconds_to_wait(owner, heartbeat, lock_id, clock.now()):
            return owner
    return owner


def _seconds_to_wait(
    owner: OwnerRecord | None, heartbeat: HeartbeatRecord | None, lock_id: str, now: datetime
) -> float:
    """Return for how long a sign of the last owner may still come; 0 if it has ended."""
    if owner is not None and (owner.ended or owner.lock_id == lock_id):
        return 0.0
    if owner is None and heartbeat is not None and heartbeat.host == socket.gethostname():
        return 0.0  # it is of a release without a record, and this host has its lock
    if heartbeat is not None and heartbeat.is_alive(now):
        return max(_SILENT_SECONDS, heartbeat.alive_for.total_seconds())
    if owner is None or (heartbeat is not None and heartbeat.at > owner.taken_at):
        return 0.0  # its heartbeats had begun, and have stopped; or it is of a release without a record
    return _SILENT_SECONDS if now - owner.taken_at < timedelta(seconds=_SILENT_SECONDS) else 0.0


def _sign(owner: OwnerRecord | None, heartbeat: HeartbeatRecord | None) -> _Sign:
    return _Sign(owner.run_id if owner else None, heartbeat.at if heartbeat else None)


def _read_heartbeat(warehouse: Location, cluster: str) -> HeartbeatRecord | None:
    try:
        return read_heartbeat(warehouse, cluster)
    except WarehouseError:  # written by another release, which this one may be about to replace
        return None


class _Store:
    """The table of one record."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def version(self) -> int | None:
        """Return the version of the table, of which only the log is read; None if there is none."""
        from streaming_app.tables.kept_table import newest_table  # noqa: PLC0415 - loaded when it is needed

        table = self._open(newest_table)
        return None if table is None else table.version()

    def read(self) -> tuple[OwnerRecord | None, DeltaTable | None]:
        """Return the record and the version of the table that has it; None and None before the first one."""
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - loaded when it is needed

        table = self._open()
        if table is None:
            return None, None
        try:
            (row,) = _rows(table)
        except (DeltaError, OSError, ValueError) as error:
            raise self._unusable(error) from None
        return OwnerRecord(**{name: row[name] for name in OwnerRecord._fields}), table

    def _open(self, open_table: Callable[[Location], DeltaTable] = Location.delta_table) -> DeltaTable | None:
        from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415 - as above

        try:
            return open_table(self._location)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise self._unusable(error) from None

    def write(self, table: DeltaTable | None, record: OwnerRecord) -> bool:
        """Replace the record that a version of the table has; return whether it was still the newest version."""
        import pyarrow as pa  # noqa: PLC0415 - as above
        from deltalake import (  # noqa: PLC0415 - as above
            CommitProperties,
            PostCommitHookProperties,
            Transaction,
            write_deltalake,
        )
        from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415 - as above

        term = CommitProperties(app_transactions=[Transaction(_APPLICATION, record.term)], max_commit_retries=0)
        rows = pa.Table.from_pylist([record._asdict()], _schema())
        try:
            if table is None:
                write_deltalake(
                    str(self._location),
                    rows,
                    mode="error",
                    configuration=_CONFIGURATION,
                    storage_options=self._location.storage_options,
                    commit_properties=term,
                )
                return True
            write_deltalake(
                table,
                rows,
                mode="overwrite",
                commit_properties=term,
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )
            if table.version() % _KEPT_COMMITS == 0:
                self._clean_up()
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            if table is None and self.read()[0] is not None:  # another job has just made the table
                return False
            raise self._unusable(error) from None
        return True

    def _clean_up(self) -> None:
        table = self._location.delta_table()
        table.vacuum(dry_run=False)  # first, as a checkpoint forgets old files that are still there
        table.vacuum(dry_run=False, full=True, retention_hours=_UNNAMED_HOURS)  # of records that were refused
        table.create_checkpoint()
        table.cleanup_metadata()

    def _unusable(self, error: Exception) -> JobError:
        return JobError(f"Cannot read or write {self._location}: {describe_error(error)}")


_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


def _schema() -> Any:  # noqa: ANN401 - pyarrow is loaded when it is needed
    import pyarrow as pa  # noqa: PLC0415 - see above

    kinds: dict[str, Any] = {"term": pa.int64(), "pid": pa.int64(), "ended": pa.bool_()}
    kinds["taken_at"] = pa.timestamp("us", "UTC")
    return pa.schema([(name, kinds.get(name, pa.string())) for name in OwnerRecord._fields])


def _rows(table: DeltaTable) -> list[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 - as above
    from deltalake import QueryBuilder  # noqa: PLC0415 - as above

    found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    return [dict(row) for row in found.to_pylist()]
