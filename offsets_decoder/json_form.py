"""Records as the JSON that Kafka's own formatters and JSON converters print. No bytes are read here.

The structure is that of Kafka's coordinator message formatters (since 4.1): type and data of the key, version and data
of the value. Fields are in the order of the definition; tagged fields at their defaults, and fields that the version
does not have, are omitted.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from offsets_decoder.errors import DecodeError
from offsets_decoder.layout import SHIPPED, FieldLayout, StructLayout, key_layout, value_layout

if TYPE_CHECKING:
    from offsets_decoder.record import Record


def to_json(record: Record) -> dict[str, Any]:
    """Return a record as an object that `json.dumps` takes.

    Beyond Kafka's `key` and `value` it has `unknownTags` (path, tag, data in hex) if there are any, and `layout` if the
    value was in an older layout of the same version.
    """
    number = record.record_type
    result: dict[str, Any] = {"key": {"type": number, "data": _struct(key_layout(number), record.key)}, "value": None}
    if record.value is not None and record.value_version is not None:
        layout = value_layout(number, record.value_version, SHIPPED, record.layout)
        result["value"] = {"version": record.value_version, "data": _struct(layout, record.value)}
    if record.layout is not None:
        result["layout"] = record.layout
    if record.unknown_tags:
        result["unknownTags"] = [{"path": t.path, "tag": t.tag, "data": t.data.hex()} for t in record.unknown_tags]
    return result


def error_json(key: bytes | None, value: bytes | None, error: DecodeError) -> dict[str, Any]:
    """Return the object for a record that cannot be decoded: the kind of error, its message, and the bytes in hex."""
    return {
        "error": {"kind": type(error).__name__, "message": str(error)},
        "key": None if key is None else bytes(key).hex(),
        "value": None if value is None else bytes(value).hex(),
    }


def _struct(layout: StructLayout, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        field.name: _field(field, fields[field.snake])
        for field in layout.fields
        if field.present and (field.tag is None or fields[field.snake] != field.default_value())
    }


def _field(field: FieldLayout, value: Any) -> Any:  # noqa: ANN401 - depends on the field's type
    if field.is_array and value is not None:
        return [_element(field, element) for element in value]
    return _element(field, value)


def _element(field: FieldLayout, value: Any) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if field.struct is not None:
        return _struct(field.struct, value)
    return base64.b64encode(value).decode() if field.element == "bytes" else value
