"""Who has taken over from a group that ended: by topology and commits, or as declared."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.facts import DEFAULTS, HealthSettings
from streaming_app.health.successors import Successors
from streaming_app.health.verdict import DOWN, OFF, Verdict
from streaming_app.lag.model import GroupTasks, TopicNode
from streaming_app.lag.tracker import LagTracker
from tests.lag.test_work import ENDED as ENDED_TASKS
from tests.lag.test_work import RUNS as RUNNING_TASKS
from tests.lag.test_work import owned, passes
from tests.support.health_harness import ago, facts, group
from tests.support.lag_harness import GROUP, TOPIC

OTHER = "payments-v2"
READS = TopicNode("0", TOPIC, is_internal=False)
CONTENT = frozenset({READS, TopicNode("0", "sums-repartition", is_internal=True)})
ENDED, RUNS = replace(ENDED_TASKS, content=CONTENT), replace(RUNNING_TASKS, content=CONTENT)
GONE = group("Empty", ago(minutes=6), first_seen_at=ago(days=3))
PASSED = ([80], [95])  # the offsets of the other one at two passes; those of the group that ended stay at 90


def other(state: str = "Stable", since: datetime | None = None) -> GroupSnapshot:
    since = since or ago(hours=2)
    return replace(group(state, since, first_seen_at=since), group_id=OTHER)


def found(
    offsets: Iterable[list[int]] = PASSED,
    *,
    gone: GroupSnapshot = GONE,
    come: GroupSnapshot | None = None,
    tasks: GroupTasks = RUNS,
    ended: GroupTasks = ENDED,
    more: str = TOPIC,
    previous: Verdict | None = None,
    settings: HealthSettings = DEFAULTS,
) -> str | None:
    """Return who has taken over; the group that ended has another partition, of the topic `more`."""
    left = owned(committed_offset=90, member_id=None)
    rest = [left._replace(topic=more)] if more != TOPIC else []
    rows = [[left, *rest, owned(group_id=OTHER, committed_offset=offset)] for (offset,) in offsets]
    tracker = LagTracker()
    passes([[left, *rest]], {GROUP: ended}, tracker)
    work = passes(rows, {GROUP: ended, OTHER: tasks}, tracker)
    snapshots = {GROUP: gone, OTHER: come or other()}
    now = replace(work[GROUP], known_at=ago().timestamp())
    return Successors(snapshots, work).of(facts(gone, now, at=ago(), settings=settings, previous=previous))


@pytest.mark.parametrize(
    ("offsets", "tasks", "expected"),
    [
        (([80], [89]), RUNS, None),
        (([80], [95]), RUNS, OTHER),
        (([99], [100]), RUNS, None),
        (([80], [95]), replace(RUNS, content=CONTENT | {TopicNode("1", "more", is_internal=False)}), None),
        (([80], [95]), replace(RUNS, content=frozenset({READS, TopicNode("0", "sums", is_internal=True)})), None),
        (([80], [95]), replace(RUNS, content=frozenset({READS})), None),
    ],
    ids=["not past them", "past them", "it began at the end", "more topics", "other internal topics", "none"],
)
def test_who_has_the_same_topology_and_passed_the_offsets_has_taken_over(
    offsets: tuple[list[int], ...], tasks: GroupTasks, expected: str | None
) -> None:
    assert found(offsets, tasks=tasks) == expected


def test_a_topology_without_internal_topics_proves_nothing() -> None:
    tasks = replace(RUNS, content=frozenset({READS}))
    assert found(tasks=tasks, ended=replace(ENDED, content=tasks.content)) is None


def test_who_is_not_known_to_have_passed_a_partition_has_not_taken_over() -> None:
    """Its own internal topics are others."""
    assert found(more="clicks") is None
    assert found(more=f"{GROUP}-sums-repartition") == OTHER


def test_a_successor_that_is_declared_may_be_another_application_that_began_anywhere() -> None:
    declared = replace(DEFAULTS, successor=OTHER)
    strange = replace(RUNS, content=frozenset({READS._replace(subtopology_id="7")}))
    long_ago = other(since=ago(days=9))
    assert found(([99], [100]), tasks=strange, come=long_ago, settings=declared) == OTHER
    assert found(([80], [89]), tasks=strange, settings=declared) is None
    assert found(come=other("Empty", ago(minutes=3)), settings=declared) is None
    assert found(settings=replace(DEFAULTS, successor="nobody-knows-it")) == OTHER


@pytest.mark.parametrize(
    ("come", "expected"),
    [(other(), OTHER), (other("Empty", ago(minutes=4)), None), (other("Empty", ago(minutes=0.5)), OTHER)],
    ids=["it runs", "it ended two minutes later", "it ended after it had run alone"],
)
def test_who_has_taken_over_stays_the_successor_unless_it_ends_at_once(
    come: GroupSnapshot, expected: str | None
) -> None:
    before = Verdict(OFF, ago(minutes=6), ago(minutes=6), "why", evidence={"successor": OTHER})
    assert found(([80], [85]), come=come, previous=before) == expected
    assert found(([80], [85]), come=come, previous=replace(before, verdict=DOWN)) is None


def test_of_thousands_of_groups_with_one_topology_only_some_are_looked_at() -> None:
    """Else each of them that ends would be compared with all others, at each pass."""
    looked_at = []

    class Progress(dict[Any, Any]):
        def items(self) -> Any:
            looked_at.append(self)
            return super().items()

    ended = passes([owned(committed_offset=90, member_id=None)], {GROUP: ENDED})[GROUP]
    ended = replace(ended, progress=Progress(ended.progress))
    others = {f"o{n}": replace(ended, group_id=f"o{n}", tasks=RUNS) for n in range(1000)}
    groups = {name: replace(other(), group_id=name) for name in others}
    one = Successors({**groups, GROUP: GONE}, {**others, GROUP: ended})
    assert one.of(facts(GONE, replace(ended, known_at=ago().timestamp()), at=ago())) is None
    assert len(looked_at) == 100
