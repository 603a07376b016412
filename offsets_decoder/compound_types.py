"""Kafka's arrays, nullable structs and tagged fields as Constructs: types with fields or elements. Scalars: `wire`."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from construct import Adapter, Construct, FormatFieldError, Struct, Subconstruct

from offsets_decoder.record import UnknownTag
from offsets_decoder.wire import (
    LayoutError,
    read_exactly,
    read_length,
    read_uvarint,
    remaining,
    write_length,
    write_uvarint,
)

TAGS = "_tags"  # no field name of Kafka's starts with an underscore
_PRESENT = 0x01
NULL = 0xFF
NULL_IN_TAG = 0x00  # in a tagged field the presence byte is a varint, as in ConsumerGroupMemberMetadataValue (4.4.0)


class Array(Subconstruct):  # type: ignore[misc]  # Construct has no types
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
            raise LayoutError(f"{count} elements expected, {remaining(stream)} bytes remaining", path, start)
        return [self.subcon._parsereport(stream, context, f"{path}[{i}]") for i in range(count)]  # noqa: SLF001

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        if not (isinstance(obj, list | tuple) or (obj is None and self.nullable)):
            raise FormatFieldError(f"not a list: {obj!r}", path=path)
        write_length(stream, -1 if obj is None else len(obj), self.prefix)
        for i, element in enumerate(obj or ()):
            self.subcon._build(element, stream, context, f"{path}[{i}]")  # noqa: SLF001
        return obj


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
            raise LayoutError(f"a byte that means neither null nor present: {byte:#04x}", path, start)
        return self.subcon._parsereport(stream, context, path) if byte == _PRESENT else None  # noqa: SLF001

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        stream.write(bytes((self.null if obj is None else _PRESENT,)))
        return None if obj is None else self.subcon._build(obj, stream, context, path)  # noqa: SLF001


class TaggedFields(Construct):  # type: ignore[misc]
    """The section of tagged fields at the end of a flexible struct: `known` is (name, construct, default) by tag.

    It parses to a dict of the present fields, by name. Unknown ones are appended to the list `unknown`, an argument of
    the parsing methods.
    """

    def __init__(self, known: dict[int, tuple[str, Construct, Any]]) -> None:
        super().__init__()
        self.known = known

    def _parse(self, stream: BytesIO, context: Any, path: str) -> dict[str, Any]:  # noqa: ANN401
        fields: dict[str, Any] = {}
        previous = -1
        for _ in range(read_uvarint(stream, path)):
            tag_offset = stream.tell()
            tag = read_uvarint(stream, path)
            if tag <= previous:
                raise LayoutError(f"tag {tag} after tag {previous}", path, tag_offset)
            previous = tag
            size = read_uvarint(stream, path)
            start = stream.tell()
            if size > remaining(stream):
                raise LayoutError(f"{size} bytes expected in tag {tag}, {remaining(stream)} remaining", path, start)
            if tag not in self.known:
                context["_params"]["unknown"].append(UnknownTag(field_path(path), tag, stream.read(size)))
                continue
            name, subcon, _ = self.known[tag]
            fields[name] = subcon._parsereport(stream, context, f"{path} -> {name}")  # noqa: SLF001
            actual = stream.tell() - start
            if actual != size:
                raise LayoutError(f"tag {tag} has {size} bytes, its field {actual}", f"{path} -> {name}", start)
        return fields

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        written = [(t, n, c) for t, (n, c, default) in sorted(self.known.items()) if obj[n] != default]
        write_uvarint(stream, len(written))
        for tag, name, subcon in written:
            inner = BytesIO()
            subcon._build(obj[name], inner, context, f"{path} -> {name}")  # noqa: SLF001
            write_uvarint(stream, tag)
            write_uvarint(stream, len(inner.getvalue()))
            stream.write(inner.getvalue())
        return obj


def field_path(path: str) -> str:
    """Convert Construct's path "(parsing) -> activeTasks[0] -> _tags" to our form "activeTasks[0]"."""
    return ".".join(part for part in path.split(" -> ")[1:] if part != TAGS)


class DictAdapter(Adapter):  # type: ignore[misc]
    """Converts Construct's Container to a dict without `_io`: tagged fields in order, absent ones with their defaults.

    `names` is (name of the field, key in the dict, function that returns the default; None: the field is always
    encoded).
    """

    def __init__(self, subcon: Struct, names: list[tuple[str, str, Any]], tagged: frozenset[str]) -> None:
        super().__init__(subcon)
        self.names = names
        self.tagged = tagged

    def _decode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ANN401, ARG002
        tagged = obj.get(TAGS) or {}
        result = {}
        for name, snake, default in self.names:
            if default is None:
                result[snake] = obj[name]
            else:
                result[snake] = tagged[name] if name in tagged else default()
        return result

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ANN401, ARG002
        fields = {name: obj[snake] for name, snake, _ in self.names}
        return fields | {TAGS: {name: fields[name] for name in self.tagged}}
