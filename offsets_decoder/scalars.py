"""What Kafka's scalars are on the wire, for the referee and the fast path alike. Data only."""

from __future__ import annotations

from struct import calcsize

CODES = {"int8": "b", "int16": "h", "uint16": "H", "int32": "l", "int64": "q", "uuid": "16s"}
"""`struct`'s code of each type of fixed size; all are big-endian."""

SIZES = {kind: calcsize(f">{code}") for kind, code in CODES.items()}
"""Bytes of each type of fixed size."""

MAX_STRING = 0x7FFF
"""Bytes of the longest string: Kafka refuses longer ones when reading, whatever the length's own type."""

BIGGEST_UVARINT = 0xFFFFFFFF
"""The largest unsigned varint."""
