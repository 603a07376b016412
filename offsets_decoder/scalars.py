"""How Kafka's scalar types are encoded, for both the reference decoder and the fast path. Data only."""

from __future__ import annotations

from struct import calcsize

CODES = {"int8": "b", "int16": "h", "uint16": "H", "int32": "l", "int64": "q", "uuid": "16s"}
"""The `struct` format code of each fixed-size type; all are big-endian."""

SIZES = {kind: calcsize(f">{code}") for kind, code in CODES.items()}
"""The size in bytes of each fixed-size type."""

MAX_STRING = 0x7FFF
"""Longest string in bytes: Kafka rejects longer ones on reading, also where the length is a varint."""

MAX_UVARINT = 0xFFFFFFFF
"""The largest unsigned varint."""
