from collections.abc import Callable
from typing import Any

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology

pytestmark = pytest.mark.broker
PARTITIONS = [0, 1, 2, 3]


@pytest.fixture
def topic(client: StreamsGroupClient, unique: Callable[[str], str]) -> str:
    name = unique("input")
    client.create_topic(name, len(PARTITIONS))
    return name


@pytest.fixture
def member(client: StreamsGroupClient, group_id: str, topic: str) -> Callable[..., SimulatedMember]:
    """Creates members of one group that reads one topic."""

    def make(**settings: Any) -> SimulatedMember:
        return SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[topic])), **settings)

    return make


def active(*members: SimulatedMember) -> list[list[int]]:
    return [one.assignment["active"].get("0", []) for one in members]


def test_a_member_with_an_endpoint_cannot_join_while_its_source_topic_is_missing(
    client: StreamsGroupClient, group_id: str, unique: Callable[[str], str]
) -> None:
    """A bug of Kafka 4.4.0 (`EndpointToPartitionsManager`): such a group never exists, not even as NotReady."""
    group_topology = topology(subtopology("0", source_topics=[unique("missing")]))
    with pytest.raises(GroupError, match="UNKNOWN"):
        SimulatedMember(client, group_id, group_topology, user_endpoint=("localhost", 7070)).join()
    assert client.describe([group_id])[0]["error_code"] == 69
    assert SimulatedMember(client, group_id, group_topology).join()["member_epoch"] > 0


def test_a_member_joins_is_assigned_every_task_and_is_described_with_its_own_values(
    client: StreamsGroupClient, group_id: str, member: Callable[..., SimulatedMember]
) -> None:
    one = member(
        instance_id="instance-1",
        rack_id="rack-a",
        process_id="process-1",
        client_tags={"zone": "z1"},
        user_endpoint=("localhost", 7070),
    )
    one.join()
    settle([one])
    assert active(one) == [PARTITIONS]
    (group,) = client.describe([group_id])
    assert (group["group_state"], group["assignment_epoch"]) == ("Stable", group["group_epoch"])
    (described,) = group["members"]
    expected = {
        "member_id": one.member_id,
        "member_epoch": one.epoch,
        "instance_id": "instance-1",
        "rack_id": "rack-a",
        "process_id": "process-1",
        "client_tags": [{"key": "zone", "value": "z1"}],
        "user_endpoint": {"host": "localhost", "port": 7070},
        "topology_epoch": 0,
    }
    assert {name: described[name] for name in expected} == expected
    assert client.streams_groups()[group_id] == "Stable"


def test_a_description_is_requested_stored_and_returned_also_one_that_nobody_asked_for(
    client: StreamsGroupClient, group_id: str, member: Callable[..., SimulatedMember]
) -> None:
    one = member()
    one.join()
    settle([one])
    assert one.topology_description_required
    (before,) = client.describe([group_id], include_topology_description=True)
    assert (before["topology_description_status"], before["topology_description"]) == (1, None)
    for _ in range(2):
        one.push_description()
        (after,) = client.describe([group_id], include_topology_description=True)
        assert after["topology_description_status"] == 3
        assert [part["subtopology_id"] for part in after["topology_description"]["subtopologies"]] == ["0"]
        one.step()
        assert not one.topology_description_required
