"""Each group has alerts of its own, whatever cause it shares with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from streaming_app.alerts.problem import FIRING, RESOLVED, Problem
from streaming_app.groups.snapshot import GroupSnapshot
from tests.alerts.engine_rig import OLD, Rig, at
from tests.support.healthy_group import healthy_group


def not_ready(group_id: str, *topics: str) -> GroupSnapshot:
    reason = f"MISSING_SOURCE_TOPICS: Source topics {', '.join(topics)} are missing."
    return replace(healthy(group_id), state="NotReady", state_since=at(-900), not_ready_reason=reason)


def healthy(group_id: str) -> GroupSnapshot:
    return replace(healthy_group(OLD), group_id=group_id)


def alerts(rig: Rig, team: str, event: str = FIRING) -> list[Problem]:
    """Return what the pager was told of the groups of a team, whose ids begin with its name."""
    return [alert for kind, alert in rig.received if kind == event and str(alert.group_id).startswith(team)]


def groups(rig: Rig, team: str, event: str = FIRING) -> list[str]:
    return sorted(str(alert.group_id) for alert in alerts(rig, team, event))


def texts(alerts: Iterator[Problem] | list[Problem]) -> str:
    return "\n".join(f"{alert.summary} {dict(alert.evidence)}" for alert in alerts)


def test_three_topics_deleted_under_six_groups_of_two_teams_reach_each_owner_about_its_groups_only() -> None:
    rig = Rig()
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
    rig = Rig()
    broken = [not_ready("pay-a", "a"), not_ready("shop-a", "a")]
    rig.cycle(0, *broken, work={})
    rig.cycle(60, healthy("pay-a"), broken[1], work={})
    assert (groups(rig, "pay-", RESOLVED), groups(rig, "shop-", RESOLVED)) == (["pay-a"], [])


def test_members_with_an_older_topology_are_one_alert_though_the_broker_asks_none_for_a_description() -> None:
    stale = replace(healthy("g"), stale_member_count=2, stale_members_since=OLD, solicitable=False)
    stale = replace(stale, description_status="STALE", description_since=OLD, description_stale_since=OLD)
    rig = Rig()
    rig.cycle(0, stale)
    assert rig.open_rules() == {"StreamsGroupMembersStale"}
    rig.cycle(80, replace(stale, stale_member_count=0, updated_at=at(80)))
    assert rig.open_rules() == {"StreamsGroupDescriptionMissing"}
    assert rig.sent == [(FIRING, "g"), (RESOLVED, "g")]
