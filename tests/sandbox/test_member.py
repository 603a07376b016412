from collections.abc import Callable

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, build_description, internal_topic, subtopology, topology

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


def test_a_store_has_the_name_of_its_changelog_without_the_group_as_with_kafka_streams() -> None:
    changelogs = [internal_topic("shop-totals-changelog")]
    described = build_description(topology(subtopology("0", state_changelog_topics=changelogs)), "shop")
    assert described["subtopologies"][0]["nodes"][1]["stores"] == ["totals"]
