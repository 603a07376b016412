"""Loads the definitions in `schemas/records/*.toml`. No single record may be named here, except in its file.

A definition file is named after its type and contains `type`, `name`, `since`, `kip` and `about` of a record, and

* `[key]` and `[value]`: `fields`, and for values `versions` ("0", "0-4") and `flexible` ("0+", "none"),
* `[structs]`: lists of fields by the name that a field's `type` refers to,
* `[layouts."R"]`: the value as releases up to R wrote it, where a later release changed it incompatibly,
* `[dialects.D]`: other tag numbers for the value's fields, for clusters built from something other than the release.

A field without `since` or `kip` has its record's. A field without `default` has its type's zero: arrays are empty,
structs have zeros in their fields. That holds for nullable fields too: a null is then encoded as null, and an absent
field is empty. (Kafka's schemas give some of them the default null without quotes, which its generator ignores.)
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from schemas.definitions import Body, DefinitionError, Dialect, Field, RecordDefinition, Versions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

_NO_BODY = Body((), Versions.parse("none"), Versions.parse("none"))
INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "int64"})
_SCALARS = INTEGERS | {"string", "bytes", "uuid"}
_FIELD_KEYS = frozenset(
    {"name", "type", "about", "since", "kip", "versions", "tag", "default", "nullable", "ignorable"}
)
ZERO_UUID = "A" * 22
"""The uuid of sixteen zero bytes, as Kafka prints it."""


def records() -> Mapping[int, RecordDefinition]:
    """Return every definition by record type, ascending. Each file is read once, at its first use."""
    loaded = ((number, record(number)) for number in sorted(_files()))
    return MappingProxyType({number: definition for number, definition in loaded if definition is not None})


@cache
def record(record_type: int) -> RecordDefinition | None:
    """Return the definition of one record type, or None. Reads one file, so that a short run does not read them all."""
    file = _files().get(record_type)
    return None if file is None else _record(tomllib.loads(file.read_text(encoding="utf-8")), record_type)


@cache
def _files() -> Mapping[int, Traversable]:
    directory = resources.files("schemas").joinpath("records")
    return {int(file.name.split("_")[0]): file for file in directory.iterdir() if file.name.endswith(".toml")}


def _record(data: dict[str, Any], number: int) -> RecordDefinition:
    if data["type"] != number:
        raise DefinitionError(f"the file of type {number} defines type {data['type']}")
    return RecordDefinition(
        type=number,
        name=data["name"],
        about=data["about"],
        since=data.get("since", ""),
        until=data.get("until", ""),
        kip=data.get("kip"),
        planned=data.get("planned", False),
        key=_body(data.get("key"), data),
        value=_body(data.get("value"), data),
        structs={name: _fields(struct, data) for name, struct in data.get("structs", {}).items()},
        layouts={name: _body(layout, data) for name, layout in data.get("layouts", {}).items()},
        dialects={name: _dialect(name, dialect, data) for name, dialect in data.get("dialects", {}).items()},
    )


def _body(data: dict[str, Any] | None, record_data: dict[str, Any]) -> Body:
    if data is None:
        return _NO_BODY
    return Body(
        fields=_fields(data["fields"], record_data),
        versions=Versions.parse(data.get("versions", "0")),
        flexible=Versions.parse(data.get("flexible", "none")),
    )


def _dialect(name: str, data: dict[str, Any], record_data: dict[str, Any]) -> Dialect:
    unknown = data["tags"].keys() - {field["name"] for field in record_data["value"]["fields"]}
    if unknown:
        raise DefinitionError(f"{record_data['name']}, dialect {name}: no such fields: {sorted(unknown)}")
    return Dialect(name, data["about"], data["tags"])


def _fields(data: list[dict[str, Any]], record_data: dict[str, Any]) -> tuple[Field, ...]:
    return tuple(_field(field_data, record_data) for field_data in data)


def _field(data: dict[str, Any], record_data: dict[str, Any]) -> Field:
    unknown = data.keys() - _FIELD_KEYS
    if unknown:
        raise DefinitionError(f"{record_data['name']}.{data.get('name')}: unknown keys: {sorted(unknown)}")
    element = data["type"].removeprefix("[]")
    if element not in _SCALARS and element not in record_data.get("structs", {}):
        raise DefinitionError(f"{record_data['name']}.{data['name']}: no such type or struct: {element!r}")
    return Field(
        name=data["name"],
        type=data["type"],
        about=data["about"],
        since=data.get("since", record_data["since"]),
        kip=data.get("kip", record_data.get("kip")),
        versions=Versions.parse(data.get("versions", "0+")),
        tag=data.get("tag"),
        default=field_default(data["type"], data.get("default")),
        nullable=data.get("nullable", False),
        ignorable=data.get("ignorable", False),
    )


def field_default(kind: str, declared: int | str | None) -> int | str | None:
    """Return the value of an absent field; `declared` is the default in a definition ("null" for null), or None."""
    if declared == "null":
        return None
    if declared is not None:
        return declared
    if kind in INTEGERS:
        return 0
    return ZERO_UUID if kind == "uuid" else ""
