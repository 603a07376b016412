"""The benchmarks still run: `make bench` is not part of the tests, so each is imported here, and the pure ones run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.bench import __main__ as bench  # imports every benchmark
from tests.bench import commands, decode, rules

SMALLEST: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "decode": (decode.run, {"seconds": 0.001}, "22 CurrentAssignment, 200 tasks"),
    "commands": (commands.run, {"rounds": 1}, "Start of commands, medians of 1 rounds in turns"),
    "rules": (rules.run, {"groups": 400}, "One evaluation of 400 groups"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "commands" else name for name in SMALLEST]
)
def test_a_pure_benchmark_prints_its_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, size, text = SMALLEST[name]
    assert name in bench.ALONE
    run(**size)
    assert text in capsys.readouterr().out
