"""Kafka's arrays, optional structs and tagged fields as Constructs: what holds other fields. Scalars are in `wire`."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from construct import Adapter, Construct, FormatFieldError, Struct, Subconstruct

from offsets_decoder.record import UnknownTag
from offsets_decoder.wire import Fault, read_length, read_uvarint, room, take, write_length, write_uvarint

TAGS = "_tags"  # no name of Kafka's begins with an underscore
_PRESENT = 0x01
ABSENT = 0xFF
ABSENT_IN_TAG = 0x00  # the byte before a struct is a varint there, as ConsumerGroupMemberMetadataValue (4.4.0) has it


def need_room(stream: BytesIO, count: int, size: int, path: str, start: int) -> None:
    """Refuse a count of elements that the bytes left cannot hold, before a list is made for them."""
    if count * size > room(stream):
        raise Fault(f"{count} elements are claimed, {room(stream)} bytes are left", path, start)


def read_presence(stream: BytesIO, path: str, absent: int) -> bool:
    """Read the byte before a struct that may be null. Kafka takes other bytes for one of the two, but writes none."""
    start = stream.tell()
    byte = take(stream, 1, path)[0]
    if byte not in {absent, _PRESENT}:
        raise Fault(f"neither null nor present: {byte:#04x}", path, start)
    return byte == _PRESENT


class Series(Subconstruct):  # type: ignore[misc]  # Construct has no types
    """An array; `size` is the fewest bytes one element takes."""

    def __init__(self, subcon: Construct, prefix: str, *, nullable: bool, size: int) -> None:
        super().__init__(subcon)
        self.prefix = prefix
        self.nullable = nullable
        self.size = size

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        start = stream.tell()
        count = read_length(stream, path, self.prefix, nullable=self.nullable)
        if count is None:
            return None
        need_room(stream, count, self.size, path, start)
        return [self.subcon._parsereport(stream, context, f"{path}[{i}]") for i in range(count)]  # noqa: SLF001

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        if not (isinstance(obj, list | tuple) or (obj is None and self.nullable)):
            raise FormatFieldError(f"not a list: {obj!r}", path=path)
        write_length(stream, -1 if obj is None else len(obj), self.prefix)
        for i, element in enumerate(obj or ()):
            self.subcon._build(element, stream, context, f"{path}[{i}]")  # noqa: SLF001
        return obj

    def _emitparse(self, code: Any) -> str:  # noqa: ANN401
        name = f"series_{code.allocateId()}"
        element = self.subcon._compileparse(code)  # noqa: SLF001
        code.append("from offsets_decoder.shapes import need_room, read_length")
        code.append(f"""
            def {name}(io, this):
                count = read_length(io, '', {self.prefix!r}, nullable={self.nullable})
                if count is None:
                    return None
                need_room(io, count, {self.size}, '', 0)
                return [{element} for _ in range(count)]
        """)
        return f"{name}(io, this)"


class Optional(Subconstruct):  # type: ignore[misc]
    """A struct behind a byte that says whether it is there; `absent` is the byte for null."""

    def __init__(self, subcon: Construct, absent: int) -> None:
        super().__init__(subcon)
        self.absent = absent

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        there = read_presence(stream, path, self.absent)
        return self.subcon._parsereport(stream, context, path) if there else None  # noqa: SLF001

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:  # noqa: ANN401
        stream.write(bytes((self.absent if obj is None else _PRESENT,)))
        return None if obj is None else self.subcon._build(obj, stream, context, path)  # noqa: SLF001

    def _emitparse(self, code: Any) -> str:  # noqa: ANN401
        code.append("from offsets_decoder.shapes import read_presence")
        return f"({self.subcon._compileparse(code)} if read_presence(io, '', {self.absent}) else None)"  # noqa: SLF001


class Tags(Construct):  # type: ignore[misc]
    """The section of tagged fields that ends a flexible struct: `known` is (name, construct, default) by tag.

    Parses to the fields found, by name. What is not known goes to the list `unknown` that parsing was called with.
    """

    def __init__(self, known: dict[int, tuple[str, Construct, Any]]) -> None:
        super().__init__()
        self.known = known

    def _parse(self, stream: BytesIO, context: Any, path: str) -> dict[str, Any]:  # noqa: ANN401
        readers = {tag: (name, subcon._parsereport) for tag, (name, subcon, _) in self.known.items()}  # noqa: SLF001
        return read_tags(stream, context, path, readers)

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

    def _emitparse(self, code: Any) -> str:  # noqa: ANN401
        table = f"tags_{code.allocateId()}"
        entries = []
        for tag, (name, subcon, _) in self.known.items():
            emitted = subcon._compileparse(code)  # noqa: SLF001
            entries.append(f"{tag}: ({name!r}, lambda io, this, path: {emitted})")
        code.append("from offsets_decoder.shapes import read_tags")
        code.append(f"{table} = {{{', '.join(entries)}}}")
        return f"read_tags(io, this, '', {table})"


def read_tags(stream: BytesIO, context: Any, path: str, readers: dict[int, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Tagged fields by name; `readers` is (name, function of stream, context and path) by tag."""
    found: dict[str, Any] = {}
    last = -1
    for _ in range(read_uvarint(stream, path)):
        at = stream.tell()
        tag = read_uvarint(stream, path)
        if tag <= last:
            raise Fault(f"tag {tag} after tag {last}", path, at)
        last = tag
        size = read_uvarint(stream, path)
        start = stream.tell()
        if size > room(stream):
            raise Fault(f"tag {tag} claims {size} bytes, {room(stream)} are left", path, start)
        if tag not in readers:
            context["_params"]["unknown"].append(UnknownTag(plain_path(path), tag, stream.read(size)))
            continue
        name, reader = readers[tag]
        found[name] = reader(stream, context, f"{path} -> {name}")
        if stream.tell() != start + size:
            took = stream.tell() - start
            raise Fault(f"tag {tag} claims {size} bytes, its field takes {took}", f"{path} -> {name}", start)
    return found


def plain_path(path: str) -> str:
    """Return construct's path, "(parsing) -> activeTasks[0] -> _tags", as ours: "activeTasks[0]"."""
    return ".".join(part for part in path.split(" -> ")[1:] if part != TAGS)


class Plain(Adapter):  # type: ignore[misc]
    """Turns Construct's Container into a dict: without `_io`, tagged fields in place, absent ones at their defaults.

    `names` is (name on the wire side, name in the dict, maker of the default or None where the wire always has it).
    """

    def __init__(self, subcon: Struct, names: list[tuple[str, str, Any]], tagged: frozenset[str]) -> None:
        super().__init__(subcon)
        self.names = names
        self.tagged = tagged

    def _decode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ANN401, ARG002
        return plain(obj, self.names)

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ANN401, ARG002
        wire = {name: obj[snake] for name, snake, _ in self.names}
        return wire | {TAGS: {name: wire[name] for name in self.tagged}}

    def _emitparse(self, code: Any) -> str:  # noqa: ANN401
        names = f"names_{code.allocateId()}"
        entries = (f"({n!r}, {s!r}, {f'lambda: {d()!r}' if d else None})" for n, s, d in self.names)
        code.append("from offsets_decoder.shapes import plain")
        code.append(f"{names} = [{', '.join(entries)}]")
        return f"plain({self.subcon._compileparse(code)}, {names})"  # noqa: SLF001


def plain(obj: Any, names: list[tuple[str, str, Any]]) -> dict[str, Any]:  # noqa: ANN401
    """Return the dict that `Plain` describes, from a Container."""
    tagged = obj.get(TAGS) or {}
    result = {}
    for name, snake, default in names:
        if default is None:
            result[snake] = obj[name]
        else:
            result[snake] = tagged[name] if name in tagged else default()
    return result
