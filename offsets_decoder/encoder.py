"""Records to bytes, with the same Constructs that read them: for tests, benchmarks and made-up topics."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from construct import ConstructError

from offsets_decoder.constructs import key_construct, value_construct
from offsets_decoder.errors import DecodeError, EncodeError
from offsets_decoder.layout import SHIPPED, Shape, Slot, check_dialect, definition_of, key_shape, value_shape
from schemas import records

if TYPE_CHECKING:
    from construct import Construct

    from schemas import RecordDefinition


def encode(  # noqa: PLR0913 - all but the first three are named
    record_type: int | str,
    key: dict[str, Any],
    value: dict[str, Any] | None,
    *,
    version: int | None = None,
    dialect: str = SHIPPED,
    layout: str | None = None,
) -> tuple[bytes, bytes | None]:
    """Build the key and value of a record, as `decode` would take them; a None value is a tombstone.

    `record_type` is the number or Kafka's name ("StreamsGroupMetadata"). Fields left out are at their defaults.
    `version` is that of the value, by default the newest. Raises `EncodeError` for anything that cannot be built.
    """
    try:
        check_dialect(dialect)
        definition = _definition(record_type)
        key_bytes = _build(definition.type, key_construct(definition.type), key_shape(definition.type), key, "key")
        if value is None:
            return key_bytes, None
        number = definition.value.versions.last if version is None else version
        shape = value_shape(definition.type, number, dialect, layout)
        construct = value_construct(definition.type, number, dialect, layout)
    except DecodeError as error:
        raise EncodeError(str(error)) from None
    except KeyError:
        raise EncodeError(f"{record_type} has no layout {layout!r}") from None
    return key_bytes, _build(number, construct, shape, value, "value")


def _definition(record_type: int | str) -> RecordDefinition:
    if isinstance(record_type, int):
        return definition_of(record_type)
    for number, definition in records().items():
        if definition.name == record_type:
            return definition_of(number)
    raise EncodeError(f"no record is called {record_type!r}")


def _build(prefix: int, construct: Construct, shape: Shape, fields: dict[str, Any], part: str) -> bytes:
    whole = _complete(shape, fields, part)
    stream = BytesIO()
    stream.write(prefix.to_bytes(2, "big", signed=True))
    try:
        construct.build_stream(whole, stream)
    except ConstructError as error:
        raise EncodeError(f"{part}: {error}") from None
    return stream.getvalue()


def _complete(shape: Shape, fields: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - whatever the caller gave
    """Return the fields with defaults for those left out; refuses names that the shape does not have."""
    if not isinstance(fields, dict):
        raise EncodeError(f"{path}: not a dict: {fields!r}")
    unknown = fields.keys() - {slot.snake for slot in shape.slots}
    if unknown:
        raise EncodeError(f"{path}: no such field: {', '.join(sorted(map(str, unknown)))}")
    return {
        slot.snake: _slot_value(slot, fields[slot.snake], f"{path}.{slot.name}")
        if slot.snake in fields
        else slot.default_value()
        for slot in shape.slots
    }


def _slot_value(slot: Slot, value: Any, path: str) -> Any:  # noqa: ANN401
    if not slot.present and not slot.ignorable and value != slot.default_value():
        raise EncodeError(f"{path}: this version cannot hold {value!r}")
    if slot.shape is None or value is None:
        return value
    if not slot.is_array:
        return _complete(slot.shape, value, path)
    if not isinstance(value, list | tuple):
        raise EncodeError(f"{path}: not a list: {value!r}")
    return [_complete(slot.shape, element, f"{path}[{i}]") for i, element in enumerate(value)]
