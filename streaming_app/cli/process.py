"""A command's process: its user, standard streams, freed memory, and at its end threads that are inside delta-rs.

A parent may have closed some of the standard streams: else the next file that is opened takes their number. A command
may end while a thread of it reads or writes a table: the job was killed in part, or has to be abandoned. Such a thread
is never waited for. But when delta-rs returns to a Python that is exiting, the process crashes (seen with delta-rs 1.6
and Python 3.11: 9 of 10 times), and its exit code is lost.
"""

from __future__ import annotations

import atexit
import ctypes
import getpass
import os
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

_FREED_AT_ONCE = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "_RJEM_MALLOC_CONF": "narenas:2,dirty_decay_ms:0,muzzy_decay_ms:0",
}
"""Variables of glibc, pyarrow and the jemalloc of delta-rs."""
_MALLOPT = {"MALLOC_ARENA_MAX": -8, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
"""The numbers of these variables in glibc's malloc.h: this process has read its environment before."""


def user_name() -> str:
    """Return who runs the command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container with a user id that has no name
        return f"user {os.getuid()}"


def return_freed_memory() -> None:
    """Let this process and those that it starts give back what they free. To be called before pyarrow is loaded.

    By default each of the many threads of each of the three allocators keeps for itself what it had for a moment: with
    200 ids of 30 kB the job held 430 MB more than was in use. Variables that a user has set stay as they are.
    """
    for name, value in _FREED_AT_ONCE.items():
        os.environ.setdefault(name, value)
    with suppress(AttributeError, OSError, ValueError):  # another libc, or no number
        mallopt = ctypes.CDLL(None).mallopt
        for name, number in _MALLOPT.items():
            mallopt(number, int(os.environ[name]))


def open_standard_streams() -> None:
    """Open on the null device what is closed of the three. To be called before files are opened.

    `sys.stdin` stays None if it is closed, so that a command that is to read it can refuse.
    """
    for descriptor in range(3):
        if not _is_open(descriptor):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - it takes the lowest free number
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


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
