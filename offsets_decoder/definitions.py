"""The definitions of records, as data classes, loaded from `schemas/records/*.toml`. No record is named here.

`schemas` in this package is a link to the folder next to the package; a wheel contains a copy. A package `schemas` of
its own would hide a user's module with that name, or be hidden by it.

A definition file is named after its type. It contains `type`, `name`, `since`, `kip` and `about` of a record, and

* `[key]` and `[value]`: `fields`, and for values `versions` ("0", "0-4") and `flexible` ("0+", "none"),
* `[structs]`: lists of fields, by the name to which the `type` of a field refers,
* `[layouts."R"]`: the value as releases up to R wrote it, if a later release changed it incompatibly,

`schemas/embedded/*.toml` define what clients put into bytes of records; a file is named after its content. It contains
`name`, `since`, `kip`, `about`, `versions`, `fields` and `[structs]` as above, and `prefix`, the type of the version
before the fields.

A field without `since` or `kip` takes those of its record. A field without `default` has the zero of its type: arrays
are empty, structs have zeros in their fields. This also holds for nullable fields: null is encoded as null, and an
absent field is empty. (Some of Kafka's schemas declare the default null without quotes, which Kafka's generator
ignores.)
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

LATEST = 32767  # the end of a range such as "3+": versions are encoded as int16
INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "int64"})
ZERO_UUID = "A" * 22
"""The uuid of sixteen zero bytes, in Kafka's text form."""


class DefinitionError(ValueError):
    """A definition file is invalid."""


@dataclass(frozen=True)
class Versions:
    """An inclusive range of versions; empty when `last` is below `first`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read "3", "0-4", "2+" or "none"."""
        if text == "none":
            return cls(0, -1)
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if match is None:
            raise DefinitionError(f"not a range of versions: {text!r}")
        first, open_ended, last = match.groups()
        return cls(int(first), LATEST if open_ended else int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        if self.last < self.first:
            return "none"
        if self.last == LATEST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class Field:
    """One field: `name` as in Kafka's schemas, `type` such as `int32`, `string`, `[]int32`, `TaskIds` or `[]TaskIds`.

    `default` is the value of an absent field; None is null. The default of an array is null, or "" for an empty one.
    `tag` is None for a field that is always encoded. `versions` are the versions of the value that have the field.
    """

    name: str
    type: str
    about: str
    since: str
    kip: int | None
    versions: Versions = Versions(0, LATEST)
    tag: int | None = None
    default: int | str | None = None
    nullable: bool = False
    ignorable: bool = False

    @property
    def is_array(self) -> bool:
        """Whether the field is an array of `element`."""
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type of the field, or of its elements if it is an array."""
        return self.type.removeprefix("[]")

    @cached_property
    def camel(self) -> str:
        """The name in Kafka's JSON: `groupId`."""
        return self.name[0].lower() + self.name[1:]

    @cached_property
    def snake(self) -> str:
        """The name in Python and in tables: `group_id`."""
        return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", self.name).lower()


@dataclass(frozen=True)
class Body:
    """The fields of a key or of a value. The `versions` of a key are those of its schema; they are not encoded."""

    fields: tuple[Field, ...]
    versions: Versions
    flexible: Versions


@dataclass(frozen=True, kw_only=True)
class RecordDefinition:
    """One record type. `planned` records were never shipped and have neither key nor value.

    `layouts` are incompatible older layouts of the value, by the last release that wrote them. `until` is the last
    release that wrote the record, empty for records that are still written.
    """

    type: int
    name: str
    about: str
    since: str = ""
    until: str = ""
    kip: int | None = None
    planned: bool = False
    key: Body
    value: Body
    structs: Mapping[str, tuple[Field, ...]]
    layouts: Mapping[str, Body]


@dataclass(frozen=True, kw_only=True)
class EmbeddedDefinition:
    """What clients put into bytes of records: after its version, of the type `prefix`, come the fields."""

    name: str
    about: str
    since: str
    kip: int | None = None
    prefix: str
    body: Body
    structs: Mapping[str, tuple[Field, ...]]


_NO_BODY = Body((), Versions.parse("none"), Versions.parse("none"))


@cache
def schemas(folder: str) -> Traversable:
    """Return the folder "records", "embedded", "tables" or "messages" of `schemas/`."""
    return files("offsets_decoder") / "schemas" / folder


def load_toml(file: Traversable) -> dict[str, Any]:
    """Return the content of a TOML file, such as a definition."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def records() -> Mapping[int, RecordDefinition]:
    """Return every definition by record type, ascending. Each file is read once, at its first use."""
    loaded = ((number, record(number)) for number in sorted(_files()))
    return MappingProxyType({number: definition for number, definition in loaded if definition is not None})


@cache
def record(record_type: int) -> RecordDefinition | None:
    """Return the definition of one record type, or None. It reads one file, so a short run does not read all."""
    file = _files().get(record_type)
    return None if file is None else _record(load_toml(file))


@cache
def embedded(name: str) -> EmbeddedDefinition:
    """Return the definition of bytes within records, such as "SubscriptionInfo"; raises FileNotFoundError."""
    data = load_toml(schemas("embedded") / f"{name}.toml")
    of_embedded = {key: data[key] for key in ("name", "about", "since", "kip", "prefix") if key in data}
    structs = {key: _fields(struct, data) for key, struct in data["structs"].items()}
    return EmbeddedDefinition(**of_embedded, body=_body(data, data), structs=structs)


def all_embedded() -> list[EmbeddedDefinition]:
    """Return the definitions of all bytes within records, by prefix and name."""
    names = (file.name.removesuffix(".toml") for file in schemas("embedded").iterdir() if file.name.endswith(".toml"))
    return sorted(map(embedded, names), key=lambda one: (one.prefix, one.name))


@cache
def _files() -> Mapping[int, Traversable]:
    return {int(file.name.split("_")[0]): file for file in schemas("records").iterdir() if file.name.endswith(".toml")}


def _record(data: dict[str, Any]) -> RecordDefinition:
    parts = {
        "key": _body(data.get("key"), data),
        "value": _body(data.get("value"), data),
        "structs": {name: _fields(struct, data) for name, struct in data.get("structs", {}).items()},
        "layouts": {name: _body(layout, data) for name, layout in data.get("layouts", {}).items()},
    }
    return RecordDefinition(**{**data, **parts})


def _body(data: dict[str, Any] | None, record_data: dict[str, Any]) -> Body:
    if data is None:
        return _NO_BODY
    return Body(
        fields=_fields(data["fields"], record_data),
        versions=Versions.parse(data.get("versions", "0")),
        flexible=Versions.parse(data.get("flexible", "none")),
    )


def _fields(data: list[dict[str, Any]], record_data: dict[str, Any]) -> tuple[Field, ...]:
    return tuple(_field(field_data, record_data) for field_data in data)


def _field(data: dict[str, Any], record_data: dict[str, Any]) -> Field:
    of_record = {"since": record_data["since"], "kip": record_data.get("kip")}
    versions = Versions.parse(data.get("versions", "0+"))
    default = field_default(data["type"], data.get("default"))
    return Field(**{**of_record, **data, "versions": versions, "default": default})


def field_default(kind: str, declared: int | str | None) -> int | str | None:
    """Return the value of an absent field; `declared` is the default in a definition ("null" for null), or None."""
    if declared == "null":
        return None
    if declared is not None:
        return declared
    if kind in INTEGERS:
        return 0
    return ZERO_UUID if kind == "uuid" else ""
