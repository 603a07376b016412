"""A topic that is deleted and created again under a running stream: what was read of the new one is refused."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from uuid import UUID

import pytest

from streaming_app.errors import OtherTopicError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.offsets_topic import OffsetsTopic, OffsetsTopicClient
from streaming_app.kafka.properties import client_properties
from streaming_app.kafka.topic_reader import format_topic_id
from streaming_app.stream.log_positions import LogPositions, read_whole
from streaming_app.stream.stream_state import StateFile
from streaming_app.tables.checkpoint_offsets import BatchEnds
from streaming_app.tables.location import Location
from tests.support.container import Broker


@pytest.mark.broker
def test_what_was_read_while_the_topic_was_created_again_is_refused(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("offsets")
    client.create_topic(name)
    described = client.describe_topics([name])[0]
    checkpoint = Location.of(tmp_path / "checkpoint")
    connection = SharedConnection(client_properties(broker.bootstrap_server, None), Admin)
    positions = LogPositions(OffsetsTopicClient(connection, name, None, Event()), StateFile(checkpoint), pytest.fail)
    topic = OffsetsTopic(name, format_topic_id(UUID(described["topic_id"])) or "", "cluster", {0: 0})
    positions.open(topic, BatchEnds({}, {}))
    assert read_whole(positions, lambda: "read", {0: 0}) == "read"

    def read() -> None:
        client.delete_topic(name)
        client.create_topic(name)

    with pytest.raises(OtherTopicError, match="deleted and created again"):
        read_whole(positions, read, {0: 0})
    connection.close()
