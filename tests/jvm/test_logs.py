"""What is logged while the job runs, and the line that is shown of a log or a download."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest

from streaming_app.jvm.jars import ProgressLine
from streaming_app.jvm.java import last_line
from streaming_app.jvm.spark_session import library_logs
from tests.long.hostile import HOSTILE, effective_characters


def test_log_lines_have_no_characters_that_a_terminal_obeys_and_none_looks_like_another(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_file = tmp_path / "spark.log"
    with library_logs(log_file):
        for name in ("streaming_app.alerts", "py4j"):
            logging.getLogger(name).error("cannot do it: %s\nforged", HOSTILE, exc_info=ValueError(HOSTILE))
    for text in (capfd.readouterr().err, log_file.read_text("utf-8", "surrogatepass")):
        assert effective_characters(text) == set()
        first, *others = text.splitlines()
        assert "cannot do it: g\\x1b[2J" in first
        assert "    forged" in others
        assert all(line.startswith("    ") for line in others)
        assert any("ValueError: g\\x1b[2J" in line for line in others)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("a\nan ERROR b\nc\n", "an ERROR b"),
        ("", "nothing was logged"),
        ("an Exception: why\n\tat Main.main(Main.java:1)\n\t... 3 more\n", "an Exception: why"),
    ],
)
def test_the_last_line_of_a_log_is_the_last_one_with_an_error_if_there_is_one(
    log: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text(log)
    assert last_line(tmp_path / "log", "ERROR") == line


def test_what_an_earlier_run_logged_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an ERROR of the run before\nits end\n", "utf-8")
    start = log.stat().st_size
    assert last_line(log, "ERROR", start=start) == "nothing was logged"
    with log.open("a", encoding="utf-8") as file:
        file.write("the end\n")
    assert last_line(log, "ERROR", start=start) == "the end"


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
