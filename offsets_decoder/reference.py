"""The referee: records read by interpreted Construct. Slow, and right by definition: it settles every error.

Two layouts can share a type and a version (11 and 15 in Kafka 4.0 and since). The newer one wins if it fits to the
last byte; else an older one counts if it fits to the last byte and holds no unknown tag, which no 4.0 broker wrote.
Both cannot fit: type 11 takes 5 bytes after the version in 4.0 and at least 13 since; for type 15 the newer layout
always meets the end marker of a 4.0 struct, a zero byte, where it must read the length of an array, and zero is null.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from offsets_decoder.constructs import key_construct, value_construct
from offsets_decoder.errors import MalformedRecord
from offsets_decoder.layout import SHIPPED, check_dialect, definition_of, layouts
from offsets_decoder.record import Record, UnknownTag
from offsets_decoder.shapes import plain_path
from offsets_decoder.wire import Fault

if TYPE_CHECKING:
    from construct import Construct

_PREFIX = 2  # bytes: a key's record type, a value's version


def reference_decode(key: bytes, value: bytes | None, *, dialect: str = SHIPPED) -> Record:
    """Decode one record as `offsets_decoder.decode` does, with the same results and errors, through Construct alone."""
    check_dialect(dialect)
    record_type = _leading(key, "key", "a record type")
    name = definition_of(record_type).name
    key_fields, _ = _parse(key_construct(record_type), key, "key")
    if value is None:
        return Record(record_type, name, key_fields, None, None, [])
    version = _leading(value, "value", "a version")
    fields, unknown, layout = _value(record_type, version, value, dialect)
    return Record(record_type, name, key_fields, fields, version, unknown, layout)


def _value(
    record_type: int, version: int, value: bytes, dialect: str
) -> tuple[dict[str, Any], list[UnknownTag], str | None]:
    try:
        return (*_parse(value_construct(record_type, version, dialect), value, "value"), None)
    except MalformedRecord:
        for layout in layouts(record_type, version):
            fitting = _fitting(value_construct(record_type, version, dialect, layout), value)
            if fitting is not None:
                return fitting, [], layout
        raise


def _fitting(construct: Construct, value: bytes) -> dict[str, Any] | None:
    try:
        fields, unknown = _parse(construct, value, "value")
    except MalformedRecord:
        return None
    return None if unknown else fields


def _leading(data: bytes | None, part: str, what: str) -> int:
    if data is None:
        raise MalformedRecord("null", part, 0)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise MalformedRecord(f"{type(data).__name__}, not bytes", part, 0)
    if len(data) < _PREFIX:
        raise MalformedRecord(f"{what} takes 2 bytes, there are {len(data)}", part, 0)
    return int.from_bytes(data[:_PREFIX], "big", signed=True)


def _parse(construct: Construct, data: bytes, part: str) -> tuple[dict[str, Any], list[UnknownTag]]:
    stream = BytesIO(data)
    stream.seek(_PREFIX)
    unknown: list[UnknownTag] = []
    try:
        fields = construct.parse_stream(stream, unknown=unknown)
    except Fault as fault:
        raise MalformedRecord(fault.reason, _join(part, plain_path(fault.path)), fault.offset) from None
    if stream.tell() != len(data):
        raise MalformedRecord(f"{len(data) - stream.tell()} bytes too many", part, stream.tell())
    return fields, [tag._replace(path=_join(part, tag.path)) for tag in unknown]


def _join(part: str, path: str) -> str:
    return f"{part}.{path}" if path else part
