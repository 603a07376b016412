r"""Lines of text to JSON objects: all of `streams-groups decode` but the files. Pure: lines in, objects out.

A line holds a key and a value in one of three forms:

* `KEYHEX<TAB>VALUEHEX`. Hex may be in either case and begin with 0x. Without a value, or with the word `null` for it,
  the record is a tombstone.
* What Kafka's console consumer prints with `print.key=true` and `BytesDeserializer` for both: printable ASCII as it
  is, any other byte as `\x0A`, and `null` for a tombstone. Every key begins with `\x00`.
* A JSON object with `key` and `value` in hex, null or none for a tombstone, as this module gives for what it could not
  decode: what an older version left over can be tried again.

`kafka-dump-log.sh`, and the console consumer with its other deserializers, print bytes as text, which loses some: those
lines cannot be read by anyone. With a formatter they print JSON that is decoded already.
"""

from __future__ import annotations

import json
import re
import string
from typing import TYPE_CHECKING, Any

from offsets_decoder.decoder import decode
from offsets_decoder.errors import DecodeError, MalformedRecord
from offsets_decoder.json_form import error_json, to_json
from offsets_decoder.layout import SHIPPED, check_dialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TOMBSTONE = "null"
_ESCAPED = re.compile(r"(?:[ -\[\]-~]|\\x[0-9A-Fa-f]{2})*")  # a backslash is escaped too
_HEX = frozenset(string.hexdigits)


def decode_lines(lines: Iterable[str], *, dialect: str = SHIPPED) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield for each line that is not blank (object, whether it was decoded), as `to_json` or `error_json` give it.

    Raises `UnknownDialectError` at once for a dialect that nobody defined, and nothing for any line.
    """
    check_dialect(dialect)
    return (_decode_line(line.strip("\r\n"), number, dialect) for number, line in enumerate(lines, 1) if line.strip())


def _decode_line(line: str, number: int, dialect: str) -> tuple[dict[str, Any], bool]:
    key_text, value_text = _columns(line)
    read = _unescape if key_text.startswith("\\") else _unhex
    try:
        key = read(key_text, "key", number)
        value = None if value_text is None else read(value_text, "value", number)
    except MalformedRecord as error:
        # There are no bytes to show: the text stands in for them.
        return error_json(None, None, error) | {"key": key_text, "value": value_text}, False
    try:
        return to_json(decode(key, value, dialect=dialect)), True
    except DecodeError as error:
        return error_json(key, value, error), False


def _columns(line: str) -> tuple[str, str | None]:
    """Split a line into the text of its key and that of its value, None for a tombstone."""
    if line.lstrip().startswith("{"):
        return _json_columns(line)
    key, tab, value = line.partition("\t")
    # In Kafka's own form an empty value is one of no bytes: tombstones are spelled out there.
    absent = not tab if key.startswith("\\") else not value.strip()
    return key, None if absent or value.strip() == _TOMBSTONE else value


def _json_columns(line: str) -> tuple[str, str | None]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return line, None
    key, value = data.get("key"), data.get("value")
    return (key, value) if isinstance(key, str) and isinstance(value, str | None) else (line, None)


def _unhex(text: str, part: str, number: int) -> bytes:
    digits = text.strip()
    try:
        return bytes.fromhex(digits[2:] if digits[:2] in {"0x", "0X"} else digits)
    except ValueError:
        wrong = "an odd number of hexadecimal digits" if _HEX.issuperset(digits) else "not hexadecimal"
        raise MalformedRecord(f"line {number} is not KEYHEX<TAB>VALUEHEX: {wrong}", part, 0) from None


def _unescape(text: str, part: str, number: int) -> bytes:
    if _ESCAPED.fullmatch(text) is None:
        raise MalformedRecord(f"line {number} is not what Kafka's BytesDeserializer prints", part, 0)
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")
