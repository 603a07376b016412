"""The rules about copies of tasks, from one description of a group to the next."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.alerts.alert import AlertKey, Finding
from streaming_app.alerts.evaluate import evaluate
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.copies_status import GroupCopies, next_status
from streaming_app.groups.task_copies import TaskCopy

START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
BEHIND, UNCOPIED, SKEW = "StreamsGroupStandbyBehind", "StreamsGroupTaskWithoutCopy", "StreamsGroupTaskSkew"
WARMUP, TWICE = "StreamsGroupWarmupStays", "StreamsGroupTaskTwice"


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def copy(process: str, role: str, partition: int = 0, lag: int | None = None, **values: Any) -> TaskCopy:
    made = TaskCopy("g", f"m-{process}", process, f"host-{process}", role, "0", partition, stateful=True, lag=lag)
    return made._replace(**values)


def pair(lag: int | None, **values: Any) -> list[TaskCopy]:
    return [copy("a", "active"), copy("b", "standby", lag=lag, **values)]


def follow(*descriptions: Iterable[TaskCopy], standby_replicas: int | None = 1) -> GroupCopies:
    """Return the status after descriptions a minute apart."""
    status: GroupCopies | None = None
    for minute, copies in enumerate(descriptions):
        status = next_status(copies, standby_replicas, status, at(minute))
    assert status is not None
    return status


def find(status: GroupCopies, rule: str, **settings: Any) -> Finding | None:
    rule_settings_of = AlertSettings.model_validate(settings).rule_settings_of()
    context = EvaluationContext(at(60), copies=(status,))
    every = evaluate([], None, context, rule_settings_of)
    assert AlertKey("StreamsGroupSetAside", "g") not in every  # no rule failed
    found = every.get(AlertKey(rule, "g"))
    if found:
        assert json.loads(json.dumps(found.details)) == found.details
        assert "\n" not in found.summary
    return found


def since(status: GroupCopies, rule: str) -> datetime | None:
    found = find(status, rule)
    return found and found.since


@pytest.mark.parametrize(
    ("lags", "minute"),
    [
        ([10_001, 10_001, 20_000], 0),
        ([0, 10_000, 10_001], 2),
        ([90_000, 60_000, 30_000], 2),
        ([90_000, 95_000, 94_000], 0),
        ([90_000, None, None], 0),
        ([90_000, 9_000, 12_000], 2),
        ([90_000, 9_000], None),
        ([None, None], None),
    ],
    ids=["grows", "begins", "catches up", "does not", "not reported", "again", "caught up", "never reported"],
)
def test_a_standby_is_behind_since_it_last_came_nearer(lags: list[int | None], minute: int | None) -> None:
    found = since(follow(*map(pair, lags)), BEHIND)
    assert found == (None if minute is None else at(minute))


def test_the_group_s_acceptable_lag_counts_and_warm_ups_do_not() -> None:
    assert find(follow(pair(60, acceptable_lag=50)), BEHIND)
    assert not find(follow(pair(60_000, acceptable_lag=70_000)), BEHIND)
    assert not find(follow([copy("a", "active"), copy("b", "warmup", lag=60_000)]), BEHIND)
    assert not find(follow(pair(60_000)[:1], pair(60_000)[:1]), BEHIND)


def test_standbys_that_are_behind_are_named_with_their_hosts() -> None:
    status = follow([copy("b", "standby", n, 50_000) for n in range(5)])
    found = find(status, BEHIND)
    assert found
    assert found.summary == (
        "g: 5 standbys not caught up since 2026-11-22 09:00:00 UTC: 0_0 at host-b, process b; "
        "0_1 at host-b, process b; 0_2 at host-b, process b; and 2 more"
    )
    assert [one["task"] for one in found.details["standbys"]] == ["0_0", "0_1", "0_2", "0_3", "0_4"]
    named = {"task": "0_0", "member_id": "m-b", "host": "host-b", "process_id": "b", "least_lag": 50_000}
    assert (found.details["standbys"][0], found.details["acceptable_lag"]) == (named, 10_000)


def test_a_copy_whose_client_is_not_known_is_named_without_it() -> None:
    found = find(follow(pair(50_000, client_host=None, process_id=None)), BEHIND)
    assert found
    assert "0_0 at unknown host" in found.summary
    (one,) = found.details["standbys"]
    assert (one["host"], one["process_id"]) == ("", "")


ALONE = [copy("a", "active"), copy("b", "active", 1), copy("a", "standby", 1, 0)]


@pytest.mark.parametrize(
    ("descriptions", "standby_replicas", "minute"),
    [
        ([ALONE, ALONE], 1, 0),
        ([pair(0), ALONE], 1, 1),
        ([ALONE, [*ALONE, copy("b", "standby", 0, 0)]], 1, None),
        ([ALONE], 0, None),
        ([ALONE], None, None),
        ([[copy("a", "active"), copy("a", "active", 1, member_id="m2")]], 1, None),
        ([[one._replace(stateful=False) for one in ALONE]], 1, None),
    ],
    ids=["alone", "lost", "copied", "none wanted", "not known", "one process", "stateless"],
)
def test_a_stateful_task_without_a_copy_in_another_process_is_found_if_the_group_wants_one(
    descriptions: list[list[TaskCopy]], standby_replicas: int | None, minute: int | None
) -> None:
    found = find(follow(*descriptions, standby_replicas=standby_replicas), UNCOPIED)
    assert (found and found.since) == (None if minute is None else at(minute))
    if found:
        tasks = "1 task without a copy in another process: 0_0"
        assert found.summary == f"g has streams.num.standby.replicas 1, but {tasks}"


THREE = [copy(one, "active", number) for number, one in enumerate("abc")]
COPIED = [copy(one, "standby", number, 0) for number, one in enumerate("bca")]


@pytest.mark.parametrize(
    ("standbys", "standby_replicas", "found"),
    [
        (COPIED, 2, ("info", "3 tasks with fewer, though there are processes for them: 0_0, 0_1, 0_2")),
        ([*COPIED, copy("c", "standby", 0, 0)], 2, ("info", "2 tasks with fewer")),
        (COPIED[1:], 2, (None, "1 task without a copy in another process: 0_0")),
        (COPIED, 1, None),
        ([*COPIED, *(copy(one, "standby", number, 0) for number, one in enumerate("cab"))], 3, None),
    ],
    ids=["one of two", "of one task both", "none", "as many as asked for", "more than processes"],
)
def test_fewer_standbys_than_are_asked_for_while_there_are_processes_for_them_is_an_info(
    standbys: list[TaskCopy], standby_replicas: int, found: tuple[str | None, str] | None
) -> None:
    finding = find(follow([*THREE, *standbys], standby_replicas=standby_replicas), UNCOPIED)
    assert (finding is None) == (found is None)
    if finding and found:
        assert (finding.since, finding.severity) == (at(0), found[0])
        assert found[1] in finding.summary


def warmup(lag: int | None) -> list[TaskCopy]:
    return [copy("a", "active"), copy("b", "warmup", lag=lag)]


@pytest.mark.parametrize(
    ("lags", "minute"),
    [
        ([90_000, 60_000, 30_000], 2),
        ([90_000, 90_000, 95_000], 0),
        ([90_000, 9_000, 5_000, 9_500], 1),
        ([90_000, 9_000, 12_000, 11_000], 1),
        ([90_000, 9_000, None], 1),
        ([None, None], None),
    ],
    ids=["comes nearer", "does not", "near enough", "was near enough", "no report", "never reported"],
)
def test_a_warm_up_stays_since_it_last_came_nearer_or_was_near_enough(
    lags: list[int | None], minute: int | None
) -> None:
    status = follow(*map(warmup, lags))
    assert since(status, WARMUP) == (None if minute is None else at(minute))
    assert find(follow(*map(warmup, lags), pair(0)), WARMUP) is None


def test_a_task_that_is_active_at_two_members_or_twice_in_a_process_is_found_since_it_was_seen() -> None:
    assert find(follow(THREE, [*THREE, *COPIED]), TWICE) is None
    active = follow(THREE, [*THREE, copy("b", "active", 0)], [*THREE, copy("b", "restoring", 0, 5)])
    found = find(active, TWICE)
    assert found
    assert found.since == at(1)
    assert found.summary == (
        "g: 1 task in two places at once: 0_0 active at host-a, member m-a and restoring at host-b, member m-b"
    )
    beside = [*THREE, copy("a", "standby", 0, 0, member_id="m-a2")]
    assert since(follow(beside, beside), TWICE) == at(0)
    assert find(follow([*THREE, copy("a", "dormant", 0, member_id="m-a2")]), TWICE) is None
    assert find(follow(beside, THREE), TWICE) is None


def spread(**tasks: int) -> list[TaskCopy]:
    """So many active tasks of each process; `a2` is another member of process `a`."""
    return [
        copy(name[0], "active", n * 100 + ord(name[-1]), member_id=name, stateful=False)
        for name, number in tasks.items()
        for n in range(number)
    ] + [copy(name[0], "standby", 9_999, member_id=name, stateful=False) for name in tasks]


@pytest.mark.parametrize(
    ("tasks", "is_found"),
    [
        ({"a": 12, "b": 2, "c": 2}, True),
        ({"a": 6, "b": 6, "c": 6}, False),
        ({"a": 2, "b": 0, "c": 0}, False),
        ({"a": 3, "b": 0, "c": 0}, False),
        ({"a": 6, "b": 0}, True),
        ({"a": 3, "a2": 3, "b": 0, "c": 0, "d": 0}, True),
        ({"a": 8, "a2": 8, "b": 8}, False),
        ({"a": 12, "a2": 12, "b": 0, "c": 0, "d": 0}, True),
        ({"a": 9}, False),
        ({"a": 0, "b": 0}, False),
    ],
    ids=[
        "skewed",
        "even",
        "few",
        "2 too many",
        "3 too many, which is twice as many",
        "2 too many for each of two members",
        "more threads",
        "two threads",
        "alone",
        "no tasks",
    ],
)
def test_tasks_are_compared_by_member_and_process(tasks: dict[str, int], is_found: bool) -> None:
    found = find(follow(spread(**tasks), spread(**tasks)), SKEW)
    assert bool(found) is is_found
    if found:
        assert found.since == at(0)
        assert "active tasks are on host-a, process a" in found.summary


def test_of_a_skew_the_process_with_most_tasks_and_the_one_with_fewest_are_named() -> None:
    tasks = spread(a=12, b=3, c=1)
    found = find(follow(tasks, tasks), SKEW)
    assert found
    assert "12 of 16 active tasks are on host-a, process a, and 1 on host-c, process c" in found.summary
    assert [(one["process_id"], one["host"], one["active_tasks"]) for one in found.details["processes"]] == [
        ("a", "host-a", 12),
        ("b", "host-b", 3),
        ("c", "host-c", 1),
    ]
    unknown = [one._replace(client_host=None) for one in tasks]
    found = find(follow(unknown, unknown), SKEW)
    assert found
    assert "on unknown host, process a, and 1 on unknown host, process c" in found.summary
    assert {one["host"] for one in found.details["processes"]} == {""}


def test_skew_is_timed_from_the_last_assignment_and_can_be_set_by_group() -> None:
    status = follow(spread(a=6, b=6), spread(a=12, b=2, c=2))
    assert since(status, SKEW) == at(1)
    override = {"groups": "g", "rules": {SKEW: {"ratio": 4}}}
    assert find(status, SKEW, overrides=[override]) is None


def test_a_group_without_tasks_has_no_findings() -> None:
    for status in (follow([], []), follow(pair(50_000), [])):
        assert [rule for rule in (BEHIND, UNCOPIED, SKEW) if find(status, rule)] == []


def restore(lag: int | None, process: str = "a") -> list[TaskCopy]:
    return [copy(process, "restoring" if lag else "active", lag=lag)]


def test_a_restore_ends_by_its_own_pace_and_begins_again_at_another_member() -> None:
    (found,) = follow(restore(900), restore(600), restore(600)).restoring.values()
    assert (found.since, found.first_lag, found.lag, found.fell_at, found.ends_at) == (at(0), 900, 600, at(1), at(3))
    (again,) = follow(restore(900), restore(600), restore(900, "b")).restoring.values()
    assert (again.since, again.first_lag, again.ends_at) == (at(2), 900, None)
    assert follow(restore(900), restore(None)).restoring == {}
