"""Access to files of object stores and HDFS through delta-rs, with time-outs short enough for a command; store errors.

delta-rs reads credentials and endpoints from environment variables: see deploy/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from streaming_app.threads import in_parallel

if TYPE_CHECKING:
    from deltalake import DeltaTable

R = TypeVar("R")

STORAGE_OPTIONS = {
    "connect_timeout": "3s",
    "timeout": "30s",
    # A store may answer 503 for some seconds. By default delta-rs retries ten times, which takes a second or two, and
    # within three minutes: too long for a user who waits for a command. Here the time decides.
    "max_retries": "100",
    "retry_timeout": "30s",
    "backoff_config.init_backoff": "250ms",
    "backoff_config.max_backoff": "5s",
}

_PATIENCE_SECONDS = 30
MANY_BYTES = 1 << 30
"""More than any small file has: the store returns all of it."""
_READS = 160  # at the same time, nine for each table: nothing else runs in a command meanwhile
REQUESTS = 4
"""How many requests are sent to a store at the same time: it answers several in the time of one."""

_ADVICE = "credentials come from environment variables, see deploy/README.md"
_DENIED = "AccessDenied|ExpiredToken|InvalidAccessKeyId|InvalidToken|SignatureDoesNotMatch|TokenRefreshRequired"
_KNOWN_ERRORS = (
    (
        r"://169\.254\.169\.254/|://metadata\.google|DefaultCredentialsError|no credentials",
        f"no credentials: {_ADVICE}",
    ),
    (r"URL scheme is not allowed", "{server} is not https: set AWS_ALLOW_HTTP=true if you want that"),
    (rf"<Code>({_DENIED})</Code>\s*<Message>(.*?)\.?</Message>", f"{{server}} returned {{0}}: {{1}}; {_ADVICE}"),
    (r"<Code>(\w+)</Code>\s*<Message>(.*?)</Message>", "{server} returned {0}: {1}"),
    (r"\b(401 Unauthorized|403 Forbidden)\b", f"{{server}} denied access ({{0}}): {_ADVICE}"),
    # S3 answers so if credentials have expired, and a HEAD has no text.
    (
        r"\bHEAD .*\b(400 Bad Request)\b",
        f"{{server}} refuses the request ({{0}}), maybe for its credentials: {_ADVICE}",
    ),
    (r"communicating with HDFS (.*)", "{server} does not answer: {0}"),
    (r"(dns error|tcp connect error|operation timed out|connection closed)(.*)", "{server} does not answer: {0}{1}"),
)
"""Patterns in error messages of delta-rs, and the line to show instead; the first match applies."""
_REQUEST = re.compile(r"\b(?:GET|HEAD|PUT|POST|DELETE) (\w+://[^/?\s]+)")
_JAVA_STACK = re.compile(r" at [\w.$/]+\(\w+\.java\b")
_COLOR_CODES = re.compile(r"\x1b\[[0-9;]*m")
_PASSES = re.compile(r"\b(5\d\d|429) [A-Z]|connect error|timed out|connection closed|dns error")
_TOOK = re.compile(r" in [\d.]+(?:ns|µs|ms|s)\b")  # otherwise the same error would have another text each time


def in_directory(uri: str, do: Callable[[Any], R], seconds: int = 5, known: dict[str, int] | None = None) -> R:
    """Return what `do` returns for a directory of a store; call it again while the store does not answer.

    Nobody asks for the sizes of the files in `known`: so many bytes are read at most.
    delta-rs holds Python's lock during each request (deltalake 1.6): no other thread runs meanwhile, and no signal ends
    the job. So a request has so many seconds, and the pauses are here. Raises FileNotFoundError, and one-line OSErrors.
    """
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - local warehouses do not load it

    options = {**STORAGE_OPTIONS, "timeout": f"{seconds}s", "max_retries": "0"}
    patience = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_delay(_PATIENCE_SECONDS),
        wait=wait_exponential(multiplier=0.25, max=1),
        reraise=True,
    )
    with _errors():
        return patience(lambda: do(DeltaStorageHandler(uri, options, known)._handler))  # noqa: SLF001 - it has no public name


def _may_pass(error: BaseException) -> bool:
    return not isinstance(error, FileNotFoundError) and bool(_PASSES.search(str(error)))


def read_file(table: DeltaTable, path: str, size: int) -> bytes:
    """Return the first `size` bytes of a file of a table, or the whole file if it is smaller.

    It uses the connections of the table. Without a size, delta-rs would send a second request and hold Python's lock
    meanwhile (deltalake 1.6). Raises FileNotFoundError, and one-line OSErrors.
    """
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - as above

    handler: Any = DeltaStorageHandler.from_table(table._table, None, {path: size})  # noqa: SLF001 - as delta-rs itself does
    with _errors():
        return bytes(handler.open_input_file(path).read())


def read_files(directory: object, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the content of files below a directory by path, without those that do not exist; each is one request.

    Raises one-line OSErrors, after few seconds.
    """
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - as above

    options, sizes = {**STORAGE_OPTIONS, "retry_timeout": "5s"}, dict.fromkeys(paths, MANY_BYTES)
    handler: Any = DeltaStorageHandler(str(directory), options, sizes)._handler  # noqa: SLF001 - as above

    def read(path: str) -> tuple[str, bytes] | None:
        with suppress(FileNotFoundError):
            return path, bytes(handler.open_input_file(path).read())
        return None

    with _errors():
        return dict(filter(None, in_parallel(read, sizes, _READS)))


def write_file(uri: str, name: str, content: bytes) -> None:
    """Write a file into a directory of a store, atomically. Raises one-line OSErrors."""

    def write(directory: Any) -> None:  # noqa: ANN401 - delta-rs' handler has no public type
        stream = directory.open_output_stream(name, None)
        stream.write(content)
        stream.close()

    in_directory(uri, write, 5 + (len(content) >> 20))


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
    message = _TOOK.sub("", _JAVA_STACK.split(message)[0])
    request = _REQUEST.search(message)
    for pattern, description in _KNOWN_ERRORS:
        if match := re.search(pattern, message):
            return description.format(*match.groups(), server=request[1] if request else "the store")
    return message
