"""Error codes of Kafka's protocol, and the exception for an error code that a coordinator returns."""

from kafka.errors import kafka_errors

UNKNOWN_SERVER_ERROR = -1
TOPIC_AUTHORIZATION_FAILED = 29
COORDINATOR_CODES = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: the same request may succeed on a retry."""

# Codes that kafka-python does not know yet. KIP-1071 (130 to 132), KIP-1331 (135).
_NAMES = {
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
}


def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    known = kafka_errors.get(code)
    return _NAMES.get(code) or (known.message if known else f"UNKNOWN_ERROR_{code}")


class GroupError(Exception):
    """A coordinator rejected a request. `code` and `name` are Kafka's, `message` is the coordinator's, "" for none."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = code
        self.name = error_name(code)
        self.message = message or ""
        super().__init__(f"{self.name}: {message}" if message else self.name)


def raise_for_code(code: int, message: str | None = None) -> None:
    """Raise GroupError unless the code is 0."""
    if code:
        raise GroupError(code, message)
