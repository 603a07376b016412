from collections.abc import Callable

import pytest

from offsets_decoder import MalformedRecord, Record, UnknownTag, decode
from offsets_decoder.reference import reference_decode
from tests.support.encode import encode

Decoder = Callable[..., Record]
BOTH = pytest.mark.parametrize("decoder", [decode, reference_decode])
KEY_11 = bytes.fromhex("000b 0001 67")
KEY_15 = bytes.fromhex("000f 0001 67")


@BOTH
@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        (KEY_11, "0000 00000007 01 09 00", "value.metadataHash"),  # fits 4.0 but for a tag, which no 4.0 broker wrote
        (KEY_11, "0000 00000007", "value.metadataHash"),
        (KEY_15, "0000 01 01 00 00", "value.deletingTopics"),
    ],
)
def test_bytes_that_fit_no_layout_raise_the_error_of_the_newer_one(
    decoder: Decoder, key: bytes, value: str, path: str
) -> None:
    with pytest.raises(MalformedRecord) as caught:
        decoder(key, bytes.fromhex(value))
    assert caught.value.path == path


@BOTH
def test_unknown_tags_are_kept_at_every_depth_with_the_path_of_their_struct(decoder: Decoder) -> None:
    key = bytes.fromhex("0016 0001 67 0001 6d")
    value = "0000 00000001 00000001 01 03 0230 01 00 0231 01 02 00 01 00 8001 01 aa 01 01 01 01 01 01 ffffffff0f 00"
    record = decoder(key, bytes.fromhex(value))
    assert record.value["active_tasks"][1] == {"subtopology_id": "1", "partitions": [], "assignment_epochs": None}
    assert record.unknown_tags == [
        UnknownTag("value.activeTasks[1]", 128, b"\xaa"),
        UnknownTag("value", 0xFFFFFFFF, b""),
    ]
    assert record.drift


def test_a_record_can_be_encoded_in_an_older_layout() -> None:
    assert encode(11, {"group_id": "g"}, {"epoch": 7}, layout="4.0") == (KEY_11, bytes.fromhex("0000 00000007 00"))
