"""The end of a process whose threads may be inside delta-rs.

A command may end while a thread of it reads or writes a table: the job was killed in part, or has to be abandoned. Such
a thread is never waited for. But when delta-rs returns to a Python that is exiting, the process crashes (seen with
delta-rs 1.6 and Python 3.11: 9 of 10 times), and its exit code is lost.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def abandon_threads() -> Iterator[None]:
    """Let the process end at once with the exit code of this block, if threads that began in it still run then."""
    before, code = set(threading.enumerate()), 0
    try:
        yield
    except BaseException as error:
        code = _exit_code(error)
        raise
    finally:
        if _running(before):
            atexit.register(_end, before, code)


def _exit_code(error: BaseException) -> int:
    """Return the exit code of a command that raises this."""
    code = error.code if isinstance(error, SystemExit) else getattr(error, "exit_code", 1)
    return code if isinstance(code, int) else int(code is not None)


def _end(before: Collection[threading.Thread], code: int) -> None:
    if _running(before):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it, or it is closed
                stream.flush()
        os._exit(code)


def _running(before: Collection[threading.Thread]) -> bool:
    return any(thread not in before for thread in threading.enumerate())
