from __future__ import annotations

import io
import sys

import pytest

from streaming_app.jvm.jars import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_line_that_is_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "12")
    with ProgressLine(lambda _: pytest.fail("a line of its own")) as line:
        line.show("1 of 9 jars, 3 MB")
        line.show("9 of 9\x1b jars")
    assert terminal.getvalue() == "\r\x1b[2K1 of 9 jars\r\x1b[2K9 of 9\\x1b \r\x1b[2K"


def test_a_log_gets_few_lines_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lines: list[str] = []
    with ProgressLine(lines.append) as line:
        for tenth in range(600):
            now[0] = tenth / 10
            if line.is_due():
                line.show(f"{int(now[0]) // 40} jars")
    assert lines == ["0 jars", "1 jars"]
