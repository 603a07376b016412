import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from offsets_decoder import MalformedRecord, Record, UnknownRecordType, UnknownTag, UnknownValueVersion, decode
from offsets_decoder.reference import reference_decode

Decoder = Callable[..., Record]
BOTH = pytest.mark.parametrize("decoder", [decode, reference_decode])
GROUP_KEY = "0011 0001 67"
MEMBER_KEY = "0016 0001 67 0001 6d"
KEY_11 = bytes.fromhex("000b 0001 67")
KEY_15 = bytes.fromhex("000f 0001 67")
OFFSET_KEY = "0001 0001 67 0001 74 00000003"
HEAD_17 = "0000 00000002 0000000000000000"
HEAD_22 = "0000 00000001 00000001 01"

INVALID_KEYS = {
    "no bytes": ("", "key", 0, "2 bytes expected for a record type, 0 remaining"),
    "no group id": ("0011", "key.groupId", 2, "2 bytes expected, 0 remaining"),
    "a group id past the end": ("0011 0005 67", "key.groupId", 4, "5 bytes expected, 1 remaining"),
    "a null group id": ("0011 ffff", "key.groupId", 2, "null in a field that is not nullable"),
    "a negative length": ("0011 fffe", "key.groupId", 2, "negative length -2"),
    "bad UTF-8": ("0011 0002 67ff", "key.groupId", 5, "not UTF-8"),
    "a surrogate in UTF-8": ("0011 0003 eda080", "key.groupId", 4, "not UTF-8"),
}
INVALID_VALUES = {
    "the empty value": (GROUP_KEY, "", "value", 0, "2 bytes expected for a version, 0 remaining"),
    "a truncated number": (GROUP_KEY, "0000 000000", "value.epoch", 2, "4 bytes expected, 3 remaining"),
    "no tag section": (GROUP_KEY, HEAD_17, "value", 14, "the data ends within a varint"),
    "a trailing byte": (GROUP_KEY, f"{HEAD_17} 00 00", "value", 15, "1 trailing bytes"),
    "a two-byte varint for zero": (GROUP_KEY, f"{HEAD_17} 8000", "value", 14, "overlong varint"),
    "a varint of six bytes": (GROUP_KEY, f"{HEAD_17} 808080808001", "value", 14, "overlong varint"),
    "a tag twice": (GROUP_KEY, f"{HEAD_17} 02 00 04 00000001 00 04 00000001", "value", 21, "tag 0 after tag 0"),
    "a tag of 2 GB": (
        GROUP_KEY,
        f"{HEAD_17} 01 09 ffffffff07 00",
        "value",
        21,
        "2147483647 bytes expected in tag 9, 1 remaining",
    ),
    "a tag larger than its field": (
        GROUP_KEY,
        f"{HEAD_17} 01 00 05 00000001 00",
        "value.validatedTopologyEpoch",
        17,
        "tag 0 has 5 bytes, its field 4",
    ),
    "a string of 2 GB": (
        MEMBER_KEY,
        f"{HEAD_22} 02 ffffffff07 30",
        "value.activeTasks[0].subtopologyId",
        12,
        "a string of 2147483646 bytes, the maximum is 32767",
    ),
    "bad UTF-8 in the second task": (
        MEMBER_KEY,
        f"{HEAD_22} 03 0230 01 00 0330ff 01 00",
        "value.activeTasks[1].subtopologyId",
        18,
        "not UTF-8",
    ),
    "a null array": (MEMBER_KEY, f"{HEAD_22} 00", "value.activeTasks", 11, "null in a field that is not nullable"),
    "2 billion structs": (
        MEMBER_KEY,
        f"{HEAD_22} ffffffff07 0230 01 00",
        "value.activeTasks",
        11,
        "2147483646 elements expected, 4 bytes remaining",
    ),
    "a negative count before flexible versions": (
        "0002 0001 67",
        "0000 0000 00000001 ffff ffff fffffffe",
        "value.members",
        12,
        "negative length -2",
    ),
    "an invalid presence byte": (
        "0013 0001 67 0001 6d",
        "0000 00 00 0263 0268 0000afc8 00000000 0270 02 01 00",
        "value.userEndpoint",
        18,
        "a byte that means neither null nor present: 0x02",
    ),
}


INVALID = {
    **{f"{name} in a key": (key, None, *expected) for name, (key, *expected) in INVALID_KEYS.items()},
    **INVALID_VALUES,
}


@BOTH
@pytest.mark.parametrize(("key", "value", "path", "offset", "reason"), INVALID.values(), ids=INVALID)
def test_invalid_bytes_are_malformed_with_their_field_and_offset(
    decoder: Decoder, key: str, value: str | None, path: str, offset: int, reason: str
) -> None:
    with pytest.raises(MalformedRecord) as caught:
        decoder(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert (caught.value.path, caught.value.offset, caught.value.reason) == (path, offset, reason)
    assert str(caught.value) == f"{path}: {reason} (byte {offset})"


HUGE_LENGTHS = [name for name in INVALID_VALUES if "2 GB" in name or "2 billion" in name]


@BOTH
@pytest.mark.parametrize("name", HUGE_LENGTHS)
def test_a_wrong_length_of_gigabytes_takes_no_memory(decoder: Decoder, name: str) -> None:
    key, value = map(bytes.fromhex, INVALID_VALUES[name][:2])
    with suppress(MalformedRecord):
        decoder(key, value)  # the first record of its type generates the reader
    tracemalloc.start()
    with pytest.raises(MalformedRecord):
        decoder(key, value)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@BOTH
@pytest.mark.parametrize("record_type", [-32768, -1, 24, 4352])
def test_a_record_type_that_no_release_has_is_unknown_even_if_its_bytes_are_invalid(
    decoder: Decoder, record_type: int
) -> None:
    with pytest.raises(UnknownRecordType, match=f"record type {record_type}: not a record") as caught:
        decoder(record_type.to_bytes(2, "big", signed=True) + b"\xff", b"")
    assert caught.value.record_type == record_type


@BOTH
@pytest.mark.parametrize(
    ("key", "version", "known"),
    [(GROUP_KEY, 1, "0"), (GROUP_KEY, -1, "0"), (OFFSET_KEY, 5, "0-4"), ("0000" + OFFSET_KEY[4:], 1, "0")],
)
def test_a_version_that_no_release_has_is_unknown_and_the_known_ones_are_reported(
    decoder: Decoder, key: str, version: int, known: str
) -> None:
    with pytest.raises(UnknownValueVersion, match=f"value version {version} is unknown, known: {known}") as caught:
        decoder(bytes.fromhex(key), version.to_bytes(2, "big", signed=True))
    assert caught.value.version == version


@BOTH
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        *((key, b"", "key: ") for key in (None, 17, "0011")),
        *((bytes.fromhex(GROUP_KEY), value, "value: .*, not bytes") for value in (0, "0000", [0, 0])),
    ],
)
def test_what_is_not_bytes_is_malformed(decoder: Decoder, key: object, value: object, message: str) -> None:
    with pytest.raises(MalformedRecord, match=message):
        decoder(key, value)


@BOTH
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_bytes_like_objects_decode_as_bytes_do(decoder: Decoder, kind: type) -> None:
    key, value = bytes.fromhex(GROUP_KEY), bytes.fromhex(f"{HEAD_17} 01 09 02 aabb")
    record = decoder(kind(key), kind(value))
    assert record == decode(key, value)
    assert type(record.unknown_tags[0].data) is bytes


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
