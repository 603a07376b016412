"""What a decoded record is. Data only: no reading and no writing may live here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class UnknownTag(NamedTuple):
    """A tagged field the definitions do not have: `path` of the struct that holds it, its number, its bytes."""

    path: str
    tag: int
    data: bytes


@dataclass(slots=True)
class Record:
    """One record of `__consumer_offsets`.

    `key` and `value` map field names in snake_case to int, str (uuids too, in Kafka's base64), bytes, None, lists, and
    dicts for structs. Every field of the definition is there: absent ones at their defaults. `value` and
    `value_version` are None for a tombstone. `layout` is None for the layout that Kafka writes since 4.1, else the name
    of the older one that alone fits.
    """

    record_type: int
    name: str
    key: dict[str, Any]
    value: dict[str, Any] | None
    value_version: int | None
    unknown_tags: list[UnknownTag]
    layout: str | None = None

    @property
    def drift(self) -> bool:
        """Whether the writer knew fields that the definitions (in the dialect asked for) do not."""
        return bool(self.unknown_tags)
