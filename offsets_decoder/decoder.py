"""The door everyone comes through: the fast path, and the referee for everything it refuses.

Readers are generated per record type, version and dialect when a record first needs them. Whatever they refuse goes
to `reference_decode`, which finds the error and its place, or the older layout that fits: no error is worded twice.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from offsets_decoder.generator import reader_of
from offsets_decoder.layout import SHIPPED, check_dialect, definition_of, key_shape, value_shape
from offsets_decoder.record import Record, UnknownTag

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[bytes, list[UnknownTag]], dict[str, Any]]

# Everything that reading wrong bytes, or what is not bytes at all, can raise here. DecodeError is a ValueError.
_REFUSALS = (IndexError, ValueError, TypeError, AttributeError, struct.error)


def decode(key: bytes, value: bytes | None, *, dialect: str = SHIPPED) -> Record:
    """Decode one record of `__consumer_offsets`; a None value is a tombstone.

    `dialect` is `shipped`, the tag numbers of the Kafka releases, or the name of other tag numbers (`kip-1331`).
    Raises `UnknownRecordType`, `UnknownValueVersion` or `MalformedRecord`, and nothing that is not a `DecodeError`.
    """
    try:
        plan = _plans[dialect][key[:2]]
        fields = plan.read_key(key, [])
        if value is None:
            return Record(plan.record_type, plan.name, fields, None, None, [])
        version, read = plan.values[value[:2]]
        unknown: list[UnknownTag] = []
        return Record(plan.record_type, plan.name, fields, read(value, unknown), version, unknown)
    except _REFUSALS:
        return _settle(key, value, dialect)


def _settle(key: bytes, value: bytes | None, dialect: str) -> Record:
    if isinstance(key, bytearray | memoryview) or isinstance(value, bytearray | memoryview):
        return decode(_exact(key), _exact(value), dialect=dialect)
    from offsets_decoder.reference import reference_decode  # noqa: PLC0415 - Construct takes time to load

    return reference_decode(key, value, dialect=dialect)


def _exact(data: bytes | None) -> bytes | None:
    return bytes(data) if isinstance(data, bytearray | memoryview) else data


class _Values(dict[bytes, "tuple[int, Reader]"]):
    """Readers of one record type's values by the version's two bytes, made when first asked for."""

    def __init__(self, record_type: int, dialect: str) -> None:
        super().__init__()
        self._record_type = record_type
        self._dialect = dialect

    def __missing__(self, prefix: bytes) -> tuple[int, Reader]:
        version = int.from_bytes(prefix, "big", signed=True)
        made = version, reader_of(value_shape(self._record_type, version, self._dialect), "value")
        self[prefix] = made
        return made


class _Plan(NamedTuple):
    record_type: int
    name: str
    read_key: Reader
    values: _Values


class _Plans(dict[bytes, _Plan]):
    """How to read a record, by the two bytes its key begins with."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._dialect = dialect

    def __missing__(self, prefix: bytes) -> _Plan:
        record_type = int.from_bytes(prefix, "big", signed=True)
        name = definition_of(record_type).name
        plan = _Plan(record_type, name, reader_of(key_shape(record_type), "key"), _Values(record_type, self._dialect))
        self[prefix] = plan
        return plan


class _Dialects(dict[str, _Plans]):
    def __missing__(self, dialect: str) -> _Plans:
        check_dialect(dialect)
        self[dialect] = _Plans(dialect)
        return self[dialect]


_plans = _Dialects()
