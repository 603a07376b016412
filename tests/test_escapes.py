"""Which characters are escaped, and how."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.escapes import escape, escape_json, escape_lines, is_visible
from tests.hostile import HOSTILE, effective_characters

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


def test_the_hostile_text_of_the_tests_is_hostile() -> None:
    assert len(effective_characters(HOSTILE)) > 30
