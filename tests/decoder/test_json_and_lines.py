import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets_decoder import (
    MalformedRecord,
    UnknownDialectError,
    decode,
    decode_lines,
    encode,
    error_json,
    to_json,
)

KEY_17 = "001100026731"
VALUE_17 = "0000000000020000000000000000010004" + "00000003"
JSON_17 = {
    "key": {"type": 17, "data": {"groupId": "g1"}},
    "value": {"version": 0, "data": {"epoch": 2, "metadataHash": 0, "validatedTopologyEpoch": 3}},
}


def escaped(digits: str) -> str:
    """Return what Kafka's `Bytes.toString` returns; tests/decoder/test_oracle.py compares with Kafka's own."""
    return "".join(f"\\x{b:02X}" if not 0x20 <= b < 0x7F or b == 0x5C else chr(b) for b in bytes.fromhex(digits))


def decode_all(*lines: str, **kwargs: str) -> list[tuple[dict[str, Any], bool]]:
    return list(decode_lines(lines, **kwargs))


def test_a_record_is_printed_as_kafkas_formatters_print_it() -> None:
    assert to_json(decode(bytes.fromhex(KEY_17), bytes.fromhex(VALUE_17))) == JSON_17


def test_a_tombstone_is_printed_with_a_null_value() -> None:
    assert to_json(decode(bytes.fromhex(KEY_17), None)) == {"key": JSON_17["key"], "value": None}


def test_bytes_are_printed_in_base64_and_fields_of_other_versions_omitted() -> None:
    member = {"member_id": "m", "subscription": b"\xff\xfe", "assignment": b""}
    record = decode(*encode(2, {"group": "g"}, {"members": [member]}, version=1))

    assert to_json(record)["value"]["data"]["members"] == [
        {
            "memberId": "m",
            "clientId": "",
            "clientHost": "",
            "rebalanceTimeout": -1,
            "sessionTimeout": 0,
            "subscription": "//4=",
            "assignment": "",
        }
    ]


def test_unknown_tags_are_printed_in_hex_with_their_path() -> None:
    printed = to_json(decode(bytes.fromhex(KEY_17), bytes.fromhex("0000 00000002 0000000000000000 01 09 02 beef")))

    assert printed["unknownTags"] == [{"path": "value", "tag": 9, "data": "beef"}]


def test_an_older_layout_is_printed_by_name() -> None:
    printed = to_json(decode(bytes.fromhex("000b 0001 67"), bytes.fromhex("0000 00000007 00")))

    assert printed == {
        "key": {"type": 11, "data": {"groupId": "g"}},
        "value": {"version": 0, "data": {"epoch": 7}},
        "layout": "4.0",
    }


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


def test_an_error_without_a_key_is_printed_too() -> None:
    error = MalformedRecord("null", "key", 0)

    assert error_json(None, b"\1", error) == {
        "error": {"kind": "MalformedRecord", "message": "key: null (byte 0)"},
        "key": None,
        "value": "01",
    }


@pytest.mark.parametrize("line", ["", "\n", "\r\n", "   ", "\t"])
def test_blank_lines_are_skipped(line: str) -> None:
    assert decode_all(line) == []


@pytest.mark.parametrize(
    "line",
    [
        f"{KEY_17}\t{VALUE_17}",
        f"{KEY_17}\t{VALUE_17}\n",
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


@given(key=st.binary(), value=st.none() | st.binary())
def test_every_byte_survives_escaping(key: bytes, value: bytes | None) -> None:
    text = "null" if value is None else escaped(value.hex())

    [(printed, _)] = decode_all(f"{escaped('0018' + key.hex())}\t{text}")

    assert printed["error"]["kind"] == "UnknownRecordType"
    assert (printed["key"], printed["value"]) == (f"0018{key.hex()}", None if value is None else value.hex())


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (r"\x00\x1", "key"),
        (r"\x00\x11" + "\t" + r"\x0g", "value"),
        (r"\n", "key"),
        ("\\", "key"),
        (r"\x00é", "key"),
        (r"\x00\u0041", "key"),
        (r"\x00\x11" + "\t\t", "value"),
    ],
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
        (f"{KEY_17}\t0", "value", "an odd number of hexadecimal digits"),
        (f"{KEY_17}\t{VALUE_17}\tmore", "value", "not hexadecimal"),
        ("é\t00", "key", "not hexadecimal"),
        ("{", "key", "not hexadecimal"),
        ("{}", "key", "not hexadecimal"),
        ('{"key": 5}', "key", "not hexadecimal"),
        ('{"key": "00", "value": [1]}', "key", "not hexadecimal"),
        ("[" * 100_000, "key", "not hexadecimal"),
        ('{"a":' * 100_000, "key", "not hexadecimal"),
        ('{"key": ' + "9" * 5000 + "}", "key", "not hexadecimal"),
    ],
)
def test_a_line_that_is_not_hex_is_malformed_with_the_reason(line: str, part: str, reason: str) -> None:
    [(printed, decoded)] = decode_all("\n", line)

    assert not decoded
    assert printed["error"]["kind"] == "MalformedRecord"
    assert printed["error"]["message"] == f"{part}: line 2 is not KEYHEX<TAB>VALUEHEX: {reason} (byte 0)"
    assert "\t".join(filter(None, [printed["key"], printed["value"]])) == line.removesuffix("\t")


def test_valid_lines_between_invalid_ones_are_decoded() -> None:
    results = decode_all(f"{KEY_17}\t{VALUE_17}", "zz", f"{KEY_17}\t{VALUE_17}00", f"{KEY_17}\t", "0018\t00")

    assert [decoded for _, decoded in results] == [True, False, False, True, False]
    assert json.loads(json.dumps([printed for printed, _ in results])) == [printed for printed, _ in results]


@pytest.mark.parametrize("line", [f"{KEY_17}\t0001", f"{escaped(KEY_17)}\t", "0018", f"0018\t{VALUE_17}"])
def test_the_output_for_an_undecodable_record_can_be_decoded_again(line: str) -> None:
    [(failed, _)] = decode_all(line)

    assert decode_all(json.dumps(failed)) == [(failed, False)]


def test_lines_are_decoded_one_at_a_time() -> None:
    def infinite() -> Iterator[str]:
        while True:
            yield f"{KEY_17}\t{VALUE_17}"

    assert next(decode_lines(infinite())) == (JSON_17, True)


def test_an_unknown_dialect_raises_before_any_line_is_read() -> None:
    with pytest.raises(UnknownDialectError):
        decode_lines([], dialect="kip-1332")


def test_lines_can_be_decoded_in_a_dialect() -> None:
    value = "0000 00000002 0000000000000000 01 04 04 00000006".replace(" ", "")

    [(printed, decoded)] = decode_all(f"{KEY_17}\t{value}", dialect="kip-1331")

    assert decoded
    assert printed["value"]["data"]["failedDescriptionTopologyEpoch"] == 6
    assert "unknownTags" not in printed
