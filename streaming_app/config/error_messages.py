"""Pydantic's errors as lines for users: the source, the key, what its value must be. No line contains a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from streaming_app.config.file import REDACTED
from streaming_app.config.key_path import KeyPath, closest_name, holds_secrets, keys_at, lookup, path_of_error, types_at

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
