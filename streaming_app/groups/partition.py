"""The partition of the offsets topic that holds a group's records, by Kafka's own rule: Java's hash of the group id."""

OFFSETS_TOPIC = "__consumer_offsets"
_BITS = 1 << 32
_SIGN = 1 << 31


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition that holds a group's records, if the offsets topic has this number of partitions."""
    value = hash_code(group_id)
    return 0 if value == -_SIGN else abs(value) % partitions  # Integer.MIN_VALUE has no absolute value; Kafka uses 0


def hash_code(text: str) -> int:
    """Return Java's `String.hashCode`: a 32-bit hash of the UTF-16 code units, with overflow."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % _BITS
    return value - _BITS if value >= _SIGN else value
