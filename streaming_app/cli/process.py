"""The process of a command: its user, standard streams, freed memory, and its end while threads are inside delta-rs.

A parent process may have closed a standard stream. Then the next file that the command opens would get its number.

A command may end while one of its threads reads or writes a table, and does not wait for it. But if delta-rs returns to
a Python that is exiting, the process crashes (with delta-rs 1.6 and Python 3.11 in 9 of 10 cases), and its exit code is
lost. So the process ends without Python's clean-up (`abandon_threads`).
"""

import atexit
import codecs
import ctypes
import getpass
import io
import os
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

from streaming_app.text import json_units

_ESCAPES = "streams-groups-escapes"

_FREED_AT_ONCE = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "_RJEM_MALLOC_CONF": "narenas:2,dirty_decay_ms:0,muzzy_decay_ms:0",
}
"""Variables of glibc, of pyarrow, and of delta-rs' jemalloc."""
_MALLOPT = {"MALLOC_ARENA_MAX": -8, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
"""The numbers of these variables in glibc's malloc.h, for mallopt: glibc reads the environment only at the start."""


def user_name() -> str:
    """Return the name of the user who runs the command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container with a user id that has no name
        return f"user {os.getuid()}"


def return_freed_memory() -> None:
    """Make this process and its child processes return freed memory to the system. Call it before pyarrow is loaded.

    By default, three allocators keep freed memory for each of many threads: with 200 ids of 30 kB, the job held 430 MB
    more than it used. Variables that a user has set stay as they are.
    """
    for name, value in _FREED_AT_ONCE.items():
        os.environ.setdefault(name, value)
    with suppress(AttributeError, OSError, ValueError):  # another libc, or no number
        mallopt = ctypes.CDLL(None).mallopt
        for name, number in _MALLOPT.items():
            mallopt(number, int(os.environ[name]))


def open_standard_streams() -> None:
    """Open closed standard streams on the null device. Call it before files are opened.

    `sys.stdin` stays None if it is closed, so that a command that reads it can report an error.
    """
    for descriptor in range(3):
        if not _is_open(descriptor):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - it takes the lowest free number
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process


def escape_what_cannot_be_encoded() -> None:
    r"""Let standard streams print what their encoding lacks as `\u00e9`, which is also valid in JSON and YAML.

    Any tenant chooses ids, and a locale such as de_DE.ISO-8859-1 lacks most letters.
    """
    codecs.register_error(_ESCAPES, _escape_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPES)


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json_units(error.object[error.start : error.end]), error.end


def decode_arguments(arguments: Iterable[str]) -> list[str]:
    """Return arguments that are UTF-8, decoded as such where the locale has only ASCII."""
    return [one.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") for one in arguments]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def abandon_threads() -> Iterator[None]:
    """Make the process end at once, with the exit code of this block, if threads that began in it still run at exit."""
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
    """Return the exit code of a command that raises this error."""
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
