"""What clients put into records: generated readers against Construct, hostile bytes, and the facts in the bytes."""

# ruff: noqa: S311 - a seeded Random is what makes a failure reproducible

import tracemalloc
from io import BytesIO
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offsets_decoder import DecodeError, definitions
from offsets_decoder.constructs import Struct
from offsets_decoder.embedded import decode_embedded
from offsets_decoder.java_text import decode_utf
from offsets_decoder.layout import SIZES, embedded_layout
from offsets_decoder.record import MalformedRecord
from offsets_decoder.streams_protocol import (
    Assignment,
    ConsumerAssignment,
    decode_assignment,
    decode_consumer_assignment,
    decode_consumer_subscription,
    decode_subscription,
)
from tests.decoder.random_records import RecordGenerator, corrupt
from tests.support.encode import encode_embedded


def reference_decode_embedded(name: str, data: bytes) -> tuple[int, dict[str, Any]]:
    """Return version and fields with Construct. Raises DecodeError where `decode_embedded` returns None."""
    size = SIZES[definitions.embedded(name).prefix]
    if not isinstance(data, bytes) or len(data) < size:
        raise MalformedRecord("no version", name, 0)
    version, stream = int.from_bytes(data[:size], "big", signed=True), BytesIO(data[size:])
    fields: dict[str, Any] = Struct(embedded_layout(name, version))._parsereport(stream, [], name)
    if stream.read(1):
        raise MalformedRecord("trailing bytes", name, stream.tell())
    return version, fields


Kind = tuple[str, int]
"""The name of a definition, and a version of it."""
KINDS: list[Kind] = [(one.name, version) for one in definitions.all_embedded() for version in one.body.versions]
RANDOM = st.builds(Random, st.integers(0, 2**64 - 1))
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-v{kind[1]}")
CALLS = (decode_subscription, decode_assignment, decode_consumer_subscription, decode_consumer_assignment)
PROCESS_BASE64 = "PyUE4E-JQdOaDAMF6CwzAQ"


def random_fields(random: Random, kind: Kind, max_length: int = 130) -> dict[str, Any]:
    return RecordGenerator(random, max_length).struct(embedded_layout(*kind))


def common_outcome(name: str, data: bytes) -> tuple[int, dict[str, Any]] | None:
    """Return what the generated reader returns, after asserting that it is what Construct says."""
    try:
        expected = reference_decode_embedded(name, data)
    except DecodeError:
        expected = None
    assert decode_embedded(name, data) == expected
    return expected


@given(random=RANDOM, kind=st.sampled_from(KINDS))
def test_encoded_bytes_decode_to_the_fields_they_were_encoded_from(random: Random, kind: Kind) -> None:
    fields = random_fields(random, kind)

    assert common_outcome(kind[0], encode_embedded(*kind, fields)) == (kind[1], fields)


@given(random=RANDOM, kind=st.sampled_from(KINDS))
def test_corrupted_bytes_have_the_same_outcome_in_both_decoders(random: Random, kind: Kind) -> None:
    common_outcome(kind[0], corrupt(random, encode_embedded(*kind, random_fields(random, kind, 6))))


@EVERY_KIND
def test_bytes_that_end_early_or_late_do_not_parse(kind: Kind) -> None:
    data = encode_embedded(*kind, random_fields(Random(str(kind)), kind, 6))

    assert [n for n in range(len(data)) if common_outcome(kind[0], data[:n]) is not None] == []
    assert common_outcome(kind[0], data + b"\0") is None


@given(st.binary(max_size=80), st.integers(-2, 13), st.sampled_from(["", "int16", "int32"]))
@example(b"", 0, "")
def test_any_bytes_give_a_result_and_no_exception(data: bytes, version: int, prefix: str) -> None:
    size = {"": 0, "int16": 2, "int32": 4}[prefix]
    data = version.to_bytes(size, "big", signed=True) + data if size else data

    for definition in definitions.all_embedded():
        common_outcome(definition.name, data)
    for call in CALLS:
        call(data)
        call(in_subscription(data))
        call(in_assignment(data))


def in_subscription(user_data: bytes | None) -> bytes:
    return encode_embedded("ConsumerProtocolSubscription", 1, {"topics": ["in"], "user_data": user_data})


def in_assignment(user_data: bytes | None, partitions: dict[str, list[int]] | None = None) -> bytes:
    assigned = [{"topic": topic, "partitions": numbers} for topic, numbers in (partitions or {}).items()]
    fields = {"assigned_partitions": assigned, "user_data": user_data}
    return encode_embedded("ConsumerProtocolAssignment", 1, fields)


COUNTS = (2**31 - 1, 1_000_000, -1)
OTHER_LIBRARIES = {
    "none": None,
    "empty": b"",
    "librdkafka's sticky assignor": bytes.fromhex("00000001 0002 696e 00000001 00000000 00000007"),
    "JSON of an assignor of its own": b'{"version": 11, "tasks": []}',
    "a version of a later Kafka Streams": bytes.fromhex("0000000c 0000000c") + bytes(60),
    "text": b"stream" * 20,
}


@pytest.mark.parametrize("user_data", OTHER_LIBRARIES.values(), ids=OTHER_LIBRARIES)
def test_user_data_of_other_libraries_is_none_and_their_partitions_are_read(user_data: bytes | None) -> None:
    assignment = in_assignment(user_data, {"in": [0, 2]})

    assert decode_consumer_assignment(assignment) == ConsumerAssignment({"in": [0, 2]}, user_data)
    assert decode_assignment(assignment) is None
    assert decode_subscription(in_subscription(user_data)) is None
    assert decode_consumer_subscription(in_subscription(user_data)).user_data == user_data


@EVERY_KIND
@pytest.mark.parametrize("count", COUNTS)
def test_a_count_beyond_the_bytes_does_not_parse_and_takes_no_memory(kind: Kind, count: int) -> None:
    """Every place of four bytes gets the count in turn, in bytes that have elements in each array."""
    data = encode_embedded(*kind, RecordGenerator(Fullest("full"), 2).struct(embedded_layout(*kind)))
    decode_embedded(kind[0], data)  # generates the reader

    tracemalloc.start()
    try:
        for place in range(len(data) - 3):
            decode_embedded(kind[0], data[:place] + count.to_bytes(4, "big", signed=True) + data[place + 4 :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000


class Fullest(Random):
    """Chooses the last of a few choices: arrays and text are as long as they may be."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]


MANY = 20_000
NOTHING = bytes(4)
LARGE = {
    "tasks without a name": (
        "SubscriptionInfo",
        pack(">ii16sii", 11, 11, b"", 0, MANY) + (bytes(16) + b"\xff\xff") * MANY + bytes(9),
    ),
    "hosts without a name": (
        "AssignmentInfo",
        pack(">ii", 11, 11) + NOTHING * 3 + pack(">i", MANY) + bytes(10) * MANY + NOTHING * 2 + bytes(8),
    ),
    "standby tasks without partitions": (
        "AssignmentInfo",
        pack(">iiii", 4, 4, 0, MANY) + bytes(12) * MANY + NOTHING * 2,
    ),
    "topics without a name": ("ConsumerProtocolSubscription", pack(">hi", 0, MANY) + bytes(2) * MANY + NOTHING),
}


@pytest.mark.parametrize(("name", "data"), LARGE.values(), ids=LARGE)
def test_many_empty_elements_take_a_bounded_multiple_of_their_bytes(name: str, data: bytes) -> None:
    decode_embedded(name, data[:-1])

    tracemalloc.start()
    try:
        assert decode_embedded(name, data) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 60 * len(data)


def test_half_a_surrogate_and_other_bytes_are_read_as_the_replacement_character() -> None:
    tasks = [{"topic_group_id": 0, "partition": 0, "named_topology": "a\ud800b"}]
    standby = [{"topic_group_id": 1, "partition": 0, "partitions": [{"topic": "t\udc00", "partition": 3}]}]
    info = encode_embedded("AssignmentInfo", 10, {"active_tasks": tasks, "standby_tasks": standby})

    assignment = decode_assignment(in_assignment(info, {"in": [0]}))

    assert assignment == Assignment(10, {("a\ufffdb__0", 0): [("in", 0)]}, {("1", 0): [("t\ufffd", 3)]})
    fields = {"process_id": PROCESS_BASE64, "client_tags": [{"key": b"zone", "value": b"\xff"}]}
    subscription = decode_subscription(in_subscription(encode_embedded("SubscriptionInfo", 11, fields)))
    assert (subscription.client_tags, subscription.topics) == ({"zone": "\ufffd"}, ("in",))


@pytest.mark.parametrize("data", ["ff", "c3", "e282", "f09f9880", "c080c0"])
def test_bytes_that_java_does_not_write_are_no_text(data: str) -> None:
    with pytest.raises(UnicodeDecodeError):
        decode_utf(bytes.fromhex(data))


def tasks(*numbers: tuple[int, int]) -> list[dict[str, int]]:
    return [{"topic_group_id": subtopology, "partition": partition} for subtopology, partition in numbers]


def assignment_of(
    version: int, active: list[dict[str, int]], partitions: dict[str, list[int]], **fields: object
) -> Assignment | None:
    info = encode_embedded("AssignmentInfo", version, {"active_tasks": active} | fields)
    return decode_assignment(in_assignment(info, partitions))


@pytest.mark.parametrize("active", [[], tasks((0, 0)), tasks((0, 0), (0, 1), (0, 2))])
def test_without_one_active_task_for_each_partition_an_assignment_is_none(active: list[dict[str, int]]) -> None:
    assert assignment_of(11, active, {"in": [0, 1]}) is None
    assert assignment_of(11, tasks((0, 0), (0, 1)), {"in": [0, 1]}) is not None


def test_a_topic_that_comes_twice_is_one_and_a_rack_is_read() -> None:
    twice = [{"topic": "in", "partitions": [1]}, {"topic": "in", "partitions": [0]}]
    data = encode_embedded("ConsumerProtocolAssignment", 0, {"assigned_partitions": twice})
    assert decode_consumer_assignment(data).partitions == {"in": [1, 0]}

    fields = {"topics": ["in"], "owned_partitions": twice, "generation_id": 7, "rack_id": "a"}
    subscription = decode_consumer_subscription(encode_embedded("ConsumerProtocolSubscription", 3, fields))
    assert (subscription.rack_id, subscription.user_data) == ("a", None)
