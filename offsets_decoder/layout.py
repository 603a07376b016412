"""The layout of one version of one record, resolved from its definition. Pure data: no bytes are read here.

Both the Constructs and the generator of the fast path start from a `StructLayout`. So versions and older layouts are
resolved once for both, and the sizes and limits of Kafka's scalar types are defined once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from struct import calcsize
from typing import Any

from offsets_decoder.definitions import Body, EmbeddedDefinition, Field, RecordDefinition, embedded, record
from offsets_decoder.record import MalformedRecord, UnknownRecordType, UnknownValueVersion

CODES = {"int8": "b", "int16": "h", "uint16": "H", "int32": "l", "int64": "q", "uuid": "16s"}
"""The `struct` format code of each fixed-size type; all are big-endian."""

SIZES = {kind: calcsize(f">{code}") for kind, code in CODES.items()}

MAX_STRING = 0x7FFF
"""The longest string in bytes: Kafka rejects longer ones on reading, even if the length is a varint."""

MAX_UVARINT = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class FieldLayout(Field):
    """A field in one version, which may lack it. `struct` is set for structs and arrays of them."""

    present: bool
    struct: StructLayout | None

    def default_value(self) -> Any:  # noqa: ANN401 - depends on the field's type
        """Return the value of the field when it is absent; a new list each time for arrays."""
        if self.default is None:
            return None
        if self.is_array:
            return []
        if self.struct is not None:
            return {field.snake: field.default_value() for field in self.struct.fields}
        return b"" if self.element == "bytes" else self.default


@dataclass(frozen=True)
class StructLayout:
    """A struct in one version; fields are in the definition's order. A flexible struct ends with its tagged fields."""

    fields: tuple[FieldLayout, ...]
    flexible: bool

    @property
    def untagged(self) -> tuple[FieldLayout, ...]:
        """The fields that are always encoded, in their order."""
        return tuple(field for field in self.fields if field.present and field.tag is None)

    @property
    def tagged(self) -> tuple[FieldLayout, ...]:
        """The tagged fields, by ascending tag."""
        return tuple(sorted((f for f in self.fields if f.present and f.tag is not None), key=lambda f: f.tag or 0))


def released_definition(record_type: int) -> RecordDefinition:
    """Return the definition of a released record type; raises `UnknownRecordType` for any other."""
    definition = record(record_type)
    if definition is None:
        raise UnknownRecordType(record_type, "not a record type of any known Kafka release")
    if definition.planned:
        raise UnknownRecordType(record_type, f"{definition.name} was planned by KIP-{definition.kip} and never shipped")
    return definition


@cache
def key_layout(record_type: int) -> StructLayout:
    """Return the layout of a key. Keys have one version each and are never flexible."""
    definition = released_definition(record_type)
    return _struct_layout(definition.key.fields, definition, 0, flexible=False)


@cache
def value_layout(record_type: int, version: int, older: str | None = None) -> StructLayout:
    """Return the layout of a value: the current one, or the one named `older` in the definition's `layouts`.

    Raises `UnknownValueVersion` for a version that Kafka does not have, and KeyError for an unknown older layout.
    """
    definition = released_definition(record_type)
    body: Body = definition.value if older is None else definition.layouts[older]
    if version not in body.versions:
        raise UnknownValueVersion(record_type, definition.name, version, str(body.versions))
    return _struct_layout(body.fields, definition, version, flexible=version in body.flexible)


@cache
def embedded_layout(name: str, version: int) -> StructLayout:
    """Return the layout of bytes within records; raises `MalformedRecord`."""
    definition = embedded(name)
    if version not in definition.body.versions:
        raise MalformedRecord(f"version {version} is unknown, known: {definition.body.versions}", name, 0)
    return _struct_layout(definition.body.fields, definition, version, flexible=version in definition.body.flexible)


def older_layouts(record_type: int, version: int) -> tuple[str, ...]:
    """Return the names of the older layouts that have the same version as the current one."""
    return tuple(name for name, body in released_definition(record_type).layouts.items() if version in body.versions)


def _struct_layout(
    of_struct: tuple[Field, ...], definition: RecordDefinition | EmbeddedDefinition, version: int, *, flexible: bool
) -> StructLayout:
    layouts = (_field_layout(field, definition, version, flexible=flexible) for field in of_struct)
    return StructLayout(tuple(layouts), flexible)


def _field_layout(
    field: Field, definition: RecordDefinition | EmbeddedDefinition, version: int, *, flexible: bool
) -> FieldLayout:
    struct = definition.structs.get(field.element)
    return FieldLayout(
        **{one.name: getattr(field, one.name) for one in fields(field)},
        present=version in field.versions,
        struct=None if struct is None else _struct_layout(struct, definition, version, flexible=flexible),
    )
