"""Each group has alerts of its own, whatever cause it shares with others: its mutes decide about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from streaming_app.alerts.problem import FIRING, RESOLVED, Problem
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.history import GroupHistory, MemberChange, StateChange
from streaming_app.health.verdict import OK
from tests.alerts.engine_rig import OLD, Rig, at
from tests.support.health_harness import waiting
from tests.support.healthy_group import healthy_group


def not_ready(group_id: str, *topics: str) -> GroupSnapshot:
    reason = f"MISSING_SOURCE_TOPICS: Source topics {', '.join(topics)} are missing."
    return replace(healthy(group_id), state="NotReady", state_since=at(-900), not_ready_reason=reason)


def healthy(group_id: str) -> GroupSnapshot:
    return replace(healthy_group(OLD), group_id=group_id)


AT_ONCE = {"group_wait": "0s", "group_interval": "0s"}


def alerts(rig: Rig, team: str, event: str = FIRING) -> list[Problem]:
    """Return what the pager was told of the groups of a team, whose ids begin with its name."""
    return [alert for kind, alert in rig.received if kind == event and str(alert.group_id).startswith(team)]


def groups(rig: Rig, team: str, event: str = FIRING) -> list[str]:
    return sorted(str(alert.group_id) for alert in alerts(rig, team, event))


def texts(alerts: Iterator[Problem] | list[Problem]) -> str:
    return "\n".join(f"{alert.summary} {dict(alert.evidence)}" for alert in alerts)


def test_three_topics_deleted_under_six_groups_of_two_teams_reach_each_owner_about_its_groups_only() -> None:
    rig = Rig(AT_ONCE)
    pairs = [(f"pay-{topic}", f"shop-{topic}", topic) for topic in ("a", "b", "c")]
    rig.cycle(0, *(not_ready(name, topic) for pay, shop, topic in pairs for name in (pay, shop)), work={})
    assert groups(rig, "pay-") == ["pay-a", "pay-b", "pay-c"]
    assert groups(rig, "shop-") == ["shop-a", "shop-b", "shop-c"]
    assert "shop-" not in texts(alerts(rig, "pay-"))
    assert "pay-" not in texts(alerts(rig, "shop-"))
    for alert in alerts(rig, "pay-"):
        topic = str(alert.group_id).removeprefix("pay-")
        assert alert.cause == f"missing_topic:{topic}"
        assert f"Source topics {topic} are missing" in alert.summary
    assert len(rig.engine.problems) == 6


def test_a_group_that_is_mended_is_resolved_for_its_owner_though_others_with_its_cause_are_not() -> None:
    rig = Rig(AT_ONCE)
    broken = [not_ready("pay-a", "a"), not_ready("shop-a", "a")]
    rig.cycle(0, *broken, work={})
    rig.cycle(60, healthy("pay-a"), broken[1], work={})
    assert (groups(rig, "pay-", RESOLVED), groups(rig, "shop-", RESOLVED)) == (["pay-a"], [])


def test_a_mute_for_one_of_the_groups_with_a_cause_mutes_that_one_only() -> None:
    rig = Rig(AT_ONCE)
    broken = [not_ready("pay-a", "a"), not_ready("pay-b", "a")]
    rig.cycle(0, *broken, is_muted=lambda alert: alert.group_id == "pay-a", work={})
    assert groups(rig, "pay-") == ["pay-b"]


@pytest.mark.parametrize("first", [("a",), ("a", "b")])
def test_groups_that_miss_one_of_the_same_topics_have_one_cause_whatever_else_they_miss(
    first: tuple[str, ...],
) -> None:
    second = ("a", "b") if first == ("a",) else ("a",)
    rig = Rig(AT_ONCE)
    rig.cycle(0, not_ready("pay-a", *first), work={})
    rig.cycle(60, not_ready("pay-a", *first), not_ready("shop-a", *second), work={})
    assert {one.cause for one in rig.engine.problems} == {"missing_topic:a"}
    assert groups(rig, "shop-") == ["shop-a"]


def test_a_group_that_is_ignored_for_a_while_has_an_alert_again_if_it_still_is_bad() -> None:
    broken = [not_ready("pay-a", "a"), not_ready("shop-a", "b")]
    rig = Rig(AT_ONCE)
    rig.cycle(0, *broken, work={})
    rig.settings = {**AT_ONCE, "ignore_groups": ["pay-.*"]}
    rig.restart()
    rig.cycle(60, *broken, work={})
    assert [one.group_id for one in rig.engine.problems] == ["shop-a"]
    assert groups(rig, "pay-", RESOLVED) == ["pay-a"]

    for pay, still_bad in ((broken[0], True), (healthy("pay-a"), False)):
        again = Rig(AT_ONCE, table=dict(rig.table), verdicts=dict(rig.verdicts))
        again.cycle(120, pay, broken[1], work={})
        assert (again.engine.problem_with("pay-a") is not None) == still_bad
        assert groups(again, "pay-") == ["pay-a"] * still_bad
        assert (again.engine.verdicts["pay-a"].verdict in {OK, "Idle"}) != still_bad


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
    told = {str(alert.group_id): alert for _, alert in rig.received}
    assert len(rig.received) == len(told) == 3
    assert "no members since" in told["crashed"].summary
    assert "gave up, as it was NotReady (b is away)" in told["gave-up"].summary
    assert "Source topics c are missing" in told["no-topic"].summary
    for name, alert in told.items():
        assert not [one for one in snapshots if one != name and one in texts([alert])]


def test_members_with_an_older_topology_are_one_alert_though_the_broker_asks_none_for_a_description() -> None:
    stale = replace(healthy("g"), stale_member_count=2, stale_members_since=OLD, solicitable=False)
    stale = replace(stale, description_status="STALE", description_since=OLD, description_stale_since=OLD)
    rig = Rig(AT_ONCE)
    rig.cycle(0, stale)
    assert rig.open_rules() == {"StreamsGroupMembersStale"}
    rig.cycle(80, replace(stale, stale_member_count=0, updated_at=at(80)))
    assert rig.open_rules() == {"StreamsGroupDescriptionMissing"}
    assert rig.sent == [(FIRING, "g"), (RESOLVED, "g")]
