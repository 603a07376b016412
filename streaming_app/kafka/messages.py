"""The requests of the streams group protocol as classes of kafka-python, generated from `schemas/messages/*.json`."""

import json
from collections.abc import Mapping
from typing import Any

from kafka.protocol.api_data import SlotsBuilder, StructField
from kafka.protocol.api_message import ApiMessage, ApiMessageData
from kafka.protocol.schemas.load_json import _resolve_common_structs

from offsets_decoder.data import schemas

Fields = dict[str, Any]
"""A message or a part of one: field names in snake_case to values, nested the same way."""


class _FromSchemas(ApiMessageData):  # type: ignore[misc] # kafka-python is untyped
    """A class of messages from `schemas/messages/`; kafka-python's own takes a JSON file only from a Python package."""

    def __new__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any], **options: bool) -> Any:  # noqa: ANN401
        if options.get("init", True):  # not for the class of one version of a message
            message = json.loads((schemas("messages") / f"{name}.json").read_text("utf-8"))
            structs = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", [])}
            _resolve_common_structs(message["fields"], structs)
            attrs |= {"_json": message, "_struct": StructField(message)}
        return SlotsBuilder.__new__(cls, name, bases, attrs, **options)


def _message(name: str) -> Any:  # noqa: ANN401 - kafka-python is untyped
    return _FromSchemas(name, (ApiMessage,), {})


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
