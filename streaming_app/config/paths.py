"""Where a value stands: the way to it through mappings, lists and pydantic's models. It reads no file."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

Path: TypeAlias = tuple[str | int, ...]
"""Keys of mappings and places in lists: `("sinks", 0, "url")`."""

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_UNIONS = (Union, types.UnionType)
_SECRETS = (SecretStr, SecretBytes, Secret)


def written(path: Path) -> str:
    """As a reader of the YAML file would say it: `sinks[0].url`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def found(values: object, path: Path) -> tuple[bool, Any]:
    """Whether there is a value at the path, and the value."""
    for part in path:
        if isinstance(values, Mapping):
            is_there = part in values
        else:
            is_there = isinstance(values, list) and part in range(len(values))
        if not is_there:
            return False, None
        values = values[part]  # type: ignore[index]
    return True, values


def without_tags(location: Path, values: object) -> Path:
    """Pydantic's location of an error as a path: it also names the kinds that it tried, which nobody wrote."""
    path: Path = ()
    for number, part in enumerate(location):
        _, here = found(values, path)
        last = number == len(location) - 1
        missing = last and isinstance(here, Mapping) and here.get("type") != part
        if isinstance(part, str) and not (isinstance(here, Mapping) and (part in here or missing)):
            continue
        path = (*path, part)
    return path


def kinds(model: type[BaseModel], path: Path) -> list[Any]:
    """What the model wants at the path; several where it has a choice, none where it knows no such key."""
    here: list[Any] = [model]
    for part in path:
        here = [inner for kind in here for inner in _inside(kind, part)]
    return here


def keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that the model knows in the mapping at the path."""
    names: dict[str, None] = {}
    for kind in kinds(model, path):
        if _is_model(kind):
            names |= dict.fromkeys(field.alias or name for name, field in kind.model_fields.items())
        elif _is_mapping(kind) and get_origin(get_args(kind)[0]) is Literal:
            names |= dict.fromkeys(get_args(get_args(kind)[0]))
    return list(names)


def with_numbers(model: type[BaseModel], values: dict[str, Any], path: Path = ()) -> dict[str, Any]:
    """Values of variables, which are all text: those that are whole numbers as such, where the model wants them."""
    told: dict[str, Any] = {}
    for name, value in values.items():
        here = (*path, name)
        if isinstance(value, dict):
            told[name] = with_numbers(model, value, here)
        else:
            whole = isinstance(value, str) and _WHOLE.fullmatch(value) and int in kinds(model, here)
            told[name] = int(value) if whole else value
    return told


def holds_secrets(model: type[BaseModel], path: Path) -> bool:
    """Whether what belongs at the path, or something within it, may not be shown. Unknown places count as such."""
    wanted = kinds(model, path)
    return not wanted or any(_secret(kind, set()) for kind in wanted)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    same_case = {one.lower(): one for one in names}
    close = get_close_matches(name.lower(), same_case, n=1, cutoff=0.7)
    return same_case[close[0]] if close else None


def _inside(kind: object, part: str | int) -> Iterator[Any]:
    if _is_model(kind):
        for name, field in kind.model_fields.items():  # type: ignore[attr-defined]
            if part == (field.alias or name):
                yield from _plain(field.annotation)
    elif _is_mapping(kind):
        yield from _plain(get_args(kind)[1])
    elif isinstance(part, int) and get_origin(kind) is not None:
        yield from _plain(get_args(kind)[0])


def _plain(annotation: object) -> Iterator[Any]:
    """The kinds that an annotation allows, without what it says about them."""
    if get_origin(annotation) is Annotated:
        yield from _plain(get_args(annotation)[0])
    elif get_origin(annotation) in _UNIONS:
        for one in get_args(annotation):
            yield from _plain(one)
    else:
        yield annotation


def _secret(kind: object, seen: set[object]) -> bool:
    if kind in _SECRETS or get_origin(kind) in _SECRETS:
        return True
    if _is_model(kind):
        if kind in seen:
            return False
        inner = [field.annotation for field in kind.model_fields.values()]  # type: ignore[attr-defined]
        seen = seen | {kind}
    else:
        inner = [] if get_origin(kind) is Literal else list(get_args(kind))
    return any(_secret(one, seen) for annotation in inner for one in _plain(annotation))


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_mapping(kind: object) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)
