"""Reads the YAML file strictly and resolves its references to variables and files. Does not know what keys mean."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from streaming_app.errors import ConfigError, reason_of
from streaming_app.secret_file import read_secret_file

REDACTED = "**********"
"""Printed instead of a secret, as by pydantic."""
REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


@dataclass(frozen=True)
class Unresolved:
    """Stands in the values for one that is not known: no key takes it, so that it is an error."""

    problem: str


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """A SafeLoader that refuses a duplicate key in a mapping, where YAML's own takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        lines: dict[object, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key, problem = self.construct_object(key_node, deep=True), None
            if not isinstance(key, str):
                name = f"the key {key_node.value}" if isinstance(key_node, yaml.ScalarNode) else "a key"
                problem = f"{name} is not text: write it in quotes"
            elif key in lines:
                problem = f"duplicate key {key}, first in line {lines[key]}"
            if problem:
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            lines[key] = key_node.start_mark.line + 1
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_yaml(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, empty for an empty file. Raises ConfigError with one line."""
    try:
        with file.open("rb") as stream:
            values = yaml.load(stream, _StrictLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise ConfigError([f"{file}: {_problem(error)}"]) from None
    if values is not None and not isinstance(values, dict):
        raise ConfigError([f"{file}: must contain keys and values, such as `warehouse: /var/lib/streams-groups`"])
    # such as `alerts:` when everything below it is commented out
    return {key: value for key, value in (values or {}).items() if value is not None}


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}"
    if isinstance(error, OSError):
        return f"cannot be read: {reason_of(error)}"
    return "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())


def resolve_references(values: dict[str, Any], file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Replace `${env:NAME}` and `${file:PATH}` by what they name; one that names nothing becomes Unresolved.

    Returns the values, and by each text that came from a reference what to print instead. Raises ConfigError if the
    values contain themselves.
    """
    secrets: dict[str, str] = {}

    def resolve(value: Any) -> Any:  # noqa: ANN401 - any YAML value
        if isinstance(value, dict):
            return {key: resolve(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [resolve(inner) for inner in value]
        if value == REDACTED:
            return Unresolved("is the placeholder printed for a secret, not the secret")
        if not isinstance(value, str) or not REFERENCE.search(value):
            return value
        try:
            text = REFERENCE.sub(lambda match: _referenced_text(match, secrets), value)
        except LookupError as error:
            return Unresolved(error.args[0])
        secrets[text] = value
        return text

    try:
        return resolve(values), secrets
    except RecursionError:
        raise ConfigError([f"{file}: an anchor contains itself"]) from None


def _referenced_text(match: re.Match[str], secrets: dict[str, str]) -> str:
    kind, name = match.groups()
    try:
        text = os.environ[name] if kind == "env" else read_secret_file(Path(name)).rstrip("\r\n")
    except KeyError:
        raise LookupError(f"the environment variable {name} is not set") from None
    except UnicodeDecodeError:
        raise LookupError(f"{name} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise LookupError(f"cannot read {name}: {reason_of(error)}") from None
    secrets[text] = match.group()
    return text
