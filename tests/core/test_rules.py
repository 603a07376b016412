"""Each rule fires on what it is about and is silent on a healthy group; and all of them together, in one look."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.core.alert import AlertKey, Finding
from streaming_app.core.facts import GroupFacts, JobFacts
from streaming_app.core.rule import GROUP_ID, Look, Terms
from streaming_app.core.rules import OF_GROUPS, OF_JOB, RULES, descriptions_since, evaluate
from tests.core.healthy import healthy

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
LONG_AGO = NOW - timedelta(days=30)
LOOK = Look(NOW, descriptions_since=LONG_AGO)
HEALTHY = healthy(LONG_AGO)
RUNNING = JobFacts(started_at=LONG_AGO, caught_up=True, last_success_at=NOW)


def ago(**duration: float) -> datetime:
    return NOW - timedelta(**duration)


def terms_of(_group_id: str | None) -> dict[str, Terms]:
    return {name: rule.terms for name, rule in RULES.items()}


def found(group: GroupFacts, look: Look = LOOK) -> dict[str, Finding]:
    return {key.rule: finding for key, finding in evaluate([group], None, look, terms_of).items()}


def found_of_job(job: JobFacts, look: Look = LOOK) -> dict[str, Finding]:
    return {key.rule: finding for key, finding in evaluate([], job, look, terms_of).items()}


NEVER_STORED = {"description_status": "NEVER_STORED", "stored_description_epoch": -1}
EMPTY = {"state": "Empty", "member_count": 0}
MEMBER = "10.1.2.3 worker-2 (m2)"
WAITER = "10.1.2.4 worker-3 (m3)"

# rule -> (what differs from a healthy group, since when it is wrong, words of the summary)
WRONG: dict[str, list[tuple[dict[str, Any], datetime, str]]] = {
    "StreamsGroupNotReady": [
        (
            {"state": "NotReady", "state_since": ago(minutes=6), "not_ready_reason": "Source topics a are missing."},
            ago(minutes=6),
            "payments is NotReady and processes nothing: Source topics a are missing.",
        ),
        ({"state": "NotReady", "state_since": None, "updated_at": ago(minutes=1)}, ago(minutes=1), "does not tell why"),
        ({"state": "NotReady", "state_since": None, "updated_at": None, "first_seen_at": None}, NOW, "NotReady"),
    ],
    "StreamsGroupRebalanceStuck": [
        (
            {
                "state": "Reconciling",
                "state_since": ago(hours=1),
                "assigned_at": ago(minutes=20),
                "rebalance_timeout_ms": 600_000,
                "not_revoking": (MEMBER,),
                "awaiting": (WAITER,),
            },
            ago(minutes=10),
            f"does not give up its tasks: {MEMBER}",
        ),
        (
            {"state": "Reconciling", "state_since": ago(minutes=5), "awaiting": (WAITER,) * 5},
            NOW,
            f"waits for tasks that others hold: {WAITER}, {WAITER}, {WAITER} and 2 more",
        ),
        (
            {"state": "Assigning", "state_since": ago(minutes=7), "group_epoch": 8},
            ago(minutes=2),
            "group epoch 8 has no assignment yet; the newest is of 7",
        ),
    ],
    "StreamsGroupEmpty": [({**EMPTY, "state_since": ago(minutes=16)}, ago(minutes=16), "has no members any more")],
    "StreamsGroupUnsolicitedDescription": [
        (
            {"unsolicited_pushes": 2, "last_unsolicited_push_at": ago(minutes=59)},
            ago(minutes=59),
            "unasked; 2 descriptions in all",
        )
    ],
    "StreamsGroupDescriptionNotSolicited": [
        (
            {"description_status": "FAILED", "failed_description_epoch": 0, "description_since": ago(hours=2)},
            ago(hours=2),
            "failed for good, so it is not asked for again",
        ),
        (
            {**NEVER_STORED, "topology_epoch": 3, "stale_member_count": 3, "updated_at": ago(hours=1)},
            ago(hours=1),
            "every member runs a topology older than epoch 3",
        ),
        ({**NEVER_STORED, "updated_at": ago(hours=1)}, ago(hours=1), "every member is away"),
        (
            {**NEVER_STORED, "stale_member_count": 2, "updated_at": ago(hours=1)},
            ago(hours=1),
            "2 of 3 members run a topology older than epoch 0, and the others are away",
        ),
    ],
    "StreamsGroupDescriptionFailed": [
        (
            {"description_status": "FAILED", "failed_description_epoch": 0, "description_since": ago(hours=2)},
            ago(hours=2),
            "rejected the topology description of epoch 0",
        )
    ],
    "StreamsGroupDescriptionMissing": [
        (
            {**NEVER_STORED, "solicitable": True, "description_since": ago(hours=2)},
            ago(hours=2),
            "of epoch 0 arrives; the broker has none",
        ),
        (
            {"description_status": "STALE", "topology_epoch": 1, "solicitable": True, "members_since": ago(hours=1)},
            ago(hours=1),
            "of epoch 1 arrives; the broker has only that of epoch 0",
        ),
    ],
    "StreamsGroupDescriptionUncertain": [
        (
            {
                "description_status": "UNCERTAIN",
                "stored_description_epoch": -2,
                "solicitable": True,
                "description_since": ago(hours=1),
            },
            ago(hours=1),
            "never ends",
        )
    ],
    "StreamsGroupDescriptionNotCleanedUp": [
        ({**EMPTY, "state_since": ago(days=9)}, ago(days=9), "its topology description is still stored"),
        (
            {**EMPTY, "state_since": ago(days=9), "stored_description_epoch": -2, "description_status": "UNCERTAIN"},
            ago(days=9),
            "still stored",
        ),
    ],
}
CASES = [pytest.param(rule, *case, id=f"{rule}-{n}") for rule, cases in WRONG.items() for n, case in enumerate(cases)]

WRONG_JOB: dict[str, list[tuple[dict[str, Any], datetime, str]]] = {
    "StreamsGroupsJobStopped": [
        ({"brokers_away_since": ago(minutes=3)}, ago(minutes=3), "no broker answers"),
        ({"failing_since": ago(minutes=4), "failure": "disk full"}, ago(minutes=4), "its stream fails: disk full"),
        ({"last_success_at": ago(minutes=11)}, ago(minutes=1), "no batch has ended well since 2026-11-21 03:01:00 UTC"),
        ({"started_at": ago(minutes=30), "last_success_at": None}, ago(minutes=20), "since the start at"),
        (
            {"brokers_away_since": ago(minutes=3), "failing_since": ago(minutes=2), "failure": "time-out"},
            ago(minutes=3),
            "no broker answers; its stream fails: time-out",
        ),
    ],
    "StreamsGroupsJobBehind": [
        ({"behind": 54_321, "behind_since": ago(minutes=6)}, ago(minutes=6), "by at least 50,000 offsets")
    ],
    "StreamsGroupsUndecodableRecords": [
        ({"quarantined": 1, "quarantined_at": ago(hours=23)}, ago(hours=23), "1 record could not be decoded")
    ],
    "StreamsGroupsSchemaDrift": [({"drifted": 12, "drifted_at": ago(hours=1)}, ago(hours=1), "into 12 records")],
}
JOB_CASES = [
    pytest.param(rule, *case, id=f"{rule}-{n}") for rule, cases in WRONG_JOB.items() for n, case in enumerate(cases)
]
DIFFERENCES = [(rule, wrong) for rule, cases in WRONG.items() for wrong, _, _ in cases]
JOB_DIFFERENCES = [(rule, wrong) for rule, cases in WRONG_JOB.items() for wrong, _, _ in cases]


def test_every_rule_is_tried_here() -> None:
    assert {*WRONG, *WRONG_JOB, "StreamsGroupRebalanceStorm"} == {*RULES}
    assert len(RULES) == len(OF_GROUPS) + len(OF_JOB)


def test_a_healthy_group_and_a_running_job_raise_nothing() -> None:
    assert evaluate([HEALTHY], RUNNING, LOOK, terms_of) == {}


@pytest.mark.parametrize(("rule", "wrong", "since", "words"), CASES)
def test_a_group_that_is_wrong_is_found_with_its_time_and_the_reason(
    rule: str, wrong: dict[str, Any], since: datetime, words: str
) -> None:
    finding = found(replace(HEALTHY, **wrong))[rule]
    assert finding.since == since
    assert words in finding.summary
    assert "\n" not in finding.summary


@pytest.mark.parametrize(("rule", "wrong", "since", "words"), JOB_CASES)
def test_a_job_that_is_wrong_is_found_with_its_time_and_the_reason(
    rule: str, wrong: dict[str, Any], since: datetime, words: str
) -> None:
    finding = found_of_job(replace(RUNNING, **wrong))[rule]
    assert finding.since == since
    assert words in finding.summary


@pytest.mark.parametrize(("rule", "wrong"), DIFFERENCES)
def test_findings_stay_the_same_while_nothing_happens_and_survive_json(rule: str, wrong: dict[str, Any]) -> None:
    group = replace(HEALTHY, **wrong)
    first, next_look = found(group)[rule], found(group, replace(LOOK, now=NOW + timedelta(seconds=5)))[rule]
    assert (first.summary, first.details) == (next_look.summary, next_look.details)
    assert json.loads(json.dumps(first.details)) == first.details
    assert None not in first.details.values()


@pytest.mark.parametrize(("rule", "wrong"), JOB_DIFFERENCES)
def test_findings_about_the_job_stay_the_same_too(rule: str, wrong: dict[str, Any]) -> None:
    job = replace(RUNNING, **wrong)
    first, next_look = found_of_job(job)[rule], found_of_job(job, replace(LOOK, now=NOW + timedelta(seconds=5)))[rule]
    assert first == next_look
    assert json.loads(json.dumps(first.details)) == first.details


@pytest.mark.parametrize(
    "gone", [{"state": "Dead", "deleted_at": NOW}, {"group_type": "classic"}], ids=["Dead", "classic"]
)
def test_groups_that_are_gone_raise_nothing(gone: dict[str, Any]) -> None:
    for _, wrong in DIFFERENCES:
        assert found(replace(HEALTHY, **{**wrong, **gone})) == {}


@pytest.mark.parametrize(
    "well",
    [
        {"state": "Reconciling", "state_since": ago(hours=1), "assigned_at": ago(minutes=4)},
        {"state": "Assigning", "state_since": ago(minutes=20), "rebalance_timeout_ms": 1_260_000},
        {**EMPTY, "stored_description_epoch": -1, "description_status": "NEVER_STORED"},
        {**EMPTY, "state_since": None, "stored_description_epoch": -1, "description_status": "NEVER_STORED"},
        {"unsolicited_pushes": 2, "last_unsolicited_push_at": ago(hours=1)},
        {"state": "Unknown", "topology_epoch": None, "description_status": "NO_TOPOLOGY"},
    ],
    ids=["assigned anew", "long timeout", "never had a member", "no times", "pushed long ago", "a 4.1 broker's"],
)
def test_what_looks_much_like_it_raises_nothing(well: dict[str, Any]) -> None:
    assert found(replace(HEALTHY, **well)) == {}


def test_a_storm_is_as_many_assignments_as_the_threshold_says_within_the_window() -> None:
    def look(seconds: list[int]) -> Look:
        return replace(LOOK, rebalances={"payments": [ago(seconds=second) for second in sorted(seconds, reverse=True)]})

    assert found(HEALTHY, look([*range(9), 600, 601])) == {}
    finding = found(HEALTHY, look([*range(10), 600, 601]))["StreamsGroupRebalanceStorm"]
    assert finding.summary == "payments was assigned anew 10 times in 10 minutes"
    assert finding.since == ago(seconds=9)
    assert found(replace(HEALTHY, group_id="another"), look([*range(10)])) == {}


def test_without_a_plugin_nothing_is_missing() -> None:
    wrong = [
        case for rule in RULES if "Missing" in rule or "Uncertain" in rule or "NotSol" in rule for case in WRONG[rule]
    ]
    without = replace(LOOK, descriptions_since=None)
    assert len(wrong) > 5
    assert {name for difference, _, _ in wrong for name in found(replace(HEALTHY, **difference), without)} == {
        "StreamsGroupDescriptionFailed"
    }


def test_a_plugin_configured_just_now_makes_no_old_group_late() -> None:
    group = replace(HEALTHY, **NEVER_STORED, solicitable=True)
    just_now = replace(LOOK, descriptions_since=ago(minutes=1))
    assert found(group, just_now)["StreamsGroupDescriptionMissing"].since == ago(minutes=1)


def test_groups_show_that_the_cluster_keeps_descriptions() -> None:
    without = replace(HEALTHY, **NEVER_STORED)
    assert descriptions_since([without]) is None
    assert descriptions_since([without, replace(HEALTHY, description_since=ago(days=1)), HEALTHY]) == LONG_AGO
    failed = replace(without, failed_description_epoch=0, description_since=ago(days=2), state="Dead")
    pushed = replace(without, unsolicited_pushes=1, description_since=None, first_seen_at=None)
    assert descriptions_since([failed]) == ago(days=2)
    assert descriptions_since([replace(without, stored_description_epoch=-2)]) == LONG_AGO
    assert descriptions_since([pushed]) == datetime(1970, 1, 1, tzinfo=timezone.utc)


def test_of_a_description_that_is_not_stored_one_rule_speaks() -> None:
    for status in ("NEVER_STORED", "STALE", "UNCERTAIN"):
        for solicitable in (True, False):
            group = replace(HEALTHY, description_status=status, solicitable=solicitable)
            assert len(found(group)) == 1, (status, solicitable)


def test_a_rule_that_is_not_enabled_and_a_group_that_is_ignored_raise_nothing() -> None:
    wrong = [replace(HEALTHY, state="NotReady", group_id=name) for name in ("a", "b", "c")]
    enabled = {"a": terms_of(None), "b": {"StreamsGroupEmpty": RULES["StreamsGroupEmpty"].terms}, "c": {}, None: {}}
    answer = evaluate(wrong, replace(RUNNING, failing_since=NOW), LOOK, lambda group_id: enabled[group_id])
    assert list(answer) == [AlertKey("StreamsGroupNotReady", "a")]


def test_a_broker_whose_clock_is_ahead_makes_no_rule_fail() -> None:
    ahead = NOW + timedelta(days=1)
    for cases in WRONG.values():
        for wrong, _, _ in cases:
            times = dict.fromkeys(("state_since", "description_since", "updated_at", "assigned_at"), ahead)
            found(replace(HEALTHY, **{**wrong, **times}))
    pushed = replace(HEALTHY, unsolicited_pushes=1, last_unsolicited_push_at=ahead)
    assert "StreamsGroupUnsolicitedDescription" in found(pushed)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_documented(name: str) -> None:
    rule = RULES[name]
    assert name.startswith("StreamsGroups") == (rule in OF_JOB)
    assert rule.severity in {"info", "warning", "critical"}
    assert rule.meaning.endswith(".")
    assert rule.look_at
    assert rule.to_do
    assert not any(text.count("  ") or text.endswith(" ") for text in (rule.meaning, *rule.to_do))
    assert all(threshold.about and threshold.default > 0 for threshold in rule.thresholds.values())


def test_a_group_whose_id_has_a_quote_cannot_break_out_of_the_queries() -> None:
    for sql in RULES["StreamsGroupNotReady"].queries("o'hara").values():
        assert "group_id = 'o''hara'" in sql
        assert GROUP_ID not in sql
