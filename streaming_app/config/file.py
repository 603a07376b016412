"""Reads the YAML file strictly and resolves its references to variables and files. Does not know what keys mean."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from streaming_app.config.key_path import KeyPath, format_path
from streaming_app.errors import ConfigError, reason_of
from streaming_app.secret_file import read_secret_file

REDACTED = "**********"
"""Printed instead of a secret, as by pydantic."""

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


@dataclass
class ResolvedValues:
    """The values of a file, with its references replaced by the values that they name."""

    values: dict[str, Any]
    references: dict[KeyPath, str] = field(default_factory=dict)
    """The text in the file of each value that contains a reference."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Each value that came from a reference, and the text in the file."""
    problems: dict[KeyPath, str] = field(default_factory=dict)
    """A line for each reference that names nothing; its text is then the value."""


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """A SafeLoader that refuses a duplicate key in a mapping, where YAML's own takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: dict[object, yaml.Mark] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                name = f"the key {key_node.value}" if isinstance(key_node, yaml.ScalarNode) else "a key"
                problem = f"{name} is not text: write it in quotes"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key in seen:
                problem = f"duplicate key {key}, first in line {seen[key].line + 1}"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen[key] = key_node.start_mark
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_yaml(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, empty for an empty file. Raises ConfigError with one line."""
    try:
        with file.open("rb") as stream:
            values = yaml.load(stream, _StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise ConfigError([f"{file}:{where} {error.problem or error.context}"]) from None
    except yaml.YAMLError as error:  # bytes that are not UTF-8
        raise ConfigError([f"{file}: {' '.join(str(error).split())}"]) from None
    except RecursionError:
        raise ConfigError([f"{file}: nested too deeply"]) from None
    except ValueError as error:  # such as an invalid date
        raise ConfigError([f"{file}: {error}"]) from None
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {reason_of(error)}"]) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError([f"{file}: must contain keys and values, such as `warehouse: /var/lib/streams-groups`"])
    # such as `alerts:` when everything below it is commented out
    return {key: value for key, value in values.items() if value is not None}


def resolve_references(values: dict[str, Any], file: Path) -> ResolvedValues:
    """Replace `${env:NAME}` and `${file:PATH}` by their values. Raises ConfigError if the values contain themselves."""
    resolved = ResolvedValues({})

    def walk(value: Any, path: KeyPath) -> Any:  # noqa: ANN401 - any YAML value
        if isinstance(value, dict):
            return {key: walk(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner, (*path, index)) for index, inner in enumerate(value)]
        if value == REDACTED:
            line = f"{file}: {format_path(path)}: is the placeholder printed for a secret, not the secret"
            resolved.problems[path] = line
        if not isinstance(value, str) or not _REFERENCE.search(value):
            return value
        resolved.references[path] = value
        try:
            text = _REFERENCE.sub(lambda match: _referenced_value(match, resolved.secrets), value)
        except LookupError as error:
            resolved.problems[path] = f"{file}: {format_path(path)}: {error.args[0]}"
            return value
        resolved.secrets[text] = value
        return text

    try:
        resolved.values = walk(values, ())
    except RecursionError:
        raise ConfigError([f"{file}: an anchor contains itself"]) from None
    return resolved


def _referenced_value(match: re.Match[str], secrets: dict[str, str]) -> str:
    kind, name = match.groups()
    if kind == "env":
        if name not in os.environ:
            raise LookupError(f"the environment variable {name} is not set")
        value = os.environ[name]
    else:
        try:
            value = read_secret_file(Path(name)).rstrip("\r\n")
        except UnicodeDecodeError:
            raise LookupError(f"{name} is not UTF-8 text") from None
        except (OSError, ValueError) as error:
            raise LookupError(f"cannot read {name}: {reason_of(error)}") from None
    secrets[value] = match.group()
    return value
