"""One job per warehouse and cluster: a lock file that ends with its process, and says who holds it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

import platformdirs
from filelock import FileLock, Timeout

from streaming_app.job.errors import JobError
from streaming_app.serve.place import Place


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
    holder = directory / f"{cluster}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory / f"{cluster}.lock", timeout=0):
            holder.write_text(json.dumps(_self()), "utf-8")
            yield
    except Timeout:
        raise JobError(f"Another job already writes cluster {cluster!r} into this warehouse: {_told(holder)}") from None
    except OSError as error:
        raise JobError(f"Cannot write {what}: {error.strerror or error}: {error.filename}") from None


def _self() -> dict[str, str | int]:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _told(holder: Path) -> str:
    try:
        told = json.loads(holder.read_text("utf-8"))
        return f"process {told['pid']} on {told['host']}, since {told['since']}"
    except (OSError, ValueError, KeyError):
        return "it is just starting"
