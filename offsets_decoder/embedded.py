"""Decodes what clients put into bytes of records, by the definitions in `schemas/embedded`.

As for records, readers are generated, and tests compare them with Construct. But clients choose these bytes, and other
client libraries have other formats: what does not parse to the last byte is None, and no error is worded.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from offsets_decoder.definitions import embedded
from offsets_decoder.generator import compile_reader
from offsets_decoder.layout import SIZES, embedded_layout
from offsets_decoder.record import UnknownTag

_READ_ERRORS = (IndexError, ValueError, struct.error)  # all that a reader raises for bytes


def decode_embedded(name: str, data: bytes | None) -> tuple[int, dict[str, Any]] | None:
    """Return the version and the fields, by their names in snake_case; None if the bytes do not parse."""
    if not data:
        return None
    try:
        version, read = _reader(name, data[: _prefix_size(name)])
        return version, read(data, [])
    except _READ_ERRORS:
        return None


@cache
def _prefix_size(name: str) -> int:
    return SIZES[embedded(name).prefix]


@cache
def _reader(name: str, prefix: bytes) -> tuple[int, Callable[[bytes, list[UnknownTag]], dict[str, Any]]]:
    """Return the version that a prefix is, and its reader; unknown versions raise, and are not kept."""
    version = int.from_bytes(prefix, "big", signed=True)
    return version, compile_reader(embedded_layout(name, version), name, embedded(name).prefix)
