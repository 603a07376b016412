"""Lag by task of Kafka Streams with the classic protocol, and who has the partitions of other groups."""

from typing import Any

from streaming_app.groups.row import to_row
from streaming_app.lag.model import GroupTasks, LagRow, Owner, group_tasks
from tests.groups.classic_records import AT_ONCE, P2, assignment, generation, records, subscription, thread
from tests.groups.records import at, fold
from tests.support.lag_harness import TOPIC_ID, MiniCluster

SOURCES = {0: ["orders"]}
FIRST = thread("m1", subscription(sums={(0, 0): -2}), assignment([(0, 0)], sources=SOURCES))
SECOND = thread("m2", subscription(P2), assignment([(0, 1)], sources=SOURCES))
ALICE, BOB = (Owner(f"m{n}", f"00000000-0000-0000-0000-00000000000{n}", "10.0.0.1") for n in (1, 2))


def tasks_of(*generations: dict[str, Any]) -> GroupTasks:
    return group_tasks(to_row("c", fold(records(*generations)).group), lambda _pattern: ())


def look(tasks: GroupTasks, topic_id: str = TOPIC_ID) -> LagRow:
    """Return the row of partition 0 of `orders`, where records wait, at the second pass."""
    cluster = MiniCluster(tasks=tasks, end=10, topic_id=topic_id)
    cluster.commit_offset(4, topic_id=topic_id)
    cluster.step()
    return cluster.step()


def moving(*, active: bool = False) -> dict[str, Any]:
    """A generation in which task 0_0 changes hands: it is in no member, or another member is to get it."""
    gives = thread("m1", subscription(), assignment([], next_rebalance=AT_ONCE))
    gets = assignment([(0, 1)], [(0, 0)], sources=SOURCES) if active else assignment([(0, 1)], sources=SOURCES)
    return generation(2, gives, thread("m2", subscription(P2), gets))


def test_a_classic_application_has_subtopologies_tasks_and_owners_as_of_its_last_rebalance() -> None:
    tasks = tasks_of(generation(1, FIRST, SECOND))
    assert tasks.subtopology_of == {"orders": "0"}
    assert tasks.owners == {("0", 0): ALICE, ("0", 1): BOB}
    assert (tasks.has_members, tasks.is_ready, tasks.stateful) == (True, True, {"0"})
    assert (tasks.members_since, tasks.stable_since) == (at(0).timestamp(), at(0).timestamp())
    row = look(tasks)
    assert (row.subtopology_id, row.task_id, *row[5:8]) == ("0", "0_0", *ALICE)
    assert (row.lag, row.offset_status) == (6, "WAITS")


def test_a_task_that_changes_hands_has_no_owner_and_is_not_unowned() -> None:
    for generations in (moving(),), (generation(1, FIRST, SECOND), moving(active=True)):
        row = look(tasks_of(*generations))
        assert (row.member_id, row.offset_status, row.is_unowned) == (None, "WAITS", False)
    settled = thread("m2", subscription(P2), assignment([(0, 0), (0, 1)], sources=SOURCES))
    row = look(tasks_of(generation(1, FIRST, SECOND), moving(), generation(3, settled)))
    assert (row.member_id, row.offset_status) == ("m2", "WAITS")


def test_the_task_of_a_member_that_cannot_be_decoded_may_have_an_owner() -> None:
    strange = thread("m1", b"\x00", b"\x00")
    row = look(tasks_of(generation(1, FIRST, SECOND), generation(2, strange, SECOND)))
    assert (row.task_id, row.member_id, row.offset_status) == ("0_0", None, "WAITS")


def test_without_members_a_task_is_unowned_and_so_is_one_that_an_error_leaves_out() -> None:
    failed = thread("m1", subscription(), assignment([], error=1))
    for last in (generation(2), generation(2, failed)):
        row = look(tasks_of(generation(1, FIRST, SECOND), last))
        assert (row.task_id, row.member_id, row.offset_status, row.is_unowned) == ("0_0", None, "UNOWNED", True)


def test_a_topic_is_left_over_only_if_the_log_has_all_topics_that_the_group_reads() -> None:
    others = thread("m1", subscription(), assignment([(0, 0)], sources={0: ["other"]}))
    assert look(tasks_of(generation(1, FIRST), generation(2, others))).offset_status == "LEFT_OVER"
    assert look(tasks_of(generation(1, FIRST), generation(2, others), generation(3))).offset_status == "LEFT_OVER"
    part = thread("m1", subscription(), assignment([(0, 0)], sources={0: ["other"]}, next_rebalance=AT_ONCE))
    for first in ([part], [others, thread("m2", b"\x00", b"\x00")]):
        row = look(tasks_of(generation(2, *first)))
        assert (row.subtopology_id, row.offset_status) == (None, "WAITS")
        assert look(tasks_of(generation(2, *first), generation(3))).offset_status == "UNOWNED"


def test_of_another_group_the_log_has_who_has_which_partition_by_name_or_id_of_the_topic() -> None:
    for topic in ("orders", TOPIC_ID):
        owner = Owner("m", None, "10.0.0.9")
        row = look(GroupTasks(owners={(topic, 0): owner}, has_members=True))
        assert (row.subtopology_id, row.task_id, *row[5:8]) == (None, None, *owner)
        assert row.offset_status == "WAITS"
    assert look(GroupTasks(owners={(TOPIC_ID, 0): owner}, has_members=True), "another").member_id is None


def test_classic_applications_prove_no_successor_since_the_log_lacks_their_changelogs() -> None:
    assert tasks_of(generation(1, FIRST)).content == frozenset()
