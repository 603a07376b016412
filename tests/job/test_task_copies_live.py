"""What a real broker says of copies of tasks, from clients that report their offsets."""

from __future__ import annotations

from collections.abc import Callable

from streaming_app.groups.task_copies import CopiesSum, check_stops, copies_of_description, sum_copies
from streaming_app.kafka.client import StreamsGroupClient, acceptable_lags, describe_each
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology


def test_a_broker_says_how_far_behind_the_standby_of_each_task_is(
    client: StreamsGroupClient, group_id: str, unique: Callable[[str], str]
) -> None:
    topic, unknown = unique("in"), unique("unknown")
    client.create_topic(topic, 2)
    changelogs = [internal_topic(f"{group_id}-store-changelog")]
    described = topology(subtopology("0", source_topics=[topic], state_changelog_topics=changelogs))
    client.configure_group(group_id, {"streams.num.standby.replicas": 1, "streams.acceptable.recovery.lag": 50})
    members = [SimulatedMember(client, group_id, described, process_id=name) for name in ("p0", "p1")]
    for member in members:
        member.join()
    settle(members)
    for behind, member in zip((60, 10), members, strict=True):
        (partition,) = member.assignment["standby"]["0"]
        task = {"subtopology_id": "0", "partition": partition}
        member.heartbeat(task_offsets=[{**task, "offset": 100 - behind}], task_end_offsets=[{**task, "offset": 100}])
    check_standbys(client, group_id, unknown)
    check_state_that_is_not_that_of_a_copy(client, group_id, members[0])


def check_standbys(client: StreamsGroupClient, group_id: str, unknown: str) -> None:
    found = describe_each(client, [group_id, unknown])
    assert {name: error.name for name, error in found.failures.items()} == {unknown: "GROUP_ID_NOT_FOUND"}
    lags = acceptable_lags(client, [group_id])
    assert lags == {group_id: 50}
    (group,) = found.groups
    copies = copies_of_description(group, lags[group_id])
    assert len(copies) == 4
    assert all(copy.stateful for copy in copies)
    standbys = {copy.process_id: copy.lag for copy in copies if copy.role == "standby"}
    assert standbys == {"p0": 60, "p1": 10}
    assert sum_copies(copies) == CopiesSum(2, 70, 1, 0, None)
    assert {check.process_id: check.may_stop for check in check_stops(copies, 50)} == {"p0": True, "p1": False}


def check_state_that_is_not_that_of_a_copy(client: StreamsGroupClient, group_id: str, member: SimulatedMember) -> None:
    (active,) = member.assignment["active"]["0"]
    own, left = {"subtopology_id": "0", "partition": active}, {"subtopology_id": "9", "partition": 0}
    member.heartbeat(
        task_offsets=[{**own, "offset": 30}, {**left, "offset": 5}],
        task_end_offsets=[{**own, "offset": 100}, {**left, "offset": 9}],
    )
    (group,) = describe_each(client, [group_id]).groups
    found = {(one.role, one.task): one.lag for one in copies_of_description(group) if one.process_id == "p0"}
    assert found["restoring", ("0", active)] == 70
    assert found["dormant", ("9", 0)] == 4
