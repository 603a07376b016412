"""The generated readers against interpreted Construct, on records made up by the thousand and then broken."""

# ruff: noqa: S311 - a seeded Random is what makes a failure come back

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from offsets_decoder import DecodeError, MalformedRecord, Record, decode, encode, reference_decode
from offsets_decoder import decoder as fast
from tests.decoder.random_records import KINDS, Kind, damaged, kind_name, random_record

Outcome = Any
"""A Record, or the class of a DecodeError and its arguments."""

DIALECTS = st.sampled_from(["shipped", "kip-1331"])
# A seed each, not `st.randoms`, which takes ten times as long as the decoding that is tested.
RANDOM = st.builds(Random, st.integers(0, 2**64 - 1))
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=kind_name)


def built(random: Random, kind: Kind, dialect: str = "shipped", longest: int = 130) -> tuple[bytes, bytes]:
    key, value = random_record(random, kind, dialect, longest=longest)
    return encode(kind[0], key, value, version=kind[1], dialect=dialect, layout=kind[2])


def outcome(function: Callable[..., Record], *args: object, **kwargs: object) -> Outcome:
    """A record, or what kind of DecodeError there was and all it says. Any other exception is a failure."""
    try:
        return function(*args, **kwargs)
    except DecodeError as error:
        return type(error), error.args


def read_fast(key: bytes, value: bytes | None, dialect: str) -> bool:
    """Whether the generated readers alone take the record, without the referee's help."""
    try:
        plan = fast._plans[dialect][key[:2]]
        plan.read_key(key, [])
        plan.values[value[:2]][1](value, [])
    except fast._REFUSALS:
        return False
    return True


def agreed(key: bytes, value: bytes | None, dialect: str = "shipped") -> Outcome:
    """The outcome, once both ways of decoding are seen to have the same one."""
    expected = outcome(reference_decode, key, value, dialect=dialect)
    assert outcome(decode, key, value, dialect=dialect) == expected
    in_default_layout = not isinstance(expected, tuple) and expected.layout is None
    assert read_fast(key, value, dialect) == in_default_layout
    return expected


@given(random=RANDOM, kind=st.sampled_from(KINDS), dialect=DIALECTS)
def test_what_is_built_decodes_to_what_it_was_built_from(random: Random, kind: Kind, dialect: str) -> None:
    key, value = random_record(random, kind, dialect)

    record = decode(*encode(kind[0], key, value, version=kind[1], dialect=dialect, layout=kind[2]), dialect=dialect)

    assert (record.record_type, record.value_version, record.layout) == kind
    assert record.key == key
    assert record.value == value
    assert not record.drift


@given(random=RANDOM, kind=st.sampled_from(KINDS), dialect=DIALECTS)
def test_what_is_decoded_builds_the_bytes_it_was_decoded_from(random: Random, kind: Kind, dialect: str) -> None:
    key, value = built(random, kind, dialect)

    record = agreed(key, value, dialect)

    assert encode(kind[0], record.key, record.value, version=kind[1], dialect=dialect, layout=kind[2]) == (key, value)


@given(random=RANDOM, kind=st.sampled_from(KINDS), dialect=DIALECTS)
def test_damaged_records_have_one_outcome(random: Random, kind: Kind, dialect: str) -> None:
    key, value = built(random, kind, dialect)

    agreed(key, damaged(random, value), dialect)
    agreed(damaged(random, key), value, dialect)


@given(
    prefix=st.sampled_from(range(-1, 26)),
    key=st.binary(max_size=40),
    version=st.sampled_from(range(-1, 6)),
    value=st.binary(max_size=80),
    dialect=DIALECTS,
)
def test_any_bytes_at_all_have_one_outcome(
    prefix: int, key: bytes, version: int, value: bytes | None, dialect: str
) -> None:
    agreed(prefix.to_bytes(2, "big", signed=True) + key, version.to_bytes(2, "big", signed=True) + value, dialect)


@given(key=st.binary(max_size=8), value=st.none() | st.binary(max_size=8))
def test_short_keys_and_values_have_one_outcome(key: bytes, value: bytes | None) -> None:
    assert outcome(decode, key, value) == outcome(reference_decode, key, value)


@EVERY_KIND
def test_a_record_cut_at_any_byte_is_malformed(kind: Kind) -> None:
    key, value = built(Random(kind_name(kind)), kind, longest=6)

    taken = [n for n in range(len(value)) if not is_malformed_or_older(agreed(key, value[:n]))]

    assert taken == []


def is_malformed_or_older(found: Outcome) -> bool:
    """A cut type 11 can be a whole one of 4.0; the record then says so."""
    return found[0] is MalformedRecord if isinstance(found, tuple) else found.layout == "4.0"


@EVERY_KIND
def test_a_key_cut_at_any_byte_is_malformed(kind: Kind) -> None:
    key, value = built(Random(kind_name(kind)), kind, longest=6)

    kinds = {agreed(key[:n], value)[0] for n in range(len(key))}

    assert kinds == {MalformedRecord}


@EVERY_KIND
def test_a_record_with_any_one_byte_flipped_has_one_outcome(kind: Kind) -> None:
    key, value = built(Random(kind_name(kind)), kind, longest=6)

    outcomes = [agreed(key, flipped) for flipped in with_one_byte_flipped(value)]
    outcomes += [agreed(flipped, value) for flipped in with_one_byte_flipped(key)]

    assert len(outcomes) == 10 * len(key + value) > 0


def with_one_byte_flipped(data: bytes) -> Iterator[bytes]:
    """Every byte with each of its bits flipped, all of them, and all but the sign."""
    for at in range(len(data)):
        for mask in [1 << bit for bit in range(8)] + [0xFF, 0x7F]:
            yield data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :]


@EVERY_KIND
def test_a_trailing_byte_is_always_refused(kind: Kind) -> None:
    key, value = built(Random(kind_name(kind)), kind, longest=6)

    assert agreed(key, value + b"\0")[0] is MalformedRecord
    assert agreed(key + b"\0", value)[0] is MalformedRecord


@EVERY_KIND
def test_the_values_of_all_other_types_have_one_outcome_each(kind: Kind) -> None:
    random = Random(kind_name(kind))
    key, _ = built(random, kind)
    others = [built(random, other)[1] for other in KINDS if other[0] != kind[0]]

    outcomes = [agreed(key, value) for value in others]

    assert {MalformedRecord} <= {found[0] for found in outcomes if isinstance(found, tuple)}
    assert {found.record_type for found in outcomes if not isinstance(found, tuple)} <= {kind[0]}


def member_named(length: int) -> tuple[bytes, bytes]:
    """A type 19 whose client id has a length that `encode` would refuse."""
    size = length + 1
    varint = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
    text = varint + b"c" * length
    return bytes.fromhex("0013 0001 67 0001 6d"), b"\0\0\0\0" + text + bytes.fromhex("01 00000000 00000000 01 ff 01 00")


@pytest.mark.parametrize(("length", "is_read"), [(0x7FFE, True), (0x7FFF, True), (0x8000, False), (0xFFFF, False)])
def test_a_string_is_read_up_to_the_length_that_kafka_reads(length: int, is_read: bool) -> None:
    found = agreed(*member_named(length))

    assert isinstance(found, tuple) != is_read


@pytest.mark.parametrize("count", [0, 1, 31, 32, 126, 127, 128, 4095, 4096, 16382, 16383, 16384])
def test_arrays_and_tags_are_read_at_every_length_where_their_varints_grow(count: int) -> None:
    tasks = [{"subtopology_id": "s" * count, "partitions": [count] * count, "assignment_epochs": [1] * count}]
    value = {"active_tasks": tasks, "standby_tasks": [{"subtopology_id": "0"}] * count}

    record = agreed(*encode(22, {"group_id": "g" * count, "member_id": "m"}, value))

    assert record.value["active_tasks"] == tasks
    assert len(record.value["standby_tasks"]) == count


OLDER = [kind for kind in KINDS if kind[2]]


@pytest.mark.parametrize("kind", OLDER, ids=kind_name)
@given(random=RANDOM)
def test_no_bytes_of_an_older_layout_fit_the_newer_one_too(random: Random, kind: Kind) -> None:
    key, value = built(random, kind)

    assert decode(key, value).layout == kind[2]
    assert not read_fast(key, value, "shipped")


@pytest.mark.parametrize("kind", OLDER, ids=kind_name)
@given(random=RANDOM)
def test_no_bytes_of_the_newer_layout_are_taken_for_the_older_one(random: Random, kind: Kind) -> None:
    key, value = built(random, (kind[0], kind[1], None))

    assert decode(key, value).layout is None


def test_every_record_that_shipped_is_among_those_made_up() -> None:
    shipped = {number for number, definition in schemas.records().items() if not definition.planned}

    assert {kind[0] for kind in KINDS} == shipped == set(range(24)) - {18}
