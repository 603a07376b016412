"""The decoded record. Data only: neither reading nor writing may live here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class UnknownTag(NamedTuple):
    """A tagged field that is not defined: the `path` of the struct that contains it, its tag, its bytes."""

    path: str
    tag: int
    data: bytes


@dataclass(slots=True)
class Record:
    """One record of `__consumer_offsets`.

    `key` and `value` map field names in snake_case to int, str (also uuids, in Kafka's base64), bytes, None, lists, and
    dicts for structs. Every field of the definition is present: absent ones have their defaults. `value` and
    `value_version` are None for a tombstone. `layout` is None for the layout that Kafka has written since 4.1, else the
    name of the older layout, the only one that the bytes fit.
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
        """Whether the writer knew fields that the definitions (in the requested dialect) do not have."""
        return bool(self.unknown_tags)
