"""Access to files of object stores and HDFS through delta-rs, with time-outs short enough for a command; store errors.

delta-rs reads credentials and endpoints from environment variables: see deploy/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import PyFileSystem

# By default delta-rs retries ten times within three minutes: too long for a user who waits for a command.
STORAGE_OPTIONS = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "4", "retry_timeout": "30s"}

REQUESTS = 4
"""How many requests are sent to a store at the same time: it answers several in the time of one."""

_ADVICE = "credentials come from environment variables, see deploy/README.md"
_KNOWN_ERRORS = (
    (
        r"://169\.254\.169\.254/|://metadata\.google|DefaultCredentialsError|no credentials",
        f"no credentials: {_ADVICE}",
    ),
    (r"URL scheme is not allowed", "{server} is not https: set AWS_ALLOW_HTTP=true if you want that"),
    (r"<Code>(\w+)</Code>\s*<Message>(.*?)</Message>", "{server} returned {0}: {1}"),
    (r"\b(401 Unauthorized|403 Forbidden)\b", f"{{server}} denied access ({{0}}): {_ADVICE}"),
    (r"communicating with HDFS (.*)", "{server} does not answer: {0}"),
    (r"(dns error|tcp connect error|operation timed out|connection closed)(.*)", "{server} does not answer: {0}{1}"),
)
"""Patterns in error messages of delta-rs, and the line to show instead; the first match applies."""
_REQUEST = re.compile(r"\b(?:GET|HEAD|PUT|POST|DELETE) (\w+://[^/?\s]+)")
_JAVA_STACK = re.compile(r" at [\w.$/]+\(\w+\.java\b")
_COLOR_CODES = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def file_system(uri: str) -> Iterator[PyFileSystem]:
    """Open a directory of a store as an Arrow file system. Its errors become one-line OSErrors."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - local warehouses do not load it
    from pyarrow.fs import PyFileSystem  # noqa: PLC0415

    with _errors():
        yield PyFileSystem(DeltaStorageHandler(uri, STORAGE_OPTIONS))


def read_file(table: DeltaTable, path: str, size: int) -> bytes:
    """Return the first `size` bytes of a file of a table, or the whole file if it is smaller.

    It uses the connections of the table. Without a size, delta-rs would send a second request and hold Python's lock
    meanwhile (deltalake 1.6). Raises FileNotFoundError, and one-line OSErrors.
    """
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - as above

    handler: Any = DeltaStorageHandler.from_table(table._table, None, {path: size})  # noqa: SLF001 - as delta-rs itself does
    with _errors():
        return bytes(handler.open_input_file(path).read())


def write_file(uri: str, name: str, content: bytes) -> None:
    """Write a file into a directory of a store, atomically. Raises one-line OSErrors."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - as above

    with _errors():
        # Arrow's stream passes buffers, which delta-rs' stream does not accept (deltalake 1.6).
        handler: Any = DeltaStorageHandler(uri, STORAGE_OPTIONS)._handler  # noqa: SLF001
        stream = handler.open_output_stream(name, None)
        stream.write(content)
        stream.close()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001 - delta-rs raises several types without a common base class
        raise OSError(describe_error(error)) from None


def describe_error(error: Any) -> str:  # noqa: ANN401 - any type that delta-rs raises
    """Return an error of delta-rs as one line: its meaning if it is known, else its own message."""
    message = " ".join(_COLOR_CODES.sub("", str(error)).replace("↳", " ").split())
    message = _JAVA_STACK.split(message)[0]
    request = _REQUEST.search(message)
    for pattern, description in _KNOWN_ERRORS:
        if match := re.search(pattern, message):
            return description.format(*match.groups(), server=request[1] if request else "the store")
    return message
