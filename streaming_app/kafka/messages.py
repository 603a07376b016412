"""The requests of the streams group protocol as classes of kafka-python, generated from `schemas/messages/*.json`."""

from collections.abc import Mapping
from typing import Any

from kafka.protocol.api_message import ApiMessage, ApiMessageData

from schemas import messages

Fields = dict[str, Any]
"""A message or a part of one: field names in snake_case to values, nested the same way."""


def _message(name: str) -> Any:  # noqa: ANN401 - kafka-python is untyped
    return ApiMessageData(name, (ApiMessage,), {}, load_json=messages)


StreamsGroupHeartbeatRequest = _message("StreamsGroupHeartbeatRequest")
StreamsGroupHeartbeatResponse = _message("StreamsGroupHeartbeatResponse")
StreamsGroupDescribeRequest = _message("StreamsGroupDescribeRequest")
StreamsGroupDescribeResponse = _message("StreamsGroupDescribeResponse")
StreamsGroupTopologyDescriptionUpdateRequest = _message("StreamsGroupTopologyDescriptionUpdateRequest")
StreamsGroupTopologyDescriptionUpdateResponse = _message("StreamsGroupTopologyDescriptionUpdateResponse")


def build(message: Any, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - kafka-python is untyped
    """Create an instance of a message class from nested dicts. Raises KeyError for a field that the class lacks."""
    return message(**{name: _value(message.fields[name], value) for name, value in fields.items()})


def _value(field: Any, value: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    if value is None:
        return None
    if field.is_struct_array():
        return [build(field.array_of.data_class, element) for element in value]
    return build(field.data_class, value) if field.is_struct() else value
