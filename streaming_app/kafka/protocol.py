"""Kafka's protocol: the requests of streams groups as kafka-python classes, and the error codes of all requests."""

from collections.abc import Mapping
from typing import Any

from kafka.errors import kafka_errors
from kafka.protocol.api_message import ApiMessage

UNKNOWN_SERVER_ERROR = -1
TOPIC_AUTHORIZATION_FAILED = 29
COORDINATOR_CODES = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: the same request may succeed later."""

# Codes that kafka-python does not know yet: KIP-1071 (130 to 132), KIP-1331 (135).
_NAMES = {
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
}


def error_name(code: int) -> str:
    """Return Kafka's name for an error code."""
    known = kafka_errors.get(code)
    return _NAMES.get(code) or (known.message if known else f"UNKNOWN_ERROR_{code}")


class GroupError(Exception):
    """A coordinator rejected a request. `code` and `name` are Kafka's; `message` is the coordinator's, "" if none."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = code
        self.name = error_name(code)
        self.message = message or ""
        super().__init__(f"{self.name}: {message}" if message else self.name)


def raise_for_code(code: int, message: str | None = None) -> None:
    """Raise GroupError unless the code is 0."""
    if code:
        raise GroupError(code, message)


Fields = dict[str, Any]
"""A message or a part of one: a dict from field names in snake_case to values, nested in the same way."""


def _message(name: str) -> Any:  # noqa: ANN401 - kafka-python is untyped
    return type(ApiMessage)(name, (ApiMessage,), {}, load_json="offsets_decoder.schemas.messages")


StreamsGroupHeartbeatRequest = _message("StreamsGroupHeartbeatRequest")
StreamsGroupHeartbeatResponse = _message("StreamsGroupHeartbeatResponse")
StreamsGroupDescribeRequest = _message("StreamsGroupDescribeRequest")
StreamsGroupDescribeResponse = _message("StreamsGroupDescribeResponse")
StreamsGroupTopologyDescriptionUpdateRequest = _message("StreamsGroupTopologyDescriptionUpdateRequest")
StreamsGroupTopologyDescriptionUpdateResponse = _message("StreamsGroupTopologyDescriptionUpdateResponse")


def build(message: Any, fields: Mapping[str, Any], **versions: int) -> Any:  # noqa: ANN401 - kafka-python is untyped
    """Create a message from nested dicts; `versions` are as `max_version`. Raises KeyError for a field it lacks."""
    return message(**{name: _value(message.fields[name], value) for name, value in fields.items()}, **versions)


def _value(field: Any, value: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    if value is None:
        return None
    if field.is_struct_array():
        return [build(field.array_of.data_class, element) for element in value]
    return build(field.data_class, value) if field.is_struct() else value
