"""Each rule finds its condition and nothing in a healthy group; and all rules together in one evaluation."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from streaming_app.alerts.alert import OVER, AlertKey, Holds
from streaming_app.alerts.catalog import GROUP_ID, HEALTH_RULES, rules
from streaming_app.alerts.group_conditions import CONDITIONS
from streaming_app.alerts.job_conditions import JOB_CONDITIONS
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.job_status import DiskSpace, JobStatus, SinkStatus, StreamStatus, UnknownType
from tests.alerts.evaluation import findings_of, rule_settings_of, truths_of
from tests.alerts.examples import check_text, make_alert
from tests.support.health_harness import LONG_AGO, NOW, ago
from tests.support.healthy_group import healthy_group

HEALTHY = healthy_group(LONG_AGO)
GROUP = HEALTHY.group_id
RUNNING = JobStatus(started_at=LONG_AGO, caught_up=True, last_success_at=NOW)


def find(
    *groups: GroupSnapshot, now: datetime = NOW, since: datetime | None = LONG_AGO, **facts: Any
) -> dict[str, Holds]:
    found = findings_of(groups, now, descriptions_since=since, **facts)
    return {key.subject: finding for key, finding in found.items()}


NEVER_STORED = {"description_status": "NEVER_STORED", "stored_description_epoch": -1}


# rule -> (what differs from a healthy group, since when the condition holds, words of the summary)
WRONG: dict[str, list[tuple[dict[str, Any], datetime, str]]] = {
    "StreamsGroupSetAside": [
        (
            {"set_aside_reason": "TypeError: why", "set_aside_at": ago(minutes=3)},
            ago(minutes=3),
            "is set aside, and its row stays as it was: TypeError: why",
        )
    ],
    "StreamsGroupMembersStale": [
        (
            {"topology_epoch": 2, "stale_member_count": 1, "stale_members_since": ago(hours=2)},
            ago(hours=2),
            "1 member of 3 with a topology older than the group's, epoch 2: they get no tasks",
        )
    ],
    "StreamsGroupUnsolicitedDescription": [
        (
            {"unsolicited_pushes": 2, "last_unsolicited_push_at": ago(minutes=59)},
            ago(minutes=59),
            "that the broker did not ask for; 2 descriptions in total",
        )
    ],
    "StreamsGroupDescriptionFailed": [
        (
            {"description_status": "FAILED", "failed_description_epoch": 0, "description_since": ago(hours=2)},
            ago(hours=2),
            "rejected the topology description of epoch 0",
        ),
        (
            {
                "description_status": "UNCERTAIN",
                "stored_description_epoch": -2,
                "solicitable": True,
                "description_since": ago(hours=1),
            },
            ago(hours=1),
            "does not complete",
        ),
    ],
    "StreamsGroupDescriptionMissing": [
        ({**NEVER_STORED, "updated_at": ago(hours=1)}, ago(hours=1), "every member is offline"),
        (
            {**NEVER_STORED, "solicitable": True, "description_since": ago(hours=2)},
            ago(hours=2),
            "of epoch 0 arrives; the broker has none",
        ),
        (
            {"description_status": "STALE", "topology_epoch": 1, "solicitable": True, "members_since": ago(hours=1)},
            ago(hours=1),
            "of epoch 1 arrives; the broker has only the one of epoch 0",
        ),
    ],
}
CASES = [pytest.param(rule, *case, id=f"{rule}-{n}") for rule, cases in WRONG.items() for n, case in enumerate(cases)]

WRONG_JOB: dict[str, list[tuple[dict[str, Any], datetime, str]]] = {
    "StreamsGroupsJobStopped": [
        ({"brokers_away_since": ago(minutes=3)}, ago(minutes=3), "no broker responds"),
        ({"failing_since": ago(minutes=4), "failure": "disk full"}, ago(minutes=4), "its stream fails: disk full"),
        ({"last_success_at": ago(minutes=11)}, ago(minutes=1), "no batch has completed since 2026-11-21 03:01:00Z"),
        ({"started_at": ago(minutes=30), "last_success_at": None}, ago(minutes=20), "since the start at"),
        (
            {"offsets": StreamStatus(last_success_at=NOW, failing_since=ago(minutes=30), failure="disk full")},
            ago(minutes=30),
            "its stream fails: disk full",
        ),
        ({"offsets": StreamStatus(last_success_at=ago(minutes=25))}, ago(minutes=15), "has completed no batch"),
        (
            {"lag_failing_since": ago(minutes=11), "lag_failure": "no broker answered"},
            ago(minutes=11),
            "the ends of the logs are not known: no broker answered",
        ),
    ],
    "StreamsGroupsJobBehind": [
        ({"behind": 54_321, "behind_since": ago(minutes=6)}, ago(minutes=6), "by at least 50,000 offsets")
    ],
    "StreamsGroupsUndecodableRecords": [
        ({"quarantined": 1, "quarantined_at": ago(hours=23)}, ago(hours=23), "1 record could not be decoded"),
        (
            {"truncated_at": ago(hours=2), "truncated": "partition 3 of __consumer_offsets, offsets 120 to 179"},
            ago(hours=2),
            "partition 3 of __consumer_offsets, offsets 120 to 179",
        ),
        (
            {"unknown_types": {24: UnknownType(9_000, ago(hours=3), NOW), 25: UnknownType(9, ago(hours=30), NOW)}},
            ago(hours=3),
            "Records of type 24 are of a newer Kafka",
        ),
    ],
    "StreamsGroupsNotificationsFailing": [
        (
            {"failing_sinks": [SinkStatus(name, 0, 9, 1, ago(minutes=9), "refused") for name in ("pager", "chat")]},
            ago(minutes=9),
            "cannot be sent to pager, chat: refused",
        )
    ],
    "StreamsGroupsDiskAlmostFull": [
        (
            {"disks": [DiskSpace("/data", 900 << 20, 20 << 30, ago(hours=1)), DiskSpace("/b", 9 << 30, 20 << 30)]},
            ago(hours=1),
            "of /data is",
        )
    ],
}
JOB_CASES = [
    pytest.param(rule, *case, id=f"{rule}-{n}") for rule, cases in WRONG_JOB.items() for n, case in enumerate(cases)
]
DIFFERENCES = [wrong for cases in WRONG.values() for wrong, _, _ in cases]
OTHERS = {
    "StreamsGroupStandbyBehind",
    "StreamsGroupOffsetsRewound",
    "StreamsGroupInternalTopicMisconfigured",
    *HEALTH_RULES,
}
"""Rules about groups with cases in other tests."""


def test_every_rule_has_a_case() -> None:
    assert {*WRONG, *WRONG_JOB, *OTHERS} == {*rules()}
    assert ({*WRONG, *OTHERS}, WRONG_JOB.keys()) == ({*CONDITIONS, *HEALTH_RULES}, JOB_CONDITIONS.keys())


@pytest.mark.parametrize("hours", [23, 25])
def test_what_happened_more_than_a_day_ago_is_no_finding(hours: float) -> None:
    then = ago(hours=hours)
    job = replace(RUNNING, quarantined=1, quarantined_at=then, truncated_at=then)
    assert len(find(job=job)) == (hours < 24)


def test_a_healthy_group_and_a_running_job_have_no_findings() -> None:
    assert find(HEALTHY, job=RUNNING) == {}


def test_that_the_job_is_not_behind_is_not_known_before_it_has_caught_up() -> None:
    truths = [truths_of([], NOW, job=replace(RUNNING, caught_up=one))[0] for one in (True, False)]
    assert [one.get(AlertKey("StreamsGroupsJobBehind", None)) for one in truths] == [OVER, None]


@pytest.mark.parametrize(("rule", "wrong", "since", "words"), [*CASES, *JOB_CASES])
def test_a_rule_finds_its_condition_with_its_time_and_the_reason(
    rule: str, wrong: dict[str, Any], since: datetime, words: str
) -> None:
    """It says the same while nothing happens, and the two lines of its alert say what is wrong and the next step."""
    of_group = rule in WRONG

    def found(now: datetime) -> Holds:
        facts = find(replace(HEALTHY, **wrong), now=now) if of_group else find(job=replace(RUNNING, **wrong), now=now)
        return facts[rule]

    finding, later = found(NOW), found(NOW + timedelta(seconds=5))
    assert finding.since == since
    assert words in finding.summary
    assert "\n" not in finding.summary
    assert (finding.summary, finding.evidence) == (later.summary, later.evidence)
    assert json.loads(json.dumps(finding.evidence)) == finding.evidence
    assert None not in finding.evidence.values()
    group_id = GROUP if of_group else None
    check_text(make_alert(rule=rule, group_id=group_id, summary=finding.summary, since=since))


@pytest.mark.parametrize("deleted", [{"state": "Dead"}, {"group_type": "classic"}], ids=["Dead", "classic"])
def test_groups_that_were_deleted_or_replaced_have_no_findings(deleted: dict[str, Any]) -> None:
    for wrong in DIFFERENCES:
        assert find(replace(HEALTHY, **{**wrong, **deleted})) == {}


@pytest.mark.parametrize(
    ("wrong", "evidence"),
    [
        ({"brokers_away_since": ago(minutes=10)}, {"causes": ["brokers_away"]}),
        ({"failing_since": ago(minutes=10), "failure": "no"}, {"causes": ["failing"], "failure": "no"}),
    ],
)
def test_what_stops_the_whole_job_is_one_alert(wrong: dict[str, Any], evidence: dict[str, Any]) -> None:
    failing = StreamStatus(last_success_at=NOW, failing_since=ago(minutes=30), failure="disk full")
    job = replace(RUNNING, offsets=failing, lag_failing_since=ago(minutes=9), **wrong)
    (one,) = find(job=job).items()
    assert (one[0], one[1].evidence) == ("StreamsGroupsJobStopped", evidence)


MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("size", "least"),
    [(20 * GIB, 1 * GIB), (1024 * GIB, 10 * GIB), (1 * GIB, 256 * MIB)],
    ids=["5 percent", "10 GiB of a large one", "256 MiB of a small one"],
)
def test_a_disk_is_almost_full_below_a_part_of_it_but_not_while_ten_gibibytes_are_free(size: int, least: int) -> None:
    full = [bool(find(job=replace(RUNNING, disks=[DiskSpace("/d", free, size)]))) for free in (least, least - 1)]
    assert full == [False, True]


def test_without_a_plugin_no_description_is_missing() -> None:
    wrong = [case for rule in WRONG if "Missing" in rule for case in WRONG[rule]]
    assert len(wrong) > 2
    found = {name for difference, _, _ in wrong for name in find(replace(HEALTHY, **difference), since=None)}
    assert found == set()


def test_for_an_old_group_a_new_plugin_counts_from_its_configuration() -> None:
    group = replace(HEALTHY, **NEVER_STORED, solicitable=True)
    assert find(group, since=ago(minutes=1))["StreamsGroupDescriptionMissing"].since == ago(minutes=1)


def test_exactly_one_rule_fires_for_a_description_that_is_not_stored() -> None:
    for status in ("NEVER_STORED", "STALE", "UNCERTAIN"):
        for solicitable in (True, False):
            group = replace(HEALTHY, description_status=status, solicitable=solicitable)
            assert len(find(group)) == 1, (status, solicitable)


def test_a_disabled_rule_and_an_ignored_group_have_no_findings() -> None:
    wrong = [replace(HEALTHY, description_status="FAILED", group_id=name) for name in ("a", "b", "c")]
    enabled = {
        "a": rule_settings_of(None),
        "b": {"StreamsGroupDown": rule_settings_of(None)["StreamsGroupDown"]},
        "c": {},
        None: {},
    }
    job, settings_of = replace(RUNNING, failing_since=NOW), enabled.__getitem__
    assert list(findings_of(wrong, NOW, job=job, settings_of=settings_of)) == [
        AlertKey("StreamsGroupDescriptionFailed", "a")
    ]


def test_a_quote_in_a_group_id_is_escaped_in_the_queries() -> None:
    queries = rules()["StreamsGroupDown"].queries_for("o'hara").values()
    assert ["group_id = 'o''hara'" in sql and GROUP_ID not in sql for sql in queries] == [True] * len(queries) != []
