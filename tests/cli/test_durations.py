"""A duration is written the same way in every option of every command, and in every key of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from streaming_app.cli.main import main
from streaming_app.config.key_path import format_path
from streaming_app.config.load import load
from streaming_app.config.settings import JobConfig
from streaming_app.errors import ConfigError

WRITTEN = {"90s": 90.0, "1h30m": 5400.0, "PT5M": 300.0, "P7D": 604_800.0, "7d": 604_800.0}
WRONG = "in a while"
DAY = 86_400.0
OUT_OF_BOUNDS = {"less_than_equal", "greater_than_equal"}  # pydantic's types of errors
TIME_WORDS = {"DURATION", "TIME", "SECONDS", "DAYS"}
REQUIRED = {"--bootstrap-server": "h:1", "--group": "g"}
IN_DAYS = {"--retention-days", "retention_days", "lag.history_days"}


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
@pytest.mark.parametrize("text", [*WRITTEN, "30"])
def test_an_option_takes_a_duration(path: tuple[str, ...], option: click.Option, text: str) -> None:
    value = option.process_value(click.Context(main), text)
    unit = DAY if option.opts[0] in IN_DAYS else 1.0
    if isinstance(value, float):
        assert value * unit == pytest.approx(WRITTEN.get(text, 30 * unit))
    else:  # an instant that is so long ago, or text that the command reads
        assert "must be" not in invoke(path, option, text).stderr


@pytest.mark.parametrize(("path", "option"), CASES)
def test_an_option_with_another_text_is_wrong_usage_and_one_line(
    path: tuple[str, ...], option: click.Option, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(path, option, WRONG)
    assert result.exit_code == 2, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert errors == result.stderr.splitlines()[-1:]
    assert f"{option.opts[0]} must be " in errors[0].replace("Invalid value for ", "").replace("'", "").replace(":", "")
    assert f'not "{WRONG}"' in errors[0]


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Yield the paths of all keys with a number that is not whole, which are times, and those of durations."""
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        for kind in kinds(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys(kind, here)
            elif kind is float:
                yield here, field


def kinds(annotation: Any) -> Iterator[Any]:
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        yield from kinds(inner[0])
    elif inner:
        for one in inner:
            yield from kinds(one)
    else:
        yield annotation


KEYS = [pytest.param(path, field, id=format_path(path)) for path, field in keys(JobConfig)]


def test_the_keys_with_a_time_are_found() -> None:
    found = {format_path(case.values[0]) for case in KEYS}
    assert {
        "trigger",
        "retention_days",
        "offsets.trigger",
        "lag.history_days",
        "lag.interval",
        "sinks.timeout",
    } <= found
    assert len(found) > 40


@pytest.mark.parametrize(("path", "field"), KEYS)
def test_a_key_takes_a_duration(path: tuple[str, ...], field: FieldInfo) -> None:
    unit = DAY if format_path(path) in IN_DAYS else 1.0
    key = TypeAdapter(Annotated[(field.annotation, None, *field.metadata)])
    expected: dict[str | float, float] = {**WRITTEN, "30": 30 * unit, 30: 30 * unit, 0.5: 0.5 * unit}
    assert [given for given in expected if read(key, given) not in {expected[given] / unit, *OUT_OF_BOUNDS}] == []
    assert read(key, "30") == 30


def read(key: TypeAdapter[float], given: str | float) -> float | str:
    """Return the value, in the unit of the key, or that it is a duration, but less or more than the key may be."""
    try:
        return key.validate_python(given)
    except ValidationError as error:
        return " ".join({one["type"] for one in error.errors()})


@pytest.mark.parametrize("key", ["trigger", "retention_days", "offsets.trigger", "lag.history_days", "lag.interval"])
@pytest.mark.parametrize("given", [WRONG, "-5m", "true", "[]"])
def test_a_key_with_another_value_is_one_line(key: str, given: str, tmp_path: Path) -> None:
    *sections, last = key.split(".")
    file = tmp_path / "streams-groups.yaml"
    file.write_text("".join(f"{name}: {{" for name in sections) + f"{last}: {given}" + "}" * len(sections))
    with pytest.raises(ConfigError) as raised:
        load(file)
    (line,) = raised.value.lines
    assert line.startswith(f"{file}: {key}: must ")
