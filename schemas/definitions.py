"""What a record definition is made of. Shapes only: the loader fills them, others read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LATEST = 32767  # the end of a range such as "3+"; versions are int16 on the wire


class DefinitionError(ValueError):
    """A definition file says something that cannot be meant."""


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
        first, onward, last = match.groups()
        return cls(int(first), LATEST if onward else int(last or first))

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
    """One field: `name` as Kafka spells it, `type` as `int32`, `string`, `[]int32`, `TaskIds` or `[]TaskIds`.

    `default` is what an absent field stands for; None is null. Arrays default to none or to empty, written "".
    `tag` is None for a field that is always on the wire. `versions` are those of the value that have the field.
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
        """Whether the field holds any number of `element`."""
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type without the array around it."""
        return self.type.removeprefix("[]")

    @property
    def camel(self) -> str:
        """The name as Kafka's JSON converters spell it: `groupId`."""
        return self.name[0].lower() + self.name[1:]

    @property
    def snake(self) -> str:
        """The name as this project spells it in Python and in tables: `group_id`."""
        return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", self.name).lower()


@dataclass(frozen=True)
class Body:
    """The fields of a key or of a value. `versions` of a key are its own message version, which is not on the wire."""

    fields: tuple[Field, ...]
    versions: Versions
    flexible: Versions


@dataclass(frozen=True)
class Dialect:
    """Tag numbers, by field name, of a cluster that was not built from the released layout."""

    name: str
    about: str
    tags: Mapping[str, int]


@dataclass(frozen=True)
class RecordDefinition:
    """All that is known about one record type. `planned` records never shipped and have neither key nor value.

    `layouts` are incompatible older forms of the value by the last release that wrote them. `until` is the last
    release that wrote the record at all, empty for those still written.
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
