"""Paths of configuration keys through mappings, lists and pydantic's models. Reads no file."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys of mappings and indexes of lists: `("sinks", 0, "url")`."""

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_UNIONS = (Union, types.UnionType)
_SECRETS = (SecretStr, SecretBytes, Secret)


def format_path(path: KeyPath) -> str:
    """Return the path as text: `sinks[0].url`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def lookup(values: object, path: KeyPath) -> tuple[bool, Any]:
    """Return whether there is a value at the path, and the value."""
    for part in path:
        if isinstance(values, Mapping):
            exists = part in values
        else:
            exists = isinstance(values, list) and part in range(len(values))
        if not exists:
            return False, None
        values = values[part]  # type: ignore[index]
    return True, values


def path_of_error(location: KeyPath, values: object) -> KeyPath:
    """Return pydantic's location of an error as a path in `values`.

    Pydantic's location also names the members of a union that it tried, which are no keys of the file.
    """
    path: KeyPath = ()
    for number, part in enumerate(location):
        _, parent = lookup(values, path)
        last = number == len(location) - 1
        missing = last and isinstance(parent, Mapping) and parent.get("type") != part
        if isinstance(part, str) and not (isinstance(parent, Mapping) and (part in parent or missing)):
            continue
        path = (*path, part)
    return path


def types_at(model: type[BaseModel], path: KeyPath) -> list[Any]:
    """Return the types that the model allows at the path: several for a union, none for an unknown key."""
    allowed: list[Any] = [model]
    for part in path:
        allowed = [inner for outer in allowed for inner in _types_within(outer, part)]
    return allowed


def keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Return the keys that the model knows in the mapping at the path."""
    names: dict[str, None] = {}
    for allowed in types_at(model, path):
        if _is_model(allowed):
            names |= dict.fromkeys(_names(name, field)[0] for name, field in allowed.model_fields.items())
        elif _is_mapping(allowed) and get_origin(get_args(allowed)[0]) is Literal:
            names |= dict.fromkeys(get_args(get_args(allowed)[0]))
    return list(names)


def parse_integers(model: type[BaseModel], values: dict[str, Any], path: KeyPath = ()) -> dict[str, Any]:
    """Return the values of variables, which are text, with integers parsed where the model allows an int."""
    parsed: dict[str, Any] = {}
    for name, value in values.items():
        here = (*path, name)
        if isinstance(value, dict):
            parsed[name] = parse_integers(model, value, here)
        else:
            is_integer = isinstance(value, str) and _INTEGER.fullmatch(value) and int in types_at(model, here)
            parsed[name] = int(value) if is_integer else value
    return parsed


def holds_secrets(model: type[BaseModel], path: KeyPath) -> bool:
    """Return whether the value at the path is or contains a secret. An unknown path counts as one."""
    allowed = types_at(model, path)
    return not allowed or any(_is_secret(one, set()) for one in allowed)


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that was probably meant by `name`, or None."""
    by_lower_case = {one.lower(): one for one in names}
    matches = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.7)
    return by_lower_case[matches[0]] if matches else None


def _names(name: str, field: FieldInfo) -> list[str]:
    """Return the keys that stand for a field, the one to use first."""
    if isinstance(field.validation_alias, AliasChoices):
        return [one for one in field.validation_alias.choices if isinstance(one, str)]
    return [field.alias or name]


def _types_within(outer: object, part: str | int) -> Iterator[Any]:
    if _is_model(outer):
        for name, field in outer.model_fields.items():  # type: ignore[attr-defined]
            if part in _names(name, field):
                yield from _alternatives(field.annotation)
    elif _is_mapping(outer):
        yield from _alternatives(get_args(outer)[1])
    elif isinstance(part, int) and get_origin(outer) is not None:
        yield from _alternatives(get_args(outer)[0])


def _alternatives(annotation: object) -> Iterator[Any]:
    """Yield the types that an annotation allows: the members of a union, without the metadata of `Annotated`."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in _UNIONS:
        for one in get_args(annotation):
            yield from _alternatives(one)
    else:
        yield annotation


def _is_secret(allowed: object, seen: set[object]) -> bool:
    if allowed in _SECRETS or get_origin(allowed) in _SECRETS:
        return True
    if _is_model(allowed):
        if allowed in seen:
            return False
        inner = [field.annotation for field in allowed.model_fields.values()]  # type: ignore[attr-defined]
        seen = seen | {allowed}
    else:
        inner = [] if get_origin(allowed) is Literal else list(get_args(allowed))
    return any(_is_secret(one, seen) for annotation in inner for one in _alternatives(annotation))


def _is_model(allowed: object) -> bool:
    return isinstance(allowed, type) and issubclass(allowed, BaseModel)


def _is_mapping(allowed: object) -> bool:
    origin = get_origin(allowed)
    return isinstance(origin, type) and issubclass(origin, Mapping)
