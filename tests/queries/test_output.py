"""The forms of output, with text that others chose."""

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from streaming_app.queries.output import as_csv, as_json, cell, columns, terminal_table
from tests.long.hostile import HOSTILE, effective_characters

NESTED = [{"id": HOSTILE, "tags": {HOSTILE: [HOSTILE]}}]
ROWS = [{"GROUP": HOSTILE, HOSTILE: 1, "NESTED": NESTED}, {"GROUP": "g", HOSTILE: 2, "NESTED": None}]


def test_a_very_long_value_does_not_widen_the_lines_of_the_others() -> None:
    header, long, short = columns([{"GROUP": "g" * 30_000, "N": 1}, {"GROUP": "h", "N": 2}]).splitlines()
    assert long == f"{'g' * 30_000} 1"
    assert (header.split(), short.split()) == (["GROUP", "N"], ["h", "2"])
    assert len(short) < 500


def test_a_table_of_the_terminal_has_no_such_characters_and_no_markup() -> None:
    names = ["GROUP", HOSTILE, "NESTED"]
    console = Console(file=io.StringIO(), width=2_000, force_terminal=True, color_system=None)
    console.print(terminal_table(names, ROWS))
    assert effective_characters(console.file.getvalue()) == set()  # type: ignore[attr-defined] # a StringIO
    console.print(terminal_table(["[blink]n[/blink]"], [{"[blink]n[/blink]": "[link=http://x]y[/link]"}]))
    printed = console.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    assert "[blink]n[/blink]" in printed
    assert "[link=http://x]y[/link]" in printed


def test_json_is_valid_for_numbers_that_json_does_not_have() -> None:
    printed = as_json([{"a": float("nan"), "b": [float("inf"), -float("inf")], "c": 1.5, "d": {"e": float("nan")}}])
    read = json.loads(printed, parse_constant=pytest.fail)
    assert read == [{"a": "NaN", "b": ["Infinity", "-Infinity"], "c": 1.5, "d": {"e": "NaN"}}]


def read_csv(*values: Any) -> list[str]:
    printed = as_csv(["value"], [{"value": value} for value in values])
    assert effective_characters(printed) == set()
    (header,), *lines = csv.reader(io.StringIO(printed))
    assert header == "value"
    return [line[0] for line in lines]


@pytest.mark.parametrize("start", [*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_a_text_that_a_spreadsheet_takes_for_a_formula_starts_with_an_apostrophe(start: str) -> None:
    formula = f"{start}HYPERLINK(A1)"
    assert read_csv(formula) == [f"'{cell(formula)}"]
    assert as_csv([formula], []).startswith("'")


def test_numbers_and_other_text_are_unchanged_in_csv() -> None:
    values = [-5, -0.5, Decimal("-1.50"), True, "a=b", "'=1", "", None, "a-b"]
    assert read_csv(*values) == ["-5", "-0.5", "-1.50", "true", "a=b", "'=1", "", "", "a-b"]
    assert json.loads(read_csv([{"a": "=1"}])[0]) == [{"a": "=1"}]
