"""What is in force, as text that can be read back as a configuration file, but for the secrets in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from streaming_app.config.file import HIDDEN
from streaming_app.config.load import DEFAULT, FILE, Loaded
from streaming_app.config.paths import Path

# As Spark's own spark.redaction.regex, which hides the same in its web pages.
_SECRET_SETTING = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)

_NOTHING: tuple[object, ...] = (None, {}, [])


def in_force(loaded: Loaded) -> dict[str, Any]:
    """Every key and its value, as YAML and JSON know values; secrets hidden, references as they were written."""
    shown: dict[str, Any] = _shown(loaded, loaded.settings.model_dump(mode="json", by_alias=True), ())
    return shown


def as_yaml(loaded: Loaded) -> str:
    """As YAML, who said each value in a comment behind it."""
    head = [f"# file: {loaded.file}"] if loaded.file else []
    return "\n".join([*head, *_lines(loaded, in_force(loaded), (), 0), ""])


def as_json(loaded: Loaded) -> str:
    """As JSON."""
    return json.dumps(in_force(loaded), ensure_ascii=False, indent=2) + "\n"


def _shown(loaded: Loaded, value: Any, path: Path) -> Any:  # noqa: ANN401 - whatever a configuration holds
    if path in loaded.references and loaded.origin(path) == FILE and not isinstance(value, dict | list):
        return value if value == HIDDEN else loaded.references[path]
    if isinstance(value, dict):
        shown = {key: _shown(loaded, inner, (*path, key)) for key, inner in value.items()}
        if not any(isinstance(part, int) for part in path):
            return shown
        # Of an item of a list, what is neither said nor anything by default is left out: most keys of its kind.
        return {k: inner for k, inner in shown.items() if inner not in _NOTHING or loaded.origin((*path, k)) != DEFAULT}
    if isinstance(value, list):
        return [_shown(loaded, inner, (*path, place)) for place, inner in enumerate(value)]
    from_short_form = any(path[:end] in loaded.references for end in range(1, len(path)))
    if from_short_form or (path[:1] == ("conf",) and _SECRET_SETTING.search(str(path[-1]))):
        return HIDDEN
    return value


def _lines(loaded: Loaded, values: dict[str, Any] | list[Any], path: Path, depth: int) -> Iterator[str]:
    """A line for each value; a mapping in a list begins in the line of its dash."""
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for part, value in items:
        here = (*path, part)
        margin = "  " * depth + (f"{_scalar(part)}:" if isinstance(part, str) else "-")
        if not isinstance(value, dict | list) or not value:
            behind = f", {' '.join(loaded.references.get(here, '').split())}" if value == HIDDEN else ""
            yield f"{margin} {_scalar(value)}  # {loaded.origin(here)}{behind.rstrip(', ')}"
        elif isinstance(part, str):
            yield margin
            yield from _lines(loaded, value, here, depth + 1)
        else:
            first, *others = _lines(loaded, value, here, depth + 1)
            yield f"{margin} {first.strip()}"
            yield from others


def _scalar(value: object) -> str:
    if isinstance(value, str) and len(value.splitlines()) > 1:
        return json.dumps(value, ensure_ascii=False)  # which YAML reads, in one line
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.removesuffix("...\n").strip()
