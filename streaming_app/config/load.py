"""Merges the sources of the configuration and validates it. By precedence: flags, environment, file, defaults.

An error is a line for users: the source, the key, and what the value must be. No line contains a secret.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from streaming_app.alerts.catalog import rules
from streaming_app.config.environment import NESTED, PREFIX, read_environment, variable_names, variable_of
from streaming_app.config.file import Unresolved, read_yaml
from streaming_app.config.settings import Settings
from streaming_app.errors import ConfigError, FlagError
from streaming_app.section import OF_CONTAINERS, Section, closest_name

KeyPath = tuple[str | int, ...]
"""Keys of mappings and indexes of lists: `("sinks", 0, "url")`."""
Source = Mapping[KeyPath, Any]
"""Path of a key -> its value in one source. A list is one value."""

FLAG, ENVIRONMENT, FILE = "flags", "environment", "file"
_RULES = ("alerts", "rules")


@dataclass(frozen=True)
class LoadedConfig:
    """The effective configuration, and the source of each value."""

    settings: Settings
    sources: Mapping[str, Source]
    """Name of a source -> its values, the highest precedence first."""
    file: Path | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Text from a reference (to a variable or a file) -> the reference in the configuration file."""


def load(
    file: Path | None = None, flags: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> LoadedConfig:
    """Load the effective configuration. `flags`: name of a given flag, with underscores -> its value.

    `only` names the needed keys. Other keys are not read, so their secrets may be missing and their values invalid.
    Raises ConfigError, or FlagError if a flag is invalid.
    """
    skipped = [key for key in Settings.model_fields if only is not None and key not in only]  # unknown keys are read

    def needed(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key not in skipped}

    values, secrets = read_yaml(file, skipped) if file else ({}, {})
    names = {name.lower(): name for name in rules()}  # names of variables have no case
    sources: dict[str, Source] = {
        FLAG: dict(_flat(flags or {})),
        ENVIRONMENT: {
            (*_RULES, names.get(str(path[2]), path[2]), *path[3:]) if path[:2] == _RULES and path[2:] else path: value
            for path, value in _flat(needed(read_environment()))
        },
        FILE: dict(_flat(needed(values))),
    }
    return LoadedConfig(_validate(sources, str(file), secrets), sources, file, secrets)


def settings_of(values: Mapping[str, Any], name: str) -> Settings:
    """Return the settings for values that a program gives, without a file or the environment.

    Raises ConfigError. Its lines begin with `name`.
    """
    return _validate({FILE: dict(_flat(values))}, name, {})


def typo_suggestions() -> Iterator[tuple[str, str]]:
    """Yield pairs of a variable without effect, and the variable of a key that has a similar name."""
    known = list(Settings.model_fields)
    for name, one in Settings.model_fields.items():
        if isinstance(one.annotation, type) and issubclass(one.annotation, Section):
            known += [f"{name}{NESTED}{key}" for key in one.annotation.model_fields]
    for name in variable_names():
        if name.split(NESTED)[0].lower() not in known and (closest := closest_name(name, known)):
            yield PREFIX + name, PREFIX + closest.upper()


def format_path(path: KeyPath) -> str:
    """Return a path as text, such as `sinks[0].url`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _flat(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, (*path, key))
    elif path:
        yield path, value


def _merged(sources: Mapping[str, Source]) -> dict[str, Any]:
    """Return the values nested as in the file. Each key has the value of the source with the highest precedence."""
    values: dict[Any, Any] = {}
    for path, value in (pair for source in reversed(tuple(sources.values())) for pair in source.items()):
        section = values
        for part in path[:-1]:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        if value != {} or not isinstance(section.get(path[-1]), dict):
            section[path[-1]] = {} if value == {} else value
    return values


def _validate(sources: Mapping[str, Source], file: str, secrets: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(_merged(sources))
    except ValidationError as error:
        lines = dict.fromkeys(_line(one, sources, file, secrets) for one in error.errors(include_url=False))
    flag_lines = [line for source, line in lines if source == FLAG]
    raise FlagError(flag_lines) if flag_lines else ConfigError(line for _, line in lines)


def _line(error: ErrorDetails, sources: Mapping[str, Source], file: str, secrets: Mapping[str, str]) -> tuple[str, str]:
    """Return the source of an invalid value, and the line about it."""
    # pydantic's location also has the type of a sink, and "[key]" for an invalid key
    path = (*error["loc"][:2], *error["loc"][3:]) if error["loc"][:1] == ("sinks",) else error["loc"]
    path = tuple(part for part in path if part != "[key]")
    ends = range(len(path), 0, -1)  # for a missing key, find the source of the section that should contain it
    having = (name for end in ends for name, paths in sources.items() if any(one[:end] == path[:end] for one in paths))
    source = next(having, FILE)
    message = error["input"].problem if isinstance(error["input"], Unresolved) else error["msg"]
    if source == ENVIRONMENT and message in OF_CONTAINERS.values():
        message += ", as JSON"
    for secret, reference in secrets.items():
        message = message.replace(secret, reference)
    if source == FLAG:  # the flag also names the key
        where = f"--{path[0]}".replace("_", "-")
    else:
        where = f"{variable_of(path) if source == ENVIRONMENT else file}: {format_path(path)}"
    return source, f"{where}: {' '.join(message.split())}"
