"""Reads the YAML file strictly, with what its references name. Does not know what keys mean.

A reference to a variable or another file, `${env:NAME}` or `${file:PATH}`, is replaced by the text that it names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from streaming_app.errors import ConfigError, reason_of
from streaming_app.section import read_secret_file

REDACTED = "**********"
"""Printed instead of a secret, as by pydantic."""
REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_MERGE, _TEXT, _KEY = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str", "!key"


@dataclass(frozen=True)
class Unresolved:
    """Stands in the values for one that is not known: no key takes it, so that it is an error where it is needed."""

    problem: str


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """A SafeLoader that resolves references, takes every key as text, also `on` and `1`, and refuses equal keys."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self.secrets: dict[str, str] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in lines:
                    problem = f"duplicate key {key.value}, first in line {lines[key.value]}"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                lines[key.value], key.tag = key.start_mark.line + 1, _KEY
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_text(self, node: yaml.ScalarNode) -> str | Unresolved:
        if node.value == REDACTED:
            return Unresolved("is the placeholder printed for a secret, not the secret")
        try:
            text = REFERENCE.sub(self._referenced_text, node.value)
        except LookupError as error:
            return Unresolved(error.args[0])
        if text != node.value:
            self.secrets[text] = node.value
        return text

    def _referenced_text(self, match: re.Match[str]) -> str:
        kind, name = match.groups()
        try:
            text = os.environ[name] if kind == "env" else read_secret_file(Path(name)).rstrip("\r\n")
        except KeyError:
            raise LookupError(f"the environment variable {name} is not set") from None
        except UnicodeDecodeError:
            raise LookupError(f"{name} is not UTF-8 text") from None
        except (OSError, ValueError) as error:
            raise LookupError(f"cannot read {name}: {reason_of(error)}") from None
        self.secrets[text] = match.group()
        return text


_Loader.add_constructor(_TEXT, _Loader.construct_text)
_Loader.add_constructor(_KEY, yaml.SafeLoader.construct_yaml_str)


def read_yaml(file: Path, skipped: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the mapping in a YAML file, empty for an empty file, and by each secret text what the file has instead.

    A reference that names nothing is Unresolved; those below the keys `skipped` are not resolved. Raises ConfigError
    with one line.
    """
    try:
        with file.open("rb") as stream:
            loader = _Loader(stream)
            document = loader.get_single_node()
        if isinstance(document, yaml.MappingNode):
            document.value = [(key, value) for key, value in document.value if key.value not in skipped]
        values = loader.construct_document(document) if document else None
        json.dumps(values, default=str, skipkeys=True)  # an anchor that contains itself is a ValueError
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise ConfigError([f"{file}: {_problem(error)}"]) from None
    if values is not None and not isinstance(values, dict):
        raise ConfigError([f"{file}: must contain keys and values, such as `warehouse: /var/lib/streams-groups`"])
    # such as `alerts:` when everything below it is commented out
    given = {key: value for key, value in (values or {}).items() if value is not None}
    return given, {text: reference for text, reference in loader.secrets.items() if text}


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}"
    if isinstance(error, OSError):
        return f"cannot be read: {reason_of(error)}"
    return "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
