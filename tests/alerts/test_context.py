"""Rules that look at more than the state of one group: its history, other groups, and findings of other rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.alert import AlertKey, Finding
from streaming_app.alerts.evaluate import RULES, evaluate
from streaming_app.alerts.rule import EvaluationContext, RuleSettings
from streaming_app.alerts.survey import LostDescription, survey_cluster
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.history import GroupHistory
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
LONG_AGO = NOW - timedelta(days=300)
HEALTHY = healthy_group(LONG_AGO)
MISSING = "StreamsGroupDescriptionMissing"
MANY = AlertKey("StreamsGroupsDescriptionsMissing", None)


def ago(**duration: float) -> datetime:
    return NOW - timedelta(**duration)


def rule_settings_of(_group_id: str | None) -> Mapping[str, RuleSettings]:
    return {name: rule.default_settings for name, rule in RULES.items()}


def evaluate_groups(
    *groups: GroupSnapshot, now: datetime = NOW, histories: Mapping[str, GroupHistory] | None = None, **context: Any
) -> dict[AlertKey, Finding]:
    survey = survey_cluster(groups)
    full = EvaluationContext(now, histories or {}, survey, **{"descriptions_since": LONG_AGO, **context})
    return evaluate(groups, None, full, rule_settings_of)


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
    assert missing(undescribed(), undescribed("older"), *described(20, ago(days=8))) == {"old", "older"}


def test_groups_without_members_are_no_sign_that_clients_were_upgraded() -> None:
    idle = [replace(one, member_count=0) for one in described(9, ago(days=8))]
    running = undescribed("running")
    assert missing(undescribed(), running, *idle) == set()
    assert missing(undescribed(), *idle, *described(1, ago(days=8))) == {"old"}
    assert missing(undescribed(), replace(running, member_count=0), *described(1, ago(days=8))) == {"old", "running"}


def test_a_push_that_nobody_asked_for_shows_that_the_others_can() -> None:
    times = {"description_since": ago(days=99), "first_described_at": ago(days=98)}
    pushed = replace(HEALTHY, group_id="new", description_status="STALE", **times)
    assert missing(undescribed(), pushed) == set()
    assert missing(undescribed(), replace(pushed, last_unsolicited_push_at=ago(hours=2))) == {"old"}


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


def test_descriptions_that_are_missing_only_are_info_however_many() -> None:
    old = [undescribed(f"old-{n}", first_described_at=ago(days=99)) for n in range(9)]
    assert evaluate_groups(*old)[MANY].severity == "info"
    assert evaluate_groups(*old, *many(1, 30))[MANY].severity is None  # that of the rule: a warning
    silent = [replace(one, stale_member_count=3, solicitable=False) for one in old]
    assert {key.rule for key in evaluate_groups(*silent[:2])} == {"StreamsGroupDescriptionNotSolicited"}
    assert evaluate_groups(*silent, *old)[MANY].severity == "info"


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


# What the brokers' plugin returns

LOST = "StreamsGroupDescriptionLost"
STORED = [replace(HEALTHY, group_id=f"s{number}") for number in range(5)]


def lost(number: int, minutes: float, status: str = "NOT_STORED") -> LostDescription:
    return LostDescription(f"s{number}", status, 3, ago(minutes=minutes))


def test_a_description_that_the_plugin_does_not_return_is_a_finding_of_its_group() -> None:
    found = evaluate_groups(*STORED, lost_descriptions=[lost(1, 5), lost(3, 9, "ERROR")])
    assert {key: one.since for key, one in found.items()} == {
        AlertKey(LOST, "s1"): ago(minutes=5),
        AlertKey(LOST, "s3"): ago(minutes=9),
    }
    asked = {"topology_epoch": 3, "asked": ago(minutes=5).isoformat()}
    assert found[AlertKey(LOST, "s1")].details == {"status": "NOT_STORED", **asked}
    assert "plugin does not have the topology description of epoch 3" in found[AlertKey(LOST, "s1")].summary
    assert "plugin fails to return the topology description of epoch 3" in found[AlertKey(LOST, "s3")].summary


def test_those_of_many_groups_are_one_alert_for_the_cluster_when_the_first_is_due() -> None:
    found = evaluate_groups(*STORED, lost_descriptions=[lost(number, 90 + number) for number in range(5)])
    assert {key: (one.since, one.details["findings"]) for key, one in found.items()} == {
        MANY: (ago(minutes=4), {LOST: 5})
    }
    assert found[MANY].severity is None
    early = [lost(number, 80 + number) for number in range(5)]
    assert evaluate_groups(*STORED, lost_descriptions=early) == {}
