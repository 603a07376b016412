"""Encodes records, and the bytes within them, by the definitions of the decoder: for tests, benchmarks and topics."""

import base64
import struct
from collections.abc import Mapping
from typing import Any

from offsets_decoder.definitions import embedded, records
from offsets_decoder.java_text import encode_chars
from offsets_decoder.layout import (
    CODES,
    FieldLayout,
    StructLayout,
    embedded_layout,
    key_layout,
    released_definition,
    value_layout,
)


def encode(
    record_type: int | str,
    key: Mapping[str, Any],
    value: Mapping[str, Any] | None,
    *,
    version: int | None = None,
    layout: str | None = None,
) -> tuple[bytes, bytes | None]:
    """Return key and value of a record by its type or Kafka's name; omitted fields get their defaults.

    `version` is that of the value, by default the newest; `layout` is the name of an older layout.
    """
    names = {one.name: number for number, one in records().items()}
    number = record_type if isinstance(record_type, int) else names[record_type]
    key_bytes = _integer("int16", number) + _struct(key_layout(number), key)
    if value is None:
        return key_bytes, None
    version = released_definition(number).value.versions.last if version is None else version
    return key_bytes, _integer("int16", version) + _struct(value_layout(number, version, layout), value)


def encode_embedded(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """Return bytes within a record."""
    return _integer(embedded(name).prefix, version) + _struct(embedded_layout(name, version), fields)


def encode_utf(text: str) -> bytes:
    """Return text as Java's `writeUTF` writes it, without its length."""
    data = encode_chars(text)
    halves = "".join(chr(data[i] << 8 | data[i + 1]) for i in range(0, len(data), 2))
    return halves.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _integer(kind: str, value: int) -> bytes:
    return struct.pack(f">{CODES[kind]}", value)


def _uvarint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return data + bytes((value,))


def _length(length: int, prefix: str) -> bytes:
    return _uvarint(length + 1) if prefix == "compact" else _integer(prefix, length)


def _struct(layout: StructLayout, fields: Mapping[str, Any]) -> bytes:
    assert fields.keys() <= {one.snake for one in layout.fields}, f"no such field: {fields}"
    given = {one.snake: fields.get(one.snake, one.default_value()) for one in layout.fields}
    for one in layout.fields:
        is_written = one.present or one.ignorable or given[one.snake] == one.default_value()
        assert is_written, f"{one.snake} is not in this version: {given[one.snake]!r}"
    data = b"".join(_field(one, given[one.snake], flexible=layout.flexible) for one in layout.untagged)
    if not layout.flexible:
        return data
    tagged = [one for one in layout.tagged if given[one.snake] != one.default_value()]
    data += _uvarint(len(tagged))
    for one in tagged:
        inner = _field(one, given[one.snake], flexible=True)
        data += _uvarint(one.tag or 0) + _uvarint(len(inner)) + inner
    return data


def _field(field: FieldLayout, value: Any, *, flexible: bool) -> bytes:
    if not field.is_array:
        return _element(field, value, flexible=flexible, nullable=field.nullable)
    length = _length(-1 if value is None else len(value), "compact" if flexible else "int32")
    return length + b"".join(_element(field, one, flexible=flexible, nullable=False) for one in value or ())


def _element(field: FieldLayout, value: Any, *, flexible: bool, nullable: bool) -> bytes:
    if field.struct is not None:
        if nullable and value is None:
            return b"\xff" if field.tag is None else b"\0"
        return (b"\1" if nullable else b"") + _struct(field.struct, value)
    if field.element == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    if field.element in CODES:
        return _integer(field.element, value)
    if field.element in {"utf", "chars"}:
        is_utf = field.element == "utf"
        text = encode_utf(value) if is_utf else encode_chars(value)
        return (_length(len(text), "uint16") if is_utf else _length(len(text) // 2, "int32")) + text
    assert nullable or value is not None, f"{field.snake} is not nullable"
    data = value.encode() if isinstance(value, str) else value
    prefix = "compact" if flexible else {"string": "int16", "bytes": "int32"}[field.element]
    return _length(-1 if data is None else len(data), prefix) + (data or b"")
