"""The rules about lag, from the rows of one pass to the next; what whole applications do is in `tests/histories`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, AlertKey, Finding
from streaming_app.alerts.evaluate import RULES_FOR_LAG, evaluate, is_held
from streaming_app.alerts.lifecycle import AlertState, NotifyPolicy, advance
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.config.alerts import AlertSettings
from streaming_app.health.history import GroupHistory, StateChange
from streaming_app.lag.group_lag import GroupLag, group_lags
from streaming_app.lag.model import GroupTasks, LagRow
from tests.lag.lag_harness import GROUP, row
from tests.odd_group_ids import ODD

START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
NO_PROGRESS, LAG_HIGH, UNOWNED = "StreamsGroupNoProgress", "StreamsGroupLagHigh", "StreamsGroupTaskUnowned"
LOST, REWOUND, RECREATED = "StreamsGroupOffsetsLost", "StreamsGroupOffsetsRewound", "StreamsGroupTopicRecreated"
OWNED = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m", "process_id": "p", "client_host": "10.0.0.1"}


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def seconds(minutes: float) -> float:
    return at(minutes).timestamp()


def owned(status: str, minutes: float | None = None, **fields: Any) -> LagRow:
    """Return a row of a task that a member has, with this status since so many minutes after the start."""
    since = None if minutes is None else seconds(minutes)
    return row(**{**OWNED, "status": status, "status_since": since, "lag": 5_432, "lag_seconds": 1_200.0, **fields})


def follow(
    *passes: Iterable[LagRow],
    tasks: Mapping[str, GroupTasks] | None = None,
    before: Mapping[str, GroupLag] | None = None,
) -> dict[str, GroupLag]:
    """Return what is known after passes a minute apart, the last of them an hour after the start."""
    known = dict(before or {})
    first = 61 - len(passes)
    for minute, rows in enumerate(passes, first):
        known = group_lags(rows, tasks or {}, known, seconds(minute))
    return known


def find(
    lag: Mapping[str, GroupLag] | None, rule: str, group_id: str = GROUP, minute: float = 60, **context: Any
) -> Finding | None:
    settings = AlertSettings.model_validate(context.pop("settings", {})).rule_settings_of()
    found = evaluate([], None, EvaluationContext(at(minute), lag=lag, **context), settings)
    assert {key.group_id for key in found} <= {group_id}
    one = found.get(AlertKey(rule, group_id))
    if one:
        assert json.loads(json.dumps(one.details)) == one.details
        assert "\n" not in one.summary
    return one


def since(lag: Mapping[str, GroupLag], rule: str, **context: Any) -> datetime | None:
    found = find(lag, rule, **context)
    return found and found.since


@pytest.mark.parametrize(
    "wrong",
    [
        owned("OK", 0),
        owned("OK", 0, lag=1),
        owned("UNKNOWN", 0),
        row(status="LEFT_OVER", status_since=seconds(0), subtopology_id=None),
        owned("UNKNOWN", None, committed_offset=None, lag=None),
        owned("CATCHING_UP", 0, catch_up_seconds=3_600.0, lag_seconds=86_400.0),
        owned("UNOWNED", 0, member_id=None, process_id=None, client_host=None),
    ],
    ids=lambda one: f"{one.status} {one.lag}",
)
def test_what_needs_nobody_has_no_findings(wrong: LagRow) -> None:
    known = follow(*([wrong],) * 20)
    assert [rule.name for rule in RULES_FOR_LAG if find(known, rule.name)] == []


@pytest.mark.parametrize("status", ["STOPPED", "STALLED"])
def test_partitions_without_progress_are_named_with_task_process_and_host(status: str) -> None:
    rows = [owned(status, 50 - n, partition=n, task_id=f"0_{n}") for n in range(5)]
    found = find(follow(rows), NO_PROGRESS)
    assert found is not None
    assert found.since == at(46)
    assert "in 5 partitions since 2026-11-22 09:46:00 UTC: orders-0, task 0_0 at 10.0.0.1, process p; " in found.summary
    assert found.summary.endswith("; and 2 more")
    assert (found.details["partition_count"], found.details["lag_at_least"]) == (5, 20_000)
    first = found.details["partitions"][0]
    assert (first["task"], first["host"], first["committed_offset"]) == ("0_0", "10.0.0.1", 90)
    (without,) = find(follow([owned(status, 50, committed_offset=None)]), NO_PROGRESS).details["partitions"]
    assert "committed_offset" not in without


def test_a_finding_does_not_change_while_nothing_happens() -> None:
    rows = [owned("STOPPED", 30, partition=n) for n in range(5)]
    grown = [one._replace(lag=(one.lag or 0) + 7 * one.partition, lag_seconds=1_230.0) for one in rows]
    assert find(follow(rows), NO_PROGRESS) == find(follow(rows, grown[::-1]), NO_PROGRESS)


def test_a_stateful_task_that_has_committed_nothing_since_the_rebalance_may_restore_for_half_an_hour() -> None:
    tasks = {GROUP: GroupTasks(stateful=frozenset({"0"}), stable_since=seconds(20))}
    restoring = owned("STOPPED", 22, committed_at=seconds(10))
    known = follow([restoring], tasks=tasks)
    assert find(known, NO_PROGRESS, minute=49.9) is None
    assert since(known, NO_PROGRESS, minute=50.1) == at(22)
    for other in (
        follow([restoring._replace(committed_at=seconds(21))], tasks=tasks),
        follow([restoring._replace(subtopology_id="1")], tasks=tasks),
        follow([restoring, owned("STOPPED", 22, partition=1, committed_at=seconds(21))], tasks=tasks),
    ):
        assert find(other, NO_PROGRESS, minute=30) is not None


@pytest.mark.parametrize(("age", "found"), [(599.0, False), (600.0, True), (None, False)])
def test_a_lag_that_does_not_fall_is_high_by_its_age(age: float | None, *, found: bool) -> None:
    one = find(follow([owned("BEHIND", 30, lag_seconds=age)]), LAG_HIGH)
    assert (one is not None) == found
    assert one is None or "the oldest record is more than 10m old" in one.summary


def test_the_age_is_a_setting_of_a_group() -> None:
    known = follow([owned("BEHIND", 30)])
    settings = {"overrides": [{"groups": "pay.*", "rules": {LAG_HIGH: {"age": "1h"}}}]}
    assert find(known, LAG_HIGH) is not None
    assert find(known, LAG_HIGH, settings=settings) is None


def test_a_lag_that_falls_for_a_moment_is_behind_since_before() -> None:
    behind = owned("BEHIND", 30)
    falls = owned("CATCHING_UP", 60, catch_up_seconds=600.0)
    key = AlertKey(LAG_HIGH, GROUP)
    once = follow([behind], [falls])
    assert find(once, LAG_HIGH) is None
    assert since(once, LAG_HIGH, open_alerts={key}) == at(30)
    assert since(follow([behind], [falls], [behind]), LAG_HIGH) == at(30)
    assert find(follow([behind], *([falls],) * 4), LAG_HIGH, open_alerts={key}) is None


def test_a_lag_that_needs_more_than_six_hours_to_catch_up_is_high() -> None:
    slow = owned("CATCHING_UP", 30, catch_up_seconds=30_000.0)
    assert since(follow([slow]), LAG_HIGH) == at(30)


def test_a_task_that_no_member_has_is_found_only_if_members_have_others() -> None:
    nobody = owned("UNOWNED", 40, member_id=None, process_id=None, client_host=None)
    assert find(follow([nobody]), UNOWNED) is None
    found = find(follow([nobody, owned("OK", 0, partition=1, task_id="0_1")]), UNOWNED)
    assert found is not None
    assert (found.since, found.details["tasks"]) == (at(40), ["0_0"])


def test_lost_offsets_are_rounded_down() -> None:
    found = find(follow([owned("LOST", 58, lost_offsets=n, partition=n) for n in (700, 650)]), LOST)
    assert found is not None
    assert "at least 1,000 offsets of 2 partitions were deleted" in found.summary


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ([], True),
        ([("Stable", 5), ("Empty", 50), ("Assigning", 55), ("Stable", 56)], False),
        ([("Stable", 5), ("Empty", 30), ("Assigning", 35), ("Stable", 36)], True),
        ([("Stable", 5), ("Empty", 30)], False),
    ],
    ids=["has run all the time", "was empty just before", "was empty long before", "is empty"],
)
def test_offsets_that_go_back_are_found_unless_somebody_reset_them(
    states: list[tuple[str, float]], *, found: bool
) -> None:
    history = GroupHistory()
    for (old, _), (state, minute) in pairwise(states):
        history.states.append(StateChange(at(minute), int(minute), old, state))
    known = follow([owned("REWOUND", 57, rewound_from=1_000, committed_offset=90)])
    one = find(known, REWOUND, histories={GROUP: history})
    assert (one is not None) == found
    assert one is None or "orders-0 from 1000" in one.summary


def test_a_topic_that_was_created_again_is_found_once_it_has_records() -> None:
    empty = owned("RECREATED", 40, lag=None, lag_seconds=None, log_start_offset=0, log_end_offset=0)
    assert find(follow([empty]), RECREATED) is None
    assert find(follow([empty._replace(log_start_offset=5, log_end_offset=5)]), RECREATED) is None
    found = find(follow([empty._replace(log_end_offset=3)]), RECREATED)
    assert found is not None
    assert "has not committed since topic orders was deleted and created again" in found.summary


def test_groups_of_other_types_are_found_on_request() -> None:
    known = follow([row(status="STOPPED", status_since=seconds(30))])
    assert find(known, NO_PROGRESS) is None
    assert find(known, NO_PROGRESS, lag_of_all_groups=True) is not None
    rewound = follow([row(status="REWOUND", status_since=seconds(57), rewound_from=1_000)])
    assert find(rewound, REWOUND, lag_of_all_groups=True) is None


def test_a_group_that_the_settings_ignore_has_no_findings() -> None:
    assert find(follow([owned("STOPPED", 30)]), NO_PROGRESS, settings={"ignore_groups": "pay.*"}) is None


@pytest.mark.parametrize("group_id", ODD.values(), ids=ODD)
def test_any_group_id_may_be_in_a_summary(group_id: str) -> None:
    known = group_lags([owned("STOPPED", 30, group_id=group_id)], {}, {}, seconds(60))
    settings = AlertSettings().rule_settings_of()
    found = evaluate([], None, EvaluationContext(at(60), lag=known), settings)
    assert set(found) == {AlertKey(NO_PROGRESS, group_id)}


def test_a_rebalance_holds_what_follows_from_behaviour_and_time_counts_again_after_it() -> None:
    stopped, held = owned("STOPPED", 30), owned("STOPPED", 30, held_since=seconds(59))
    during = follow([stopped], [held])
    after = follow([stopped], [held], [stopped])
    context = EvaluationContext(at(60), lag=during)
    assert is_held(AlertKey(NO_PROGRESS, GROUP), context)
    assert not is_held(AlertKey(LOST, GROUP), context)
    assert not is_held(AlertKey("StreamsGroupEmpty", GROUP), context)
    assert not is_held(AlertKey(NO_PROGRESS, GROUP), EvaluationContext(at(60), lag=after))
    assert since(after, NO_PROGRESS) == at(60)


def test_while_the_lag_is_not_known_nothing_fires_and_nothing_resolves() -> None:
    settings = AlertSettings().rule_settings_of()
    state = AlertState()
    lag: Mapping[str, GroupLag] | None
    states = []
    stopped = follow([owned("STOPPED", 58)])
    for minute, lag in ((60, stopped), (70, None), (71, stopped), (72, None), (73, {})):
        context = EvaluationContext(at(minute), lag=lag)
        state = advance(
            state,
            evaluate([], None, context, settings),
            cluster="c",
            now=at(minute),
            rule_settings_of=settings,
            notify_policy=NotifyPolicy(),
            caught_up=True,
            is_held=lambda key, context=context: is_held(key, context),
        ).state
        states.append([alert.state for alert in state.open.values()])
    assert states == [["pending"], ["pending"], [FIRING], [FIRING], []]


def test_copies_are_not_known_before_the_first_description() -> None:
    key = AlertKey("StreamsGroupStandbyBehind", GROUP)
    assert is_held(key, EvaluationContext(at(0), copies=None))
    assert not is_held(key, EvaluationContext(at(0)))
    assert not is_held(AlertKey("NoSuchRule", GROUP), EvaluationContext(at(0), copies=None))
