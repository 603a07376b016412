"""Decides which job writes the rows of a cluster: one job works and commits heartbeats, others wait until they end.

Theory of operation
-------------------
The table `_jobs/CLUSTER.owner` has no rows. A job that takes the cluster makes a commit with its host, its process and
its term (see `tables.fence`), and another one when it ends. A commit is a conditional put in a store, or creates a file
that must not exist in a directory. So if several jobs take the cluster at the same moment, one of them gets it, with
the next term.

For each heartbeat, the owner writes the file `_jobs/CLUSTER.alive` again, and then checks that the table has no later
term. In a store that is a copy of the owner's commit, which gets another time: a copy is one request, and a commit with
what follows from it takes eleven.

A job takes the cluster from an owner that has ended, or that has given no heartbeat for `SILENT_SECONDS`. It
measures this with its own monotonic clock, so clocks of other hosts do not matter. If an owner was killed on this host,
the job knows it at once, because the kernel has released the owner's lock: a file in a local directory, next to a file
with the id of the last owner. The host is also compared, since some network file systems give each host its own lock.

An owner that was only paused may continue after that. Before it does anything after a pause it gives a heartbeat. Then
it finds the later term, and the job ends with a line that names the new owner. The tables reject the commits that it
was about to make, since the new owner commits its term to them before it reads them.

The heartbeat file (`tables.heartbeat_file`) is another one, for commands and the page.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import platformdirs
from deltalake import Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from filelock import FileLock, Timeout

from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError, StorageError, reason_of
from streaming_app.job.service import Service
from streaming_app.job.stopping import StopRequestedError
from streaming_app.report import Report
from streaming_app.tables.definitions import tables
from streaming_app.tables.fence import Fence, newest_term, term_in
from streaming_app.tables.kept_table import ConflictError, KeptTable, repeating, table_to_write
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.table_creation import create_table

SIGN_SECONDS = 15.0
"""The time between two heartbeats of an owner."""
SILENT_SECONDS = 50.0
"""An owner that has given no heartbeat for this time is gone."""
_POLL_SECONDS = 5.0
_SAY_SECONDS = 60.0
_COMMITS_PER_CHECKPOINT = 100
_COMMITS_OF_ONCE = 2  # when it takes the cluster, and when it ends
_SCHEMA = Schema([Field("none", PrimitiveType("string"))])
_CONFIGURATION = {"delta.logRetentionDuration": "interval 1 hours"}


class OwnerRecord(NamedTuple):
    """The content of an owner's commit."""

    host: str
    pid: str
    run_id: str
    has_ended: str = ""
    """Not empty if the owner ended cleanly."""

    @property
    def text(self) -> str:
        """The owner, as text for users; empty if it has ended."""
        return "" if self.has_ended else f"{self.host} (pid {self.pid})"


def state_directory(warehouse: Location, configured: Path | None) -> Path:
    """Return the directory for the lock and Spark's log: both need a local file system."""
    if configured is not None:
        return configured.absolute()
    if warehouse.is_local:
        return (warehouse / "_jobs").path
    return platformdirs.user_state_path("streams-groups") / quote(str(warehouse), safe="")


def owner_location(warehouse: Location, cluster: str) -> Location:
    """Return the location of the table with the owners."""
    return warehouse / "_jobs" / f"{cluster}.owner"


class _AliveFile:
    def __init__(self, owners: Location) -> None:
        self._owners, self._file = owners.name, owners.parent / f"{owners.name.removesuffix('.owner')}.alive"

    def write(self, version: int) -> None:
        """Write it again; `version` is that of the owner's commit. Raises OSError."""
        if self._file.is_local:
            self._file.write_text(uuid.uuid4().hex)
        else:
            self._file.copy_from(f"{self._owners}/_delta_log/{version:020}.json")

    def read(self) -> str | None:
        """Return what differs after each heartbeat; None if there was none. Raises OSError."""
        return self._file.find_text() if self._file.is_local else self._file.modified()


class ClusterOwner(Fence):
    """The term of the job that owns a cluster, and its heartbeats."""

    def __init__(
        self, place: Location, cluster: str, term: int, monotonic: Callable[[], float], stop: threading.Event
    ) -> None:
        """Prepare for a term that is not yet committed to the table at `place`."""
        super().__init__(cluster, term, stop)
        self.record = OwnerRecord(socket.gethostname(), str(os.getpid()), uuid.uuid4().hex)
        self._place, self._monotonic, self._lock = place, monotonic, threading.Lock()
        self._signed_at, self._is_long = monotonic(), False
        self._alive, self._version = _AliveFile(place), 0

    def sign(self) -> None:
        """Give a heartbeat. Raises OtherOwnerError once another job has taken over, JobError if that fails."""
        with self._lock, _errors(self._place):
            with suppress(FileNotFoundError):  # the table is lost
                self._alive.write(self._version)
            repeating(self.stop)(self._check_table)
            self._signed_at = self._monotonic()

    def _check_table(self, *, commits: bool = False) -> None:
        """Raise OtherOwnerError if the table has a later term; commit this term if it `commits`, or lacks it."""
        with _opened(self._place) as kept:
            self.check(kept)
            if commits or term_in(kept, self.application) < self.term:
                self.commit_record(kept)

    def commit_record(self, kept: KeptTable) -> None:
        """Commit the term with what is known of this job. Raises as `commit`."""
        self.commit(kept, self.record._asdict())
        self._version = kept.table.version()
        # A run with `once` makes two commits, and may make no other.
        self._is_long |= self._version % _COMMITS_PER_CHECKPOINT < _COMMITS_OF_ONCE

    def maintain_log(self) -> None:
        """Make a checkpoint if the log is long: not with a commit, which must not be late. Raises JobError."""
        if self._is_long:
            self._is_long = False
            with _errors(self._place):
                table = self._place.delta_table()
                table.create_checkpoint()
                table.cleanup_metadata()

    def check_owner(self) -> None:
        """Raise OtherOwnerError if another job has taken over, as it can if this job has given no heartbeat."""
        if not self.is_lost and self._monotonic() - self._signed_at >= 2 * SIGN_SECONDS:  # paused, or cut off
            with suppress(JobError):  # e.g. a store that is away
                self.sign()
        super().check_owner()

    def end(self) -> None:
        """Record that this job has ended, unless another job has taken over. From now on it commits nothing."""
        self.record = self.record._replace(has_ended="true")
        with suppress(JobError), self._lock, _errors(self._place):  # e.g. a store that is away: what ended it counts
            repeating(self.stop)(partial(self._check_table, commits=True))
        self.is_lost = True

    def _successor(self) -> str:
        with suppress(JobError), _errors(self._place), _opened(self._place) as kept:
            if (record := _record_in(kept)) and record.text:
                return f": {record.text}"
        return ""


@contextmanager
def owning(
    config: JobConfig,
    report: Report,
    stop: threading.Event,
    on_wait: Callable[[str], None] = lambda _: None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[ClusterOwner]:
    """Own the rows of the cluster until the end of the block, with a lock in the state directory.

    Waits while another job owns them, and calls `on_wait` with the owner; with `once` it raises JobError instead. Also
    raises JobError if the warehouse or the directory is unusable, and StopRequestedError once `stop` is set.
    """
    waiting = _WaitingJob(config, stop, monotonic)
    try:
        owner = waiting.wait(report, on_wait)
        signs = Service("owner", report, interval=SIGN_SECONDS, after=SIGN_SECONDS, do=owner.sign)
        signs.start()
        try:
            yield owner
        finally:
            signs.close()
            owner.end()
    finally:
        waiting.lock.release()


class _WaitingJob:
    def __init__(self, config: JobConfig, stop: threading.Event, monotonic: Callable[[], float]) -> None:
        self._warehouse, self._cluster, self._once = config.warehouse, config.cluster, config.once
        self._stop, self._monotonic, self._place = stop, monotonic, owner_location(config.warehouse, config.cluster)
        lock = state_directory(config.warehouse, config.state_dir) / f"{config.cluster}.lock"
        self.lock, self._last_holder = FileLock(lock, timeout=0), lock.with_suffix(".run")
        self._alive = _AliveFile(self._place)
        self._seen: tuple[int, str | None] | None = None
        """The version of the table, and what the newest heartbeat left."""
        self._seen_at = monotonic()
        self._is_alive = False
        """Whether a heartbeat came since the first look."""

    def wait(self, report: Report, on_wait: Callable[[str], None]) -> ClusterOwner:
        say_at = self._monotonic()
        while True:
            try:
                found = self._attempt()
            except JobError as error:
                if self._once or self._seen is None:  # at the start; while it waits, an error may be temporary
                    raise
                found = str(error)
            if isinstance(found, ClusterOwner):
                return found
            on_wait(found)
            if self._monotonic() >= say_at:
                say_at = self._monotonic() + _SAY_SECONDS
                report(f"Waiting: {found}")
            if self._stop.wait(_POLL_SECONDS):
                raise StopRequestedError

    def _attempt(self) -> ClusterOwner | str:
        """Return the ownership if it is free, else the owner's name. Raises JobError."""
        has_lock = self._has_lock()
        with _errors(self._place), _opened(self._place) as kept:
            record, version = _record_in(kept), kept.table.version()
            who, silent = record.text if record else "", self._silent(version)
            is_free = has_lock and (not who or self._held_lock(record))
            if silent >= SILENT_SECONDS or is_free:
                places = [self._place, *(self._warehouse / one.name for one in tables())]  # the first may be lost
                term = newest_term(self._cluster, places) + 1
                silent = self._silent(version)  # an owner that was paused may live again meanwhile
            if silent >= SILENT_SECONDS or is_free:
                owner = ClusterOwner(self._place, self._cluster, term, self._monotonic, self._stop)
                with suppress(ConflictError):  # another job gets it
                    owner.commit_record(kept)
                    if has_lock:
                        self._last_holder.write_text(owner.record.run_id, "utf-8")
                    return owner
        who = who or "a job that starts"
        if self._once and (self._is_alive or not has_lock):
            raise JobError(f"Another job already writes cluster {self._cluster!r} into this warehouse: {who}")
        seen = f"seen {silent:.0f} s ago" if self._is_alive else "which may have ended"
        return f"cluster {self._cluster} is written by {who}, {seen}"

    def _silent(self, version: int) -> float:
        """Note the newest heartbeat, or commit; return for how many seconds there was no new one. Raises OSError."""
        now, seen = self._monotonic(), (version, self._alive.read())
        if seen != self._seen:
            self._is_alive = self._seen is not None
            self._seen, self._seen_at = seen, now
        return now - self._seen_at

    def _has_lock(self) -> bool:
        try:
            if not self.lock.is_locked:
                self._last_holder.parent.mkdir(parents=True, exist_ok=True)
                self.lock.acquire()
        except Timeout:
            return False
        except OSError as error:
            raise JobError(f"Cannot write the warehouse: {reason_of(error)}: {error.filename}") from None
        return True

    def _held_lock(self, record: OwnerRecord | None) -> bool:
        if record is None or record.host != socket.gethostname():
            return False
        return self._last_holder.is_file() and self._last_holder.read_text("utf-8") == record.run_id


def _record_in(kept: KeptTable) -> OwnerRecord | None:
    """Return the newest record in the table; None if its newest commit has none. Raises OSError."""
    commit = kept.commit_info(kept.table.version())
    return OwnerRecord(**{name: commit[name] for name in OwnerRecord._fields}) if "run_id" in commit else None


@contextmanager
def _opened(place: Location) -> Iterator[KeptTable]:
    """Give the table of the owners, and create it if missing. Raises errors for `_errors`."""
    with ExitStack() as stack:
        try:
            kept = stack.enter_context(table_to_write(place))
        except TableNotFoundError:
            create_table(place, _SCHEMA, _CONFIGURATION)
            kept = stack.enter_context(table_to_write(place))
        yield kept


@contextmanager
def _errors(place: Location) -> Iterator[None]:
    """Raise the errors of delta-rs, and of files, as StorageError in one line."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise StorageError(f"Cannot read or write {place.parent}: {describe_error(error)}") from None
