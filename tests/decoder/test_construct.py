"""What Construct 2.10.70 on its own would accept, and what generated readers read as it does."""

# ruff: noqa: S311 - a seeded Random is what makes a failure reproducible

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from itertools import product
from random import Random
from typing import Any

import pytest
from construct import Construct, Int8ub, Struct, Switch, VarInt, this

from offsets_decoder import encode
from offsets_decoder.decoder import _READ_ERRORS
from offsets_decoder.generator import compile_reader
from offsets_decoder.layout import CODES, FieldLayout, StructLayout
from offsets_decoder.reference import struct_construct, value_construct
from offsets_decoder.wire import LayoutError
from tests.decoder.random_records import VARIANTS, RecordGenerator, Variant, corrupt, random_record, variant_id


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


def test_construct_still_has_the_behaviour_that_is_worked_around() -> None:
    assert Struct("a" / Int8ub).parse(b"\1\2")["a"] == 1
    assert VarInt.parse(b"\x80" * 20 + b"\0") == 0
    assert Switch(this.missing, {}).parse(b"", missing=1) is None
    assert callable(Struct("keys" / Int8ub).parse(b"\1").keys)
    assert "_io" in Struct("a" / Int8ub).parse(b"\1")


METHOD_NAMES = StructLayout(
    (
        field_layout("keys"),
        field_layout("items"),
        field_layout("update", tag=0),
        field_layout("get", "string", default=""),
    ),
    flexible=True,
)


def test_fields_named_like_dict_methods_are_parsed_and_built() -> None:
    body, fields = bytes.fromhex("01 02 0263 01 00 01 05"), {"keys": 1, "items": 2, "update": 5, "get": "c"}
    stream = BytesIO()

    struct_construct(METHOD_NAMES).build_stream(fields, stream)

    assert stream.getvalue() == body
    assert struct_construct(METHOD_NAMES).parse_stream(BytesIO(body), unknown=[]) == fields
    assert compile_reader(METHOD_NAMES, "value")(b"\0\0" + body, []) == fields


def types_in(data: object) -> set[type]:
    elements = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return {type(data)}.union(*map(types_in, elements))


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_a_parsed_record_has_no_construct_types(variant: Variant) -> None:
    key, value = random_record(Random(1), variant)

    parsed = value_construct(variant[0], variant[1], "shipped", variant[2]).parse_stream(
        BytesIO(encode(variant[0], key, value, version=variant[1], layout=variant[2])[1][2:]), unknown=[]
    )

    assert types_in(parsed) <= {dict, list, str, int, bytes, type(None)}
    assert "_io" not in parsed


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


@EVERY_FIELD
def test_a_corrupted_field_of_any_possible_type_is_read_or_rejected_the_same(
    field: FieldLayout, flexible: bool
) -> None:
    layout = StructLayout((field_layout("before"), field, field_layout("after", "string", default="")), flexible)
    construct, read = struct_construct(layout), compile_reader(layout, "value")
    random = Random(field.element)

    for _ in range(50):
        stream = BytesIO()
        construct.build_stream(RecordGenerator(random, 130).struct(layout), stream)
        body = corrupt(random, stream.getvalue())

        assert read_by_fast_path(read, body) == read_by_construct(construct, body)


def read_by_fast_path(read: Callable[..., Any], body: bytes) -> Any:
    with suppress(*_READ_ERRORS):
        return read(b"\0\0" + body, [])
    return "rejected"


def read_by_construct(construct: Construct, body: bytes) -> Any:
    stream = BytesIO(body)
    with suppress(LayoutError):
        fields = construct.parse_stream(stream, unknown=[])
        if stream.tell() == len(body):
            return fields
    return "rejected"
