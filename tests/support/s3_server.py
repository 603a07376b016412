"""An S3 server with one bucket, for tests of delta-rs' requests to a store: serves a directory, and counts requests.

It runs in its own process, since delta-rs holds Python's lock during some requests. It supports what delta-rs needs,
including conditional puts and multipart uploads, and what Spark's checkpoint needs: keys that end in `/`, copies, and
content in signed chunks. `make check-deploy` runs the job on moto's server.
"""

import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE, Popen
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

_HOST, _BUCKET = "127.0.0.1", "bucket"
_KEYS = re.compile(rb"<Key>(.*?)</Key>")
_PAGE = 1_000  # keys per page, as in S3
_DIRECTORY = ".directory"  # the file of a key that ends in "/", with which Hadoop's client marks directories
_REFUSED, _WRITTEN, _UNCONDITIONAL, _EXPIRED, _BUSY = "refused", "written", "unconditional", "expired", "busy"
_HELD, _SLOW = "held", "slow"
_NO_KEY = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
_POLL_SECONDS = 0.02  # while a request is held
_SLOW_SECONDS = 0.5


class S3Server:
    """A server whose objects are the files in `root`."""

    def __init__(self, directory: Path, endpoint: str) -> None:
        self.root, self._log, self._mode = _places(directory)
        self.environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        """The environment with which delta-rs finds the server."""

    def uri(self, name: str) -> str:
        return f"s3a://{_BUCKET}/{name}"

    def requests(self) -> list[tuple[str, str]]:
        """Return all requests in order, each with its kind (GET, HEAD, PUT, LIST, DELETE) and its key or prefix."""
        return [(kind, key) for _, kind, key in self._lines()]

    def _lines(self) -> list[tuple[int, str, str]]:
        lines = (line.split(" ", 2) for line in self._log.read_text("utf-8").splitlines())
        return [(int(place), kind, key) for place, kind, key in lines]

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count the requests of the block by their kinds."""
        found, before = Counter[str](), len(self.requests())
        yield found
        found.update(kind for kind, _ in self.requests()[before:])

    @contextmanager
    def counted_in_line(self) -> Iterator[list[int]]:
        """Give a list that has, after the block, how many of its requests came one after the other, at most.

        No request is answered before a while in which no other one came: those that do not wait for each other have
        the same place.
        """
        found, before = list[int](), len(self.requests())
        with self._in_mode(f"{_SLOW} {uuid4()}"):
            yield found
        found.append(max((place for place, *_ in self._lines()[before:]), default=0))

    def refusing_commits(self, *, but_written: bool) -> AbstractContextManager[None]:
        """Answer each commit in the block with an error; with `but_written` the commit is written nevertheless."""
        return self._in_mode(_WRITTEN if but_written else _REFUSED)

    def use(self, setenv: Callable[[str, str], None]) -> None:
        """Let delta-rs in this process find the server: `setenv` is that of a `MonkeyPatch`."""
        for name, value in self.environment.items():
            setenv(name, value)

    def ignoring_conditions(self) -> AbstractContextManager[None]:
        """Overwrite a file though the request says `If-None-Match: *`, as some stores do."""
        return self._in_mode(_UNCONDITIONAL)

    def denying_expired_credentials(self) -> AbstractContextManager[None]:
        """Answer each request as S3 does after the credentials have expired: that to a HEAD has no text."""
        return self._in_mode(_EXPIRED)

    def answering_busy(self, times: int) -> AbstractContextManager[None]:
        """Answer so many requests with 503 SlowDown, the first ones in the block."""
        return self._in_mode(f"{_BUSY} {times} {uuid4()}")

    def holding(self, requests: str) -> AbstractContextManager[None]:
        """Answer the requests that match a regex, such as `DELETE .*/alerts/`, only when the block has ended."""
        return self._in_mode(f"{_HELD} {requests}")

    @contextmanager
    def _in_mode(self, mode: str) -> Iterator[None]:
        self._mode.write_text(mode)
        yield
        self._mode.unlink()


@contextmanager
def s3_server(directory: Path, setenv: Callable[[str, str], None] = lambda *_: None) -> Iterator[S3Server]:
    """Run one on a free port of the loopback interface, with its files in `directory`; `setenv` is as for `use`."""
    from streaming_app.tables import kept_table  # noqa: PLC0415 - the server itself, a process, starts without it

    with Popen([sys.executable, "-m", __name__, str(directory)], stdout=PIPE, text=True) as process:
        assert process.stdout
        try:
            server = S3Server(directory, process.stdout.readline().strip())
            server.use(setenv)
            yield server
        finally:
            process.kill()
            for kept in (kept_table._KEPT, kept_table._OPENED):  # handles know the address of this server
                kept.clear()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _without_chunks(content: bytes) -> bytes:
    """Return the data of chunks: each has its length, in hexadecimal digits, and a signature before it."""
    data = b""
    while content:
        header, _, content = content.partition(b"\r\n")
        size = int(header.partition(b";")[0], 16)
        if not size:  # what follows is a checksum
            break
        data, content = data + content[:size], content[size + 2 :]
    return data


def _places(directory: Path) -> tuple[Path, Path, Path]:
    return directory / "objects", directory / "requests.log", directory / "mode"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and content in one packet, else the client would wait
    disable_nagle_algorithm = True
    root: ClassVar[Path]
    log: ClassVar[Path]
    mode: ClassVar[Path]
    lock = threading.Lock()
    answered_slowly: ClassVar[Counter[str]] = Counter()
    """How many of the requests came one after the other, by what the mode says."""
    newest_at: ClassVar[float] = 0.0
    answered_busy: ClassVar[Counter[str]] = Counter()
    """How many requests were answered so, by what the mode says."""
    parts: ClassVar[dict[str, bytes]] = {}
    """By key, the content of a multipart upload: one part, since delta-rs completes it with the next request."""

    def parse_request(self) -> bool:
        """Answer at once in the modes that refuse all requests."""
        if not super().parse_request():
            return False
        mode, *rest = self._current_mode().split(" ")
        if mode == _EXPIRED:
            refusal = 400, b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
        elif mode == _BUSY and self.answered_busy[rest[1]] < int(rest[0]):
            self.answered_busy[rest[1]] += 1
            refusal = 503, b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
        else:
            return True
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self._send(*refusal)
        self.wfile.flush()
        return False

    def _current_mode(self) -> str:
        try:
            return self.mode.read_text()
        except FileNotFoundError:
            return ""

    def do_GET(self) -> None:
        key, query = self._target()
        if "list-type" in query:
            self._list(query)
            return
        self._note("GET", key)
        self._send_object(key)

    def do_HEAD(self) -> None:
        key, _ = self._target()
        self._note("HEAD", key)
        self._send_object(key)

    def do_PUT(self) -> None:
        key, query = self._target()
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
            content = _without_chunks(content)
        if source := self.headers["x-amz-copy-source"]:
            self._note("COPY", key)
            try:
                copied = self._file(unquote(source).removeprefix("/").removeprefix(f"{_BUCKET}/")).read_bytes()
            except FileNotFoundError:
                self._send(404, _NO_KEY)
                return
            with self.lock:
                self._write(self._file(key), copied)
            copy = f"<LastModified>{_iso(self._file(key).stat().st_mtime)}</LastModified><ETag>e</ETag>"
            self._send(200, f"<CopyObjectResult>{copy}</CopyObjectResult>".encode())
            return
        if "uploadId" in query:
            self.parts[key] = content
            self._send(200, headers={"ETag": '"e"'})
            return
        self._note("PUT", key)
        mode = self._current_mode()
        refusal = mode if "/_delta_log/" in key and mode in {_REFUSED, _WRITTEN} else ""
        with self.lock:
            file = self._file(key)
            if file.exists() and self.headers["If-None-Match"] == "*" and mode != _UNCONDITIONAL:
                self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            if refusal != _REFUSED:
                self._write(file, content)
        if refusal:
            self._send(403, b"<Error><Code>AccessDenied</Code><Message>as the test wants it</Message></Error>")
        else:
            self._send(200, headers={"ETag": '"e"'})

    def do_DELETE(self) -> None:
        self._delete([self._target()[0]])
        self._send(204)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        key, query = self._target()
        if "uploads" in query:
            self._send(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
            return
        if "uploadId" in query:
            self._note("PUT", key)
            with self.lock:
                self._write(self.root / key, self.parts.pop(key))
            self._send(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
            return
        keys = [found.decode() for found in _KEYS.findall(content)]
        self._delete(keys)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._send(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the library
        """Print nothing."""

    def _target(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).removeprefix(f"/{_BUCKET}").removeprefix("/"), query

    def _file(self, key: str) -> Path:
        return self.root / key / _DIRECTORY if key.endswith("/") else self.root / key

    def _write(self, file: Path, content: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = self.root.with_name("new")
        new.write_bytes(content)
        new.rename(file)

    def _note(self, kind: str, key: str) -> None:
        """Note a request, and let it wait in the modes that say so.

        In a block that is slow its place is one behind the last of the requests that were answered before it came.
        """
        mode, _, value = self._current_mode().partition(" ")
        with self.lock, self.log.open("a", encoding="utf-8") as file:
            place = self.answered_slowly[value] + 1
            file.write(f"{place} {kind} {key}\n")
            type(self).newest_at = time.monotonic()
        while mode == _SLOW and time.monotonic() - self.newest_at < _SLOW_SECONDS:
            time.sleep(_POLL_SECONDS)  # noqa: TID251 - this is the server
        with self.lock:
            self.answered_slowly[value] = max(self.answered_slowly[value], place)
        while self._current_mode() == f"{_HELD} {value}" and re.search(value, f"{kind} {key}"):
            time.sleep(_POLL_SECONDS)  # noqa: TID251 - this is the server

    def _delete(self, keys: list[str]) -> None:
        self._note("DELETE", ",".join(keys))
        for key in keys:
            if (file := self._file(key)).is_file():
                file.unlink()

    def _list(self, query: dict[str, str]) -> None:
        prefix, after, delimiter = (query.get(name, "") for name in ("prefix", "start-after", "delimiter"))
        after = query.get("continuation-token", after)
        self._note("LIST", prefix)
        top = self.root / prefix.rpartition("/")[0]
        files = [file for file in top.rglob("*") if file.is_file()]
        found = {file.relative_to(self.root).as_posix().removesuffix(_DIRECTORY): file for file in files}
        keys = sorted(key for key in found if key.startswith(prefix) and key > after)
        directories = set[str]()
        if delimiter:
            rests = {key: key[len(prefix) :].partition(delimiter) for key in keys}
            directories = {prefix + first + delimiter for first, is_below, _ in rests.values() if is_below}
            keys = [key for key, (_, is_below, _) in rests.items() if not is_below]
        more = "<IsTruncated>false</IsTruncated>"
        if len(keys) > _PAGE and not delimiter:
            keys = keys[:_PAGE]
            more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>"
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{found[key].stat().st_size}</Size><ETag>e</ETag>"
            f"<LastModified>{_iso(found[key].stat().st_mtime)}</LastModified></Contents>"
            for key in keys
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in directories)
        self._send(200, f"<ListBucketResult>{more}{contents}{prefixes}</ListBucketResult>".encode())

    def _send_object(self, key: str) -> None:
        try:
            content, written_at = self._file(key).read_bytes(), self._file(key).stat().st_mtime
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            self._send(404, _NO_KEY)
            return
        headers, status, size = {"ETag": '"e"', "Last-Modified": formatdate(written_at, usegmt=True)}, 200, len(content)
        if wanted := self.headers["Range"]:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, size - int(last))
            end = min(size, int(last) + 1) if first and last else size
            content, status = content[start:end], 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._send(status, content, headers)

    def _send(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100


if __name__ == "__main__":
    _Handler.root, _Handler.log, _Handler.mode = _places(Path(sys.argv[1]))
    _Handler.root.mkdir(parents=True)
    _Handler.log.touch()
    with _Server((_HOST, 0), _Handler) as server, suppress(KeyboardInterrupt):
        os.write(sys.stdout.fileno(), f"http://{_HOST}:{server.server_port}\n".encode())
        server.serve_forever()
