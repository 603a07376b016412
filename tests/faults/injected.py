"""Faults inside the job's process, for its setup: it ends at one of its writes, or its store rejects every n-th one."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming_app.tables.delta_writer import DeltaWriter
from streaming_app.tables.files import _LocalFiles
from streaming_app.tables.newest_tables import NewestTables

_WRITES = (
    *((DeltaWriter, name) for name in ("append", "rewrite_events", "add_groups", "replace_groups", "merge_groups")),
    (DeltaWriter, "delete_groups"),
    *((NewestTables, name) for name in ("append", "append_many", "delete", "compact")),
    (_LocalFiles, "write"),
    (_LocalFiles, "remove"),
)


def kill_at(number: int, *, after: bool) -> None:
    """Kill this process at the write of this number, counted from 1, before or after it is done."""

    def intercept(count: int, write: Callable[[], Any]) -> Any:
        result = write() if after or count != number else None
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    _intercept(intercept)


def fail_every(number: int, *, after: bool, log: str) -> None:
    """Let every n-th write fail; with `after` it is done, and its answer is lost. `log` gets a byte for each."""

    def intercept(count: int, write: Callable[[], Any]) -> Any:
        fails = count % number == 0
        result = write() if after or not fails else None
        if fails:
            with Path(log).open("ab") as file:
                file.write(b".")
            raise OSError(errno.EIO, "injected failure of the store")
        return result

    _intercept(intercept)


def _intercept(intercept: Callable[[int, Callable[[], Any]], Any]) -> None:
    count = 0

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def intercepted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            return intercept(count, lambda: original(*args, **kwargs))

        return intercepted

    for owner, name in _WRITES:
        setattr(owner, name, wrap(getattr(owner, name)))
