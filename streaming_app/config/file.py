"""The YAML file: read strictly, its references to variables and files replaced. What keys mean is not known here."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from streaming_app.config.errors import ConfigError
from streaming_app.config.paths import Path as KeyPath
from streaming_app.config.paths import written

HIDDEN = "**********"
"""What is shown in a secret's place, as pydantic does."""

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


@dataclass
class Resolved:
    """What a file says, with the values that its references stand for."""

    values: dict[str, Any]
    references: dict[KeyPath, str] = field(default_factory=dict)
    """What was written where a value now stands that came from a variable or another file."""
    secrets: dict[str, str] = field(default_factory=dict)
    """What a reference stood for, and the reference."""


class _Strict(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """YAML's safe kinds; a key that stands twice in a mapping is an error, not the last of the two."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: dict[object, yaml.Mark] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                named = f"the key {key_node.value}" if isinstance(key_node, yaml.ScalarNode) else "a key"
                said = f"{named} is no text: write it in quotes"
                raise yaml.constructor.ConstructorError(None, None, said, key_node.start_mark)
            if key in seen:
                said = f"the key {key} is there twice, first in line {seen[key].line + 1}"
                raise yaml.constructor.ConstructorError(None, None, said, key_node.start_mark)
            seen[key] = key_node.start_mark
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read(file: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file is an empty one. Raises ConfigError, one line."""
    try:
        with file.open("rb") as stream:
            values = yaml.load(stream, _Strict)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise ConfigError([f"{file}:{where} {error.problem or error.context}"]) from None
    except yaml.YAMLError as error:  # bytes that are no text
        raise ConfigError([f"{file}: {' '.join(str(error).split())}"]) from None
    except RecursionError:
        raise ConfigError([f"{file}: nested too deep"]) from None
    except ValueError as error:  # such as a date that no calendar has
        raise ConfigError([f"{file}: {error}"]) from None
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError([f"{file}: must hold keys and values, such as `warehouse: /var/lib/streams-groups`"])
    # `alerts:` with all below it commented out says nothing
    return {key: value for key, value in values.items() if value is not None}


def resolve(values: dict[str, Any], file: Path) -> Resolved:
    """Put values in the place of `${env:NAME}` and `${file:PATH}`. Raises ConfigError, a line for each that is none."""
    resolved = Resolved({})
    problems: list[str] = []

    def walk(value: Any, path: KeyPath) -> Any:  # noqa: ANN401 - whatever YAML holds
        if isinstance(value, dict):
            return {key: walk(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner, (*path, place)) for place, inner in enumerate(value)]
        if value == HIDDEN:
            problems.append(f"{file}: {written(path)}: is what is shown of a secret, not the secret")
        if not isinstance(value, str) or not _REFERENCE.search(value):
            return value
        resolved.references[path] = value
        try:
            whole = _REFERENCE.sub(lambda match: _meant(match, resolved.secrets), value)
        except LookupError as error:
            problems.append(f"{file}: {written(path)}: {error.args[0]}")
            return value
        resolved.secrets[whole] = value
        return whole

    try:
        resolved.values = walk(values, ())
    except RecursionError:
        raise ConfigError([f"{file}: an anchor contains itself"]) from None
    if problems:
        raise ConfigError(problems)
    return resolved


def _meant(match: re.Match[str], secrets: dict[str, str]) -> str:
    kind, name = match.groups()
    if kind == "env":
        if name not in os.environ:
            raise LookupError(f"the environment variable {name} is not set")
        meant = os.environ[name]
    else:
        try:
            meant = Path(name).read_text("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise LookupError(f"{name} is not UTF-8 text") from None
        except (OSError, ValueError) as error:
            raise LookupError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    secrets[meant] = match.group()
    return meant
