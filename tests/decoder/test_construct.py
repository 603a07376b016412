"""What generated readers read as Construct 2.10.70 does."""

# ruff: noqa: S311 - a seeded Random is what makes a failure reproducible

from collections.abc import Iterator
from io import BytesIO
from itertools import product
from random import Random

import pytest

from offsets_decoder.generator import compile_reader
from offsets_decoder.layout import CODES, FieldLayout, StructLayout
from offsets_decoder.reference import struct_construct
from tests.decoder.random_records import RecordGenerator


def field_layout(name: str, element: str = "int8", **changes: object) -> FieldLayout:
    settings = {
        "name": name,
        "snake": name,
        "element": element,
        "is_array": False,
        "nullable": False,
        "ignorable": False,
        "present": True,
        "tag": None,
        "default": 0,
        "struct": None,
    }
    return FieldLayout(**settings | changes)


SCALARS = ["int8", "int16", "uint16", "int32", "int64", "uuid", "string", "bytes"]
FLEXIBLE_STRUCT = StructLayout(
    (field_layout("a", "string", default=""), field_layout("b", "int32", tag=0)), flexible=True
)
INFLEXIBLE_STRUCT = StructLayout((field_layout("a", "string", default=""), field_layout("b", "int32")), flexible=False)


def possible_fields() -> Iterator[tuple[str, FieldLayout, bool]]:
    """Yield (test id, field, flexible): a field of every type with every property that a definition can give it."""
    for flexible, element, is_array, nullable in product(
        [True, False], [*SCALARS, "Struct"], [False, True], [False, True]
    ):
        if nullable and not is_array and element in CODES:
            continue  # numbers are not nullable
        struct = (FLEXIBLE_STRUCT if flexible else INFLEXIBLE_STRUCT) if element == "Struct" else None
        for tag in [None, 3] if flexible else [None]:
            name = f"{'flexible' if flexible else 'inflexible'} {'nullable ' * nullable}{'[]' * is_array}{element}"
            name += " in a tag" if tag else ""
            default = None if nullable else {"uuid": "A" * 22}.get(element, 0 if element in CODES else "")
            field = field_layout(
                "x", element, is_array=is_array, nullable=nullable, tag=tag, default=default, struct=struct
            )
            yield name, field, flexible


FIELDS = list(possible_fields())
EVERY_FIELD = pytest.mark.parametrize(("field", "flexible"), [f[1:] for f in FIELDS], ids=[f[0] for f in FIELDS])


@EVERY_FIELD
def test_a_field_of_any_possible_type_is_read_the_same_in_both_ways(field: FieldLayout, flexible: bool) -> None:
    layout = StructLayout((field_layout("before"), field, field_layout("after", "string", default="")), flexible)
    construct, read = struct_construct(layout), compile_reader(layout, "value")
    random = Random(field.element)

    for _ in range(50):
        fields = RecordGenerator(random, 130).struct(layout)
        stream = BytesIO()
        construct.build_stream(fields, stream)
        body = stream.getvalue()

        assert construct.parse_stream(BytesIO(body), unknown=[]) == fields
        assert read(b"\0\0" + body, []) == fields
