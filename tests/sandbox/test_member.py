from collections.abc import Callable

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology

pytestmark = pytest.mark.broker


def test_a_member_with_an_endpoint_cannot_join_while_its_source_topic_is_missing(
    client: StreamsGroupClient, group_id: str, unique: Callable[[str], str]
) -> None:
    """A bug of Kafka 4.4.0 (`EndpointToPartitionsManager`): such a group never exists, not even as NotReady."""
    group_topology = topology(subtopology("0", source_topics=[unique("missing")]))
    with pytest.raises(GroupError, match="UNKNOWN"):
        SimulatedMember(client, group_id, group_topology, user_endpoint=("localhost", 7070)).join()
    assert client.describe([group_id])[0]["error_code"] == 69
    assert SimulatedMember(client, group_id, group_topology).join()["member_epoch"] > 0
