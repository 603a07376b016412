"""Which partition of the offsets topic holds a group: Kafka's own rule, on Java's hash of a string."""

_BITS = 1 << 32
_SIGN = 1 << 31


def partition_of(group_id: str, partitions: int) -> int:
    """The partition of a group's records in an offsets topic of so many partitions."""
    value = hash_code(group_id)
    return 0 if value == -_SIGN else abs(value) % partitions  # the least int has no absolute value; Kafka takes 0


def hash_code(text: str) -> int:
    """String.hashCode of Java: over UTF-16 code units, wrapping around as an int does."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % _BITS
    return value - _BITS if value >= _SIGN else value
