"""One job per warehouse and cluster: a lock file that the process holds until it ends, with a record of its holder.

A warehouse in an object store cannot hold such a lock. Its job locks a file on its own machine, and reads the heartbeat
file to detect jobs on other machines.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

import platformdirs
from filelock import FileLock, Timeout

from streaming_app.errors import JobError, WarehouseError, reason_of
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.text import utc_clock

_POLL_SECONDS = 2.0


def state_directory(warehouse: Location, configured: Path | None) -> Path:
    """Return the directory of the lock and of Spark's log: both need a local file system."""
    if configured is not None:
        return configured.absolute()
    if warehouse.is_local:
        return (warehouse / "_jobs").path
    return platformdirs.user_state_path("streams-groups") / quote(str(warehouse), safe="")


@contextmanager
def hold_job_lock(directory: Path, cluster: str, what: str = "the warehouse") -> Iterator[None]:
    """Hold the lock of `cluster` in a local directory, which error messages call `what`.

    Raises JobError, naming the holder, if another job holds it.
    """
    lock, holder = FileLock(directory / f"{cluster}.lock", timeout=0), directory / f"{cluster}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        holder.write_text(json.dumps(_this_process()), "utf-8")
    except Timeout:
        raise _already_written(cluster, _describe_holder(holder)) from None
    except OSError as error:
        raise JobError(f"Cannot write {what}: {reason_of(error)}: {error.filename}") from None
    try:
        yield
    finally:
        lock.release()


def ensure_no_other_job(
    warehouse: Location, cluster: str, report: Callable[[str], None], stop: threading.Event
) -> None:
    """Check by the heartbeat that no job on another machine, where the lock has no effect, writes `cluster`.

    A job that was killed may have left a recent heartbeat, so this waits until it is old or `stop` is set. Raises
    JobError, naming the job, if another heartbeat follows.
    """
    first = _read_heartbeat(warehouse, cluster)
    if first is None or first.host == socket.gethostname() or not first.is_alive(datetime.now(timezone.utc)):
        return
    process = f"process {first.pid} on {first.host}"
    report(f"The last heartbeat of {process} is recent ({utc_clock(first.at)}): waiting to see whether another follows")
    while not stop.wait(_POLL_SECONDS):
        last = _read_heartbeat(warehouse, cluster)
        if last is None or not last.is_alive(datetime.now(timezone.utc)):
            return
        if last.at != first.at:
            raise _already_written(cluster, process)


def _read_heartbeat(warehouse: Location, cluster: str) -> HeartbeatRecord | None:
    try:
        return read_heartbeat(warehouse, cluster)
    except WarehouseError:  # written by another release, which this one may be about to replace
        return None


def _this_process() -> dict[str, str | int]:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _already_written(cluster: str, process: str) -> JobError:
    return JobError(f"Another job already writes cluster {cluster!r} into this warehouse: {process}")


def _describe_holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text("utf-8"))
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError):
        return "it is just starting"
