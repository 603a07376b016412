"""Pydantic's errors as lines for users: which key, where it was said, what it must be. No secret gets into a line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from streaming_app.config.file import HIDDEN
from streaming_app.config.paths import Path, found, holds_secrets, keys, kinds, nearest, without_tags

_SHOULD = re.compile(r"^\w+ should ")

# What pydantic says in terms of Python, by the kind of error.
_WORDS: dict[str, str] = {
    "missing": "must be given",
    "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "mapping_type": "must hold keys and values",
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
_SHOWN = str | int | float | bool


def line(
    error: ErrorDetails,
    model: type[BaseModel],
    values: Mapping[str, Any],
    secrets: Mapping[str, str],
    place: Callable[[Path], str],
) -> tuple[Path, str]:
    """The path of an error and a line about it, which begins with its `place`: source and path.

    `values` is what was validated, `secrets` what references stand for, with the reference to say instead.
    """
    path = without_tags(error["loc"], values)
    kind, context = error["type"], error.get("ctx", {})
    if kind.startswith("union_tag"):
        path = (*path, str(context["discriminator"]).strip("'"))
    said = _text(error, model, path, values)
    for secret, reference in secrets.items():
        said = said.replace(secret, reference) if secret else said
    return path, f"{place(path)}: {' '.join(said.split())}"


def _text(error: ErrorDetails, model: type[BaseModel], path: Path, values: Mapping[str, Any]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    _, given = found(values, path)
    if kind == "extra_forbidden":
        meant = nearest(str(path[-1]), keys(model, path[:-1]))
        return "is no known key" + (f"; did you mean {meant}?" if meant else "")
    if kind.startswith("union_tag"):
        return (
            f"must be one of {context['expected_tags'].replace(chr(39), '')}"
            if "expected_tags" in context
            else (f"must be given: one of {', '.join(_tags(model, path))}")
        )
    hidden = holds_secrets(model, path)
    if kind == "value_error":
        said = str(context["error"])  # a validator of ours: it says what was given
        return said.replace(str(given), HIDDEN) if hidden and isinstance(given, _SHOWN) and str(given) else said
    said = _WORDS.get(kind) or _SHOULD.sub("must ", error["msg"])
    return said if hidden or kind == "missing" or not isinstance(given, _SHOWN) else f'{said}, not "{given}"'


def _tags(model: type[BaseModel], path: Path) -> list[str]:
    """What the key at a path may be, where each kind of the section it stands in allows one word."""
    return [word for kind in kinds(model, path) if get_origin(kind) is Literal for word in get_args(kind)]
