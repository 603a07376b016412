"""Kafka's wire types as Constructs, strict where Construct's own are not. No record is known here.

Construct accepts varints of any length, takes short reads of strings for whole ones in its compiled form, and says of
an error neither the array index nor the offset. These classes refuse what Kafka does not write and raise `Fault`, which
carries both. Each emits code for `Construct.compile`, so that compiling leaves nothing interpreted.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from construct import Construct, ConstructError, FormatField, FormatFieldError

from offsets_decoder.scalars import BIGGEST_UVARINT, CODES, MAX_STRING, SIZES

if TYPE_CHECKING:
    from io import BytesIO

_CONTINUES = 0x80
_UVARINT_SHIFTS = (0, 7, 14, 21, 28)


class Fault(ConstructError):  # type: ignore[misc]  # noqa: N818 - Construct has no types; not an error of ours
    """A breach of the layout, found while parsing, at an offset from the start of the stream."""

    def __init__(self, reason: str, path: str, offset: int) -> None:
        super().__init__(reason, path=path)
        self.reason = reason
        self.offset = offset


def take(stream: BytesIO, size: int, path: str) -> bytes:
    """Exactly `size` bytes. A stream hands out no more than it has, so a false claim allocates nothing."""
    start = stream.tell()
    data = stream.read(size)
    if len(data) != size:
        raise Fault(f"{size} bytes are claimed, {len(data)} are left", path, start)
    return data


def room(stream: BytesIO) -> int:
    """How many bytes are left."""
    return stream.getbuffer().nbytes - stream.tell()


def read_uvarint(stream: BytesIO, path: str) -> int:
    """Return an unsigned varint of at most 32 bits in its shortest form, the only one Kafka writes."""
    start = stream.tell()
    value = 0
    for shift in _UVARINT_SHIFTS:
        piece = stream.read(1)
        if not piece:
            raise Fault("the bytes end inside a varint", path, start)
        value |= (piece[0] & 0x7F) << shift
        if piece[0] < _CONTINUES:
            if (shift and not piece[0]) or value > BIGGEST_UVARINT:
                break
            return value
    raise Fault("over-long varint", path, start)


def read_length(stream: BytesIO, path: str, prefix: str, *, nullable: bool) -> int | None:
    """Return a length: `compact` is a varint of length + 1, else the number type that holds it. None is null."""
    start = stream.tell()
    if prefix == "compact":
        length = read_uvarint(stream, path) - 1
    else:
        length = int.from_bytes(take(stream, SIZES[prefix], path), "big", signed=True)
    if length >= 0:
        return length
    if length == -1 and nullable:
        return None
    raise Fault("null where there must be a value" if length == -1 else f"negative size {length}", path, start)


def read_text(stream: BytesIO, path: str, prefix: str, nullable: bool) -> str | None:  # noqa: FBT001 - emitted code
    """Return a string, or None for null."""
    at = stream.tell()
    length = read_length(stream, path, prefix, nullable=nullable)
    if length is None:
        return None
    if length > MAX_STRING:
        raise Fault(f"a string of {length} bytes, {MAX_STRING} is the most", path, at)
    start = stream.tell()
    try:
        return take(stream, length, path).decode()
    except UnicodeDecodeError as error:
        raise Fault("not UTF-8", path, start + error.start) from None


def read_blob(stream: BytesIO, path: str, prefix: str, nullable: bool) -> bytes | None:  # noqa: FBT001
    """Bytes, or None for null."""
    length = read_length(stream, path, prefix, nullable=nullable)
    return None if length is None else take(stream, length, path)


def read_uuid(stream: BytesIO, path: str) -> str:
    """Sixteen bytes as Kafka prints them: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(take(stream, SIZES["uuid"], path))[:22].decode()


def write_uvarint(stream: BytesIO, value: int) -> None:
    """Write an unsigned varint in its shortest form."""
    while value >= _CONTINUES:
        stream.write(bytes((value & 0x7F | _CONTINUES,)))
        value >>= 7
    stream.write(bytes((value,)))


def write_length(stream: BytesIO, length: int, prefix: str) -> None:
    """Write what `read_length` reads; -1 is null."""
    if prefix == "compact":
        write_uvarint(stream, length + 1)
    else:
        stream.write(length.to_bytes(SIZES[prefix], "big", signed=True))


class Number(FormatField):  # type: ignore[misc]
    """A big-endian integer. Compiled, it is Construct's own."""

    def __init__(self, kind: str) -> None:
        super().__init__(">", CODES[kind])

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        start = stream.tell()
        data = stream.read(self.length)
        if len(data) != self.length:
            raise Fault(f"{self.length} bytes are needed, {len(data)} are left", path, start)
        return int.from_bytes(data, "big", signed=self.fmtstr[1].islower())

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        if type(obj) is not int:  # a bool would pass for a number
            raise FormatFieldError(f"not an integer: {obj!r}", path=path)
        return super()._build(obj, stream, context, path)


class _Sized(Construct):  # type: ignore[misc]
    """What strings and bytes share: a prefix, null, and one reading function for both ways to parse."""

    reader = ""

    def __init__(self, prefix: str, *, nullable: bool) -> None:
        super().__init__()
        self.prefix = prefix
        self.nullable = nullable

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002 - Construct's signature
        return globals()[self.reader](stream, path, self.prefix, self.nullable)

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        data = self._bytes(obj, path)
        if obj is None and not self.nullable:
            raise FormatFieldError("null where there must be a value", path=path)
        write_length(stream, -1 if obj is None else len(data), self.prefix)
        stream.write(data)
        return obj

    def _bytes(self, obj: Any, path: str) -> bytes:  # noqa: ANN401
        raise NotImplementedError

    def _emitparse(self, code: Any) -> str:  # noqa: ANN401
        code.append(f"from offsets_decoder.wire import {self.reader}")
        return f"{self.reader}(io, '', {self.prefix!r}, {self.nullable})"


class Text(_Sized):
    """A string in UTF-8."""

    reader = "read_text"

    def _bytes(self, obj: Any, path: str) -> bytes:  # noqa: ANN401
        if not isinstance(obj, str | None):
            raise FormatFieldError(f"not a string: {obj!r}", path=path)
        try:
            data = (obj or "").encode()
        except UnicodeEncodeError as error:
            raise FormatFieldError(f"not UTF-8: {error.reason}", path=path) from None
        if len(data) > MAX_STRING:
            raise FormatFieldError(f"a string of {len(data)} bytes, {MAX_STRING} is the most", path=path)
        return data


class Blob(_Sized):
    """Bytes that mean something to others."""

    reader = "read_blob"

    def _bytes(self, obj: Any, path: str) -> bytes:  # noqa: ANN401
        if not isinstance(obj, bytes | None):
            raise FormatFieldError(f"not bytes: {obj!r}", path=path)
        return obj or b""


class Uuid(Construct):  # type: ignore[misc]
    """A uuid as text."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> str:  # noqa: ANN401, ARG002
        return read_uuid(stream, path)

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        try:
            data = base64.b64decode(obj + "==", altchars=b"-_", validate=True)
        except (TypeError, ValueError):
            data = b""
        if len(data) != SIZES["uuid"]:
            raise FormatFieldError(f"not a uuid: {obj!r}", path=path)
        stream.write(data)
        return obj

    def _emitparse(self, code: Any) -> str:  # noqa: ANN401
        code.append("from offsets_decoder.wire import read_uuid")
        return "read_uuid(io, '')"
