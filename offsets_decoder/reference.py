"""Decoding with Construct: `reference_decode` defines which results and errors are correct.

It is slow, and only reads what the fast path rejects.

Two layouts can have the same type and version (types 11 and 15 in Kafka 4.0 and since 4.1). The newer layout is used if
it fits to the last byte; else the older one if it fits to the last byte and has no unknown tag, which no 4.0 broker
wrote. Both cannot fit: type 11 has 5 bytes after the version in 4.0 and at least 13 since. For type 15 the newer layout
always reads the end of a 4.0 struct, a zero byte, as the length of an array, and zero means null.
"""

from contextlib import suppress
from functools import cache
from io import BytesIO
from typing import Any

from offsets_decoder.constructs import Struct
from offsets_decoder.layout import SIZES, key_layout, older_layouts, released_definition, value_layout
from offsets_decoder.record import MalformedRecord, Record, UnknownTag

_PREFIX = SIZES["int16"]  # a key's record type, a value's version


def reference_decode(key: bytes, value: bytes | None) -> Record:
    """Decode one record with Construct alone, with the same results and errors as `offsets_decoder.decode`."""
    record_type = _read_prefix(key, "key", "a record type")
    name = released_definition(record_type).name
    key_fields, _ = _parse(_key_construct(record_type), key, "key")
    if value is None:
        return Record(record_type, name, key_fields, None, None, [])
    version = _read_prefix(value, "value", "a version")
    fields, unknown, layout = _parse_value(record_type, version, value)
    return Record(record_type, name, key_fields, fields, version, unknown, layout)


def _parse_value(record_type: int, version: int, value: bytes) -> tuple[dict[str, Any], list[UnknownTag], str | None]:
    try:
        return (*_parse(_value_construct(record_type, version), value, "value"), None)
    except MalformedRecord:
        for layout in older_layouts(record_type, version):
            with suppress(MalformedRecord):
                fields, unknown = _parse(_value_construct(record_type, version, layout), value, "value")
                if not unknown:
                    return fields, [], layout
        raise


def _read_prefix(data: bytes | None, part: str, meaning: str) -> int:
    if data is None:
        raise MalformedRecord("null", part, 0)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise MalformedRecord(f"{type(data).__name__}, not bytes", part, 0)
    if len(data) < _PREFIX:
        raise MalformedRecord(f"{_PREFIX} bytes expected for {meaning}, {len(data)} remaining", part, 0)
    return int.from_bytes(data[:_PREFIX], "big", signed=True)


def _parse(construct: Struct, data: bytes, part: str) -> tuple[dict[str, Any], list[UnknownTag]]:
    stream = BytesIO(data)
    stream.seek(_PREFIX)
    unknown: list[UnknownTag] = []
    fields: dict[str, Any] = construct._parsereport(stream, unknown, part)  # noqa: SLF001
    if stream.tell() != len(data):
        raise MalformedRecord(f"{len(data) - stream.tell()} trailing bytes", part, stream.tell())
    return fields, unknown


@cache
def _key_construct(record_type: int) -> Struct:
    return Struct(key_layout(record_type))


@cache
def _value_construct(record_type: int, version: int, older: str | None = None) -> Struct:
    return Struct(value_layout(record_type, version, older))
