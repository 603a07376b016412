"""What Construct 2.10.70 would let through if it were used bare, and what compiling it must not change."""

# ruff: noqa: S311 - a seeded Random is what makes a failure come back

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from itertools import product
from random import Random
from typing import Any

import pytest
from construct import Construct, ConstructError, Int8ub, Struct, Switch, VarInt, this

from offsets_decoder import decode, encode
from offsets_decoder.constructs import key_construct, struct_of, value_construct
from offsets_decoder.decoder import _REFUSALS
from offsets_decoder.generator import reader_of
from offsets_decoder.layout import Shape, Slot
from offsets_decoder.scalars import CODES
from offsets_decoder.wire import Fault
from tests.decoder.random_records import KINDS, Kind, _Maker, damaged, kind_name, random_record


def slot(name: str, element: str = "int8", **changes: object) -> Slot:
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
        "shape": None,
    }
    return Slot(**settings | changes)


def test_bare_construct_still_has_the_traps_that_are_worked_around() -> None:
    assert Struct("a" / Int8ub).parse(b"\1\2")["a"] == 1
    assert VarInt.parse(b"\x80" * 20 + b"\0") == 0
    assert Switch(this.missing, {}).parse(b"", missing=1) is None
    assert callable(Struct("keys" / Int8ub).parse(b"\1").keys)
    assert "_io" in Struct("a" / Int8ub).parse(b"\1")


AWKWARD = Shape((slot("keys"), slot("items"), slot("update", tag=0), slot("get", "string", default="")), flexible=True)


def test_fields_named_as_dict_methods_are_fields() -> None:
    body = bytes.fromhex("01 02 0263 01 00 01 05")

    assert struct_of(AWKWARD).parse_stream(BytesIO(body), unknown=[]) == {
        "keys": 1,
        "items": 2,
        "update": 5,
        "get": "c",
    }
    assert reader_of(AWKWARD, "value")(b"\0\0" + body, []) == {"keys": 1, "items": 2, "update": 5, "get": "c"}


def test_fields_named_as_dict_methods_can_be_built() -> None:
    stream = BytesIO()

    struct_of(AWKWARD).build_stream({"keys": 1, "items": 2, "update": 5, "get": "c"}, stream)

    assert stream.getvalue() == bytes.fromhex("01 02 0263 01 00 01 05")


def types_within(data: object) -> set[type]:
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return {type(data)}.union(*map(types_within, inner))


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_nothing_of_construct_is_left_in_a_record(kind: Kind) -> None:
    key, value = random_record(Random(1), kind)

    parsed = value_construct(kind[0], kind[1], "shipped", kind[2]).parse_stream(
        BytesIO(encode(kind[0], key, value, version=kind[1], layout=kind[2])[1][2:]), unknown=[]
    )

    assert types_within(parsed) <= {dict, list, str, int, bytes, type(None)}
    assert "_io" not in parsed


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_compiled_construct_reads_what_the_interpreted_one_reads(kind: Kind) -> None:
    key, value = encode(kind[0], *random_record(Random(2), kind), version=kind[1], layout=kind[2])
    record = decode(key, value)

    compiled_key = key_construct(kind[0]).compile().parse_stream(BytesIO(key[2:]))
    construct = value_construct(kind[0], kind[1], "shipped", kind[2])
    compiled_value = construct.compile().parse_stream(BytesIO(value[2:]), unknown=[])

    assert (compiled_key, compiled_value) == (record.key, record.value)


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_nothing_is_left_interpreted_in_compiled_construct(kind: Kind) -> None:
    compiled = value_construct(kind[0], kind[1], "shipped", kind[2]).compile()

    assert "linkedparsers[" not in compiled.source


def test_construct_errors_are_what_the_referee_translates() -> None:
    with pytest.raises(ConstructError):
        value_construct(20, 0).parse_stream(BytesIO(b"\0"), unknown=[])


SCALARS = ["int8", "int16", "uint16", "int32", "int64", "uuid", "string", "bytes"]
INNER = Shape((slot("a", "string", default=""), slot("b", "int32", tag=0)), flexible=True)
OLD_INNER = Shape((slot("a", "string", default=""), slot("b", "int32")), flexible=False)


def possible_slots() -> Iterator[tuple[str, Slot, bool]]:
    """One slot of every type in every role that a definition can give it."""
    for flexible, element, is_array, nullable in product(
        [True, False], [*SCALARS, "Struct"], [False, True], [False, True]
    ):
        if nullable and not is_array and element in CODES:
            continue  # numbers are never null
        shape = (INNER if flexible else OLD_INNER) if element == "Struct" else None
        for tag in [None, 3] if flexible else [None]:
            name = f"{'flexible' if flexible else 'old'} {'nullable ' * nullable}{'[]' * is_array}{element}"
            name += " in a tag" if tag else ""
            default = None if nullable else {"uuid": "A" * 22}.get(element, 0 if element in CODES else "")
            made = slot("x", element, is_array=is_array, nullable=nullable, tag=tag, default=default, shape=shape)
            yield name, made, flexible


SLOTS = list(possible_slots())
EVERY_SLOT = pytest.mark.parametrize(("made", "flexible"), [found[1:] for found in SLOTS], ids=[s[0] for s in SLOTS])


@EVERY_SLOT
def test_a_field_of_any_type_that_a_definition_can_name_is_read_alike(made: Slot, flexible: bool) -> None:
    shape = Shape((slot("before"), made, slot("after", "string", default="")), flexible)
    construct, read = struct_of(shape), reader_of(shape, "value")
    compiled = construct.compile()
    random = Random(made.element)

    for _ in range(50):
        fields = _Maker(random, 130).struct(shape)
        stream = BytesIO()
        construct.build_stream(fields, stream)
        body = stream.getvalue()

        assert construct.parse_stream(BytesIO(body), unknown=[]) == fields
        assert compiled.parse_stream(BytesIO(body), unknown=[]) == fields
        assert read(b"\0\0" + body, []) == fields


@EVERY_SLOT
def test_a_field_of_any_type_is_refused_alike(made: Slot, flexible: bool) -> None:
    shape = Shape((slot("before"), made, slot("after", "string", default="")), flexible)
    construct, read = struct_of(shape), reader_of(shape, "value")
    random = Random(made.element)

    for _ in range(50):
        stream = BytesIO()
        construct.build_stream(_Maker(random, 130).struct(shape), stream)
        body = damaged(random, stream.getvalue())

        assert read_fast(read, body) == read_by_construct(construct, body)


def read_fast(read: Callable[..., Any], body: bytes) -> Any:
    with suppress(*_REFUSALS):
        return read(b"\0\0" + body, [])
    return "refused"


def read_by_construct(construct: Construct, body: bytes) -> Any:
    stream = BytesIO(body)
    with suppress(Fault):
        fields = construct.parse_stream(stream, unknown=[])
        if stream.tell() == len(body):
            return fields
    return "refused"
