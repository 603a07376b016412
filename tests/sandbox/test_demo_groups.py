from collections.abc import Iterator
from typing import NamedTuple

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


class Demo(NamedTuple):
    broker: LocalBroker
    client: StreamsGroupClient
    groups: DemoGroups
    progress: list[str]

    @property
    def states(self) -> dict[str, str]:
        return {group.group_id: group.state for group in self.groups.groups}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with LocalBroker(tmp_path_factory.mktemp("demo")) as broker, StreamsGroupClient(broker.bootstrap_server) as client:
        progress: list[str] = []
        groups = create_demo_groups(client, progress.append)
        yield Demo(broker, client, groups, progress)
        groups.close()


def test_every_group_reaches_its_state_and_is_kept_there_by_heartbeats(demo: Demo) -> None:
    for _ in range(5):
        demo.groups.heartbeat()
        expected = {group_id: state for group_id, state in demo.states.items() if state != "Dead"}
        assert {one["group_id"]: one["group_state"] for one in demo.client.list_groups()} == expected
        assert {*expected} - {*demo.client.streams_groups()} == {"loyalty-points"}


def test_the_demo_shows_every_state_that_a_group_can_have(demo: Demo) -> None:
    states = {"Stable", "Reconciling", "Assigning", "NotReady", "Empty", "Dead"}
    assert set(demo.states.values()) == states
    assert [line.split(":")[0] for line in demo.progress] == list(demo.states)


def test_one_group_has_the_classic_protocol_and_its_record_has_the_tasks(demo: Demo) -> None:
    row, _ = row_of(read_log(demo.broker.bootstrap_server, "loyalty-points"))
    assert row
    assert (row["group_type"], row["protocol"], row["undecoded_members"]) == ("classic", "classic", 0)
    assert [(one["role"], one["subtopology_id"], one["partition"]) for one in row["assignments"]] == [
        ("active", "0", number) for number in range(3)
    ]
    (member,) = next(one.threads for one in demo.groups.groups if one.group_id == "loyalty-points")
    leave = {"group_id": member.group_id, "members": [{"member_id": member.member_id}]}
    demo.client.send_to_group(member.group_id, build(LeaveGroupRequest, leave))
    demo.groups.heartbeat()
    states = {one["group_id"]: one["group_state"] for one in demo.client.list_groups()}
    assert states["loyalty-points"] == "Stable"


def test_one_group_falls_behind_and_catches_up_and_a_member_of_another_restarts(demo: Demo) -> None:
    before = demo.client.end_offsets("payments")
    demo.groups.move()
    assert demo.client.end_offsets("payments") == {number: end + 500 for number, end in before.items()}
    demo.groups.move()
    assert len(demo.client.describe(["orders-aggregator"])[0]["members"]) == 2

    def is_stable() -> bool:
        demo.groups.heartbeat()
        described = demo.client.describe(["orders-aggregator"])[0]
        return (described["group_state"], len(described["members"])) == ("Stable", 3)

    assert wait_until(is_stable)
    offsets = demo.client.list_group_offsets("payments-enrichment")
    assert {one.offset for one in offsets["payments-enrichment"].values()} == {1_000}
