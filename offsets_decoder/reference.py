"""Decoding and encoding with Construct: `reference_decode` defines which results and errors are correct.

It is slow, and only reads what the fast path rejects. `encode` is for tests, benchmarks and generated topics.

Two layouts can have the same type and version (types 11 and 15 in Kafka 4.0 and since 4.1). The newer layout is used if
it fits to the last byte; else the older one if it fits to the last byte and has no unknown tag, which no 4.0 broker
wrote. Both cannot fit: type 11 has 5 bytes after the version in 4.0 and at least 13 since. For type 15 the newer layout
always reads the end of a 4.0 struct, a zero byte, as the length of an array, and zero means null.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from construct import Construct, ConstructError, Struct

from offsets_decoder.compound_types import (
    NULL,
    NULL_IN_TAG,
    TAGS,
    Array,
    DictAdapter,
    NullableStruct,
    TaggedFields,
    field_path,
)
from offsets_decoder.definitions import records
from offsets_decoder.layout import (
    CODES,
    FieldLayout,
    StructLayout,
    key_layout,
    older_layouts,
    released_definition,
    value_layout,
)
from offsets_decoder.record import DecodeError, EncodeError, MalformedRecord, Record, UnknownTag
from offsets_decoder.wire import Bytes, Integer, LayoutError, String, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from offsets_decoder.definitions import RecordDefinition

_PREFIX = 2  # bytes: a key's record type, a value's version


def reference_decode(key: bytes, value: bytes | None) -> Record:
    """Decode one record with Construct alone, with the same results and errors as `offsets_decoder.decode`."""
    record_type = _read_prefix(key, "key", "a record type")
    name = released_definition(record_type).name
    key_fields, _ = _parse(key_construct(record_type), key, "key")
    if value is None:
        return Record(record_type, name, key_fields, None, None, [])
    version = _read_prefix(value, "value", "a version")
    fields, unknown, layout = _parse_value(record_type, version, value)
    return Record(record_type, name, key_fields, fields, version, unknown, layout)


def _parse_value(record_type: int, version: int, value: bytes) -> tuple[dict[str, Any], list[UnknownTag], str | None]:
    try:
        return (*_parse(value_construct(record_type, version), value, "value"), None)
    except MalformedRecord:
        for layout in older_layouts(record_type, version):
            with suppress(MalformedRecord):
                fields, unknown = _parse(value_construct(record_type, version, layout), value, "value")
                if not unknown:
                    return fields, [], layout
        raise


def _read_prefix(data: bytes | None, part: str, meaning: str) -> int:
    if data is None:
        raise MalformedRecord("null", part, 0)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise MalformedRecord(f"{type(data).__name__}, not bytes", part, 0)
    if len(data) < _PREFIX:
        raise MalformedRecord(f"2 bytes expected for {meaning}, {len(data)} remaining", part, 0)
    return int.from_bytes(data[:_PREFIX], "big", signed=True)


def _parse(construct: Construct, data: bytes, part: str) -> tuple[dict[str, Any], list[UnknownTag]]:
    stream = BytesIO(data)
    stream.seek(_PREFIX)
    unknown: list[UnknownTag] = []
    try:
        fields = construct.parse_stream(stream, unknown=unknown)
    except LayoutError as error:
        raise MalformedRecord(error.reason, _join_path(part, field_path(error.path)), error.offset) from None
    if stream.tell() != len(data):
        raise MalformedRecord(f"{len(data) - stream.tell()} trailing bytes", part, stream.tell())
    return fields, [tag._replace(path=_join_path(part, tag.path)) for tag in unknown]


def _join_path(part: str, path: str) -> str:
    return f"{part}.{path}" if path else part


def encode(
    record_type: int | str,
    key: dict[str, Any],
    value: dict[str, Any] | None,
    *,
    version: int | None = None,
    layout: str | None = None,
) -> tuple[bytes, bytes | None]:
    """Return the key and value of a record, as `decode` takes them; a None value is a tombstone.

    `record_type` is the number or Kafka's name ("StreamsGroupMetadata"). Omitted fields get their defaults. `version`
    is the version of the value, by default the newest; `layout` is the name of an older layout. Raises `EncodeError`
    for anything that cannot be encoded.
    """
    try:
        definition = _find_definition(record_type)
        key_bytes = _build(definition.type, key_construct(definition.type), key_layout(definition.type), key, "key")
        if value is None:
            return key_bytes, None
        number = definition.value.versions.last if version is None else version
        struct = value_layout(definition.type, number, layout)
        construct = value_construct(definition.type, number, layout)
    except DecodeError as error:
        raise EncodeError(str(error)) from None
    except KeyError:
        raise EncodeError(f"{record_type} has no layout {layout!r}") from None
    return key_bytes, _build(number, construct, struct, value, "value")


def _find_definition(record_type: int | str) -> RecordDefinition:
    if isinstance(record_type, int):
        return released_definition(record_type)
    for number, definition in records().items():
        if definition.name == record_type:
            return released_definition(number)
    raise EncodeError(f"no record is called {record_type!r}")


def _build(prefix: int, construct: Construct, struct: StructLayout, fields: dict[str, Any], part: str) -> bytes:
    complete = _with_defaults(struct, fields, part)
    stream = BytesIO()
    stream.write(prefix.to_bytes(2, "big", signed=True))
    try:
        construct.build_stream(complete, stream)
    except ConstructError as error:
        raise EncodeError(f"{part}: {error}") from None
    return stream.getvalue()


def _with_defaults(struct: StructLayout, fields: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - not checked yet
    """Return the fields, with defaults for omitted ones; raises `EncodeError` for names that the struct lacks."""
    if not isinstance(fields, dict):
        raise EncodeError(f"{path}: not a dict: {fields!r}")
    unknown = fields.keys() - {field.snake for field in struct.fields}
    if unknown:
        raise EncodeError(f"{path}: no such field: {', '.join(sorted(map(str, unknown)))}")
    return {
        field.snake: _field_value(field, fields[field.snake], f"{path}.{field.name}")
        if field.snake in fields
        else field.default_value()
        for field in struct.fields
    }


def _field_value(field: FieldLayout, value: Any, path: str) -> Any:  # noqa: ANN401
    if not field.present and not field.ignorable and value != field.default_value():
        raise EncodeError(f"{path}: not in this version, and not at its default: {value!r}")
    if field.struct is None or value is None:
        return value
    if not field.is_array:
        return _with_defaults(field.struct, value, path)
    if not isinstance(value, list | tuple):
        raise EncodeError(f"{path}: not a list: {value!r}")
    return [_with_defaults(field.struct, element, f"{path}[{i}]") for i, element in enumerate(value)]


@cache
def key_construct(record_type: int) -> Construct:
    """Return the Construct for the fields of a key, which follow the record type."""
    return struct_construct(key_layout(record_type))


@cache
def value_construct(record_type: int, version: int, older: str | None = None) -> Construct:
    """Return the Construct for the fields of a value, which follow the version.

    Parsing needs the argument `unknown=[]`, a list to which unknown tags are appended.
    """
    return struct_construct(value_layout(record_type, version, older))


def struct_construct(layout: StructLayout) -> DictAdapter:
    """Return the Construct of a struct. It parses to a dict."""
    subcons = [field.name / _field_construct(field, flexible=layout.flexible) for field in layout.untagged]
    if layout.flexible:
        known = {
            field.tag or 0: (field.name, _field_construct(field, flexible=True), field.default_value())
            for field in layout.tagged
        }
        subcons.append(TAGS / TaggedFields(known))
    names = [(field.name, field.snake, _default_function(field)) for field in layout.fields]
    return DictAdapter(Struct(*subcons), names, frozenset(field.name for field in layout.tagged))


def _default_function(field: FieldLayout) -> Callable[[], object] | None:
    return None if field.present and field.tag is None else field.default_value


def _field_construct(field: FieldLayout, *, flexible: bool) -> Construct:
    if field.is_array:
        element = _element_construct(field, flexible=flexible, nullable=False)
        return Array(element, "compact" if flexible else "int32", nullable=field.nullable)
    return _element_construct(field, flexible=flexible, nullable=field.nullable)


def _element_construct(field: FieldLayout, *, flexible: bool, nullable: bool) -> Construct:
    if field.struct is not None:
        struct = struct_construct(field.struct)
        return NullableStruct(struct, NULL if field.tag is None else NULL_IN_TAG) if nullable else struct
    if field.element == "uuid":
        return Uuid()
    if field.element in CODES:
        return Integer(field.element)
    kind, prefix = {"string": (String, "int16"), "bytes": (Bytes, "int32")}[field.element]
    return kind("compact" if flexible else prefix, nullable=nullable)
