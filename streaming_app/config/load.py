"""Puts the sources together: flags win over the environment, that over the file, that over the defaults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streaming_app.config import environment, problems
from streaming_app.config import file as yaml_file
from streaming_app.config.errors import ConfigError, FlagError
from streaming_app.config.paths import Path as KeyPath
from streaming_app.config.paths import found, keys, written
from streaming_app.config.settings import Settings

FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "file", "default"

_WHERE_A_FLAG_BELONGS: dict[str, KeyPath] = {"metrics_listen": ("metrics", "listen")}
"""Flags whose key is not their name."""


@dataclass(frozen=True)
class Loaded:
    """What is in force, and who said it."""

    settings: Settings
    sources: Mapping[str, Mapping[str, Any]]
    """What each source said, the strongest first."""
    file: Path | None = None
    references: Mapping[KeyPath, str] = field(default_factory=dict)
    """What the file says where a value came from a variable or another file."""

    def origin(self, path: KeyPath) -> str:
        """Who said the value at a path: the strongest source that says anything about it, or none."""
        return _origin(self.sources, path)


def load(
    file: Path | None = None, flags: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> Loaded:
    """What is in force, of `flags` those that were given, by their names with underscores.

    `only` names the keys that are wanted: others may lack their secrets, or hold what is wrong. Raises ConfigError, or
    FlagError if it is a flag that is wrong.
    """
    wanted = set(Settings.model_fields) if only is None else set(only) & set(Settings.model_fields)
    resolved = yaml_file.Resolved({})
    if file is not None:
        passed_over = Settings.model_fields.keys() - wanted  # and not what is unknown: that is refused below
        in_file = {key: value for key, value in yaml_file.read(file).items() if key not in passed_over}
        resolved = yaml_file.resolve(in_file, file)
    sources = {FLAG: _nested(flags or {}), ENVIRONMENT: environment.said(wanted), FILE: resolved.values}
    values: dict[str, Any] = {}
    for source in reversed(sources.values()):
        values = _over(source, values)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise _refusal(error, sources, values, resolved, file) from None
    return Loaded(settings, sources, file, resolved.references)


def slips() -> Iterator[tuple[str, str]]:
    """Variables that are probably misspelled, each with the one that was meant."""
    names = set(Settings.model_fields)
    return environment.slips(
        names | {f"{name}{environment.NESTED}{key}" for name in names for key in keys(Settings, (name,))}
    )


def flag_of(path: KeyPath) -> str:
    """The flag that sets the value at a path."""
    of_path = {belongs: name for name, belongs in _WHERE_A_FLAG_BELONGS.items()}
    return "--" + of_path.get(path, str(path[0])).replace("_", "-")


def _refusal(
    error: ValidationError,
    sources: Mapping[str, Mapping[str, Any]],
    values: Mapping[str, Any],
    resolved: yaml_file.Resolved,
    file: Path | None,
) -> ConfigError:
    def place(path: KeyPath) -> str:
        origin = _writer(sources, path)
        if origin == FLAG:
            return flag_of(path)  # which says it all
        return f"{environment.variable_of(path) if origin == ENVIRONMENT else file}: {written(path)}"

    lines: dict[str, KeyPath] = {}
    for detail in error.errors(include_url=False):
        path, line = problems.line(detail, Settings, values, resolved.secrets, place)
        lines[line] = path
    by_flag = [line for line, path in lines.items() if _writer(sources, path) == FLAG]
    return FlagError(by_flag) if by_flag else ConfigError(lines)


def _over(stronger: Mapping[str, Any], weaker: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are put together key by key; of anything else, lists too, the stronger one is all that counts."""
    merged = dict(weaker)
    for key, value in stronger.items():
        below = merged.get(key)
        merged[key] = _over(value, below) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged


def _nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flags.items():
        *outer, key = _WHERE_A_FLAG_BELONGS.get(name, (name,))
        place = nested
        for part in outer:
            place = place.setdefault(str(part), {})
        place[str(key)] = value
    return nested


def _origin(sources: Mapping[str, Mapping[str, Any]], path: KeyPath) -> str:
    for origin, values in sources.items():
        here: object = values
        in_list = False
        for part in path:
            is_there, inner = found(here, (part,))
            if not is_there:
                break
            here, in_list = inner, in_list or isinstance(part, int)
        else:
            return origin
        if in_list:  # a list hides that of weaker sources: what its items leave out is nobody's
            return DEFAULT
        if not isinstance(here, Mapping):  # a short form of a section
            return origin
    return DEFAULT


def _writer(sources: Mapping[str, Mapping[str, Any]], path: KeyPath) -> str:
    """Who is to blame: a key that is missing was left out by whoever wrote what it belongs into."""
    origins = (_origin(sources, path[:end]) for end in range(len(path), 0, -1))
    return next((origin for origin in origins if origin != DEFAULT), DEFAULT)
