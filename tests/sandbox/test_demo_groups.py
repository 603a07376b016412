from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer.group import LeaveGroupRequest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import build
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.demo_groups import DemoGroups, create_demo_groups
from tests.support.classic_application import row_of
from tests.support.offsets_log import read_log
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="module")
def own_client(own_broker: LocalBroker) -> Iterator[StreamsGroupClient]:
    with StreamsGroupClient(own_broker.bootstrap_server) as connected:
        yield connected


@pytest.fixture(scope="module")
def progress() -> list[str]:
    return []


@pytest.fixture(scope="module")
def demo_groups(own_client: StreamsGroupClient, progress: list[str]) -> Iterator[DemoGroups]:
    groups = create_demo_groups(own_client, progress.append)
    yield groups
    groups.close()


def group(client: StreamsGroupClient, group_id: str) -> dict[str, Any]:
    return client.describe([group_id], include_topology_description=True)[0]


def test_every_group_reaches_its_state_and_is_kept_there_by_heartbeats(
    own_client: StreamsGroupClient, demo_groups: DemoGroups
) -> None:
    for _ in range(5):
        demo_groups.heartbeat()
        expected = {group_id: state for group_id, state in demo_groups.states.items() if state != "Dead"}
        assert {one["group_id"]: one["group_state"] for one in own_client.list_groups()} == expected
        assert {*expected} - {*own_client.streams_groups()} == {"loyalty-points"}


def test_the_demo_shows_every_state_that_a_group_can_have(demo_groups: DemoGroups, progress: list[str]) -> None:
    assert set(demo_groups.states.values()) == {"Stable", "Reconciling", "Assigning", "NotReady", "Empty", "Dead"}
    assert [line.split(":")[0] for line in progress] == list(demo_groups.states)


@pytest.mark.usefixtures("demo_groups")
def test_groups_have_internal_topics_standby_tasks_a_member_that_has_left_temporarily_and_one_with_a_stale_topology(
    own_client: StreamsGroupClient,
) -> None:
    described = group(own_client, "orders-aggregator")
    first, second = described["topology"]["subtopologies"]
    assert first["repartition_sink_topics"] == [topic["name"] for topic in second["repartition_source_topics"]]
    assert first["state_changelog_topics"]
    assert any(member["assignment"]["standby_tasks"] for member in described["members"])

    left = Counter(member["member_epoch"] == -2 for member in group(own_client, "ledger-reconciler")["members"])
    assert left == {True: 1, False: 1}
    epochs = sorted(member["topology_epoch"] for member in group(own_client, "price-feed")["members"])
    assert epochs == [1, 2]


def test_one_group_has_the_classic_protocol_and_its_record_has_the_tasks(
    own_broker: LocalBroker, own_client: StreamsGroupClient, demo_groups: DemoGroups
) -> None:
    row, _ = row_of(read_log(own_broker.bootstrap_server, "loyalty-points"))
    assert row
    assert (row["group_type"], row["protocol"], row["undecoded_members"]) == ("classic", "classic", 0)
    assert [(one["role"], one["subtopology_id"], one["partition"]) for one in row["assignments"]] == [
        ("active", "0", number) for number in range(3)
    ]
    (member,) = next(one.threads for one in demo_groups.groups if one.group_id == "loyalty-points")
    leave = {"group_id": member.group_id, "members": [{"member_id": member.member_id}]}
    own_client.send_to_group(member.group_id, build(LeaveGroupRequest, leave))
    demo_groups.heartbeat()
    states = {one["group_id"]: one["group_state"] for one in own_client.list_groups()}
    assert states["loyalty-points"] == "Stable"


def test_a_member_that_was_removed_joins_again(own_client: StreamsGroupClient, demo_groups: DemoGroups) -> None:
    (removed,) = (one.members[0] for one in demo_groups.groups if one.group_id == "customer-profiles")
    leaves = {"member_epoch": -1, "endpoint_information_epoch": 0}
    own_client.heartbeat({"group_id": removed.group_id, "member_id": removed.member_id, **leaves})
    assert group(own_client, removed.group_id)["members"] == []

    def is_stable() -> bool:
        demo_groups.heartbeat()
        return bool(group(own_client, removed.group_id)["group_state"] == "Stable")

    assert wait_until(is_stable)
    assert [one["member_id"] for one in group(own_client, removed.group_id)["members"]] == [removed.member_id]


def test_one_group_falls_behind_and_catches_up_and_a_member_of_another_restarts(
    own_client: StreamsGroupClient, demo_groups: DemoGroups
) -> None:
    before = own_client.end_offsets("payments")
    demo_groups.move()
    assert own_client.end_offsets("payments") == {number: end + 500 for number, end in before.items()}
    demo_groups.move()
    assert len(group(own_client, "orders-aggregator")["members"]) == 2

    def is_stable() -> bool:
        demo_groups.heartbeat()
        described = group(own_client, "orders-aggregator")
        return (described["group_state"], len(described["members"])) == ("Stable", 3)

    assert wait_until(is_stable)
    offsets = own_client.list_group_offsets("payments-enrichment")
    assert {one.offset for one in offsets["payments-enrichment"].values()} == {1_000}
