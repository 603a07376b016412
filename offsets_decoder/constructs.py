"""Builds a Construct from the layout of a key or value: for the reference decoder, the encoder and the benchmark."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from construct import Construct, Struct

from offsets_decoder.compound_types import NULL, NULL_IN_TAG, TAGS, Array, DictAdapter, NullableStruct, TaggedFields
from offsets_decoder.layout import SHIPPED, FieldLayout, StructLayout, element_min_size, key_layout, value_layout
from offsets_decoder.scalars import CODES
from offsets_decoder.wire import Bytes, Integer, String, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def key_construct(record_type: int) -> Construct:
    """Return the Construct of a key's fields, which follow its record type."""
    return struct_construct(key_layout(record_type))


@cache
def value_construct(record_type: int, version: int, dialect: str = SHIPPED, older: str | None = None) -> Construct:
    """Return the Construct of a value's fields, which follow its version.

    Parsing needs the argument `unknown=[]`, the list that unknown tags are appended to.
    """
    return struct_construct(value_layout(record_type, version, dialect, older))


def struct_construct(layout: StructLayout) -> DictAdapter:
    """Return the Construct of a struct. It parses to a dict."""
    subcons = [field.name / _field(field, flexible=layout.flexible) for field in layout.untagged]
    if layout.flexible:
        known = {
            field.tag or 0: (field.name, _field(field, flexible=True), field.default_value()) for field in layout.tagged
        }
        subcons.append(TAGS / TaggedFields(known))
    names = [(field.name, field.snake, _default(field)) for field in layout.fields]
    return DictAdapter(Struct(*subcons), names, frozenset(field.name for field in layout.tagged))


def _default(field: FieldLayout) -> Callable[[], object] | None:
    return None if field.present and field.tag is None else field.default_value


def _field(field: FieldLayout, *, flexible: bool) -> Construct:
    if field.is_array:
        element = _element(field, flexible=flexible, nullable=False)
        size = element_min_size(field, flexible=flexible)
        return Array(element, "compact" if flexible else "int32", nullable=field.nullable, size=size)
    return _element(field, flexible=flexible, nullable=field.nullable)


def _element(field: FieldLayout, *, flexible: bool, nullable: bool) -> Construct:
    if field.struct is not None:
        struct = struct_construct(field.struct)
        return NullableStruct(struct, NULL if field.tag is None else NULL_IN_TAG) if nullable else struct
    if field.element == "uuid":
        return Uuid()
    if field.element in CODES:
        return Integer(field.element)
    kind, prefix = {"string": (String, "int16"), "bytes": (Bytes, "int32")}[field.element]
    return kind("compact" if flexible else prefix, nullable=nullable)
