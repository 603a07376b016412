"""What Construct 2.10.70 would let through if it were used bare, and what compiling it must not change."""

# ruff: noqa: S311 - a seeded Random is what makes a failure come back

from io import BytesIO
from random import Random

import pytest
from construct import ConstructError, Int8ub, Struct, Switch, VarInt, this

from offsets_decoder import decode, encode
from offsets_decoder.constructs import key_construct, struct_of, value_construct
from offsets_decoder.generator import reader_of
from offsets_decoder.layout import Shape, Slot
from tests.decoder.random_records import KINDS, Kind, kind_name, random_record


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
