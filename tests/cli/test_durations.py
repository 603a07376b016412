"""A duration is written the same way in every option of every command: its forms are in `tests/common/test_text.py`."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main

OPTIONS = [
    ("run --bootstrap-server h:1", "--trigger"),
    ("run --bootstrap-server h:1", "--retention-days"),
    ("check", "--trigger"),
    ("check", "--retention-days"),
    ("demo", "--seconds"),
    ("history g", "--at"),
    ("history g", "--from"),
    ("alerts", "--max-age"),
    ("alerts mute g", "--for"),
    ("sql q", "--timeout"),
    ("status", "--max-age"),
    ("verify --bootstrap-server h:1", "--timeout"),
]


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_an_option_with_another_text_is_wrong_usage_and_one_line(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command.split(), option, "in a while"])
    assert result.exit_code == 2, result.output
    (error,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    assert f"{option} must be " in error.replace("Invalid value for ", "").replace("'", "").replace(":", "")
    assert 'not "in a while"' in error


def test_a_retention_without_a_unit_is_in_days_and_another_time_in_seconds() -> None:
    options = {one.opts[0]: one for one in main.commands["run"].params}
    for name, text, value in (
        ("--retention-days", "30", 30.0),
        ("--retention-days", "P7D", 7.0),
        ("--trigger", "30", 30.0),
        ("--trigger", "1h30m", 5_400.0),
    ):
        assert options[name].process_value(click.Context(main), text) == value
