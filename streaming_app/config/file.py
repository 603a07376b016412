"""Reads the YAML file strictly, and resolves its references. Does not know the meaning of keys.

A reference, `${env:NAME}` or `${file:PATH}`, is replaced by the value of the variable or the text in the file.
"""

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
"""The text that is printed instead of a secret, the same as pydantic's."""
REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_MERGE, _TEXT, _KEY = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str", "!key"


@dataclass(frozen=True)
class Unresolved:
    """The value of a reference that cannot be resolved. No key accepts it, so it is an error only if it is needed."""

    problem: str


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """A SafeLoader that resolves references, reads every key as text (also `on` and `1`), and rejects equal keys."""

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
    """Return the mapping in a YAML file (empty for an empty file), and resolved text -> its reference in the file.

    A reference that cannot be resolved becomes `Unresolved`. The keys `skipped` are not read. Raises ConfigError with
    one line.
    """
    try:
        with file.open("rb") as stream:
            loader = _Loader(stream)
            document = loader.get_single_node()
        if isinstance(document, yaml.MappingNode):
            document.value = [(key, value) for key, value in document.value if key.value not in skipped]
        values = loader.construct_document(document) if document else None
        json.dumps(values, default=str, skipkeys=True)  # raises ValueError for an anchor that contains itself
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise ConfigError([f"{file}: {_problem(error)}"]) from None
    if values is not None and not isinstance(values, dict):
        raise ConfigError([f"{file}: must contain keys and values, such as `warehouse: /var/lib/streams-groups`"])
    # None is the value of `alerts:` if everything below it is commented out
    given = {key: value for key, value in (values or {}).items() if value is not None}
    return given, {text: reference for text, reference in loader.secrets.items() if text}


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}"
    if isinstance(error, OSError):
        return f"cannot be read: {reason_of(error)}"
    return "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
