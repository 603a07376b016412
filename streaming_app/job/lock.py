"""One job per warehouse and cluster: a lock file that the process holds until it ends, with a record of its holder.

A warehouse in an object store cannot hold such a lock. Its job locks a file on its own machine; `owner` detects jobs
with another lock.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import platformdirs
from filelock import FileLock, Timeout

from streaming_app.errors import JobError, reason_of
from streaming_app.tables.location import Location

if TYPE_CHECKING:
    from streaming_app.config.settings import JobConfig


class JobLock(NamedTuple):
    """The lock of a job, as its process holds it."""

    directory: Path
    """A local directory for the job's files."""
    lock_id: str
    log_file: Path
    """Of Spark, and of the Python libraries."""


def state_directory(warehouse: Location, configured: Path | None) -> Path:
    """Return the directory of the lock and of Spark's log: both need a local file system."""
    if configured is not None:
        return configured.absolute()
    if warehouse.is_local:
        return (warehouse / "_jobs").path
    return platformdirs.user_state_path("streams-groups") / quote(str(warehouse), safe="")


@contextmanager
def hold_lock_of(config: JobConfig) -> Iterator[JobLock]:
    """Hold the lock of this job until the end of the block. Raises as `hold_job_lock`."""
    directory = state_directory(config.warehouse, config.state_dir)
    is_in_warehouse = config.warehouse.is_local and config.state_dir is None
    what = "the warehouse" if is_in_warehouse else "state_dir"
    with hold_job_lock(directory, config.cluster, what) as lock_id:
        yield JobLock(directory, lock_id, directory / f"{config.cluster}.spark.log")


@contextmanager
def hold_job_lock(directory: Path, cluster: str, what: str = "the warehouse") -> Iterator[str]:
    """Hold the lock of `cluster` in a local directory, which error messages call `what`; gives the id of the lock.

    Raises JobError, naming the holder, if another job holds it.
    """
    lock, holder = FileLock(directory / f"{cluster}.lock", timeout=0), directory / f"{cluster}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        lock_id = _lock_id(holder)
        holder.write_text(json.dumps({**_this_process(), "lock_id": lock_id}), "utf-8")
    except Timeout:
        raise already_written(cluster, _describe_holder(holder)) from None
    except OSError as error:
        raise JobError(f"Cannot write {what}: {reason_of(error)}: {error.filename}") from None
    try:
        yield lock_id
    finally:
        lock.release()


def _this_process() -> dict[str, str | int]:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def already_written(cluster: str, who: str) -> JobError:
    """Return the error of a job that finds another one at work."""
    return JobError(f"Another job already writes cluster {cluster!r} into this warehouse: {who}")


def _lock_id(file: Path) -> str:
    """Return the id of the lock, which is kept from one holder to the next; a new one for a new lock."""
    try:
        return str(json.loads(file.read_text("utf-8"))["lock_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return uuid.uuid4().hex


def _describe_holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text("utf-8"))
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError):
        return "it is just starting"
