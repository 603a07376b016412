r"""Records as the JSON that Kafka's own formatters and JSON converters print. No bytes are read here.

The structure is that of Kafka's coordinator message formatters (since 4.1): type and data of the key, version and data
of the value. Fields are in the order of the definition. Tagged fields with their defaults, and fields that the version
does not have, are omitted.

A member of a classic group of consumers has bytes in the formats of Kafka's consumers and of Kafka Streams. Kafka
prints them as base64; `decoded` is added, with the same members and what is in these bytes (`streams_protocol`).

`decode_lines` implements `streams-groups decode` without its files: it turns lines of text into such objects. A line
has a key and a value in one of three forms:

* `KEYHEX<TAB>VALUEHEX`. Hex may be in either case and start with 0x. If the value is missing or the word `null`, the
  record is a tombstone.
* The output of Kafka's console consumer with `print.key=true` and `BytesDeserializer` for both: printable ASCII
  unchanged, any other byte as `\x0A`, and `null` for a tombstone. Every key starts with `\x00`.
* A JSON object with `key` and `value` in hex; a null or absent value is a tombstone. This is also the output for a
  record that cannot be decoded, so that a newer version of this package can try it again.

`kafka-dump-log.sh`, and the console consumer with its other deserializers, print bytes as text, which loses some of
them: such lines cannot be decoded. With a formatter these tools print JSON that is already decoded.
"""

import base64
import json
import re
import string
from collections.abc import Iterable, Iterator
from typing import Any

from offsets_decoder.decoder import decode
from offsets_decoder.embedded import decode_embedded
from offsets_decoder.layout import FieldLayout, StructLayout, embedded_layout, key_layout, value_layout
from offsets_decoder.record import DecodeError, MalformedRecord, Record

_TOMBSTONE = "null"
_ESCAPED = re.compile(r"(?:[ -\[\]-~]|\\x[0-9A-Fa-f]{2})*")  # a backslash is also escaped
_HEX = frozenset(string.hexdigits)
_CLASSIC_METADATA = 2
_EMBEDDED = {
    "subscription": ("ConsumerProtocolSubscription", "SubscriptionInfo"),
    "assignment": ("ConsumerProtocolAssignment", "AssignmentInfo"),
}
"""What the bytes of a member contain, and their user data in a group of Kafka Streams."""


def to_json(record: Record) -> dict[str, Any]:
    """Return a record as an object for `json.dumps`.

    In addition to Kafka's `key` and `value` it has `decoded` (the content of bytes) for a classic group of consumers
    with members, `unknownTags` (path, tag, data in hex) if there are any, and `layout` if the value had an older layout
    of the same version.
    """
    number = record.record_type
    result: dict[str, Any] = {"key": {"type": number, "data": _struct(key_layout(number), record.key)}, "value": None}
    if record.value is not None and record.value_version is not None:
        layout = value_layout(number, record.value_version, record.layout)
        result["value"] = {"version": record.value_version, "data": _struct(layout, record.value)}
        if members := _members(record):
            result["decoded"] = {"members": members}
    if record.layout is not None:
        result["layout"] = record.layout
    if record.unknown_tags:
        result["unknownTags"] = [{"path": t.path, "tag": t.tag, "data": t.data.hex()} for t in record.unknown_tags]
    return result


def error_json(key: bytes | None, value: bytes | None, error: DecodeError) -> dict[str, Any]:
    """Return the object for a record that cannot be decoded: the kind of error, its message, and the bytes in hex."""
    return {
        "error": {"kind": type(error).__name__, "message": str(error)},
        "key": None if key is None else bytes(key).hex(),
        "value": None if value is None else bytes(value).hex(),
    }


def decode_lines(lines: Iterable[str]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield (object, whether it was decoded) for each line that is not blank, from `to_json` or `error_json`."""
    return (_decode_line(line.strip("\r\n"), number) for number, line in enumerate(lines, 1) if line.strip())


def _members(record: Record) -> list[dict[str, Any]]:
    """Return the content of the members' bytes, if the record is of a classic group of consumers."""
    value = record.value or {}
    if record.record_type != _CLASSIC_METADATA or value["protocol_type"] != "consumer":
        return []
    of_streams = value["protocol"] == "stream"
    return [
        {"memberId": one["member_id"]}
        | {part: _embedded(one[part], *names[: 1 + of_streams]) for part, names in _EMBEDDED.items()}
        for one in value["members"]
    ]


def _embedded(data: bytes | None, name: str, of_user_data: str | None = None) -> dict[str, Any] | None:
    """Return version and data of bytes; None if they do not parse. If their user data parses, it is in place of it."""
    decoded = decode_embedded(name, data)
    if decoded is None:
        return None
    version, fields = decoded
    printed = _struct(embedded_layout(name, version), fields)
    if of_user_data is not None and (user_data := _embedded(fields["user_data"], of_user_data)) is not None:
        printed["userData"] = user_data
    return {"version": version, "data": printed}


def _struct(layout: StructLayout, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        field.camel: _field(field, fields[field.snake])
        for field in layout.fields
        if field.present and (field.tag is None or fields[field.snake] != field.default_value())
    }


def _field(field: FieldLayout, value: Any) -> Any:  # noqa: ANN401 - depends on the field's type
    if field.is_array and value is not None:
        return [_element(field, element) for element in value]
    return _element(field, value)


def _element(field: FieldLayout, value: Any) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if field.struct is not None:
        return _struct(field.struct, value)
    return base64.b64encode(value).decode() if field.element == "bytes" else value


def _decode_line(line: str, number: int) -> tuple[dict[str, Any], bool]:
    key_text, value_text = _split_line(line)
    parse = _parse_escaped if key_text.startswith("\\") else _parse_hex
    try:
        key = parse(key_text, "key", number)
        value = None if value_text is None else parse(value_text, "value", number)
    except MalformedRecord as error:
        # There are no bytes, so return the text of the line instead.
        return error_json(None, None, error) | {"key": key_text, "value": value_text}, False
    try:
        return to_json(decode(key, value)), True
    except DecodeError as error:
        return error_json(key, value, error), False


def _split_line(line: str) -> tuple[str, str | None]:
    """Split a line into the text of its key and the text of its value; the latter is None for a tombstone."""
    if line.lstrip().startswith("{"):
        return _split_json_line(line)
    key, tab, value = line.partition("\t")
    # In the console consumer's form, empty text is a value without bytes: a tombstone is the word null there.
    absent = not tab if key.startswith("\\") else not value.strip()
    return key, None if absent or value.strip() == _TOMBSTONE else value


def _split_json_line(line: str) -> tuple[str, str | None]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return line, None
    key, value = data.get("key"), data.get("value")
    return (key, value) if isinstance(key, str) and isinstance(value, str | None) else (line, None)


def _parse_hex(text: str, part: str, number: int) -> bytes:
    digits = text.strip()
    try:
        return bytes.fromhex(digits[2:] if digits[:2] in {"0x", "0X"} else digits)
    except ValueError:
        reason = "an odd number of hexadecimal digits" if _HEX.issuperset(digits) else "not hexadecimal"
        raise MalformedRecord(f"line {number} is not KEYHEX<TAB>VALUEHEX: {reason}", part, 0) from None


def _parse_escaped(text: str, part: str, number: int) -> bytes:
    if _ESCAPED.fullmatch(text) is None:
        raise MalformedRecord(f"line {number} is not what Kafka's BytesDeserializer prints", part, 0)
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")
