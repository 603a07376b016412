"""What is logged while the job runs, and the line that is shown of a log."""

import logging
from pathlib import Path

import pytest

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
