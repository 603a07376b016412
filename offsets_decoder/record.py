"""The results of decoding: a record, or an error that says why the bytes are not one.

Data only: neither reading nor writing may live here.
"""

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

    `key` and `value` map field names in snake_case to int, str (also for uuids, in Kafka's base64), bytes, None, lists,
    and dicts for structs. Every field of the definition is present; absent ones have their defaults. `value` and
    `value_version` are None for a tombstone. `layout` is None for the layout that Kafka has written since 4.1; else it
    is the name of the older layout, which is the only one that fits the bytes.
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
        """Whether the writer knew fields that are not in the definitions."""
        return bool(self.unknown_tags)


class DecodeError(ValueError):
    """Bytes that are not a record that this package can decode."""


@dataclass(eq=False, repr=False)
class UnknownRecordType(DecodeError):  # noqa: N818 - the names are public
    """The first two bytes of the key, the int16 `record_type`, are not a record type that Kafka has released."""

    record_type: int
    reason: str

    def __str__(self) -> str:
        return f"record type {self.record_type}: {self.reason}"


@dataclass(eq=False, repr=False)
class UnknownValueVersion(DecodeError):  # noqa: N818
    """The record's type is known, but this version (int16) of its value is not."""

    record_type: int
    name: str
    version: int
    known: str

    def __str__(self) -> str:
        return f"{self.name} (type {self.record_type}): value version {self.version} is unknown, known: {self.known}"


@dataclass(eq=False, repr=False)
class MalformedRecord(DecodeError):  # noqa: N818
    """Bytes that violate the layout.

    `path` is the field in the notation of Kafka's JSON, below `key` or `value`: `value.activeTasks[0].partitions`.
    `offset` counts bytes from the start of the key or value, including its leading type or version.
    """

    reason: str
    path: str
    offset: int

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} (byte {self.offset})"
