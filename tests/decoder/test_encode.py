from typing import Any

import pytest

from offsets_decoder import EncodeError, decode, encode
from offsets_decoder.encoder import _complete
from offsets_decoder.layout import Shape, Slot


def test_fields_left_out_are_built_at_their_defaults() -> None:
    key, value = encode("StreamsGroupMetadata", {"group_id": "g"}, {"epoch": 3})

    assert (key.hex(), value.hex()) == ("0011000167", "0000000000030000000000000000" + "00")


def test_a_name_and_a_number_mean_the_same_record() -> None:
    assert encode("StreamsGroupTopology", {"group_id": "g"}, None) == encode(23, {"group_id": "g"}, None)


def test_a_none_value_builds_a_tombstone() -> None:
    assert encode(17, {"group_id": "g"}, None) == (bytes.fromhex("0011 0001 67"), None)


def test_the_newest_version_is_built_unless_another_is_asked_for() -> None:
    key = {"group": "g", "topic": "t", "partition": 0}

    assert encode(1, key, {"offset": 1})[1][:2] == b"\0\4"
    assert encode(1, key, {"offset": 1}, version=0)[1][:2] == b"\0\0"


def test_an_ignorable_field_that_the_version_does_not_have_is_dropped() -> None:
    key = {"group": "g", "topic": "t", "partition": 0}

    assert decode(*encode(1, key, {"leader_epoch": 5}, version=0)).value["leader_epoch"] == -1


REFUSED = {
    "an unknown name": (("NoSuchRecord", {}, None), "no record is called 'NoSuchRecord'"),
    "an unknown type": ((24, {}, None), "record type 24"),
    "a planned type": (("StreamsGroupPartitionMetadata", {}, None), "never shipped"),
    "an unknown key field": ((17, {"groupId": "g"}, None), "key: no such field: groupId"),
    "an unknown value field": ((17, {}, {"epok": 1}), "value: no such field: epok"),
    "an unknown field of a struct": (
        (21, {}, {"active_tasks": [{"x": 1}]}),
        r"value.activeTasks\[0\]: no such field: x",
    ),
    "fields that are no dict": ((17, [], None), "key: not a dict"),
    "a struct that is no dict": ((21, {}, {"active_tasks": [5]}), r"value.activeTasks\[0\]: not a dict"),
    "structs that are no list": ((21, {}, {"active_tasks": 5}), "value.activeTasks: not a list"),
    "a number too large": ((17, {}, {"epoch": 2**31}), "error during building"),
    "a number that is text": ((17, {}, {"epoch": "1"}), "not an integer: '1'"),
    "a bool for a number": ((17, {}, {"epoch": True}), "not an integer: True"),
    "a string too long": ((17, {"group_id": "g" * 32768}, None), "32767 is the most"),
    "a string that is bytes": ((17, {"group_id": b"g"}, None), "not a string: b'g'"),
    "a lone surrogate": ((17, {"group_id": "\ud800"}, None), "not UTF-8"),
    "null where it cannot be": ((17, {"group_id": None}, None), "null where there must be a value"),
    "null for an array": ((21, {}, {"active_tasks": None}), "not a list: None"),
    "numbers that are no list": ((21, {}, {"active_tasks": [{"partitions": 5}]}), "not a list: 5"),
    "a uuid of the wrong length": ((7, {}, {"topic_partitions": [{"topic_id": "AAAA"}]}), "not a uuid: 'AAAA'"),
    "a uuid that is a number": ((7, {}, {"topic_partitions": [{"topic_id": 5}]}), "not a uuid: 5"),
    "bytes that are text": ((2, {}, {"members": [{"subscription": "x"}]}), "not bytes: 'x'"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_built_is_an_encode_error_that_says_why(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        encode(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 1}, "value version 1 is unknown"),
        ({"dialect": "nonsense"}, "no dialect 'nonsense'"),
        ({"layout": "3.9"}, "no layout '3.9'"),
    ],
)
def test_a_version_dialect_or_layout_that_is_not_there_is_an_encode_error(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EncodeError, match=message):
        encode(17, {}, {}, **options)


def test_a_field_that_the_version_cannot_hold_is_an_encode_error() -> None:
    gone = Slot(
        name="epochs",
        snake="epochs",
        element="int32",
        is_array=False,
        nullable=False,
        ignorable=False,
        present=False,
        tag=None,
        default=0,
        shape=None,
    )

    with pytest.raises(EncodeError, match=r"value\.epochs: this version cannot hold 1"):
        _complete(Shape((gone,), flexible=True), {"epochs": 1}, "value")
