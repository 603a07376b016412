"""Rules that look at more than the state of one group: its history, other groups, and findings of other rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.alerts.alert import AlertKey, Finding
from streaming_app.alerts.evaluate import RULES, evaluate
from streaming_app.alerts.rule import EvaluationContext, RuleSettings
from streaming_app.alerts.survey import survey_cluster
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.history import GroupHistory, MemberChange, Reason, StateChange
from tests.alerts.healthy_group import healthy_group

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
LONG_AGO = NOW - timedelta(days=300)
HEALTHY = healthy_group(LONG_AGO)
EMPTY, MISSING = "StreamsGroupEmpty", "StreamsGroupDescriptionMissing"
STORM, UNAVAILABLE = "StreamsGroupRebalanceStorm", "StreamsGroupUnavailable"
MANY = AlertKey("StreamsGroupsDescriptionsMissing", None)


def ago(**duration: float) -> datetime:
    return NOW - timedelta(**duration)


def rule_settings_of(_group_id: str | None) -> Mapping[str, RuleSettings]:
    return {name: rule.default_settings for name, rule in RULES.items()}


def evaluate_groups(
    *groups: GroupSnapshot, now: datetime = NOW, histories: Mapping[str, GroupHistory] | None = None, **context: Any
) -> dict[AlertKey, Finding]:
    survey = survey_cluster(groups, now)
    full = EvaluationContext(now, histories or {}, survey, **{"descriptions_since": LONG_AGO, **context})
    return evaluate(groups, None, full, rule_settings_of)


def states(*changes: tuple[datetime, str, str]) -> GroupHistory:
    return GroupHistory([StateChange(at, n, old, new) for n, (at, old, new) in enumerate(changes)])


def empty(since: datetime, **fields: Any) -> GroupSnapshot:
    gone = {"description_status": "NEVER_STORED", "stored_description_epoch": -1, "first_described_at": None}
    return replace(HEALTHY, state="Empty", member_count=0, state_since=since, **gone, **fields)


def is_empty_found(group: GroupSnapshot, *others: GroupSnapshot, history: GroupHistory | None = None) -> bool:
    histories = {group.group_id: history} if history else {}
    return AlertKey(EMPTY, group.group_id) in evaluate_groups(group, *others, histories=histories)


# Empty


@pytest.mark.parametrize(("ran", "away", "is_found"), [(59, 24 * 60, False), (59, 25 * 60, True), (61, 1, True)])
def test_an_application_that_ran_for_less_than_an_hour_has_a_day_to_come_back(
    ran: float, away: float, *, is_found: bool
) -> None:
    emptied = ago(minutes=away)
    assert is_empty_found(empty(emptied, first_seen_at=emptied - timedelta(minutes=ran))) == is_found


def test_a_restart_does_not_make_a_long_run_a_short_one() -> None:
    emptied = ago(minutes=20)
    restart = emptied - timedelta(minutes=10)
    history = states(
        (restart - timedelta(minutes=2), "Stable", "Empty"), (restart, "Empty", "Stable"), (emptied, "Stable", "Empty")
    )
    assert is_empty_found(empty(emptied), history=history)


def nights(number: int, minutes: float) -> list[tuple[datetime, str, str]]:
    """A job that starts at 3:00 and runs for so long, until the one of today."""
    starts = [NOW.replace(minute=0) - timedelta(days=day) for day in range(number, -1, -1)]
    runs = ((begin, begin + timedelta(minutes=minutes)) for begin in starts)
    return [
        one for begin, end in runs for one in ((begin, "Empty", "Stable"), (end, "Stable", "Empty")) if one[0] < NOW
    ]


@pytest.mark.parametrize(("number", "is_found"), [(1, False), (0, True)])
def test_a_group_that_is_often_empty_for_long_may_be_so_again(number: int, *, is_found: bool) -> None:
    history = nights(number, minutes=10)
    first_seen = history[0][0] - timedelta(days=2 if number else 0, hours=2)
    assert is_empty_found(empty(history[-1][0], first_seen_at=first_seen), history=states(*history[1:])) == is_found


def test_a_service_that_was_down_before_is_found_as_soon_as_ever() -> None:
    outage = [(ago(days=3), "Stable", "Empty"), (ago(days=3, hours=-5), "Empty", "Stable")]
    assert is_empty_found(empty(ago(minutes=1)), history=states(*outage, (ago(minutes=1), "Stable", "Empty")))


def test_members_that_gave_up_because_of_their_topics_get_no_day_to_come_back() -> None:
    emptied = ago(minutes=1)
    group = empty(emptied, first_seen_at=ago(minutes=2))
    history = states((ago(minutes=2), "Assigning", "NotReady"), (emptied, "NotReady", "Empty"))
    history.reasons.append(Reason(ago(minutes=2), 0, "MISSING_SOURCE_TOPICS: a"))
    finding = evaluate_groups(group, histories={group.group_id: history})[AlertKey(EMPTY, group.group_id)]
    assert "its members gave up, as it was NotReady (MISSING_SOURCE_TOPICS: a)" in finding.summary
    assert finding.details == {"reason": "MISSING_SOURCE_TOPICS: a"}


def successor(name: str, **age: float) -> GroupSnapshot:
    return replace(HEALTHY, group_id=name, first_seen_at=ago(**age))


@pytest.mark.parametrize(
    ("other", "is_found"),
    [
        (successor("invoices", minutes=70), False),  # it started when the other one ended
        (successor("invoices", hours=3), True),  # another application that reads the same topics
        (successor("payments-v2", days=7), False),
        (successor("payments-2026.11.14-green", days=7), False),
        (successor("payments-v2", days=9), True),
        (replace(successor("payments-v2", minutes=5), sources_hash="other"), True),
        (replace(successor("payments-v2", minutes=5), state="Empty"), True),
    ],
)
def test_a_group_is_replaced_by_a_newer_one_that_reads_the_same_topics(other: GroupSnapshot, *, is_found: bool) -> None:
    assert is_empty_found(empty(ago(minutes=20)), other) == is_found


def test_one_of_two_applications_that_started_together_does_not_replace_the_other() -> None:
    first, second = (successor(f"loader-{n}", days=2, minutes=n) for n in range(2))
    gone = empty(ago(minutes=20), group_id=first.group_id, first_seen_at=first.first_seen_at)
    assert is_empty_found(gone, second)


# Unavailable, and what it hides


def crashes(number: int, up: float, down: float) -> GroupHistory:
    """An application that was up and down for so many seconds in turn, and is up now."""
    period = timedelta(seconds=up + down)
    history = GroupHistory()
    for n in range(number):
        begin = NOW - period * (number - n)
        start = begin + timedelta(seconds=down)
        changes = ((begin, "Stable", "Empty"), (start, "Empty", "Assigning"), (start, "Assigning", "Stable"))
        history.states += [StateChange(at, 3 * n + k, old, new) for k, (at, old, new) in enumerate(changes)]
        history.members.append(MemberChange(begin, 3 * n, f"m{n}", joined=False, place="h"))
        history.members.append(MemberChange(start, 3 * n + 1, f"m{n + 1}", joined=True, place="h"))
    return history


def found_rules(history: GroupHistory) -> set[str]:
    return {key.rule for key in evaluate_groups(HEALTHY, histories={HEALTHY.group_id: history})}


@pytest.mark.parametrize(
    ("number", "up", "down", "expected"),
    [
        (2, 20, 300, set()),
        (3, 20, 300, {UNAVAILABLE}),
        (6, 20, 300, {UNAVAILABLE}),  # and no storm
        (5, 300, 20, {STORM}),
        (6, 300, 20, {UNAVAILABLE}),  # so often that the share does not matter
        (5, 500, 20, {STORM}),
        (5, 700, 20, set()),
    ],
)
def test_crashes_are_an_outage_or_else_flapping_and_never_both(
    number: int, up: float, down: float, expected: set[str]
) -> None:
    assert found_rules(crashes(number, up, down)) == expected


def test_an_outage_names_the_newest_reason_since_it_began() -> None:
    history = crashes(3, 20, 300)
    history.reasons += [Reason(ago(hours=2), 1, "an older one"), Reason(ago(minutes=4), 2, "MISSING_SOURCE_TOPICS: a")]
    key = AlertKey(UNAVAILABLE, HEALTHY.group_id)
    finding = evaluate_groups(HEALTHY, histories={HEALTHY.group_id: history})[key]
    assert finding.summary.endswith(" (MISSING_SOURCE_TOPICS: a)")
    assert (finding.details["reason"], finding.details["starts"]) == ("MISSING_SOURCE_TOPICS: a", 3)
    assert finding.details["newest_start"] == "2026-11-21T03:11:40+00:00"
    del history.reasons[1]
    assert "reason" not in evaluate_groups(HEALTHY, histories={HEALTHY.group_id: history})[key].details


# Descriptions


def undescribed(name: str = "old", **fields: Any) -> GroupSnapshot:
    never = {"description_status": "NEVER_STORED", "stored_description_epoch": -1, "first_described_at": None}
    times = {"description_since": ago(days=90), "members_since": ago(days=90)}
    return replace(HEALTHY, group_id=name, solicitable=True, **{**never, **times, **fields})


def described(number: int, since: datetime) -> Iterable[GroupSnapshot]:
    return (
        replace(HEALTHY, group_id=f"new-{n}", description_since=since, first_described_at=since) for n in range(number)
    )


def missing(*groups: GroupSnapshot, **context: Any) -> set[str | None]:
    return {key.group_id for key in evaluate_groups(*groups, **context) if key.rule == MISSING}


def test_no_description_is_missing_while_clients_are_upgraded_one_after_the_other() -> None:
    assert missing(undescribed()) == set()
    assert missing(undescribed(), *described(9, ago(days=6))) == set()
    assert missing(undescribed(), undescribed("older"), *described(8, ago(days=20))) == set()  # 8 of 9 others


def test_the_last_group_without_a_description_is_found_a_week_after_the_upgrade_of_the_others() -> None:
    assert missing(undescribed(), *described(9, ago(days=8))) == {"old"}
    assert missing(undescribed(), *described(1, ago(days=8))) == {"old"}


def test_no_description_is_missing_if_none_was_pushed_since_the_group_started() -> None:
    assert missing(undescribed(members_since=ago(days=1)), *described(9, ago(days=8))) == set()


def test_a_group_that_had_a_description_is_to_have_one() -> None:
    for had in ({"first_described_at": ago(days=99)}, {"failed_description_epoch": 3}, {"unsolicited_pushes": 1}):
        assert missing(undescribed(**had)) == {"old"}


def test_every_group_is_to_have_one_if_the_configuration_says_so() -> None:
    assert missing(undescribed(), descriptions_required=True) == {"old"}


def many(number: int, minutes: float) -> list[GroupSnapshot]:
    since = ago(minutes=minutes)
    uncertain = {"description_status": "UNCERTAIN", "stored_description_epoch": -2, "solicitable": True}
    times = {"description_since": since, "members_since": since}
    return [replace(HEALTHY, group_id=f"g{n}", **uncertain, **times) for n in range(number)]


def test_from_five_groups_on_the_descriptions_are_one_alert_and_fire_when_the_first_would() -> None:
    assert {key.group_id for key in evaluate_groups(*many(4, 30))} == {"g0", "g1", "g2", "g3"}
    found = evaluate_groups(*many(5, 30))
    assert set(found) == {MANY}
    assert found[MANY].since == ago(minutes=10)
    assert found[MANY].summary == "5 groups have no current topology description: g0, g1, g2 and 2 more"
    assert found[MANY].details["findings"] == {"StreamsGroupDescriptionUncertain": 5}
    assert evaluate_groups(*many(5, 19)) == {}
    assert evaluate_groups(*many(5, 20))[MANY].since == NOW


def test_the_alert_for_the_cluster_stays_until_the_last_group_has_recovered() -> None:
    assert set(evaluate_groups(*many(1, 30), open_alerts={MANY})) == {MANY}
    assert evaluate_groups(HEALTHY, open_alerts={MANY}) == {}


def test_without_the_rule_for_the_cluster_each_group_has_its_own_alert() -> None:
    enabled = {name: rule for name, rule in rule_settings_of(None).items() if name != MANY.rule}
    context = EvaluationContext(NOW, descriptions_since=LONG_AGO)
    assert len(evaluate(many(9, 30), None, context, lambda _group: enabled)) == 9


def test_a_rejected_description_is_one_alert() -> None:
    failed = {"description_status": "FAILED", "failed_description_epoch": 0, "stored_description_epoch": -2}
    found = evaluate_groups(replace(HEALTHY, **failed, description_since=ago(days=1)))
    assert {key.rule for key in found} == {"StreamsGroupDescriptionFailed"}
