"""Text for people, what people write, and which characters are escaped."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.text import (
    ago,
    duration,
    escape,
    escape_json,
    escape_lines,
    is_visible,
    parse_duration,
    parse_instant,
    parse_size,
    shorten,
)
from tests.long.hostile import effective_characters

AT = datetime(2026, 11, 1, 8, tzinfo=timezone.utc)
ANY_TEXT = st.text(st.characters(codec=None))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("payments-v2", "payments-v2"),
        ("zahlungen-grün é 支払い платежи 😀 a b", "zahlungen-grün é 支払い платежи 😀 a b"),
        ("a\x1b[31m", r"a\x1b[31m"),
        ("a\x9b31m", r"a\x9b31m"),
        ("a\u202eb", r"a\u202eb"),
        ("a\u200bb\ufe0f", r"a\u200bb\ufe0f"),
        ("a\nb\tc\x7f", r"a\nb\tc\x7f"),
        ("a\ud800\U000e0041", r"a\ud800\U000e0041"),
    ],
)
def test_what_is_not_shown_as_itself_is_escaped_and_letters_stay(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@given(ANY_TEXT)
def test_escaped_text_has_no_character_that_is_not_shown_as_itself(text: str) -> None:
    assert effective_characters(escape(text)) == set()
    assert "\n" not in escape(text)
    assert is_visible(escape(text))


@given(ANY_TEXT)
def test_escaped_json_is_the_same_value_and_has_no_such_character_either(text: str) -> None:
    written = escape_json(json.dumps({"a": [text]}, ensure_ascii=False, indent=2))
    assert json.loads(written) == {"a": [text]}
    assert effective_characters(written) == set()
    assert written.count("\n") == json.dumps({"a": [""]}, indent=2).count("\n")


def test_a_line_in_the_middle_of_a_text_cannot_pass_for_one_of_its_own() -> None:
    assert escape_lines("an error\n2026-11-22 INFO forged\x1b[2J") == "an error\n    2026-11-22 INFO forged\\x1b[2J"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        *(("90s", 90), ("1h30m", 5400), ("2w", 1_209_600), ("250ms", 0.25), (" 5m ", 300)),
        *(("PT5M", 300), ("P7D", 604_800), ("P2W", 1_209_600), ("P1DT1H30M", 91_800), ("PT0.5S", 0.5), ("PT90S", 90)),
        *((0, 0), (1.5, 1.5), ("90", 90), ("1e3", 1000)),
    ],
)
def test_a_duration_is_read_as_prometheus_or_iso_8601_write_it_or_as_seconds(given: object, seconds: float) -> None:
    assert parse_duration(given) == seconds


@pytest.mark.parametrize(
    "given", ["", "m", "5 m", "30m1h", "1h1h", "five", True, [], {}, "nan", "5M", "P", "PT", "P1M", "P1Y", "P1DT", "P5"]
)
def test_what_is_no_duration_is_in_the_error(given: object) -> None:
    with pytest.raises(ValueError, match="must be seconds, or a duration such as 90s, 5m or 1h30m") as raised:
        parse_duration(given)
    assert f'not "{given}"' in str(raised.value)


@pytest.mark.parametrize(
    ("seconds", "text", "in_one_unit"),
    [
        *((0, "0 s", "0 s"), (-3, "0 s", "0 s"), (59.9, "59 s", "59 s"), (65, "1 min 5 s", "1 min")),
        *((659, "10 min", "10 min"), (7500, "2 h 5 min", "2 h"), (86_400, "1 d", "1 d"), (90_000, "1 d 1 h", "1 d")),
    ],
)
def test_durations_to_read_have_their_largest_units(seconds: float, text: str, in_one_unit: str) -> None:
    assert duration(seconds) == text
    assert duration(seconds, units=1) == in_one_unit
    assert ago(AT, AT + timedelta(seconds=seconds)) == f"{in_one_unit} ago"


@pytest.mark.parametrize(
    ("text", "size"),
    [("512k", 512 << 10), ("64m", 64 << 20), ("2g", 2 << 30), ("3GB", 3 << 30), ("7b", 7), ("7", 7), (" 1t ", 1 << 40)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_instants_are_times_in_utc_or_so_long_ago() -> None:
    assert parse_instant("2h", AT) == parse_instant("PT2H", AT) == AT - timedelta(hours=2)
    assert parse_instant("2026-11-01T09:00+01:00", AT) == parse_instant("2026-11-01 08:00", AT) == AT
    assert parse_instant("2026-11-01T08:00Z", AT) == AT
    with pytest.raises(ValueError, match="must be a time such as 2026-03-14T03:12Z, or as 2h for two hours ago"):
        parse_instant("yesterday", AT)


@given(ANY_TEXT, st.integers(1, 50))
def test_a_shortened_text_has_at_most_so_many_characters(text: str, most: int) -> None:
    assert len(shorten(text, most)) <= most
    assert shorten(text, len(text)) == text
    assert shorten("abcdefgh", 5) == "abcd…"
