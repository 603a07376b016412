"""Lines of text to JSON objects: all of `streams-groups decode` but the files. Pure: lines in, objects out.

A line is `KEYHEX<TAB>VALUEHEX`. An empty value, a missing one, and the word `null` that Kafka's console consumer prints
are tombstones. Hex may be in either case and begin with 0x. A line that is a JSON object with `key` and `value` in hex,
as this command prints for what it could not decode, is read too: what an older version left over can be tried again.

`kafka-dump-log.sh` and the console consumer without a formatter print raw bytes as text, which loses some: those lines
cannot be read by anyone. With a formatter they print JSON that is decoded already.
"""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Any

from offsets_decoder.decoder import decode
from offsets_decoder.errors import DecodeError, MalformedRecord
from offsets_decoder.json_form import error_json, to_json
from offsets_decoder.layout import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TOMBSTONES = ("", "null")
_HEX = frozenset(string.hexdigits)


def decode_lines(lines: Iterable[str], *, dialect: str = SHIPPED) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield for each line that is not blank (object, whether it was decoded), as `to_json` or `error_json` give it."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _decode_line(line.strip("\r\n"), number, dialect)


def _decode_line(line: str, number: int, dialect: str) -> tuple[dict[str, Any], bool]:
    key_text, value_text = _columns(line)
    try:
        key = _unhex(key_text, "key", number)
        value = None if value_text.strip() in _TOMBSTONES else _unhex(value_text, "value", number)
    except MalformedRecord as error:
        # There are no bytes to show: the text stands in for them.
        return error_json(None, None, error) | {"key": key_text, "value": value_text}, False
    try:
        return to_json(decode(key, value, dialect=dialect)), True
    except DecodeError as error:
        return error_json(key, value, error), False


def _columns(line: str) -> tuple[str, str]:
    if not line.lstrip().startswith("{"):
        key, _, value = line.partition("\t")
        return key, value
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return line, ""
    key, value = data.get("key"), data.get("value")
    return (key, value or "") if isinstance(key, str) and isinstance(value, str | None) else (line, "")


def _unhex(text: str, part: str, number: int) -> bytes:
    digits = text.strip()
    try:
        return bytes.fromhex(digits[2:] if digits[:2] in {"0x", "0X"} else digits)
    except ValueError:
        wrong = "an odd number of hexadecimal digits" if _HEX.issuperset(digits) else "not hexadecimal"
        raise MalformedRecord(f"line {number} is not KEYHEX<TAB>VALUEHEX: {wrong}", part, 0) from None
