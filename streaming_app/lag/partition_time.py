"""The time that Kafka Streams commits with each offset: the highest timestamp that it has seen in the partition.

The metadata of such a commit is base64 of a magic byte and the time (eight bytes, milliseconds). With magic byte 2, the
metadata of processors may follow: a count, and for each key its length, the key and an eight-byte number. This is the
format of `TopicPartitionMetadata` and `ProcessorMetadata` in kafka-streams. Any client may commit any text, so text
that does not match the format to the last byte is ignored.
"""

import base64
import struct

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: Spark and Python have no later time."""
_BEGIN = {"AQAA": 1, "AgAA": 2}
"""The first four characters -> magic byte: the magic byte, and two bytes that are 0 in every time up to `LAST_MS`."""
_PLAIN = 9  # bytes of metadata without processors


def partition_time_ms(metadata: str | None) -> int | None:
    """Return the time in the metadata of a commit, in milliseconds; None for other text, and for a time of -1."""
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
    """Return whether a count and as many keys follow, and nothing else. Raises struct.error if the bytes end before."""
    (count,) = struct.unpack_from(">i", found, _PLAIN)
    at = _PLAIN + 4
    for _ in range(count):
        (length,) = struct.unpack_from(">i", found, at)
        if length < 0:
            return False
        at += 4 + length + 8
    return count > 0 and at == len(found)
