"""The time that Kafka Streams commits with each offset: the highest timestamp that it has seen in the partition.

The metadata of such a commit is base64 of a magic byte, the time (eight bytes, milliseconds), and, after the magic byte
2, what processors keep: nothing, or a count of keys, each after its length and before its number. That is what
`TopicPartitionMetadata` and `ProcessorMetadata` of kafka-streams write. Any client may commit any text, so only one
that fits to the last byte is read.
"""

from __future__ import annotations

import base64
import struct

LAST_MS = 253_402_300_799_999
"""In the year 9999: Spark and Python read no later time."""
_BEGIN = {"AQAA": 1, "AgAA": 2}
"""How it begins, with the magic byte and the first two bytes of a time before `LAST_MS`, which are 0. -1 is no time."""
_PLAIN = 9  # bytes


def partition_time_ms(metadata: str | None) -> int | None:
    """Return the time in the metadata of a commit, in milliseconds; None for any other text, and for a time of -1."""
    magic = _BEGIN.get(metadata[:4]) if metadata else None
    if metadata is None or magic is None:
        return None
    try:
        found = base64.b64decode(metadata, validate=True)
        (time,) = struct.unpack_from(">q", found, 1)
        fits = len(found) == _PLAIN or (magic != 1 and _has_keys(found))
    except (ValueError, struct.error):
        return None
    return time if fits and 0 <= time <= LAST_MS else None


def _has_keys(found: bytes) -> bool:
    """Tell whether the rest is a count and as many keys. Raises struct.error if it ends before."""
    (count,) = struct.unpack_from(">i", found, _PLAIN)
    at = _PLAIN + 4
    for _ in range(count):
        (length,) = struct.unpack_from(">i", found, at)
        if length < 0:
            return False
        at += 4 + length + 8
    return count > 0 and at == len(found)
