"""The rules about what is observed beside the records of groups: copies of tasks, and lag from one pass to the next."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from streaming_app.alerts.alert import AlertKey, Holds
from streaming_app.alerts.engine_facts import TopicDifference
from streaming_app.groups.task_copies import GroupCopies, TaskCopy, next_status
from streaming_app.health.group_history import STATE, Event, GroupHistory
from streaming_app.lag.model import LagRow
from streaming_app.lag.work import GroupWork
from tests.alerts.engine_rig import Rig, group
from tests.alerts.evaluation import findings_of, truths_of
from tests.alerts.examples import make_alert
from tests.groups.test_task_copies import copy
from tests.support.lag_harness import GROUP, row, work_of

START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
STANDBYS, REWOUND = "StreamsGroupStandbyBehind", "StreamsGroupOffsetsRewound"


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def find(rule: str, group_id: str, **observed: Any) -> Holds | None:
    """Return what a rule finds an hour after the start."""
    found = findings_of([], at(60), **observed)
    assert {key.group_id for key in found} <= {group_id}
    one = found.get(AlertKey(rule, group_id))
    if one:
        assert json.loads(json.dumps(one.evidence)) == one.evidence
        assert "\n" not in one.summary
    return one


# Copies of tasks


def pair(lag: int | None, **values: Any) -> list[TaskCopy]:
    return [copy("a", "active"), copy("b", "standby", lag=lag, **values)]


def follow(*descriptions: Iterable[TaskCopy], standby_replicas: int | None = 1) -> GroupCopies:
    """Return the status after descriptions a minute apart."""
    status: GroupCopies | None = None
    for minute, copies in enumerate(descriptions):
        status = next_status(copies, standby_replicas, status, at(minute))
    assert status is not None
    return status


def find_standbys(status: GroupCopies) -> Holds | None:
    return find(STANDBYS, "g", copies={"g": status})


def since(status: GroupCopies) -> datetime | None:
    found = find_standbys(status)
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


def test_standbys_that_are_behind_are_named_with_their_hosts() -> None:
    status = follow([copy("b", "standby", n, 50_000) for n in range(5)])
    found = find_standbys(status)
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
    found = find_standbys(follow(*descriptions, standby_replicas=standby_replicas))
    assert (found and found.since) == (None if minute is None else at(minute))
    if found:
        tasks = "1 task without a copy in another process: 0_0"
        assert found.summary == f"g has streams.num.standby.replicas 1, but {tasks}"


THREE = [copy(one, "active", number) for number, one in enumerate("abc")]
COPIED = [copy(one, "standby", number, 0) for number, one in enumerate("bca")]


@pytest.mark.parametrize(
    ("standbys", "standby_replicas", "found"),
    [
        (COPIED, 2, ("info", "3 tasks with fewer copies, though other processes could have one: 0_0, 0_1, 0_2")),
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
    finding = find_standbys(follow([*THREE, *standbys], standby_replicas=standby_replicas))
    assert (finding is None) == (found is None)
    if finding and found:
        assert (finding.since, finding.severity) == (at(0), found[0])
        assert found[1] in finding.summary


# Internal topics

MISCONFIGURED = "StreamsGroupInternalTopicMisconfigured"


def differs(name: str, value: str, minute: float = 0, topic: str = "g-store-changelog") -> TopicDifference:
    return TopicDifference(topic, name, value, at(minute))


POLICY = [differs("cleanup.policy", "delete, asked for compact", 3)]
RETENTION = [
    differs("retention.ms", "1, asked for -1", 5),
    differs("retention.ms", "2, asked for -1", 4, "g-b-changelog"),
]
PARTITIONS = [differs("a.config", "1, asked for 2", 5), differs("partitions", "3, asked for 4", 6)]


@pytest.mark.parametrize(
    ("differences", "severity", "minute", "text"),
    [
        (POLICY, None, 3, "1 internal topic, g-store-changelog has cleanup.policy delete, asked for compact"),
        (RETENTION, "info", 4, "2 internal topics, g-b-changelog has retention.ms 2, asked for -1"),
        (PARTITIONS, None, 5, "1 internal topic, g-store-changelog has partitions 3, asked for 4; "),
    ],
    ids=["policy", "retention", "partitions first"],
)
def test_internal_topics_that_are_not_as_the_topology_asks_for_are_a_finding_of_their_group(
    differences: list[TopicDifference], severity: str | None, minute: float, text: str
) -> None:
    truths, _ = truths_of([], at(60), topic_differences={"g": differences})
    finding = truths[AlertKey(MISCONFIGURED, "g")]
    assert isinstance(finding, Holds)
    assert (finding.severity, finding.since) == (severity, at(minute))
    assert finding.summary.replace(" different from the topology:", ",").startswith(f"g: {text}")


def test_while_it_is_not_known_how_internal_topics_are_an_open_alert_stays_as_it_is() -> None:
    key = AlertKey(MISCONFIGURED, "g")
    for known, is_told in ((None, False), ({}, True)):
        truths, _ = truths_of([], at(60), topic_differences=known, open={key: make_alert(group_id="g")})
        assert (key in truths) is is_told


# Lag; what whole applications do is in `tests/histories`

OWNED = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m", "process_id": "p", "client_host": "10.0.0.1"}


def seconds(minutes: float) -> float:
    return at(minutes).timestamp()


def owned(status: str, minutes: float | None = None, **fields: Any) -> LagRow:
    """Return a row of a task that a member has, with this status since so many minutes after the start."""
    since = None if minutes is None else seconds(minutes)
    return row(
        **{
            **OWNED,
            "offset_status": status,
            "offset_status_since": since,
            "lag": 5_432,
            "lag_seconds": 1_200.0,
            **fields,
        }
    )


REWOUND_ROW = owned("REWOUND", 57, rewound_from=1_000, committed_offset=90)


def after(rows: Iterable[LagRow]) -> dict[str, GroupWork]:
    """Return what is known after a pass an hour after the start."""
    return work_of(rows, seconds(60))


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ([], True),
        ([("Stable", 5), ("Empty", 50), ("Assigning", 55), ("Stable", 56)], False),
        ([("Stable", 5), ("Empty", 30), ("Assigning", 35), ("Stable", 36)], True),
        ([("Stable", 5), ("Empty", 30), ("Assigning", 47), ("Stable", 48)], False),
        ([("Stable", 5), ("Empty", 30), ("Assigning", 46), ("Stable", 48)], True),
        ([("Stable", 5), ("Assigning", 10), ("Stable", 11), ("Empty", 30)], False),
    ],
    ids=[
        "has run all the time",
        "was empty just before",
        "was empty long before",
        "has members for ten minutes",
        "has members for eleven minutes",
        "is empty",
    ],
)
def test_offsets_that_go_back_are_found_unless_somebody_reset_them(
    states: list[tuple[str, float]], *, found: bool
) -> None:
    history = GroupHistory(
        [Event(at(minute), int(minute), STATE, old, state) for (old, _), (state, minute) in pairwise(states)]
    )
    known = after([REWOUND_ROW])
    one = find(REWOUND, GROUP, work=known, histories={GROUP: history})
    assert (one is not None) == found
    assert one is None or one.summary == (
        "payments committed lower offsets than before in 1 partition while it had members, at 2026-11-22 09:57:00Z: "
        "orders-0 from 1000"
    )


@pytest.mark.parametrize(
    ("rows", "stays"),
    [
        pytest.param([owned("OK")], False, id="the old offset is reached"),
        pytest.param([owned("UNKNOWN", committed_offset=90)], True, id="the broker of the partition is away"),
    ],
)
def test_an_alert_about_offsets_that_went_back_stays_while_nothing_is_known(rows: list[LagRow], *, stays: bool) -> None:
    rig = Rig()
    rig.cycle(0, group(), work=after([REWOUND_ROW]))
    assert rig.open_rules() == {REWOUND}
    rig.cycle(60, group(), work=after(rows))
    assert rig.open_rules() == ({REWOUND} if stays else set())
