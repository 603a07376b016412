"""Merges the sources, and words what is wrong with them. In order of precedence: flags, environment, file, defaults.

An error is a line for users: the source, the key, what its value must be. No line contains a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from streaming_app.config import environment
from streaming_app.config.file import REDACTED, ResolvedValues, read_yaml, resolve_references
from streaming_app.config.key_path import (
    KeyPath,
    closest_name,
    format_path,
    holds_secrets,
    keys_at,
    lookup,
    path_of_error,
    types_at,
)
from streaming_app.config.removed import without_removed
from streaming_app.config.settings import Settings
from streaming_app.errors import ConfigError, FlagError

FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "file", "default"

_SHOULD = re.compile(r"^\w+ should ")

# For the errors that pydantic describes in terms of Python, by their type.
_MESSAGES: dict[str, str] = {
    "missing": "must be given",
    "model_type": "must contain keys and values",
    "model_attributes_type": "must contain keys and values",
    "dict_type": "must contain keys and values",
    "mapping_type": "must contain keys and values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be text; write it in quotes",
    "path_type": "must be a path; write it in quotes",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
}
_PRINTED = str | int | float | bool
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
    removed: Sequence[str] = ()
    """A line about each key that is set but does nothing any more."""

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
    resolved, removed = ResolvedValues({}), list[str]()
    if file is not None:
        skipped = Settings.model_fields.keys() - wanted  # unknown keys are not skipped: validation refuses them
        in_file = {key: value for key, value in read_yaml(file).items() if key not in skipped}
        in_file, removed = without_removed(in_file)
        resolved = resolve_references(in_file, file)
    in_environment, also_removed = without_removed(environment.read_environment(wanted))
    sources = {
        FLAG: _nest_flags(flags or {}),
        ENVIRONMENT: in_environment,
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
    return LoadedConfig(settings, sources, file, resolved.references, [*removed, *also_removed])


def settings_of(values: Mapping[str, Any], name: str) -> Settings:
    """Return the settings that a program gives as values; lines about invalid ones begin with `name`.

    Nothing else is read: neither a file nor the environment. Raises ConfigError.
    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise _to_config_error(error, {FILE: values}, values, ResolvedValues(dict(values)), name) from None


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
    file: Path | str | None,
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


def format_error(
    error: ErrorDetails,
    model: type[BaseModel],
    values: Mapping[str, Any],
    secrets: Mapping[str, str],
    describe: Callable[[KeyPath], str],
) -> tuple[KeyPath, str]:
    """Return the path of an error and a line about it, which starts with `describe(path)`: the source and the key.

    `values` was validated; `secrets` maps the values that came from references to the text to print instead.
    """
    path = path_of_error(error["loc"], values)
    context = error.get("ctx", {})
    if error["type"].startswith("union_tag"):
        path = (*path, str(context["discriminator"]).strip("'"))
    message = _message(error, model, path, values)
    for secret, reference in secrets.items():
        message = message.replace(secret, reference) if secret else message
    return path, f"{describe(path)}: {' '.join(message.split())}"


def _message(error: ErrorDetails, model: type[BaseModel], path: KeyPath, values: Mapping[str, Any]) -> str:
    error_type, context = error["type"], error.get("ctx", {})
    _, value = lookup(values, path)
    if error_type == "extra_forbidden":
        known = closest_name(str(path[-1]), keys_at(model, path[:-1]))
        return "is not a known key" + (f"; did you mean {known}?" if known else "")
    if error_type.startswith("union_tag"):
        return (
            f"must be one of {context['expected_tags'].replace(chr(39), '')}"
            if "expected_tags" in context
            else (f"must be given: one of {', '.join(_tags(model, path))}")
        )
    is_secret = holds_secrets(model, path)
    if error_type == "value_error":
        message = str(context["error"])  # of a validator of ours: it contains the value
        is_printed = is_secret and isinstance(value, _PRINTED) and str(value)
        return message.replace(str(value), REDACTED) if is_printed else message
    message = _MESSAGES.get(error_type) or _SHOULD.sub("must ", error["msg"])
    if is_secret or error_type == "missing" or not isinstance(value, _PRINTED):
        return message
    return f'{message}, not "{value}"'


def _tags(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Return the values that the discriminator at a path may have: one for each member of the union."""
    return [tag for allowed in types_at(model, path) if get_origin(allowed) is Literal for tag in get_args(allowed)]
