"""Records to bytes, with the Constructs that the reference decoder uses: for tests, benchmarks and generated topics."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from construct import ConstructError

from offsets_decoder.constructs import key_construct, value_construct
from offsets_decoder.definitions import records
from offsets_decoder.errors import DecodeError, EncodeError
from offsets_decoder.layout import (
    SHIPPED,
    FieldLayout,
    StructLayout,
    check_dialect,
    key_layout,
    released_definition,
    value_layout,
)

if TYPE_CHECKING:
    from construct import Construct

    from offsets_decoder.definitions import RecordDefinition


def encode(  # noqa: PLR0913 - all but the first three are keyword arguments
    record_type: int | str,
    key: dict[str, Any],
    value: dict[str, Any] | None,
    *,
    version: int | None = None,
    dialect: str = SHIPPED,
    layout: str | None = None,
) -> tuple[bytes, bytes | None]:
    """Return the key and value of a record as `decode` takes them; a None value is a tombstone.

    `record_type` is the number or Kafka's name ("StreamsGroupMetadata"). Omitted fields have their defaults. `version`
    is that of the value, by default the newest; `layout` is the name of an older layout. Raises `EncodeError` for
    anything that cannot be encoded.
    """
    try:
        check_dialect(dialect)
        definition = _find_definition(record_type)
        key_bytes = _build(definition.type, key_construct(definition.type), key_layout(definition.type), key, "key")
        if value is None:
            return key_bytes, None
        number = definition.value.versions.last if version is None else version
        struct = value_layout(definition.type, number, dialect, layout)
        construct = value_construct(definition.type, number, dialect, layout)
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
