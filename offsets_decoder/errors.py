"""Every way in which bytes can fail to be a record, or values to become bytes. Nothing else leaves this package."""

from __future__ import annotations


class DecodeError(ValueError):
    """Bytes that are not a record this package can read."""


class UnknownDialectError(DecodeError):
    """A dialect was asked for that no definition has."""


class UnknownRecordType(DecodeError):  # noqa: N818 - the names are the contract's
    """The key's first two bytes name no record that Kafka has released. `record_type` is that int16."""

    def __init__(self, record_type: int, reason: str) -> None:
        super().__init__(record_type, reason)
        self.record_type = record_type
        self.reason = reason

    def __str__(self) -> str:
        return f"record type {self.record_type}: {self.reason}"


class UnknownValueVersion(DecodeError):  # noqa: N818
    """The record's type is known, but not this version (int16) of its value."""

    def __init__(self, record_type: int, name: str, version: int, known: str) -> None:
        super().__init__(record_type, name, version, known)
        self.record_type = record_type
        self.name = name
        self.version = version
        self.known = known

    def __str__(self) -> str:
        return f"{self.name} (type {self.record_type}): value version {self.version} is unknown, known: {self.known}"


class MalformedRecord(DecodeError):  # noqa: N818
    """Bytes that break the layout.

    `path` is the field as Kafka's JSON spells it, below `key` or `value`: `value.activeTasks[0].partitions`.
    `offset` counts bytes from the start of the key or value, its leading type or version included.
    """

    def __init__(self, reason: str, path: str, offset: int) -> None:
        super().__init__(reason, path, offset)
        self.reason = reason
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} (byte {self.offset})"


class EncodeError(ValueError):
    """Values that cannot become a record: an unknown name, a missing, surplus or unfit value."""
