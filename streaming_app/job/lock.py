"""One job per warehouse and cluster: a lock file that ends with its process, and says who holds it.

A warehouse in a store has no place for such a lock. Its job holds one on its machine, and looks for signs of others.
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

from streaming_app.job.errors import JobError
from streaming_app.serve.place import Place
from streaming_app.serve.running import Running, read_running
from streaming_app.serve.warehouse import WarehouseError

_LOOK_SECONDS = 2.0


def state_directory(warehouse: Place, wanted: Path | None) -> Path:
    """Where the lock and Spark's log are: both need a local directory, which a warehouse in a store is not."""
    if wanted is not None:
        return wanted.absolute()
    if warehouse.is_local:
        return (warehouse / "_jobs").path
    return platformdirs.user_state_path("streams-groups") / quote(str(warehouse), safe="")


@contextmanager
def only_job(directory: Path, cluster: str, what: str = "the warehouse") -> Iterator[None]:
    """Hold the lock of `cluster` in a local directory, which is `what` to people.

    Raises JobError, naming the holder, if another job has it.
    """
    lock, holder = FileLock(directory / f"{cluster}.lock", timeout=0), directory / f"{cluster}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        holder.write_text(json.dumps(_self()), "utf-8")
    except Timeout:
        raise JobError(f"Another job already writes cluster {cluster!r} into this warehouse: {_told(holder)}") from None
    except OSError as error:
        raise JobError(f"Cannot write {what}: {error.strerror or error}: {error.filename}") from None
    try:
        yield
    finally:
        lock.release()


def wait_for_silence(warehouse: Place, cluster: str, say: Callable[[str], None], stop: threading.Event) -> None:
    """See by its sign of life that no job of another machine writes `cluster`: the lock does not reach so far.

    A job that was killed left a sign, too: whether it comes again tells. Raises JobError, naming the job, if it does.
    """
    first = _sign(warehouse, cluster)
    if first is None or first.host == socket.gethostname() or not first.alive(datetime.now(timezone.utc)):
        return
    who = f"process {first.pid} on {first.host}"
    say(f"A sign of life of {who}, of {first.at:%H:%M:%SZ}, is fresh: waiting to see that none comes again")
    while not stop.wait(_LOOK_SECONDS):
        now = _sign(warehouse, cluster)
        if now is None or not now.alive(datetime.now(timezone.utc)):
            return
        if now.at != first.at:
            raise JobError(f"Another job already writes cluster {cluster!r} into this warehouse: {who}")


def _sign(warehouse: Place, cluster: str) -> Running | None:
    try:
        return read_running(warehouse, cluster)
    except WarehouseError:  # of another release, perhaps, which this one comes to replace
        return None


def _self() -> dict[str, str | int]:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _told(holder: Path) -> str:
    try:
        told = json.loads(holder.read_text("utf-8"))
        return f"process {told['pid']} on {told['host']}, since {told['since']}"
    except (OSError, ValueError, KeyError):
        return "it is just starting"
