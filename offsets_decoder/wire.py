"""Kafka's scalar, string and bytes types as Constructs that are stricter than Construct's own. No record is known here.

Construct accepts varints of any length, and its errors have neither the array index nor the offset. These classes
reject bytes that Kafka does not write, and raise `LayoutError`, which has both.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from construct import Construct, ConstructError, FormatField, FormatFieldError

from offsets_decoder.layout import CODES, MAX_STRING, MAX_UVARINT, SIZES

if TYPE_CHECKING:
    from io import BytesIO

_CONTINUATION_BIT = 0x80
_UVARINT_SHIFTS = (0, 7, 14, 21, 28)


class LayoutError(ConstructError):  # type: ignore[misc]
    """A violation of the layout, found while parsing, at an offset from the start of the stream."""

    def __init__(self, reason: str, path: str, offset: int) -> None:
        super().__init__(reason, path=path)
        self.reason = reason
        self.offset = offset


def read_exactly(stream: BytesIO, size: int, path: str) -> bytes:
    """Return exactly `size` bytes. The stream never returns more than it has, so a wrong size allocates nothing."""
    start = stream.tell()
    data = stream.read(size)
    if len(data) != size:
        raise LayoutError(f"{size} bytes expected, {len(data)} remaining", path, start)
    return data


def remaining(stream: BytesIO) -> int:
    """Return the number of bytes that remain."""
    return stream.getbuffer().nbytes - stream.tell()


def read_uvarint(stream: BytesIO, path: str) -> int:
    """Return an unsigned varint of at most 32 bits in its shortest form, the only one Kafka writes."""
    start = stream.tell()
    value = 0
    for shift in _UVARINT_SHIFTS:
        byte = stream.read(1)
        if not byte:
            raise LayoutError("the data ends within a varint", path, start)
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < _CONTINUATION_BIT:
            if (shift and not byte[0]) or value > MAX_UVARINT:
                break
            return value
    raise LayoutError("overlong varint", path, start)


def read_length(stream: BytesIO, path: str, prefix: str, *, nullable: bool) -> int | None:
    """Return a length, None for null: `compact` is a varint of length + 1, other prefixes name an integer type."""
    start = stream.tell()
    if prefix == "compact":
        length = read_uvarint(stream, path) - 1
    else:
        length = int.from_bytes(read_exactly(stream, SIZES[prefix], path), "big", signed=True)
    if length >= 0:
        return length
    if length == -1 and nullable:
        return None
    reason = "null in a field that is not nullable" if length == -1 else f"negative length {length}"
    raise LayoutError(reason, path, start)


def write_uvarint(stream: BytesIO, value: int) -> None:
    """Write an unsigned varint in its shortest form."""
    while value >= _CONTINUATION_BIT:
        stream.write(bytes((value & 0x7F | _CONTINUATION_BIT,)))
        value >>= 7
    stream.write(bytes((value,)))


def write_length(stream: BytesIO, length: int, prefix: str) -> None:
    """Write a length in the form that `read_length` reads; -1 is null."""
    if prefix == "compact":
        write_uvarint(stream, length + 1)
    else:
        stream.write(length.to_bytes(SIZES[prefix], "big", signed=True))


class Integer(FormatField):  # type: ignore[misc]
    """A big-endian integer."""

    def __init__(self, kind: str) -> None:
        super().__init__(">", CODES[kind])

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        return int.from_bytes(read_exactly(stream, self.length, path), "big", signed=self.fmtstr[1].islower())

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        if type(obj) is not int:  # bool is a subclass of int
            raise FormatFieldError(f"not an integer: {obj!r}", path=path)
        return super()._build(obj, stream, context, path)


class _LengthPrefixed(Construct):  # type: ignore[misc]
    """A length, followed by so many bytes; no bytes if the length means null."""

    def __init__(self, prefix: str, *, nullable: bool) -> None:
        super().__init__()
        self.prefix = prefix
        self.nullable = nullable

    def _write(self, stream: BytesIO, data: bytes | None, path: str) -> None:
        if data is None and not self.nullable:
            raise FormatFieldError("null in a field that is not nullable", path=path)
        write_length(stream, -1 if data is None else len(data), self.prefix)
        stream.write(data or b"")


class String(_LengthPrefixed):
    """A string in UTF-8."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002 - Construct's signature
        length_offset = stream.tell()
        length = read_length(stream, path, self.prefix, nullable=self.nullable)
        if length is None:
            return None
        if length > MAX_STRING:
            raise LayoutError(f"a string of {length} bytes, the maximum is {MAX_STRING}", path, length_offset)
        start = stream.tell()
        try:
            return read_exactly(stream, length, path).decode()
        except UnicodeDecodeError as error:
            raise LayoutError("not UTF-8", path, start + error.start) from None

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        if not isinstance(obj, str | None):
            raise FormatFieldError(f"not a string: {obj!r}", path=path)
        try:
            data = None if obj is None else obj.encode()
        except UnicodeEncodeError as error:
            raise FormatFieldError(f"not UTF-8: {error.reason}", path=path) from None
        if data is not None and len(data) > MAX_STRING:
            raise FormatFieldError(f"a string of {len(data)} bytes, the maximum is {MAX_STRING}", path=path)
        self._write(stream, data, path)
        return obj


class Bytes(_LengthPrefixed):
    """Bytes whose content is not decoded further."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        length = read_length(stream, path, self.prefix, nullable=self.nullable)
        return None if length is None else read_exactly(stream, length, path)

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        if not isinstance(obj, bytes | None):
            raise FormatFieldError(f"not bytes: {obj!r}", path=path)
        self._write(stream, obj, path)
        return obj


class Uuid(Construct):  # type: ignore[misc]
    """A uuid, as text."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> str:  # noqa: ANN401, ARG002
        data = read_exactly(stream, SIZES["uuid"], path)
        return base64.urlsafe_b64encode(data)[:22].decode()  # as Kafka prints a uuid: without padding

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        try:
            data = base64.b64decode(obj + "==", altchars=b"-_", validate=True)
        except (TypeError, ValueError):
            data = b""
        if len(data) != SIZES["uuid"]:
            raise FormatFieldError(f"not a uuid: {obj!r}", path=path)
        stream.write(data)
        return obj
