"""The effective configuration as text that can be used as a configuration file, except that secrets are redacted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from streaming_app.config.file import REDACTED
from streaming_app.config.key_path import KeyPath
from streaming_app.config.load import DEFAULT, FILE, LoadedConfig
from streaming_app.text import escape_json

# The same as Spark's spark.redaction.regex, which redacts its web pages.
_SECRET_SETTING = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)

_EMPTY: tuple[object, ...] = (None, {}, [])


def effective_values(loaded: LoadedConfig) -> dict[str, Any]:
    """Return every key with its value as JSON, secrets redacted, references as in the file."""
    values: dict[str, Any] = _redact(loaded, loaded.settings.model_dump(mode="json", by_alias=True), ())
    return values


def as_yaml(loaded: LoadedConfig) -> str:
    """Return YAML with the source of each value in a comment."""
    head = [f"# file: {loaded.file}"] if loaded.file else []
    return "\n".join([*head, *_yaml_lines(loaded, effective_values(loaded), (), 0), ""])


def as_json(loaded: LoadedConfig) -> str:
    """Return JSON."""
    return escape_json(json.dumps(effective_values(loaded), ensure_ascii=False, indent=2)) + "\n"


def _redact(loaded: LoadedConfig, value: Any, path: KeyPath) -> Any:  # noqa: ANN401 - any JSON value
    if path in loaded.references and loaded.source_of(path) == FILE and not isinstance(value, dict | list):
        return value if value == REDACTED else loaded.references[path]
    if isinstance(value, dict):
        redacted = {key: _redact(loaded, inner, (*path, key)) for key, inner in value.items()}
        if not any(isinstance(part, int) for part in path):
            return redacted
        # In an item of a list the keys that are not set and have an empty default are left out: most keys of its type.
        return {
            k: inner for k, inner in redacted.items() if inner not in _EMPTY or loaded.source_of((*path, k)) != DEFAULT
        }
    if isinstance(value, list):
        return [_redact(loaded, inner, (*path, index)) for index, inner in enumerate(value)]
    from_short_form = any(path[:end] in loaded.references for end in range(1, len(path)))
    if from_short_form or (path[:1] == ("conf",) and _SECRET_SETTING.search(str(path[-1]))):
        return REDACTED
    return value


def _yaml_lines(loaded: LoadedConfig, values: dict[str, Any] | list[Any], path: KeyPath, depth: int) -> Iterator[str]:
    """Yield a line for each value; a mapping in a list starts in the line of its dash."""
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for part, value in items:
        here = (*path, part)
        prefix = "  " * depth + (f"{_scalar(part)}:" if isinstance(part, str) else "-")
        if not isinstance(value, dict | list) or not value:
            reference = f", {' '.join(loaded.references.get(here, '').split())}" if value == REDACTED else ""
            yield f"{prefix} {_scalar(value)}  # {loaded.source_of(here)}{reference.rstrip(', ')}"
        elif isinstance(part, str):
            yield prefix
            yield from _yaml_lines(loaded, value, here, depth + 1)
        else:
            first, *others = _yaml_lines(loaded, value, here, depth + 1)
            yield f"{prefix} {first.strip()}"
            yield from others


def _scalar(value: object) -> str:
    if isinstance(value, str) and len(value.splitlines()) > 1:
        return json.dumps(value, ensure_ascii=False)  # which is also YAML, in one line
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.removesuffix("...\n").strip()
