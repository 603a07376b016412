"""Each group of an incident has a finding and an alert of its own: its mutes decide about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from streaming_app.health.incidents import Incident, Incidents, Line

from streaming_app.alerts.engine import NO_HEALTH, StoredHealth
from streaming_app.alerts.problem import FIRING, RESOLVED, Delivery, Problem
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.board import Change
from streaming_app.health.history import GroupHistory, MemberChange, StateChange
from streaming_app.health.verdict import DOWN, OK, Verdict
from tests.alerts.engine_rig import OLD, Rig, at
from tests.support.health_harness import waiting
from tests.support.healthy_group import healthy_group


def not_ready(group_id: str, *topics: str) -> GroupSnapshot:
    reason = f"MISSING_SOURCE_TOPICS: Source topics {', '.join(topics)} are missing."
    return replace(healthy(group_id), state="NotReady", state_since=at(-900), not_ready_reason=reason)


def healthy(group_id: str) -> GroupSnapshot:
    return replace(healthy_group(OLD), group_id=group_id)


AT_ONCE = {"group_wait": "0s", "group_interval": "0s"}


def rig_with(health: StoredHealth = NO_HEALTH, **settings: Any) -> Rig:
    """Return a rig that sends at once, whose pager is that of two rig: the ids of their groups begin with it."""
    rig = Rig({**AT_ONCE, **settings})
    rig.restart(health=health)
    return rig


def alerts(rig: Rig, team: str, event: str = FIRING) -> list[Problem]:
    return [alert for kind, alert in rig.received if kind == event and str(alert.group_id).startswith(team)]


def groups(rig: Rig, team: str, event: str = FIRING) -> list[str]:
    return sorted(str(alert.group_id) for alert in alerts(rig, team, event))


def texts(alerts: Iterator[Problem] | list[Problem]) -> str:
    return "\n".join(f"{alert.summary} {dict(alert.details)}" for alert in alerts)


def test_three_topics_deleted_under_six_groups_of_two_rig_reach_each_owner_about_its_groups_only() -> None:
    rig = rig_with()
    pairs = [(f"pay-{topic}", f"shop-{topic}", topic) for topic in ("a", "b", "c")]
    rig.cycle(0, *(not_ready(name, topic) for pay, shop, topic in pairs for name in (pay, shop)), work={})
    assert groups(rig, "pay-") == ["pay-a", "pay-b", "pay-c"]
    assert groups(rig, "shop-") == ["shop-a", "shop-b", "shop-c"]
    assert "shop-" not in texts(alerts(rig, "pay-"))
    assert "pay-" not in texts(alerts(rig, "shop-"))
    for alert in alerts(rig, "pay-"):
        topic = str(alert.group_id).removeprefix("pay-")
        assert (alert.details["cause"], alert.details["scope"]) == ("missing_topic", topic)
        assert f"Source topics {topic} are missing" in alert.summary
    assert len(rig.engine.incidents) == 3


def test_a_group_that_is_mended_is_resolved_for_its_owner_though_others_of_the_incident_are_not() -> None:
    rig = rig_with()
    broken = [not_ready("pay-a", "a"), not_ready("shop-a", "a")]
    rig.cycle(0, *broken, work={})
    rig.cycle(60, healthy("pay-a"), broken[1], work={})
    assert (groups(rig, "pay-", RESOLVED), groups(rig, "shop-", RESOLVED)) == (["pay-a"], [])


def test_a_mute_for_one_group_of_an_incident_mutes_that_one_only() -> None:
    rig = rig_with()
    broken = [not_ready("pay-a", "a"), not_ready("pay-b", "a")]
    rig.cycle(0, *broken, is_muted=lambda alert: alert.group_id == "pay-a", work={})
    assert groups(rig, "pay-") == ["pay-b"]


def test_a_group_that_joins_an_incident_a_day_later_is_an_alert() -> None:
    rig = rig_with()
    rig.cycle(0, not_ready("pay-a", "a"), work={})
    day = timedelta(days=1).total_seconds()
    late = replace(not_ready("shop-a", "a"), state_since=at(day - 900))
    rig.cycle(day, not_ready("pay-a", "a"), late, work={})
    assert groups(rig, "shop-") == ["shop-a"]


@pytest.mark.parametrize("first", [("a",), ("a", "b")])
def test_groups_that_miss_one_of_the_same_topics_have_one_cause_whatever_else_they_miss(
    first: tuple[str, ...],
) -> None:
    second = ("a", "b") if first == ("a",) else ("a",)
    rig = rig_with()
    rig.cycle(0, not_ready("pay-a", *first), work={})
    rig.cycle(60, not_ready("pay-a", *first), not_ready("shop-a", *second), work={})
    (incident,) = rig.engine.incidents
    assert incident.groups == ("pay-a", "shop-a")
    assert groups(rig, "shop-") == ["shop-a"]


def test_an_incident_of_a_group_that_is_ignored_from_now_on_ends_and_taking_that_back_opens_what_still_is_so() -> None:
    before = rig_with()
    before.cycle(0, not_ready("pay-a", "a"), not_ready("shop-a", "b"), work={})
    stored = before.engine.unsaved_health
    ignoring = rig_with(StoredHealth(stored.verdicts, stored.incidents), ignore_groups=["pay-.*"])
    ignoring.cycle(60, not_ready("pay-a", "a"), not_ready("shop-a", "b"), work={})
    assert [one.groups for one in ignoring.engine.incidents] == [("shop-a",)]
    (ended,) = (one for one in ignoring.engine.unsaved_health.incidents if one.ended_at)
    assert (ended.groups, ended.ended_by) == (("pay-a",), "ignored")

    verdicts = {**stored.verdicts, **ignoring.engine.unsaved_health.verdicts}
    kept = [one for one in stored.incidents if one.incident_id != ended.incident_id]
    watching = rig_with(StoredHealth(verdicts, [*kept, ended]))
    watching.cycle(120, not_ready("pay-a", "a"), not_ready("shop-a", "b"), work={})
    assert sorted(tuple(one.groups) for one in watching.engine.incidents) == [("pay-a",), ("shop-a",)]
    over = rig_with(StoredHealth(verdicts, [*kept, ended]))
    over.cycle(120, healthy("pay-a"), not_ready("shop-a", "b"), work={})
    assert [one.groups for one in over.engine.incidents] == [("shop-a",)]
    assert over.engine.verdicts["pay-a"].verdict in {OK, "Idle"}


def test_one_more_missing_description_resolves_no_alert_of_another_group() -> None:
    def missing(number: int) -> GroupSnapshot:
        return replace(
            healthy_group(OLD),
            group_id=f"app-{number}",
            description_status="NEVER_STORED",
            description_since=OLD,
            stored_description_epoch=-1,
            first_described_at=None,
            solicitable=True,
        )

    rig = Rig({"group_wait": "0s", "group_interval": "0s"})
    rig.cycle(0, *map(missing, range(4)))
    assert rig.sent == [(FIRING, f"app-{number}") for number in range(4)]
    rig.cycle(60, *map(missing, range(5)))
    assert (RESOLVED, "app-0") not in rig.sent
    assert rig.sent[4:] == [(FIRING, None)]
    rig.cycle(120, *map(missing, range(1, 5)))
    assert [sent for sent in rig.sent if sent[0] == RESOLVED] == [(RESOLVED, "app-0")]


MISSES_A = {"reason": "MISSING_SOURCE_TOPICS: Source topics a are missing."}


def misses_a(name: str, seconds: float, severity: str = "critical") -> Change:
    time = at(seconds)
    return Change(name, Verdict(DOWN, time, time, f"why {name}", severity, evidence=MISSES_A), time)


def processes(name: str, seconds: float) -> Change:
    return Change(name, Verdict(OK, at(seconds), at(seconds), "Offsets advance."), at(seconds))


def severities(rig: Rig) -> dict[str | None, str]:
    return {alert.group_id: alert.severity for alert in rig.engine.problems}


def test_three_deaths_within_ten_minutes_on_a_host_where_others_live_are_three_messages_with_a_reason_each() -> None:
    """Two applications without members, one of which gave up as a topic was missing, and one without that topic."""
    host, other = "10.0.0.7", "10.0.0.8"
    left = {"crashed": -660, "gave-up": -480}
    gone = {name: MemberChange(at(when), 1, "m", joined=False, place=host) for name, when in left.items()}
    histories = {name: GroupHistory(members=[one]) for name, one in gone.items()}
    gave_up = [StateChange(at(left["gave-up"]), 1, "NotReady", "Empty")]
    histories["gave-up"] = GroupHistory(gave_up, members=[gone["gave-up"]])
    for name, place in (("lives", host), ("elsewhere", other), ("no-topic", host)):
        joined = MemberChange(at(-9_000), 1, "m", joined=True, place=place)
        histories[name] = GroupHistory(members=[joined])
    empty = {"state": "Empty", "member_count": 0, "first_seen_at": OLD}
    snapshots = {
        "crashed": replace(healthy("crashed"), state_since=at(left["crashed"]), **empty),
        "gave-up": replace(healthy("gave-up"), state_since=at(left["gave-up"]), not_ready_reason="b is away", **empty),
        "no-topic": not_ready("no-topic", "c"),
        "lives": healthy("lives"),
        "elsewhere": healthy("elsewhere"),
    }
    work = {name: replace(waiting(at(-660), at(0)), group_id=name) for name in left}
    rig = Rig(AT_ONCE)
    rig.cycle(0, *snapshots.values(), histories=histories, work=work)
    assert all(len(one.groups) == 1 for one in rig.engine.incidents)
    told = {str(alert.group_id): alert for _, alert in rig.received}
    assert len(rig.received) == len(told) == 3
    assert "no members since" in told["crashed"].summary
    assert "gave up, as it was NotReady (b is away)" in told["gave-up"].summary
    assert "Source topics c are missing" in told["no-topic"].summary
    for name, alert in told.items():
        assert not [one for one in snapshots if one != name and one in texts([alert])]


def test_a_restart_gives_no_group_the_severity_of_another_and_hides_nothing_that_became_worse_meanwhile() -> None:
    incidents = Incidents("prod")
    (stored,) = incidents.step([misses_a("a", -900), misses_a("b", -800, "warning")], at(-800))
    verdicts = {"a": misses_a("a", -900).verdict, "b": misses_a("b", -800, "warning").verdict}
    rig = Rig(AT_ONCE)
    rig.restart(health=StoredHealth(verdicts, [stored]))
    rig.cycle(0)
    rig.restart(health=StoredHealth(verdicts, [stored]))
    assert severities(rig) == {"a": "critical", "b": "warning"}
    rig.cycle(30, not_ready("a", "a"), not_ready("b", "a"))
    assert severities(rig) == {"a": "critical", "b": "critical"}
    assert sorted(rig.sent) == [(FIRING, "a"), (FIRING, "b"), (FIRING, "b")]


@pytest.mark.parametrize("still_open", [("a", "b"), ("b",)])
def test_an_incident_that_release_0_2_merged_by_host_goes_on_with_an_alert_for_each_group_that_is_bad(
    still_open: tuple[str, ...],
) -> None:
    """That release had one alert, under the first group, until the last one of them processed."""
    evidence = {"client_host": "10.0.0.7"}
    lines = [Line(at(-900), name, DOWN, "critical", f"why {name}", evidence) for name in ("a", "b")]
    lines += [Line(at(-60), name, OK, None, "Offsets advance.", {}) for name in ("a", "b") if name not in still_open]
    row = Incident(
        "0123456789ab",
        "prod",
        "client_host",
        "10.0.0.7",
        "critical",
        at(-900),
        verdict=DOWN,
        groups=("a", "b"),
        open_groups=still_open,
        timeline=tuple(lines),
    )
    details = {"incident": row.incident_id, "cause": "client_host", "scope": "10.0.0.7", "groups": ["a", "b"]}
    sent = (Delivery("pager", FIRING, at(-600), 1),)
    times = (at(-900), at(-600), None)
    old = Problem("prod", "a", "StreamsGroupDown", "critical", FIRING, *times, "2 groups (a, b)", details, sent)
    verdicts = {line.group_id: Verdict(line.verdict, line.at, line.at, line.why, line.severity) for line in lines}
    rig = Rig(AT_ONCE, table={(old.key, old.since): old})
    rig.restart(health=StoredHealth(verdicts, [row]))
    for seconds in (0, 30):
        rig.cycle(seconds)
    assert sorted(rig.sent) == [(FIRING, "b"), *([] if "a" in still_open else [(RESOLVED, "a")])]
    fires = {one.group_id: one for one in rig.engine.problems}
    assert set(fires) == set(still_open)
    for name, alert in fires.items():
        assert (alert.details["cause"], alert.details["scope"]) == ("group", name)
        assert (alert.summary, "groups" in alert.details) == (f"{name} is Down: why {name}", False)
    if "a" in still_open:
        assert fires["a"].alert_id == old.alert_id


def test_an_alert_that_fires_is_not_resolved_as_another_rule_begins_to_say_the_same_and_more() -> None:
    stale = replace(healthy("g"), stale_member_count=2, stale_members_since=OLD)
    rig = Rig(AT_ONCE)
    rig.cycle(0, stale)
    assert rig.open_rules() == {"StreamsGroupMembersStale"}
    since = {"description_since": at(60), "description_stale_since": at(60)}
    rig.cycle(70, replace(stale, solicitable=False, description_status="STALE", **since))
    assert rig.open_rules() == {"StreamsGroupMembersStale", "StreamsGroupDescriptionNotSolicited"}
    assert (RESOLVED, "g") not in rig.sent
    rig.cycle(80, replace(healthy("g"), solicitable=False, description_status="STALE", **since))
    assert rig.sent.count((RESOLVED, "g")) == 1
