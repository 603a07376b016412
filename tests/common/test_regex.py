"""Expressions of users and of the log, and texts that tenants choose."""

import re

import pytest

from streaming_app.regex import Regex, given_regex

SLOW_WITH_BACKTRACKING = "(a+)+b"


def test_no_expression_is_slow_with_any_text() -> None:
    assert not Regex(SLOW_WITH_BACKTRACKING).matches("a" * 32_000)
    assert Regex(SLOW_WITH_BACKTRACKING).matches("a" * 32_000 + "b")


@pytest.mark.parametrize("text", ["x\ny", "é", "\U0001f600", "\ud800", ""])
def test_a_dot_matches_every_character(text: str) -> None:
    assert Regex(".*").matches(text)


def test_the_whole_text_matches() -> None:
    assert not Regex("pay").matches("payments")
    assert not Regex("pay|orders").matches("payments")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=x)", "invalid perl operator: (?="),
        ("((a{1000}){1000}){1000}", "invalid repetition size: {1000}"),
        ("a\ud800", "it has a lone surrogate"),
    ],
)
def test_what_is_no_expression_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match="is not a valid regular expression") as caught:
        Regex(pattern)
    assert reason in str(caught.value)


def test_a_pattern_of_shells_is_refused_with_the_expression_to_write() -> None:
    for text in ("payments-*", "app*", "team_7*"):
        with pytest.raises(ValueError, match=r"is a regular expression.*write " + re.escape(f"{text[:-1]}.*")):
            given_regex(text)
    assert given_regex("payments-.*").matches("payments-eu")
    assert given_regex("[a-z]*").matches("ab")
