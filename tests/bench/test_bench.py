"""The benchmarks still run: `make bench` is not part of the tests, so each is imported here, and the pure ones run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench import __main__ as bench
from tests.bench import commands, decode, rules

MODULES = sorted(file.stem for file in Path(bench.__file__).parent.glob("*.py") if not file.stem.startswith("test_"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_says_what_it_measures(name: str) -> None:
    module = import_module(f"tests.bench.{name}")
    assert (module.__doc__ or "").strip()


def test_all_benchmarks_run_unless_some_are_named() -> None:
    assert bench.parse([]).which == [*bench.ALONE, *bench.WITH_A_BROKER]
    asked = bench.parse(["throughput", "decode", "--commits", "5", "--keys", "3"])
    assert (asked.which, asked.commits, asked.keys) == (["throughput", "decode"], 5, 3)


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parse(["throughput", "nothing"])
    assert "no such benchmark: nothing" in capsys.readouterr().err


def test_a_session_is_started_only_for_benchmarks_that_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bool] = []
    ran: list[str] = []

    class Opened(SimpleNamespace):
        def __enter__(self) -> None:
            started.append(self.with_spark)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(bench, "open_harness", Opened)
    for name in ("idle", "floor"):
        monkeypatch.setitem(bench.WITH_A_BROKER, name, lambda *_, name=name: ran.append(name))
    monkeypatch.setitem(bench.ALONE, "decode", lambda: ran.append("decode"))
    bench.main(bench.parse(["idle", "decode"]))
    bench.main(bench.parse(["floor", "idle"]))
    bench.main(bench.parse(["decode"]))
    assert ran == ["decode", "idle", "floor", "idle", "decode"]
    assert started == [False, True]


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
    run(**size)
    assert text in capsys.readouterr().out
