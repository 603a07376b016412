"""Kafka's types as Constructs that are stricter than Construct's own. No record is known here.

Construct accepts varints of any length, and its errors have neither the array index nor the offset. These classes
reject bytes that Kafka does not write, and raise `MalformedRecord`, which has both. The `path` that they get is the one
in our errors, such as `value.activeTasks[0]`. The `context` of parsing is a list, to which unknown tags are appended.
"""

import base64
from io import BytesIO
from typing import Any

from construct import Construct, Subconstruct

from offsets_decoder.java_text import decode_chars, decode_utf
from offsets_decoder.layout import CODES, MAX_STRING, MAX_UVARINT, SIZES, FieldLayout, StructLayout
from offsets_decoder.record import MalformedRecord, UnknownTag

_CONTINUATION_BIT = 0x80
_UVARINT_SHIFTS = (0, 7, 14, 21, 28)
_PRESENT, _NULL = 0x01, 0xFF
_NULL_IN_TAG = 0x00  # there the presence byte is a varint, as in ConsumerGroupMemberMetadataValue (4.4.0)


def read_exactly(stream: BytesIO, size: int, path: str) -> bytes:
    """Return exactly `size` bytes. The stream never returns more than it has, so a wrong size allocates nothing."""
    start = stream.tell()
    data = stream.read(size)
    if len(data) != size:
        raise MalformedRecord(f"{size} bytes expected, {len(data)} remaining", path, start)
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
            raise MalformedRecord("the data ends within a varint", path, start)
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < _CONTINUATION_BIT:
            if (shift and not byte[0]) or value > MAX_UVARINT:
                break
            return value
    raise MalformedRecord("overlong varint", path, start)


def read_length(stream: BytesIO, path: str, prefix: str, *, nullable: bool) -> int | None:
    """Return a length, None for null: `compact` is a varint of length + 1, other prefixes name an integer type."""
    start = stream.tell()
    if prefix == "compact":
        length = read_uvarint(stream, path) - 1
    else:
        length = int.from_bytes(read_exactly(stream, SIZES[prefix], path), "big", signed=CODES[prefix].islower())
    if length >= 0:
        return length
    if length == -1 and nullable:
        return None
    reason = "null in a field that is not nullable" if length == -1 else f"negative length {length}"
    raise MalformedRecord(reason, path, start)


class Integer(Construct):  # type: ignore[misc]
    """A big-endian integer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.size, self.is_signed = SIZES[kind], CODES[kind].islower()

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        return int.from_bytes(read_exactly(stream, self.size, path), "big", signed=self.is_signed)


class _LengthPrefixed(Construct):  # type: ignore[misc]
    """A length, followed by so many bytes; no bytes if the length means null."""

    def __init__(self, prefix: str, *, nullable: bool) -> None:
        super().__init__()
        self.prefix = prefix
        self.nullable = nullable


class String(_LengthPrefixed):
    """A string in UTF-8."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002 - Construct's signature
        length_offset = stream.tell()
        length = read_length(stream, path, self.prefix, nullable=self.nullable)
        if length is None:
            return None
        if length > MAX_STRING:
            raise MalformedRecord(f"a string of {length} bytes, the maximum is {MAX_STRING}", path, length_offset)
        start = stream.tell()
        try:
            return read_exactly(stream, length, path).decode()
        except UnicodeDecodeError as error:
            raise MalformedRecord("not UTF-8", path, start + error.start) from None


class JavaText(_LengthPrefixed):
    """What Java's `writeUTF` writes, or `writeChars` after the number of characters. See `java_text`."""

    def __init__(self, kind: str) -> None:
        is_utf = kind == "utf"
        super().__init__("uint16" if is_utf else "int32", nullable=False)
        self.unit = 1 if is_utf else 2  # bytes that the length counts as one
        self.decode_text = decode_utf if is_utf else decode_chars

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        length = read_length(stream, path, self.prefix, nullable=False) or 0
        start = stream.tell()
        try:
            return self.decode_text(read_exactly(stream, length * self.unit, path))
        except UnicodeDecodeError as error:
            raise MalformedRecord("not modified UTF-8", path, start + error.start) from None


class Bytes(_LengthPrefixed):
    """Bytes whose content is not decoded further."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401, ARG002
        length = read_length(stream, path, self.prefix, nullable=self.nullable)
        return None if length is None else read_exactly(stream, length, path)


class Uuid(Construct):  # type: ignore[misc]
    """A uuid, as text."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> str:  # noqa: ANN401, ARG002
        data = read_exactly(stream, SIZES["uuid"], path)
        return base64.urlsafe_b64encode(data)[:22].decode()  # as Kafka prints a uuid: without padding


class Array(Subconstruct):  # type: ignore[misc]
    """An array after its length. Each of its elements has at least one byte."""

    def __init__(self, subcon: Construct, prefix: str, *, nullable: bool) -> None:
        super().__init__(subcon)
        self.prefix = prefix
        self.nullable = nullable

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        start = stream.tell()
        count = read_length(stream, path, self.prefix, nullable=self.nullable)
        if count is None:
            return None
        if count > remaining(stream):  # before a list is created for them
            raise MalformedRecord(f"{count} elements expected, {remaining(stream)} bytes remaining", path, start)
        return [self.subcon._parsereport(stream, context, f"{path}[{i}]") for i in range(count)]  # noqa: SLF001


class NullableStruct(Subconstruct):  # type: ignore[misc]
    """A struct after a byte that says whether it is present; `null` is the byte for null.

    Kafka accepts other values than these two, but never writes them.
    """

    def __init__(self, subcon: Construct, null: int) -> None:
        super().__init__(subcon)
        self.null = null

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        start = stream.tell()
        byte = read_exactly(stream, 1, path)[0]
        if byte not in {self.null, _PRESENT}:
            raise MalformedRecord(f"a byte that means neither null nor present: {byte:#04x}", path, start)
        return self.subcon._parsereport(stream, context, path) if byte == _PRESENT else None  # noqa: SLF001


class Struct(Construct):  # type: ignore[misc]
    """A struct of one version, as a dict by field: all that the definition has, absent ones with their defaults.

    If it is flexible, it ends with tagged fields.
    """

    def __init__(self, layout: StructLayout) -> None:
        super().__init__()
        self.layout = layout
        self.tagged = {field.tag: field for field in layout.tagged} if layout.flexible else {}
        encoded = (*layout.untagged, *self.tagged.values())
        self.constructs = {field.snake: _field_construct(field, flexible=layout.flexible) for field in encoded}

    def _parse(self, stream: BytesIO, context: list[UnknownTag], path: str) -> dict[str, Any]:
        found = {field.snake: self._parse_field(field, stream, context, path) for field in self.layout.untagged}
        if self.layout.flexible:
            self._parse_tagged(found, stream, context, path)
        return {
            field.snake: found[field.snake] if field.snake in found else field.default_value()
            for field in self.layout.fields
        }

    def _parse_field(self, field: FieldLayout, stream: BytesIO, context: list[UnknownTag], path: str) -> Any:  # noqa: ANN401
        return self.constructs[field.snake]._parsereport(stream, context, f"{path}.{field.camel}")  # noqa: SLF001

    def _parse_tagged(self, found: dict[str, Any], stream: BytesIO, context: list[UnknownTag], path: str) -> None:
        previous = -1
        for _ in range(read_uvarint(stream, path)):
            tag_offset = stream.tell()
            tag = read_uvarint(stream, path)
            if tag <= previous:
                raise MalformedRecord(f"tag {tag} after tag {previous}", path, tag_offset)
            previous = tag
            size = read_uvarint(stream, path)
            start = stream.tell()
            if size > remaining(stream):
                raise MalformedRecord(f"{size} bytes expected in tag {tag}, {remaining(stream)} remaining", path, start)
            field = self.tagged.get(tag)
            if field is None:
                context.append(UnknownTag(path, tag, stream.read(size)))
                continue
            found[field.snake] = self._parse_field(field, stream, context, path)
            actual = stream.tell() - start
            if actual != size:
                reason = f"tag {tag} has {size} bytes, its field {actual}"
                raise MalformedRecord(reason, f"{path}.{field.camel}", start)


def _field_construct(field: FieldLayout, *, flexible: bool) -> Construct:
    if field.is_array:
        element = _element_construct(field, flexible=flexible, nullable=False)
        return Array(element, "compact" if flexible else "int32", nullable=field.nullable)
    return _element_construct(field, flexible=flexible, nullable=field.nullable)


def _element_construct(field: FieldLayout, *, flexible: bool, nullable: bool) -> Construct:
    if field.struct is not None:
        struct = Struct(field.struct)
        return NullableStruct(struct, _NULL if field.tag is None else _NULL_IN_TAG) if nullable else struct
    if field.element == "uuid":
        return Uuid()
    if field.element in CODES:
        return Integer(field.element)
    if field.element in {"utf", "chars"}:
        return JavaText(field.element)
    kind, prefix = {"string": (String, "int16"), "bytes": (Bytes, "int32")}[field.element]
    return kind("compact" if flexible else prefix, nullable=nullable)
