from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, new_id, settle, subtopology, topology

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


def state(client: StreamsGroupClient, group_id: str) -> str:
    return str(client.describe([group_id])[0]["group_state"])


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
    assert client.list_groups()[group_id] == "Stable"


def test_tasks_move_to_a_second_member_once_the_first_releases_them(
    client: StreamsGroupClient, group_id: str, member: Callable[..., SimulatedMember]
) -> None:
    first, second = member(), member()
    first.join()
    settle([first])
    second.join()
    settle([first, second])
    assert sorted(chain(*active(first, second))) == PARTITIONS
    assert [len(tasks) for tasks in active(first, second)] == [2, 2]
    assert state(client, group_id) == "Stable"


def test_a_group_whose_last_member_left_is_empty_and_can_be_deleted(
    client: StreamsGroupClient, group_id: str, member: Callable[..., SimulatedMember]
) -> None:
    one = member()
    one.join()
    settle([one])
    with pytest.raises(GroupError, match="NON_EMPTY_GROUP"):
        client.delete_group(group_id)
    one.leave()
    assert state(client, group_id) == "Empty"
    client.delete_group(group_id)
    assert client.describe([group_id])[0]["error_code"] == 69
    with pytest.raises(GroupError, match="GROUP_ID_NOT_FOUND"):
        client.delete_group(group_id)


def test_an_invalid_heartbeat_is_rejected_and_changes_nothing_in_the_member(
    member: Callable[..., SimulatedMember],
) -> None:
    one = member()
    one.join()
    settle([one])
    before = (one.epoch, one.assignment, one.owned)
    unknown = {"active_tasks": [{"subtopology_id": "none", "partitions": [0]}], "standby_tasks": [], "warmup_tasks": []}
    for request_fields, error in (
        ({"member_id": new_id()}, "UNKNOWN_MEMBER_ID"),
        ({"member_epoch": 99}, "FENCED_MEMBER_EPOCH"),
        ({"topology": topology()}, "INVALID_REQUEST"),
        (unknown, "INVALID_REQUEST"),
    ):
        with pytest.raises(GroupError) as rejected:
            one.heartbeat(**request_fields)
        assert rejected.value.name == error
        assert (one.epoch, one.assignment, one.owned) == before


def test_a_group_may_start_at_any_topology_epoch_and_a_member_with_a_stale_one_gets_a_status(
    client: StreamsGroupClient, group_id: str, member: Callable[..., SimulatedMember]
) -> None:
    current, stale = member(topology_epoch=7), member(topology_epoch=1)
    current.join()
    settle([current])
    (group,) = client.describe([group_id])
    assert group["topology"]["epoch"] == group["members"][0]["topology_epoch"] == 7
    stale.join()
    assert [name for name, _detail in stale.statuses] == ["STALE_TOPOLOGY"]


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


def test_a_description_of_another_epoch_member_or_group_is_rejected(
    client: StreamsGroupClient, group_id: str, member: Callable[..., SimulatedMember]
) -> None:
    one = member()
    one.join()
    settle([one])
    empty = {"subtopologies": [], "global_stores": []}
    push = {"group_id": group_id, "member_id": one.member_id, "epoch": 0, "description": empty}
    for changes, error in (
        ({"epoch": 1}, "INVALID_REQUEST"),
        ({"member_id": "unknown"}, "UNKNOWN_MEMBER_ID"),
        ({"group_id": "no-such-group"}, "GROUP_ID_NOT_FOUND"),
    ):
        with pytest.raises(GroupError) as rejected:
            client.push_description(**{**push, **changes})
        assert rejected.value.name == error


def test_a_member_commits_offsets_and_an_unknown_member_is_rejected(
    client: StreamsGroupClient, group_id: str, topic: str, member: Callable[..., SimulatedMember]
) -> None:
    one = member()
    one.join()
    settle([one])
    client.commit_offsets(group_id, {(topic, 0): 5, (topic, 3): 7}, one.member_id, one.epoch)
    with pytest.raises(GroupError) as rejected:
        client.commit_offsets(group_id, {(topic, 0): 1}, "unknown", one.epoch)
    assert rejected.value.name == "UNKNOWN_MEMBER_ID"
    committed = client.admin.list_group_offsets(group_id)[group_id]
    assert {partition.partition: offset.offset for partition, offset in committed.items()} == {0: 5, 3: 7}


def test_new_ids_have_the_form_of_kafkas_and_never_start_with_a_dash() -> None:
    ids = {new_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)
