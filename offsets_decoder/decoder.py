"""The entry point of decoding: the fast path, and the reference decoder for everything that the fast path rejects.

A reader is generated per record type and version when a record first needs it. Bytes that it rejects go to
`reference_decode`, which finds the error and its position, or an older layout that fits. So only one place words
errors.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from offsets_decoder.generator import compile_reader
from offsets_decoder.layout import key_layout, released_definition, value_layout
from offsets_decoder.record import Record, UnknownTag

K = TypeVar("K")
V = TypeVar("V")

Reader = Callable[[bytes, list[UnknownTag]], dict[str, Any]]

# All errors that invalid bytes, or objects that are not bytes, can raise here. DecodeError is a ValueError.
_READ_ERRORS = (IndexError, ValueError, TypeError, AttributeError, struct.error)


def decode(key: bytes, value: bytes | None) -> Record:
    """Decode one record of `__consumer_offsets`; a None value is a tombstone.

    Raises `UnknownRecordType`, `UnknownValueVersion` or `MalformedRecord`, and only subclasses of `DecodeError`.
    """
    try:
        readers = _readers[key[:2]]
        fields = readers.read_key(key, [])
        if value is None:
            return Record(readers.record_type, readers.name, fields, None, None, [])
        version, read_value = readers.values[value[:2]]
        unknown: list[UnknownTag] = []
        return Record(readers.record_type, readers.name, fields, read_value(value, unknown), version, unknown)
    except _READ_ERRORS:
        return _decode_by_reference(key, value)


def _decode_by_reference(key: bytes, value: bytes | None) -> Record:
    if isinstance(key, bytearray | memoryview) or isinstance(value, bytearray | memoryview):
        return decode(_to_bytes(key), _to_bytes(value))
    from offsets_decoder.reference import reference_decode  # noqa: PLC0415 - Construct is slow to import

    return reference_decode(key, value)


def _to_bytes(data: bytes | None) -> bytes | None:
    return bytes(data) if isinstance(data, bytearray | memoryview) else data


class _Made(dict[K, V]):
    """What `make` returns for each key, made when the key is first asked for."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        made = self[key] = self._make(key)
        return made


class _RecordReaders(NamedTuple):
    record_type: int
    name: str
    read_key: Reader
    values: _Made[bytes, tuple[int, Reader]]
    """Versions and readers of the values, by the version's two bytes."""


def _readers_of_record(prefix: bytes) -> _RecordReaders:
    record_type = int.from_bytes(prefix, "big", signed=True)
    name, read_key = released_definition(record_type).name, compile_reader(key_layout(record_type), "key")
    return _RecordReaders(record_type, name, read_key, _Made(partial(_reader_of_value, record_type)))


def _reader_of_value(record_type: int, prefix: bytes) -> tuple[int, Reader]:
    version = int.from_bytes(prefix, "big", signed=True)
    return version, compile_reader(value_layout(record_type, version), "value")


_readers = _Made(_readers_of_record)  # by the first two bytes of the key
