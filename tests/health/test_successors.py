"""Who has taken over from a group that ended: by topology and commits, unless both ran side by side for long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.activity import activity
from streaming_app.health.history import GroupHistory
from streaming_app.health.successors import NOBODY, Successors, Takeover
from streaming_app.health.verdict import DEFAULTS, DOWN, OFF, HealthSettings, Verdict
from streaming_app.lag.model import GroupTasks
from tests.health.health_harness import ago, group, states
from tests.lag.lag_harness import GROUP, TOPIC
from tests.lag.test_work import ENDED, RUNS, owned, passes

OTHER = "payments-v2"
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
    histories: dict[str, GroupHistory] | None = None,
    previous: Verdict | None = None,
    settings: HealthSettings = DEFAULTS,
) -> Takeover:
    ended = owned(committed_offset=90, member_id=None)
    rows = [[ended, owned(group_id=OTHER, committed_offset=offset)] for (offset,) in offsets]
    work = passes(rows, {GROUP: ENDED, OTHER: tasks}, passes([[ended]], {GROUP: ENDED}))
    snapshots = {GROUP: gone, OTHER: come or other()}
    one = Successors(snapshots, histories or {}, work)
    return one.of(activity(gone, (histories or {}).get(GROUP), ago()), work[GROUP], previous, settings)


@pytest.mark.parametrize(
    ("offsets", "tasks", "expected"),
    [
        (([80], [89]), RUNS, None),
        (([80], [95]), RUNS, OTHER),
        (([99], [100]), RUNS, None),
        (([80], [95]), replace(RUNS, subtopology_of={TOPIC: "0", "more": "1"}), None),
        (([80], [95]), replace(RUNS, stateful=frozenset({"0"})), None),
    ],
    ids=["not past them", "past them", "it began at the end", "another application", "one with state"],
)
def test_who_has_the_same_topology_and_passed_the_offsets_has_taken_over(
    offsets: tuple[list[int], ...], tasks: GroupTasks, expected: str | None
) -> None:
    assert found(offsets, tasks=tasks) == Takeover(expected)


def test_a_run_that_begins_while_both_read_knows_that_the_other_did_not_begin_beyond() -> None:
    both = [owned(committed_offset=85), owned(group_id=OTHER, committed_offset=80)]
    known = passes([both], {GROUP: RUNS, OTHER: RUNS})
    ended = [owned(committed_offset=90, member_id=None), owned(group_id=OTHER, committed_offset=95)]
    work = passes([ended], {GROUP: ENDED, OTHER: RUNS}, known)
    one = Successors({GROUP: GONE, OTHER: other()}, {}, work)
    assert one.of(activity(GONE, None, ago()), work[GROUP], None, DEFAULTS).successor == OTHER


def test_a_group_that_has_members_has_no_successor_and_one_without_members_takes_nothing_over() -> None:
    assert found(gone=group()) == NOBODY
    assert found(come=other("Empty", ago(minutes=3))) == NOBODY


def test_who_ran_side_by_side_for_more_than_a_day_is_a_copy_and_no_successor() -> None:
    assert found(come=other(since=ago(hours=23))) == Takeover(OTHER)
    assert found(come=other(since=ago(hours=25))) == Takeover(None, OTHER)
    assert found(come=other(since=ago(hours=25)), settings=replace(DEFAULTS, hand_over=90_000)) == Takeover(OTHER)


def test_a_copy_is_one_also_after_it_was_down_itself() -> None:
    down = states((ago(minutes=50), "Stable", "Empty"), (ago(minutes=3), "Empty", "Stable"))
    come = other(since=ago(days=2))
    assert found(come=come, histories={OTHER: down}) == Takeover(None, OTHER)


def test_groups_that_take_turns_are_no_copies_although_their_overlaps_add_up_to_a_day() -> None:
    own = states(*((ago(hours=36 * n + k), *pair) for n in (3, 2, 1) for k, pair in ((24, _END), (6, _BEGIN))))
    turns = states(*((ago(hours=36 * n + k), *pair) for n in (3, 2, 1) for k, pair in ((36, _BEGIN), (-6, _END))))
    come = other(since=ago(days=30))
    assert found(come=come, gone=replace(GONE, first_seen_at=ago(days=40)), histories={GROUP: own, OTHER: turns})
    mornings = states(*((ago(hours=24 * n + k), *pair) for n in (3, 2, 1) for k, pair in ((12, _END), (0, _BEGIN))))
    assert found(come=come, histories={GROUP: mornings, OTHER: mornings}) == Takeover(None, OTHER)


_END, _BEGIN = ("Stable", "Empty"), ("Empty", "Stable")


def test_a_successor_that_is_declared_may_be_another_application_that_began_anywhere() -> None:
    declared = replace(DEFAULTS, successor=OTHER)
    strange = replace(RUNS, subtopology_of={TOPIC: "7"})
    long_ago = other(since=ago(days=9))
    assert found(([99], [100]), tasks=strange, come=long_ago, settings=declared) == Takeover(OTHER)
    assert found(([80], [89]), tasks=strange, settings=declared) == NOBODY
    assert found(come=other("Empty", ago(minutes=3)), settings=declared) == NOBODY
    assert found(settings=replace(DEFAULTS, successor="nobody-knows-it")) == Takeover(OTHER)


@pytest.mark.parametrize(
    ("come", "expected"),
    [
        (other(), OTHER),
        (other("Empty", ago(minutes=4)), None),
        (other("Empty", ago(minutes=0.5)), OTHER),
    ],
    ids=["it runs", "it ended two minutes later", "it ended after it had run alone"],
)
def test_who_has_taken_over_stays_the_successor_unless_it_ends_at_once(
    come: GroupSnapshot, expected: str | None
) -> None:
    before = Verdict(OFF, ago(minutes=6), ago(minutes=6), "why", evidence={"successor": OTHER})
    assert found(([80], [85]), come=come, previous=before).successor == expected
    assert found(([80], [85]), come=come, previous=replace(before, verdict=DOWN)).successor is None


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
    one = Successors({**groups, GROUP: GONE}, {}, {**others, GROUP: ended})
    assert one.of(activity(GONE, None, ago()), ended, None, DEFAULTS) == NOBODY
    assert len(looked_at) == 100
