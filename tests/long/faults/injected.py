"""Faults inside the job's process, for its setup: it ends at one of its writes, or its store rejects some of them."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from streaming_app.job import supervisor
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.location import Location
from streaming_app.tables.newest_tables import NewestTables
from streaming_app.tables.rust_table import RustTable

_WRITES = (
    *((RustTable, name) for name in ("append", "delete", "delete_rows", "update")),
    (GroupRows, "replace"),
    (NewestTables, "compact"),
    *((Location, name) for name in ("write_text", "remove_directory")),
)


def kill_at(number: int, *, after: bool) -> None:
    """Kill this process at the write of this number, counted from 1, before or after it is done."""

    def intercept(count: int, write: Callable[[], Any], **_: bool) -> Any:
        result = write() if after or count != number else None
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    _intercept(intercept)


def fail_some(share: float, seed: int, log: str) -> None:
    """Let this share of the writes fail; half of these are done, and their answer is lost.

    `log` gets a byte for each write of a table or next to a checkpoint that failed.
    """
    random = Random(seed)  # noqa: S311 - no secret

    def intercept(_count: int, write: Callable[[], Any], *, counts: bool) -> Any:
        fails, is_done = random.random() < share, random.random() < 0.5
        result = write() if is_done or not fails else None
        if fails:
            if counts:
                with Path(log).open("ab") as file:
                    file.write(b".")
            raise OSError(errno.EIO, "injected failure of the store")
        return result

    _intercept(intercept)


def retry_soon() -> None:
    """Let the streams start again at once after a failure, and never give up: failures can then follow each other."""
    supervisor._PAUSE_SECONDS = 0.0
    supervisor._MAX_FAILURES = 1_000
    supervisor._RETRY_SECONDS = 1.0


def _intercept(intercept: Callable[..., Any]) -> None:
    """Pass each write to `intercept`: its number, a function that does it, whether it is more than a heartbeat."""
    count = 0

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def intercepted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            counts = not isinstance(args[0], Location) or "_checkpoints" in str(args[0])
            return intercept(count, lambda: original(*args, **kwargs), counts=counts)

        return intercepted

    for owner, name in _WRITES:
        setattr(owner, name, wrap(getattr(owner, name)))
