"""One tenant's groups do not keep those of others from having their alerts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.alerts import evaluate as evaluation
from streaming_app.alerts.evaluate import evaluate, is_unknown
from streaming_app.alerts.problem import ProblemKey
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import GroupSnapshot
from tests.support.failed_rules import FailedRule
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 24, 9, tzinfo=timezone.utc)
FAILED, SET_ASIDE = "StreamsGroupDescriptionFailed", "StreamsGroupSetAside"
SETTINGS = AlertSettings().rule_settings_of()


def stuck(group_id: str, hours: float) -> GroupSnapshot:
    return replace(healthy_group(NOW - timedelta(hours=hours)), group_id=group_id, set_aside_reason="x")


def find(groups: list[GroupSnapshot], **context: Any) -> dict[ProblemKey, Any]:
    return evaluate(groups, None, EvaluationContext(NOW, **context), SETTINGS)


def test_the_oldest_groups_keep_their_alerts_and_newcomers_beyond_the_limit_are_counted() -> None:
    flood = [stuck(f"!{number:04}", 1) for number in range(990)]
    context = EvaluationContext(NOW, max_new_groups=50)
    every = [*flood, stuck("orders", 48), stuck("new-orders", 2), stuck("newer-orders", 0.5)]
    found = evaluate(every, None, context, SETTINGS)
    alerted = {key.group_id for key in found}
    assert {"orders", "new-orders"} < alerted
    assert "newer-orders" not in alerted
    assert len(alerted) == 51
    assert len(context.left_out) == 942
    assert not context.left_out & alerted


def test_an_alert_that_is_open_is_not_resolved_since_other_groups_came() -> None:
    flood = [stuck(f"!{number:04}", 5) for number in range(100)]
    key = ProblemKey(SET_ASIDE, "!0099")
    assert key not in find(flood, max_new_groups=10)
    assert key in find(flood, max_new_groups=10, open_problems={key})


def test_open_alerts_of_a_flood_take_no_place_of_a_group_that_came_before_it() -> None:
    flood = [stuck(f"!{number:04}", 1) for number in range(100)]
    opened = {ProblemKey(SET_ASIDE, f"!{number:04}") for number in range(10)}
    found = find([*flood, stuck("orders", 2)], max_new_groups=10, open_problems=opened)
    assert ProblemKey(SET_ASIDE, "orders") in found
    assert opened <= found.keys()


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
    bad = "b" * length
    rule = next(one for one in evaluation.GROUP_RULES if one.name == FAILED)

    def fails(group: GroupSnapshot, *rest: Any) -> Any:
        if group.group_id == bad:
            raise ZeroDivisionError("b" * length)
        return find_failed(group, *rest)

    find_failed = rule.find
    monkeypatch.setattr(evaluation, "GROUP_RULES", (rule._replace(find=fails),))
    evaluation._applicable_rules.cache_clear()
    try:
        context = EvaluationContext(NOW)
        failed = {"description_status": "FAILED", "set_aside_reason": None}
        groups = [replace(stuck(one, 48), **failed) for one in (bad, "orders")]
        found = evaluate(groups, None, context, SETTINGS)
    finally:
        evaluation._applicable_rules.cache_clear()
    assert ProblemKey(FAILED, "orders") in found
    assert f"{FAILED} failed: ZeroDivisionError" in found[ProblemKey(SET_ASIDE, bad)].summary
    assert is_unknown(ProblemKey(FAILED, bad), None, context)
    assert not is_unknown(ProblemKey(FAILED, "orders"), None, context)
    assert failed_rules == [(FAILED, bad)]
    failed_rules.clear()
