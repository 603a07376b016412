"""Definitions resolved to what one version of one record looks like on the wire. Pure data, no bytes are read here.

Both the Construct builder and the generator of the fast path start from a `Shape`: this is where versions, tag
dialects and older layouts are settled, once for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from offsets_decoder.errors import UnknownDialectError, UnknownRecordType, UnknownValueVersion
from offsets_decoder.scalars import SIZES
from schemas import record, records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas import Body, Field, RecordDefinition

SHIPPED = "shipped"


@dataclass(frozen=True)
class Slot:
    """A field in one version. `shape` is set for structs and arrays of them; `tag` is None for untagged fields."""

    name: str
    snake: str
    element: str
    is_array: bool
    nullable: bool
    ignorable: bool
    present: bool
    tag: int | None
    default: int | str | None
    shape: Shape | None

    def default_value(self) -> Any:  # noqa: ANN401 - whatever the field's type is
        """Return what stands for the field when it is absent; a new list each time for arrays."""
        if self.default is None:
            return None
        if self.is_array:
            return []
        if self.shape is not None:
            return {slot.snake: slot.default_value() for slot in self.shape.slots}
        return b"" if self.element == "bytes" else self.default


@dataclass(frozen=True)
class Shape:
    """A struct in one version: its slots in the order of the definition. Flexible ones end in a section of tags."""

    slots: tuple[Slot, ...]
    flexible: bool

    @property
    def plain(self) -> tuple[Slot, ...]:
        """The slots that are always on the wire, in the order of the wire."""
        return tuple(slot for slot in self.slots if slot.present and slot.tag is None)

    @property
    def tagged(self) -> tuple[Slot, ...]:
        """The slots of the tag section, by ascending tag."""
        return tuple(sorted((s for s in self.slots if s.present and s.tag is not None), key=lambda s: s.tag or 0))

    @property
    def min_size(self) -> int:
        """The fewest bytes one such struct takes; at least 1, so that a count can be held against the bytes left."""
        return max(1, sum(slot_min_size(slot, flexible=self.flexible) for slot in self.plain) + self.flexible)


def slot_min_size(slot: Slot, *, flexible: bool) -> int:
    """Return the fewest bytes an untagged slot takes."""
    if slot.is_array:
        return 1 if flexible else 4
    return element_min_size(slot, flexible=flexible)


def element_min_size(slot: Slot, *, flexible: bool) -> int:
    """Return the fewest bytes one element of the slot takes."""
    if slot.shape is not None:
        return 1 if slot.nullable and not slot.is_array else slot.shape.min_size
    if slot.element in SIZES:
        return SIZES[slot.element]
    return 1 if flexible else {"string": 2, "bytes": 4}[slot.element]


def definition_of(record_type: int) -> RecordDefinition:
    """Return the definition of a released record type; raises `UnknownRecordType` for any other."""
    definition = record(record_type)
    if definition is None:
        raise UnknownRecordType(record_type, "not a record of any Kafka release this decoder knows")
    if definition.planned:
        raise UnknownRecordType(record_type, f"{definition.name} was planned by KIP-{definition.kip} and never shipped")
    return definition


def check_dialect(dialect: str) -> None:
    """Raise `UnknownDialectError` unless the dialect is `shipped` or some definition has it."""
    if dialect == SHIPPED or dialect in dialects():
        return
    raise UnknownDialectError(f"no dialect {dialect!r}; there are {', '.join([SHIPPED, *dialects()])}")


@cache
def dialects() -> tuple[str, ...]:
    """Return the names of the dialects beside `shipped`."""
    return tuple(sorted({name for definition in records().values() for name in definition.dialects}))


@cache
def key_shape(record_type: int) -> Shape:
    """Return the key's layout. Keys have one version each and are never flexible."""
    definition = definition_of(record_type)
    return _shape(definition.key.fields, definition, 0, {}, flexible=False)


@cache
def value_shape(record_type: int, version: int, dialect: str, layout: str | None = None) -> Shape:
    """Return a value's layout, today's or an older one by name. Raises `UnknownValueVersion` where Kafka has none."""
    definition = definition_of(record_type)
    body: Body = definition.value if layout is None else definition.layouts[layout]
    if version not in body.versions:
        raise UnknownValueVersion(record_type, definition.name, version, str(body.versions))
    tags = definition.dialects[dialect].tags if dialect in definition.dialects else {}
    return _shape(body.fields, definition, version, tags, flexible=version in body.flexible)


def layouts(record_type: int, version: int) -> tuple[str, ...]:
    """Return the older layouts that share the version with today's."""
    return tuple(name for name, body in definition_of(record_type).layouts.items() if version in body.versions)


def _shape(
    fields: tuple[Field, ...], definition: RecordDefinition, version: int, tags: Mapping[str, int], *, flexible: bool
) -> Shape:
    return Shape(tuple(_slot(field, definition, version, tags, flexible=flexible) for field in fields), flexible)


def _slot(field: Field, definition: RecordDefinition, version: int, tags: Mapping[str, int], *, flexible: bool) -> Slot:
    struct = definition.structs.get(field.element)
    return Slot(
        name=field.camel,
        snake=field.snake,
        element=field.element,
        is_array=field.is_array,
        nullable=field.nullable,
        ignorable=field.ignorable,
        present=version in field.versions,
        tag=tags.get(field.name, field.tag),
        default=field.default,
        # A dialect renumbers the value's own fields; those of its structs have their own numbering.
        shape=None if struct is None else _shape(struct, definition, version, {}, flexible=flexible),
    )
