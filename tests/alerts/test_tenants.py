"""One tenant's groups do not keep those of others from having their alerts."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.alerts.alert import AlertKey, Holds
from streaming_app.alerts.group_conditions import CONDITIONS
from streaming_app.groups.snapshot import GroupSnapshot
from tests.alerts.evaluation import findings_of, truths_of
from tests.alerts.examples import make_alert
from tests.support.failed_rules import FailedRule
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 24, 9, tzinfo=timezone.utc)
FAILED, SET_ASIDE = "StreamsGroupDescriptionFailed", "StreamsGroupSetAside"


def stuck(group_id: str, hours: float) -> GroupSnapshot:
    return replace(healthy_group(NOW - timedelta(hours=hours)), group_id=group_id, set_aside_reason="x")


def find(groups: list[GroupSnapshot], **facts: Any) -> Mapping[AlertKey, Holds]:
    return findings_of(groups, NOW, **facts)


def test_the_oldest_groups_keep_their_alerts_and_newcomers_beyond_the_limit_are_counted() -> None:
    flood = [stuck(f"!{number:04}", 1) for number in range(990)]
    every = [*flood, stuck("orders", 48), stuck("new-orders", 2), stuck("newer-orders", 0.5)]
    found, left_out = truths_of(every, NOW)
    alerted = {key.group_id for key in found}
    assert {"orders", "new-orders"} < alerted
    assert "newer-orders" not in alerted
    assert len(alerted) == 101
    assert len(left_out) == 892
    assert not left_out & alerted


def test_open_alerts_of_a_flood_stay_and_take_no_place_of_a_group_that_came_before_it() -> None:
    flood = [stuck(f"!{number:04}", 1) for number in range(200)]
    opened = {AlertKey(SET_ASIDE, f"!{number:04}"): make_alert() for number in range(190, 200)}
    assert not opened.keys() & find(flood).keys()
    found = find([*flood, stuck("orders", 2)], open=opened)
    assert AlertKey(SET_ASIDE, "orders") in found
    assert opened.keys() <= found.keys()


def test_an_alert_about_a_group_that_is_set_aside_says_so() -> None:
    failed = {"description_status": "FAILED", "stored_description_epoch": -1, "failed_description_epoch": 3}
    aside = replace(stuck("payments", 48), **failed)
    whole = replace(stuck("clicks", 48), **failed, set_aside_reason=None)
    found = find([aside, whole], descriptions_since=NOW - timedelta(days=9))
    cuts = {(key.subject, key.group_id): one.evidence.get("cut") for key, one in found.items()}
    assert cuts[FAILED, "payments"] == "it is set aside: its row is as it was before"
    assert cuts[FAILED, "clicks"] is None
    assert cuts[SET_ASIDE, "payments"] is None


@pytest.mark.parametrize("length", [1, 32_000])
def test_a_rule_that_fails_for_a_group_sets_it_aside_and_holds_its_alerts(
    monkeypatch: pytest.MonkeyPatch, length: int, failed_rules: list[FailedRule]
) -> None:
    bad, condition = "b" * length, CONDITIONS[FAILED]

    def fails(group: GroupSnapshot, *rest: Any) -> Any:
        if group.group_id == bad:
            raise ZeroDivisionError("b" * length)
        return condition.by_records(group, *rest)

    monkeypatch.setitem(CONDITIONS, FAILED, condition._replace(by_records=fails))
    groups = [replace(stuck(one, 48), description_status="FAILED", set_aside_reason=None) for one in (bad, "orders")]
    found, _ = truths_of(groups, NOW, open={AlertKey(SET_ASIDE, bad): make_alert()})
    assert isinstance(found[AlertKey(FAILED, "orders")], Holds)
    assert f"{FAILED} failed: ZeroDivisionError" in found[AlertKey(SET_ASIDE, bad)].summary
    assert AlertKey(FAILED, bad) not in found
    assert failed_rules == [(FAILED, bad)]
    failed_rules.clear()
