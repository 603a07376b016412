"""A duration is written the same way in every option of every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main

WRITTEN = {"90s": 90.0, "1h30m": 5400.0, "PT5M": 300.0, "P7D": 604_800.0, "7d": 604_800.0}
WRONG = "in a while"
DAY = 86_400.0
TIME_WORDS = {"DURATION", "TIME", "SECONDS", "DAYS"}
REQUIRED = {"--bootstrap-server": "h:1", "--group": "g"}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


def is_time(option: click.Parameter) -> bool:
    is_number = isinstance(option.type, click.types.FloatParamType)
    return isinstance(option, click.Option) and (is_number or option.make_metavar(click.Context(main)) in TIME_WORDS)


OPTIONS = [(path, option) for path, command in commands(main) for option in command.params if is_time(option)]
CASES = [pytest.param(path, option, id=" ".join((*path, option.opts[0]))) for path, option in OPTIONS]


def invoke(path: tuple[str, ...], option: click.Parameter, text: str) -> Any:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    options = [one for one in command.params if one.opts[0] in REQUIRED]
    required = [word for one in options for word in (one.opts[0], REQUIRED[one.opts[0]])]
    required += ["g" for one in command.params if isinstance(one, click.Argument) and one.required]
    return CliRunner().invoke(main, [*path, *required, option.opts[0], text])


def test_the_options_with_a_time_are_found() -> None:
    found = {option.opts[0] for _, option in OPTIONS}
    instants = {"--at", "--from"}
    assert found == {"--timeout", "--max-age", "--trigger", "--retention-days", "--seconds", "--for", *instants}


@pytest.mark.parametrize(("path", "option"), CASES)
def test_an_option_takes_a_duration(path: tuple[str, ...], option: click.Option) -> None:
    unit = DAY if option.opts[0] == "--retention-days" else 1.0
    for text, seconds in {**WRITTEN, "30": 30 * unit}.items():
        value = option.process_value(click.Context(main), text)
        if isinstance(value, float):
            assert value * unit == pytest.approx(seconds)
        else:  # an instant that is so long ago, or text that the command reads
            assert "must be" not in invoke(path, option, text).stderr


@pytest.mark.parametrize(("path", "option"), CASES)
def test_an_option_with_another_text_is_wrong_usage_and_one_line(
    path: tuple[str, ...], option: click.Option, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(path, option, WRONG)
    assert result.exit_code == 2, result.output
    (error,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    assert f"{option.opts[0]} must be " in error.replace("Invalid value for ", "").replace("'", "").replace(":", "")
    assert f'not "{WRONG}"' in error
