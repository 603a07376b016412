from collections.abc import Callable

import pytest

from offsets_decoder import MalformedRecord, Record, UnknownTag, decode, encode, reference_decode

Decoder = Callable[..., Record]
BOTH = pytest.mark.parametrize("decoder", [decode, reference_decode])
KEY_11 = bytes.fromhex("000b 0001 67")
KEY_15 = bytes.fromhex("000f 0001 67")
KEY_17 = bytes.fromhex("0011 0001 67")
STORED_5_FAILED_6_OF_KIP_1331 = bytes.fromhex("0000 00000002 0000000000000000 02 03 04 00000005 04 04 00000006")


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
def test_the_tag_numbers_of_kip_1331_are_used_in_its_dialect(decoder: Decoder) -> None:
    record = decoder(KEY_17, STORED_5_FAILED_6_OF_KIP_1331, dialect="kip-1331")

    assert record.value["stored_description_topology_epoch"] == 5
    assert record.value["failed_description_topology_epoch"] == 6
    assert not record.drift


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


def test_a_record_can_be_encoded_in_a_dialect_and_in_an_older_layout() -> None:
    fields = {"epoch": 2, "stored_description_topology_epoch": 5, "failed_description_topology_epoch": 6}

    assert encode(17, {"group_id": "g"}, fields, dialect="kip-1331") == (KEY_17, STORED_5_FAILED_6_OF_KIP_1331)
    assert encode(11, {"group_id": "g"}, {"epoch": 7}, layout="4.0") == (KEY_11, bytes.fromhex("0000 00000007 00"))
