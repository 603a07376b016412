"""The line of a log that is shown of a program that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_app.jvm.java import last_line


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
