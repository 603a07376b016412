"""The generated readers against interpreted Construct, on thousands of random records, valid and then corrupted."""

# ruff: noqa: S311 - a seeded Random is what makes a failure reproducible

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets_decoder import DecodeError, MalformedRecord, Record, decode, decoder
from offsets_decoder.reference import reference_decode
from tests.decoder.random_records import VARIANTS, Variant, corrupt, random_record, variant_id
from tests.support.encode import encode

Outcome = Any
"""A Record, or the class of a DecodeError and its arguments."""

# One seed per example: `st.randoms` takes ten times as long as the decoding that is tested.
RANDOM = st.builds(Random, st.integers(0, 2**64 - 1))
EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)


def build_random(random: Random, variant: Variant, max_length: int = 130) -> tuple[bytes, bytes]:
    key, value = random_record(random, variant, max_length=max_length)
    return encode(variant[0], key, value, version=variant[1], layout=variant[2])


def outcome(function: Callable[..., Record], *args: object, **kwargs: object) -> Outcome:
    """Return a record, or the class and the arguments of a DecodeError. Any other exception is a failure."""
    try:
        return function(*args, **kwargs)
    except DecodeError as error:
        return type(error), error.args


def fast_path_reads(key: bytes, value: bytes | None) -> bool:
    """Return whether the generated readers read the record without the reference decoder."""
    try:
        readers = decoder._readers[key[:2]]
        readers.read_key(key, [])
        readers.values[value[:2]][1](value, [])
    except decoder._READ_ERRORS:
        return False
    return True


def common_outcome(key: bytes, value: bytes | None) -> Outcome:
    """Return the outcome of both decoders, after asserting that it is the same."""
    expected = outcome(reference_decode, key, value)
    assert outcome(decode, key, value) == expected
    in_current_layout = not isinstance(expected, tuple) and expected.layout is None
    assert fast_path_reads(key, value) == in_current_layout
    return expected


@given(random=RANDOM, variant=st.sampled_from(VARIANTS))
def test_an_encoded_record_decodes_to_the_fields_it_was_encoded_from(random: Random, variant: Variant) -> None:
    key, value = random_record(random, variant)
    record = common_outcome(*encode(variant[0], key, value, version=variant[1], layout=variant[2]))
    assert (record.record_type, record.value_version, record.layout) == variant
    assert record.key == key
    assert record.value == value
    assert not record.drift


@given(random=RANDOM, variant=st.sampled_from(VARIANTS))
def test_corrupted_records_have_the_same_outcome_in_both_decoders(random: Random, variant: Variant) -> None:
    key, value = build_random(random, variant)
    common_outcome(key, corrupt(random, value))
    common_outcome(corrupt(random, key), value)


@given(
    prefix=st.sampled_from(range(-1, 26)),
    key=st.binary(max_size=40),
    version=st.sampled_from(range(-1, 6)),
    value=st.binary(max_size=80),
)
def test_arbitrary_bytes_have_the_same_outcome_in_both_decoders(
    prefix: int, key: bytes, version: int, value: bytes | None
) -> None:
    common_outcome(prefix.to_bytes(2, "big", signed=True) + key, version.to_bytes(2, "big", signed=True) + value)


@EVERY_VARIANT
def test_what_is_cut_off_at_any_byte_or_has_one_too_many_is_malformed(variant: Variant) -> None:
    key, value = build_random(Random(variant_id(variant)), variant, max_length=6)
    decoded = [n for n in range(len(value)) if not is_malformed_or_older(common_outcome(key, value[:n]))]
    errors = {common_outcome(key[:n], value)[0] for n in range(len(key))}
    errors |= {common_outcome(key, value + b"\0")[0], common_outcome(key + b"\0", value)[0]}
    assert (decoded, errors) == ([], {MalformedRecord})


def is_malformed_or_older(result: Outcome) -> bool:
    """Return whether a record is malformed, or of layout 4.0: a truncated type 11 can be a complete one of 4.0."""
    return result[0] is MalformedRecord if isinstance(result, tuple) else result.layout == "4.0"


def member_with_client_id_of(length: int) -> tuple[bytes, bytes]:
    """Return a record of type 19 with a client id of any length: `encode` rejects long ones."""
    size = length + 1
    varint = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
    text = varint + b"c" * length
    return bytes.fromhex("0013 0001 67 0001 6d"), b"\0\0\0\0" + text + bytes.fromhex("01 00000000 00000000 01 ff 01 00")


@pytest.mark.parametrize(("length", "is_read"), [(0x7FFE, True), (0x7FFF, True), (0x8000, False), (0xFFFF, False)])
def test_a_string_is_read_up_to_the_length_that_kafka_reads(length: int, is_read: bool) -> None:
    result = common_outcome(*member_with_client_id_of(length))
    assert isinstance(result, tuple) != is_read


_LONGEST = [pytest.param(count, marks=pytest.mark.slow) for count in (4096, 16382, 16383, 16384)]


@pytest.mark.parametrize("count", [0, 1, 31, 32, 126, 127, 128, 4095, *_LONGEST])
def test_arrays_and_tagged_fields_are_read_around_every_length_where_their_varints_grow(count: int) -> None:
    tasks = [{"subtopology_id": "s" * count, "partitions": [count] * count, "assignment_epochs": [1] * count}]
    value = {"active_tasks": tasks, "standby_tasks": [{"subtopology_id": "0"}] * count}
    record = common_outcome(*encode(22, {"group_id": "g" * count, "member_id": "m"}, value))
    assert record.value["active_tasks"] == tasks
    assert len(record.value["standby_tasks"]) == count


OLDER = [variant for variant in VARIANTS if variant[2]]


@pytest.mark.parametrize("variant", OLDER, ids=variant_id)
@given(random=RANDOM)
def test_no_bytes_of_an_older_layout_fit_the_newer_one(random: Random, variant: Variant) -> None:
    key, value = build_random(random, variant)
    assert decode(key, value).layout == variant[2]
    assert not fast_path_reads(key, value)
