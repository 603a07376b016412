"""What Python libraries and this package log while the job runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

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
