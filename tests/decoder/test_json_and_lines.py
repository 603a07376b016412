import base64
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets_decoder import decode, decode_lines, to_json
from tests.support.encode import encode, encode_embedded

KEY_17 = "001100026731"
VALUE_17 = "0000000000020000000000000000010004" + "00000003"
JSON_17 = {
    "key": {"type": 17, "data": {"groupId": "g1"}},
    "value": {"version": 0, "data": {"epoch": 2, "metadataHash": 0, "validatedTopologyEpoch": 3}},
}


def escaped(digits: str) -> str:
    """Return what Kafka's `Bytes.toString` returns; tests/decoder/test_oracle.py compares with Kafka's own."""
    return "".join(f"\\x{b:02X}" if not 0x20 <= b < 0x7F or b == 0x5C else chr(b) for b in bytes.fromhex(digits))


def decode_all(*lines: str) -> list[tuple[dict[str, Any], bool]]:
    return list(decode_lines(lines))


def test_unknown_tags_are_printed_in_hex_with_their_path() -> None:
    printed = to_json(decode(bytes.fromhex(KEY_17), bytes.fromhex("0000 00000002 0000000000000000 01 09 02 beef")))
    assert printed["unknownTags"] == [{"path": "value", "tag": 9, "data": "beef"}]


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("0018", "", "UnknownRecordType"),
        ("0012", "", "UnknownRecordType"),
        (KEY_17, "0001", "UnknownValueVersion"),
        (KEY_17, "0000ff", "MalformedRecord"),
    ],
)
def test_an_undecodable_record_is_printed_with_its_error_and_its_bytes(key: str, value: str, kind: str) -> None:
    [(printed, decoded)] = decode_all(f"{key}\t{value}\n")
    assert not decoded
    assert (printed["error"]["kind"], printed["key"], printed["value"]) == (kind, key, value or None)
    assert printed["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        f"{KEY_17}\t{VALUE_17}",
        f"{KEY_17}\t{VALUE_17}\r\n",
        f"{KEY_17.upper()}\t{VALUE_17.upper()}",
        f"0x{KEY_17}\t0X{VALUE_17}",
        f"  {KEY_17} \t {VALUE_17} ",
        json.dumps({"error": {"kind": "UnknownValueVersion"}, "key": KEY_17, "value": VALUE_17}),
        f"{escaped(KEY_17)}\t{escaped(VALUE_17)}",
        f"{escaped(KEY_17).lower()}\t{escaped(VALUE_17).lower()}\r\n",
    ],
)
def test_a_line_is_decoded_in_each_of_its_forms(line: str) -> None:
    assert decode_all(line) == [(JSON_17, True)]


@pytest.mark.parametrize(
    "line",
    [
        KEY_17,
        f"{KEY_17}\t",
        f"{KEY_17}\tnull",
        json.dumps({"key": KEY_17, "value": None}),
        json.dumps({"key": KEY_17}),
        escaped(KEY_17),
        f"{escaped(KEY_17)}\tnull\n",
    ],
)
def test_a_line_without_a_value_is_a_tombstone(line: str) -> None:
    assert decode_all(line) == [({"key": JSON_17["key"], "value": None}, True)]


@pytest.mark.parametrize(
    ("line", "part"),
    [(r"\x00\x1", "key"), (r"\x00\x11" + "\t" + r"\x0g", "value"), ("\\", "key"), (r"\x00\x11" + "\t\t", "value")],
)
def test_a_line_that_is_not_escaped_as_kafka_does_is_malformed(line: str, part: str) -> None:
    [(printed, decoded)] = decode_all(line)
    assert not decoded
    assert printed["error"] == {
        "kind": "MalformedRecord",
        "message": f"{part}: line 1 is not what Kafka's BytesDeserializer prints (byte 0)",
    }


@pytest.mark.parametrize(
    ("line", "part", "reason"),
    [
        ("hello\tworld", "key", "not hexadecimal"),
        (f"{KEY_17}0\t", "key", "an odd number of hexadecimal digits"),
        (f"{KEY_17}\t{VALUE_17}\tmore", "value", "not hexadecimal"),
        ("{", "key", "not hexadecimal"),
        ('{"key": 5}', "key", "not hexadecimal"),
        ('{"key": ' + "9" * 5000 + "}", "key", "not hexadecimal"),
    ],
)
def test_a_line_that_is_not_hex_is_malformed_with_the_reason(line: str, part: str, reason: str) -> None:
    [(printed, decoded)] = decode_all("\n", line)
    assert not decoded
    assert printed["error"]["kind"] == "MalformedRecord"
    assert printed["error"]["message"] == f"{part}: line 2 is not KEYHEX<TAB>VALUEHEX: {reason} (byte 0)"
    assert "\t".join(filter(None, [printed["key"], printed["value"]])) == line.removesuffix("\t")


@pytest.mark.parametrize("line", ["[" * 100_000, '{"key": ' * 100_000, '{"key": ' + "[" * 100_000], ids=[*"123"])
def test_a_line_that_is_nested_too_deeply_is_malformed(line: str) -> None:
    gc.collect()
    gc.disable()  # what other tests left must not be collected at this depth: pytest's hook would exceed it, too
    try:
        test_a_line_that_is_not_hex_is_malformed_with_the_reason(line, "key", "not hexadecimal")
    finally:
        gc.enable()


@pytest.mark.parametrize("line", [f"{KEY_17}\t0001", f"{escaped(KEY_17)}\t", "0018", f"0018\t{VALUE_17}"])
def test_the_output_for_an_undecodable_record_can_be_decoded_again(line: str) -> None:
    [(failed, _)] = decode_all(line)
    assert decode_all(json.dumps(failed)) == [(failed, False)]


def test_lines_are_decoded_one_at_a_time() -> None:
    def infinite() -> Iterator[str]:
        while True:
            yield f"{KEY_17}\t{VALUE_17}"

    assert next(decode_lines(infinite())) == (JSON_17, True)


@given(line=st.text() | st.text('0123456789abcdef\t\\x{}[]:," keyvalu'))
def test_any_text_gives_one_json_object_and_a_blank_one_none(line: str) -> None:
    results = decode_all(line)
    assert len(results) == bool(line.strip())
    for printed, decoded in results:
        assert json.loads(json.dumps(printed)) == printed
        assert decoded == ("error" not in printed)


def member(member_id: str, **data: bytes) -> dict[str, Any]:
    return {"member_id": member_id, "subscription": b"", "assignment": b""} | data


def printed_group(protocol: str | None, *members: dict[str, Any], protocol_type: str = "consumer") -> dict[str, Any]:
    value = {"protocol_type": protocol_type, "protocol": protocol, "members": list(members)}
    return to_json(decode(*encode(2, {"group": "g"}, value, version=3)))


SUBSCRIPTION_INFO = encode_embedded("SubscriptionInfo", 11, {"latest_supported_version": 11})
SUBSCRIPTION = encode_embedded("ConsumerProtocolSubscription", 0, {"topics": ["in"], "user_data": SUBSCRIPTION_INFO})
ASSIGNMENT_INFO = encode_embedded("AssignmentInfo", 4, {"active_tasks": [{"topic_group_id": 1, "partition": 2}]})
ASSIGNED = [{"topic": "in", "partitions": [2]}]
ASSIGNMENT = encode_embedded(
    "ConsumerProtocolAssignment", 0, {"assigned_partitions": ASSIGNED, "user_data": ASSIGNMENT_INFO}
)


def test_members_of_kafka_streams_are_printed_with_what_their_bytes_contain_beside_kafkas_own_form() -> None:
    printed = printed_group("stream", member("m", subscription=SUBSCRIPTION, assignment=ASSIGNMENT))

    [kafkas] = printed["value"]["data"]["members"]
    assert (kafkas["subscription"], kafkas["assignment"]) == (
        base64.b64encode(SUBSCRIPTION).decode(),
        base64.b64encode(ASSIGNMENT).decode(),
    )
    assert list(printed) == ["key", "value", "decoded"]
    [ours] = printed["decoded"]["members"]
    assert (ours["memberId"], ours["subscription"]["version"], ours["assignment"]["version"]) == ("m", 0, 0)
    assert ours["subscription"]["data"]["topics"] == ["in"]
    subscribed = ours["subscription"]["data"]["userData"]
    assert (subscribed["version"], subscribed["data"]["processId"]) == (11, "A" * 22)
    assert ours["assignment"]["data"]["assignedPartitions"] == ASSIGNED
    none = {"commonlySupportedVersion": -1, "standbyTasks": [], "partitionsByHost": [], "errCode": 0}
    active = {"activeTasks": [{"topicGroupId": 1, "partition": 2}]}
    assert ours["assignment"]["data"]["userData"] == {"version": 4, "data": {**active, **none}}


def test_user_data_of_another_assignor_stays_base64_and_other_bytes_are_null() -> None:
    printed = printed_group("range", member("m", subscription=b"\0\0oops", assignment=ASSIGNMENT))

    [ours] = printed["decoded"]["members"]
    assert ours["subscription"] is None
    assert ours["assignment"]["data"]["userData"] == base64.b64encode(ASSIGNMENT_INFO).decode()


def test_members_of_other_protocol_types_and_groups_without_members_have_nothing_decoded() -> None:
    assert "decoded" not in printed_group("v1", member("m", assignment=ASSIGNMENT), protocol_type="connect")
    assert "decoded" not in printed_group(None)
    assert "decoded" not in to_json(decode(*encode(2, {"group": "g"}, None)))
