"""Merges the sources, and says what is wrong with them. In order of precedence: flags, environment, file, defaults.

An error is a line for users: the source, the key, what its value must be. No line contains a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from streaming_app.alerts.catalog import rules
from streaming_app.config.environment import NESTED, PREFIX, read_environment, variable_names, variable_of
from streaming_app.config.file import Unresolved, read_yaml, resolve_references
from streaming_app.config.removed import without_removed
from streaming_app.config.settings import Settings
from streaming_app.errors import ConfigError, FlagError
from streaming_app.section import OF_CONTAINERS, Section, closest_name

KeyPath = tuple[str | int, ...]
"""Keys of mappings and indexes of lists: `("sinks", 0, "url")`."""

FLAG, ENVIRONMENT, FILE = "flags", "environment", "file"
_FLAG_PATHS: dict[str, KeyPath] = {"metrics_listen": ("metrics", "listen"), "offsets": ("offsets", "enabled")}
"""Flags whose key differs from their name."""


@dataclass(frozen=True)
class LoadedConfig:
    """The effective configuration, and the source of each value."""

    settings: Settings
    sources: Mapping[str, Mapping[str, Any]]
    """The values of each source, the one with the highest precedence first."""
    file: Path | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    """By each text that came from a reference to a variable or another file: what the file has instead."""
    removed: Sequence[str] = ()
    """A line about each key that is set but does nothing any more."""


def load(
    file: Path | None = None, flags: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> LoadedConfig:
    """Load the effective configuration; `flags` are those given, by their names with underscores.

    `only` names the keys that are needed: the others are not read, so their secrets may be missing and their values
    invalid. Raises ConfigError, or FlagError if a flag is invalid.
    """
    skipped = set[str]() if only is None else Settings.model_fields.keys() - only  # unknown keys are not: that is wrong
    in_file, in_environment = (
        {key: value for key, value in values.items() if key not in skipped}
        for values in (read_yaml(file) if file else {}, read_environment())
    )
    resolved, secrets = resolve_references(in_file, file or Path())
    kept, removed = without_removed(resolved)
    kept_in_environment, also_removed = without_removed(in_environment)
    sources = {FLAG: _nest_flags(flags or {}), ENVIRONMENT: _with_names_of_rules(kept_in_environment), FILE: kept}
    return LoadedConfig(_validate(sources, str(file), secrets), sources, file, secrets, [*removed, *also_removed])


def settings_of(values: Mapping[str, Any], name: str) -> Settings:
    """Return the settings that a program gives as values; lines about invalid ones begin with `name`.

    Nothing else is read: neither a file nor the environment. Raises ConfigError.
    """
    return _validate({FILE: values}, name, {})


def typo_suggestions() -> Iterator[tuple[str, str]]:
    """Yield each variable that sets nothing but resembles one of a key, with that one."""
    known = list(Settings.model_fields)
    for name, one in Settings.model_fields.items():
        if isinstance(one.annotation, type) and issubclass(one.annotation, Section):
            known += [f"{name}{NESTED}{key}" for key in one.annotation.model_fields]
    for name in variable_names():
        if name.split(NESTED)[0].lower() not in known and (closest := closest_name(name, known)):
            yield PREFIX + name, PREFIX + closest.upper()


def format_path(path: KeyPath) -> str:
    """Return the path as text: `sinks[0].url`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _validate(sources: Mapping[str, Mapping[str, Any]], file: str, secrets: Mapping[str, str]) -> Settings:
    values: Mapping[str, Any] = {}
    for source in reversed(tuple(sources.values())):
        values = _merge(source, values)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = dict.fromkeys(_line(one, sources, file, secrets) for one in error.errors(include_url=False))
    flag_lines = [line for source, line in lines if source == FLAG]
    raise FlagError(flag_lines) if flag_lines else ConfigError(line for _, line in lines)


def _line(
    error: ErrorDetails, sources: Mapping[str, Mapping[str, Any]], file: str, secrets: Mapping[str, str]
) -> tuple[str, str]:
    """Return the source of an invalid value, and the line about it."""
    path = _path_of(error["loc"])
    # of a missing key, the source of the section that should contain it
    ends = (path[:end] for end in range(len(path), 0, -1))
    source = next((name for end in ends for name, values in sources.items() if _sets(values, end)), FILE)
    message = error["input"].problem if isinstance(error["input"], Unresolved) else error["msg"]
    if source == ENVIRONMENT and message in OF_CONTAINERS.values():
        message += ", as JSON"
    for secret, reference in secrets.items():
        message = message.replace(secret, reference) if secret else message
    if source == FLAG:  # which names the key, too
        names = {path: name for name, path in _FLAG_PATHS.items()}
        where = "--" + names.get(path, str(path[0])).replace("_", "-")
    else:
        where = f"{variable_of(path) if source == ENVIRONMENT else file}: {format_path(path)}"
    return source, f"{where}: {' '.join(message.split())}"


def _path_of(location: KeyPath) -> KeyPath:
    """Return pydantic's location as a path in the values: without the type of a sink, and that the key is wrong."""
    path = (*location[:2], *location[3:]) if location[:1] == ("sinks",) else location
    return tuple(part for part in path if part != "[key]")


def _merge(higher: Mapping[str, Any], lower: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key; a value of any other type, such as a list, replaces the lower one as a whole."""
    merged = dict(lower)
    for key, value in higher.items():
        below = merged.get(key)
        merged[key] = _merge(value, below) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged


def _nest_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flags.items():
        section, *key = _FLAG_PATHS.get(name, (name,))
        nested[str(section)] = {str(key[0]): value} if key else value
    return nested


def _with_names_of_rules(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the names of rules as the catalogue has them: those of variables are in one case."""
    alerts = values.get("alerts")
    if not isinstance(alerts, dict) or not isinstance(given := alerts.get("rules"), dict):
        return values
    names = {name.lower(): name for name in rules()}
    return values | {"alerts": alerts | {"rules": {names.get(name, name): one for name, one in given.items()}}}


def _sets(values: Any, path: KeyPath) -> bool:  # noqa: ANN401 - any YAML value
    """Return whether the values have one at the path, or one around it that is no mapping, and so replaces all."""
    for part in path:
        if not isinstance(values, Mapping):
            return True
        if part not in values:
            return False
        values = values[part]
    return True
