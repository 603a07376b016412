"""The data classes of a record definition. No loading may live here: `records_loader` does that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LATEST = 32767  # the end of a range such as "3+": versions are encoded as int16


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
    """One field: `name` as in Kafka's schemas, `type` as `int32`, `string`, `[]int32`, `TaskIds` or `[]TaskIds`.

    `default` is the value of an absent field; None is null. The default of an array is null, or "" for an empty one.
    `tag` is None for a field that is always encoded. `versions` are those of the value that have the field.
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

    @property
    def camel(self) -> str:
        """The name in Kafka's JSON: `groupId`."""
        return self.name[0].lower() + self.name[1:]

    @property
    def snake(self) -> str:
        """The name in Python and in tables: `group_id`."""
        return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", self.name).lower()


@dataclass(frozen=True)
class Body:
    """The fields of a key or of a value. The `versions` of a key are those of its schema, which are not encoded."""

    fields: tuple[Field, ...]
    versions: Versions
    flexible: Versions


@dataclass(frozen=True)
class Dialect:
    """Tag numbers by field name, for clusters whose brokers do not have the tag numbers of the releases."""

    name: str
    about: str
    tags: Mapping[str, int]


@dataclass(frozen=True)
class RecordDefinition:
    """One record type. `planned` records were never shipped and have neither key nor value.

    `layouts` are incompatible older layouts of the value, by the last release that wrote them. `until` is the last
    release that wrote the record, empty for records that are still written.
    """

    type: int
    name: str
    about: str
    since: str
    until: str
    kip: int | None
    planned: bool
    key: Body
    value: Body
    structs: Mapping[str, tuple[Field, ...]]
    layouts: Mapping[str, Body]
    dialects: Mapping[str, Dialect]
