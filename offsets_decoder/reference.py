"""The reference decoder: reads records with interpreted Construct. Slow; its results and errors define what is correct.

Two layouts can have the same type and version (11 and 15 in Kafka 4.0 and since 4.1). The newer one is used if it fits
to the last byte; else an older one if it fits to the last byte and holds no unknown tag, which no 4.0 broker wrote.
Both cannot fit: type 11 has 5 bytes after the version in 4.0 and at least 13 since; for type 15 the newer layout
always reads the end of a 4.0 struct, a zero byte, as the length of an array, and zero means null.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from offsets_decoder.compound_types import field_path
from offsets_decoder.constructs import key_construct, value_construct
from offsets_decoder.errors import MalformedRecord
from offsets_decoder.layout import SHIPPED, check_dialect, older_layouts, released_definition
from offsets_decoder.record import Record, UnknownTag
from offsets_decoder.wire import LayoutError

if TYPE_CHECKING:
    from construct import Construct

_PREFIX = 2  # bytes: a key's record type, a value's version


def reference_decode(key: bytes, value: bytes | None, *, dialect: str = SHIPPED) -> Record:
    """Decode one record as `offsets_decoder.decode` does, with the same results and errors, through Construct alone."""
    check_dialect(dialect)
    record_type = _read_prefix(key, "key", "a record type")
    name = released_definition(record_type).name
    key_fields, _ = _parse(key_construct(record_type), key, "key")
    if value is None:
        return Record(record_type, name, key_fields, None, None, [])
    version = _read_prefix(value, "value", "a version")
    fields, unknown, layout = _parse_value(record_type, version, value, dialect)
    return Record(record_type, name, key_fields, fields, version, unknown, layout)


def _parse_value(
    record_type: int, version: int, value: bytes, dialect: str
) -> tuple[dict[str, Any], list[UnknownTag], str | None]:
    try:
        return (*_parse(value_construct(record_type, version, dialect), value, "value"), None)
    except MalformedRecord:
        for layout in older_layouts(record_type, version):
            fields = _parse_if_it_fits(value_construct(record_type, version, dialect, layout), value)
            if fields is not None:
                return fields, [], layout
        raise


def _parse_if_it_fits(construct: Construct, value: bytes) -> dict[str, Any] | None:
    try:
        fields, unknown = _parse(construct, value, "value")
    except MalformedRecord:
        return None
    return None if unknown else fields


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
