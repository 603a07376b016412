from typing import Any

import pytest

from offsets_decoder import EncodeError, encode


def test_omitted_fields_are_encoded_with_their_defaults() -> None:
    key, value = encode("StreamsGroupMetadata", {"group_id": "g"}, {"epoch": 3})
    assert (key.hex(), value.hex()) == ("0011000167", "0000000000030000000000000000" + "00")


def test_a_record_type_can_be_given_by_name_or_number() -> None:
    assert encode("StreamsGroupTopology", {"group_id": "g"}, None) == encode(23, {"group_id": "g"}, None)


INVALID = {
    "an unknown name": (("NoSuchRecord", {}, None), "no record is called 'NoSuchRecord'"),
    "an unknown type": ((24, {}, None), "record type 24"),
    "an unknown key field": ((17, {"groupId": "g"}, None), "key: no such field: groupId"),
    "an unknown value field": ((17, {}, {"epok": 1}), "value: no such field: epok"),
    "an unknown field of a struct": (
        (21, {}, {"active_tasks": [{"x": 1}]}),
        r"value.activeTasks\[0\]: no such field: x",
    ),
    "fields that are not a dict": ((17, [], None), "key: not a dict"),
    "a struct that is not a dict": ((21, {}, {"active_tasks": [5]}), r"value.activeTasks\[0\]: not a dict"),
    "a number too large": ((17, {}, {"epoch": 2**31}), "error during building"),
    "a bool for a number": ((17, {}, {"epoch": True}), "not an integer: True"),
    "a string too long": ((17, {"group_id": "g" * 32768}, None), "the maximum is 32767"),
    "a lone surrogate": ((17, {"group_id": "\ud800"}, None), "not UTF-8"),
    "null in a field that is not nullable": ((17, {"group_id": None}, None), "null in a field that is not nullable"),
    "a uuid of the wrong length": ((7, {}, {"topic_partitions": [{"topic_id": "AAAA"}]}), "not a uuid: 'AAAA'"),
    "bytes as a string": ((2, {}, {"members": [{"subscription": "x"}]}), "not bytes: 'x'"),
}


@pytest.mark.parametrize(("arguments", "message"), INVALID.values(), ids=INVALID)
def test_fields_that_cannot_be_encoded_are_an_encode_error_with_the_reason(
    arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(EncodeError, match=message):
        encode(*arguments)


@pytest.mark.parametrize(
    ("options", "message"), [({"version": 1}, "value version 1 is unknown"), ({"layout": "3.9"}, "no layout '3.9'")]
)
def test_an_unknown_version_or_layout_is_an_encode_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        encode(17, {}, {}, **options)
