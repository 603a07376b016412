"""Records as the JSON that Kafka's own formatters and JSON converters print. Names and spelling only, no bytes.

The shape is that of Kafka's coordinator message formatters (since 4.1): type and data of the key, version and data of
the value. Fields follow the order of the definition; a tagged field at its default, and a field that the version does
not have, is left out.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from offsets_decoder.errors import DecodeError
from offsets_decoder.layout import SHIPPED, Shape, Slot, key_shape, value_shape

if TYPE_CHECKING:
    from offsets_decoder.record import Record


def to_json(record: Record) -> dict[str, Any]:
    """Return a record as an object that `json.dumps` takes.

    Beside Kafka's `key` and `value` it has `unknownTags` (path, tag, data in hex) if there are any, and `layout` if the
    value was in an older layout of the same version.
    """
    number = record.record_type
    result: dict[str, Any] = {"key": {"type": number, "data": _struct(key_shape(number), record.key)}, "value": None}
    if record.value is not None and record.value_version is not None:
        shape = value_shape(number, record.value_version, SHIPPED, record.layout)
        result["value"] = {"version": record.value_version, "data": _struct(shape, record.value)}
    if record.layout is not None:
        result["layout"] = record.layout
    if record.unknown_tags:
        result["unknownTags"] = [{"path": t.path, "tag": t.tag, "data": t.data.hex()} for t in record.unknown_tags]
    return result


def error_json(key: bytes | None, value: bytes | None, error: DecodeError) -> dict[str, Any]:
    """Return what stands for a record that cannot be decoded: the kind of error, its message, and the bytes in hex."""
    return {
        "error": {"kind": type(error).__name__, "message": str(error)},
        "key": None if key is None else bytes(key).hex(),
        "value": None if value is None else bytes(value).hex(),
    }


def _struct(shape: Shape, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        slot.name: _value(slot, fields[slot.snake])
        for slot in shape.slots
        if slot.present and (slot.tag is None or fields[slot.snake] != slot.default_value())
    }


def _value(slot: Slot, value: Any) -> Any:  # noqa: ANN401 - whatever the field's type is
    if slot.is_array and value is not None:
        return [_element(slot, element) for element in value]
    return _element(slot, value)


def _element(slot: Slot, value: Any) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if slot.shape is not None:
        return _struct(slot.shape, value)
    return base64.b64encode(value).decode() if slot.element == "bytes" else value
