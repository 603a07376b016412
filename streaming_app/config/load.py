"""Merges the sources. In order of precedence: flags, the environment, the file, the defaults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streaming_app.config import environment
from streaming_app.config.error_messages import format_error
from streaming_app.config.file import ResolvedValues, read_yaml, resolve_references
from streaming_app.config.key_path import KeyPath, format_path, keys_at, lookup
from streaming_app.config.settings import Settings
from streaming_app.errors import ConfigError, FlagError

FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "file", "default"

_FLAG_PATHS: dict[str, KeyPath] = {"metrics_listen": ("metrics", "listen"), "offsets": ("offsets", "enabled")}
"""Flags whose key differs from their name."""


@dataclass(frozen=True)
class LoadedConfig:
    """The effective configuration, and the source of each value."""

    settings: Settings
    sources: Mapping[str, Mapping[str, Any]]
    """The values of each source, the one with the highest precedence first."""
    file: Path | None = None
    references: Mapping[KeyPath, str] = field(default_factory=dict)
    """The text in the file of each value that contains a reference to a variable or another file."""

    def source_of(self, path: KeyPath) -> str:
        """Return the source that set the value at a path, or DEFAULT."""
        return _source_of(self.sources, path)


def load(
    file: Path | None = None, flags: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> LoadedConfig:
    """Load the effective configuration; `flags` are those given, by their names with underscores.

    `only` names the keys that are needed: the others are not read, so their secrets may be missing and their values
    invalid. Raises ConfigError, or FlagError if a flag is invalid.
    """
    wanted = set(Settings.model_fields) if only is None else set(only) & set(Settings.model_fields)
    resolved = ResolvedValues({})
    if file is not None:
        skipped = Settings.model_fields.keys() - wanted  # unknown keys are not skipped: validation refuses them
        in_file = {key: value for key, value in read_yaml(file).items() if key not in skipped}
        resolved = resolve_references(in_file, file)
    sources = {
        FLAG: _nest_flags(flags or {}),
        ENVIRONMENT: environment.read_environment(wanted),
        FILE: resolved.values,
    }
    values: dict[str, Any] = {}
    for source in reversed(sources.values()):
        values = _merge(source, values)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise _to_config_error(error, sources, values, resolved, file) from None
    if resolved.problems:
        raise ConfigError(resolved.problems.values())
    return LoadedConfig(settings, sources, file, resolved.references)


def typo_suggestions() -> Iterator[tuple[str, str]]:
    """Yield each variable that is probably misspelled, with the one that was meant."""
    names = set(Settings.model_fields)
    return environment.typo_suggestions(
        names | {f"{name}{environment.NESTED}{key}" for name in names for key in keys_at(Settings, (name,))}
    )


def flag_of(path: KeyPath) -> str:
    """Return the flag that sets the value at a path."""
    names = {path: name for name, path in _FLAG_PATHS.items()}
    return "--" + names.get(path, str(path[0])).replace("_", "-")


def _to_config_error(
    error: ValidationError,
    sources: Mapping[str, Mapping[str, Any]],
    values: Mapping[str, Any],
    resolved: ResolvedValues,
    file: Path | None,
) -> ConfigError:
    def describe(path: KeyPath) -> str:
        source = _source_at_fault(sources, path)
        if source == FLAG:
            return flag_of(path)  # which names the key, too
        return f"{environment.variable_of(path) if source == ENVIRONMENT else file}: {format_path(path)}"

    lines: dict[str, KeyPath] = {}
    for detail in error.errors(include_url=False):
        path, line = format_error(detail, Settings, values, resolved.secrets, describe)
        # The text of a reference is no valid value of most keys, nor of the section that has it.
        if not any(unresolved[: len(path)] == path for unresolved in resolved.problems):
            lines[line] = path
    flag_lines = [line for line, path in lines.items() if _source_at_fault(sources, path) == FLAG]
    return FlagError(flag_lines) if flag_lines else ConfigError([*resolved.problems.values(), *lines])


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
        *outer, key = _FLAG_PATHS.get(name, (name,))
        parent = nested
        for part in outer:
            parent = parent.setdefault(str(part), {})
        parent[str(key)] = value
    return nested


def _source_of(sources: Mapping[str, Mapping[str, Any]], path: KeyPath) -> str:
    for source, values in sources.items():
        here: object = values
        in_list = False
        for part in path:
            exists, inner = lookup(here, (part,))
            if not exists:
                break
            here, in_list = inner, in_list or isinstance(part, int)
        else:
            return source
        if in_list:  # the list replaced that of lower sources: a key which its item does not set has its default
            return DEFAULT
        if not isinstance(here, Mapping):  # the short form of a section
            return source
    return DEFAULT


def _source_at_fault(sources: Mapping[str, Mapping[str, Any]], path: KeyPath) -> str:
    """Return the source of an invalid value; for a missing key, the source of the section that should contain it."""
    found = (_source_of(sources, path[:end]) for end in range(len(path), 0, -1))
    return next((source for source in found if source != DEFAULT), DEFAULT)
