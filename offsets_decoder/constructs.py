"""The one builder from a resolved layout to a Construct. Interpreted it is the referee; it builds our own bytes too."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from construct import Construct, Struct

from offsets_decoder.layout import SHIPPED, Shape, Slot, element_min_size, key_shape, value_shape
from offsets_decoder.scalars import CODES
from offsets_decoder.shapes import ABSENT, ABSENT_IN_TAG, TAGS, Optional, Plain, Series, Tags
from offsets_decoder.wire import Blob, Number, Text, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def key_construct(record_type: int) -> Construct:
    """Parse and build a key's fields, after its leading record type."""
    return struct_of(key_shape(record_type))


@cache
def value_construct(record_type: int, version: int, dialect: str = SHIPPED, layout: str | None = None) -> Construct:
    """Parse and build a value's fields, after its leading version. Parsing wants `unknown=[]` for unknown tags."""
    return struct_of(value_shape(record_type, version, dialect, layout))


def struct_of(shape: Shape) -> Plain:
    """Return a struct, parsed to a dict."""
    subcons = [slot.name / _field(slot, flexible=shape.flexible) for slot in shape.plain]
    if shape.flexible:
        known = {slot.tag or 0: (slot.name, _field(slot, flexible=True), slot.default_value()) for slot in shape.tagged}
        subcons.append(TAGS / Tags(known))
    names = [(slot.name, slot.snake, _default(slot)) for slot in shape.slots]
    return Plain(Struct(*subcons), names, frozenset(slot.name for slot in shape.tagged))


def _default(slot: Slot) -> Callable[[], object] | None:
    return None if slot.present and slot.tag is None else slot.default_value


def _field(slot: Slot, *, flexible: bool) -> Construct:
    if slot.is_array:
        element = _element(slot, flexible=flexible, nullable=False)
        size = element_min_size(slot, flexible=flexible)
        return Series(element, "compact" if flexible else "int32", nullable=slot.nullable, size=size)
    return _element(slot, flexible=flexible, nullable=slot.nullable)


def _element(slot: Slot, *, flexible: bool, nullable: bool) -> Construct:
    if slot.shape is not None:
        inner = struct_of(slot.shape)
        return Optional(inner, ABSENT if slot.tag is None else ABSENT_IN_TAG) if nullable else inner
    if slot.element == "uuid":
        return Uuid()
    if slot.element in CODES:
        return Number(slot.element)
    kind, prefix = {"string": (Text, "int16"), "bytes": (Blob, "int32")}[slot.element]
    return kind("compact" if flexible else prefix, nullable=nullable)
