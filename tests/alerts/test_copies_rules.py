"""The rules about copies of tasks, from one description of a group to the next."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.alerts.problem import Finding, ProblemKey
from streaming_app.groups.copies_status import GroupCopies, next_status
from streaming_app.groups.task_copies import TaskCopy
from tests.alerts.evaluation import findings_of

START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
RULE = "StreamsGroupStandbyBehind"


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


def find(status: GroupCopies) -> Finding | None:
    found = findings_of([], at(60), copies=(status,)).get(ProblemKey(RULE, "g"))
    if found:
        assert json.loads(json.dumps(found.evidence)) == found.evidence
        assert "\n" not in found.summary
    return found


def since(status: GroupCopies) -> datetime | None:
    found = find(status)
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
    ],
    ids=["grows", "begins", "catches up", "does not", "not reported", "again", "caught up"],
)
def test_a_standby_is_behind_since_it_last_came_nearer(lags: list[int | None], minute: int | None) -> None:
    found = since(follow(*map(pair, lags)))
    assert found == (None if minute is None else at(minute))


def test_the_group_s_acceptable_lag_counts_and_warm_ups_do_not() -> None:
    assert find(follow(pair(60, acceptable_lag=50)))
    assert not find(follow(pair(60_000, acceptable_lag=70_000)))
    assert not find(follow([copy("a", "active"), copy("b", "warmup", lag=60_000)]))
    assert not find(follow(pair(60_000)[:1], pair(60_000)[:1]))


def test_standbys_that_are_behind_are_named_with_their_hosts() -> None:
    status = follow([copy("b", "standby", n, 50_000) for n in range(5)])
    found = find(status)
    assert found
    assert found.summary == (
        "g: 5 standbys not caught up since 2026-11-22 09:00:00Z: 0_0 at host-b, process b; "
        "0_1 at host-b, process b; 0_2 at host-b, process b; and 2 more"
    )
    assert [one["task"] for one in found.evidence["standbys"]] == ["0_0", "0_1", "0_2", "0_3", "0_4"]
    named = {"task": "0_0", "member_id": "m-b", "host": "host-b", "process_id": "b", "least_lag": 50_000}
    assert (found.evidence["standbys"][0], found.evidence["acceptable_lag"]) == (named, 10_000)


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
    found = find(follow(*descriptions, standby_replicas=standby_replicas))
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
    finding = find(follow([*THREE, *standbys], standby_replicas=standby_replicas))
    assert (finding is None) == (found is None)
    if finding and found:
        assert (finding.since, finding.severity) == (at(0), found[0])
        assert found[1] in finding.summary
