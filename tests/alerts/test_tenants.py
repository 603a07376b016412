"""One tenant's groups do not keep those of others from having their alerts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.alerts import evaluate as evaluation
from streaming_app.alerts.alert import AlertKey
from streaming_app.alerts.evaluate import evaluate, is_held
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.job_status import JobStatus
from tests.alerts.healthy_group import healthy_group

NOW = datetime(2026, 11, 24, 9, tzinfo=timezone.utc)
FLOOD, OVER, SET_ASIDE = "StreamsGroupsFlood", "StreamsGroupOverBudget", "StreamsGroupSetAside"
SETTINGS = AlertSettings().rule_settings_of()


def stuck(group_id: str, hours: float, host: str = "/10.0.0.1") -> GroupSnapshot:
    seen = NOW - timedelta(hours=hours)
    return replace(healthy_group(seen), group_id=group_id, over_budget="members", client_host=host)


def find(groups: list[GroupSnapshot], **context: Any) -> dict[AlertKey, Any]:
    return evaluate(groups, None, EvaluationContext(NOW, **context), SETTINGS)


def test_alerts_of_groups_known_before_a_flood_stay_and_the_rest_is_counted_in_one() -> None:
    flood = [stuck(f"!{number:04}", 1, "/10.6.6.6") for number in range(990)]
    found = find([*flood, stuck("orders", 48), stuck("new-orders", 0.5)], max_new_groups=50)
    assert AlertKey(OVER, "orders") in found
    assert AlertKey(OVER, "new-orders") in found  # of another host
    assert sum(key.rule == OVER for key in found) == 51
    finding = found[AlertKey(FLOOD, None)]
    assert finding.summary == (
        "900 groups or more are new since yesterday, most of which begin with '!0'; most are of 10.6.6.6, 10.0.0.1. "
        "The alerts of 900 of them or more are left out"
    )
    assert (finding.details["prefix"], finding.details["groups_without_alerts_at_least"]) == ("!0", 900)


def test_verdicts_that_newcomers_wait_for_longer_than_a_minute_are_said_to_be_late() -> None:
    groups = [*(stuck(f"!{number}", 1, "/10.6.6.6") for number in range(9)), stuck("new", 1), stuck("orders", 48)]
    late = {f"!{number}": NOW - timedelta(minutes=2) for number in range(9)}
    finding = find(groups, put_off={**late, "new": NOW - timedelta(seconds=5)})[AlertKey(FLOOD, None)]
    assert finding.summary.endswith("9 verdicts or more are late, most of groups of 10.6.6.6")
    assert (finding.details["groups_not_judged_at_least"], finding.details["hosts_not_judged"]) == (9, ["10.6.6.6"])
    assert AlertKey(FLOOD, None) not in find(groups, put_off=dict.fromkeys(late, NOW))


def test_an_alert_that_is_open_is_not_resolved_since_other_groups_came() -> None:
    flood = [stuck(f"!{number:04}", 5, "/10.6.6.6") for number in range(100)]
    key = AlertKey(OVER, "!0099")
    assert key not in find(flood, max_new_groups=10)
    assert key in find(flood, max_new_groups=10, open_alerts={key})


def test_new_groups_without_findings_take_no_place_of_those_with_some() -> None:
    quiet = [replace(stuck(f"!{number:04}", 5), over_budget=None) for number in range(100)]
    found = find([*quiet, *(stuck(f"g{number:02}", 1) for number in range(11))], max_new_groups=10)
    assert sum(key.rule == OVER for key in found) == 10


def test_as_many_new_groups_as_may_have_alerts_are_no_flood() -> None:
    groups = [stuck(f"g{number:02}", 1) for number in range(20)]
    assert set(find(groups, max_new_groups=20)) == {AlertKey(OVER, one.group_id) for one in groups}
    assert AlertKey(FLOOD, None) in find(groups, max_new_groups=19)


def test_open_alerts_of_a_flood_take_no_place_of_a_group_that_came_before_it() -> None:
    flood = [stuck(f"!{number:04}", 1) for number in range(100)]
    opened = {AlertKey(OVER, f"!{number:04}") for number in range(10)}
    found = find([*flood, stuck("orders", 2)], max_new_groups=10, open_alerts=opened)  # of the same host, later
    assert AlertKey(OVER, "orders") in found
    assert opened <= found.keys()


def test_an_alert_about_a_group_of_which_only_a_part_is_kept_says_so() -> None:
    failed = {"description_status": "FAILED", "stored_description_epoch": -1, "failed_description_epoch": 3}
    over = replace(stuck("orders", 48), **failed)
    aside = replace(stuck("payments", 48), **failed, over_budget=None, set_aside_reason="x", set_aside_at=NOW)
    whole = replace(stuck("clicks", 48), **failed, over_budget=None)
    found = find([over, aside, whole], descriptions_since=NOW - timedelta(days=9))
    cuts = {(key.rule, key.group_id): one.details.get("cut") for key, one in found.items()}
    rule = "StreamsGroupDescriptionFailed"
    assert cuts[rule, "orders"] == "its row has only a part of its members"
    assert cuts[rule, "payments"] == "it is set aside: its row is as it was before"
    assert cuts[rule, "clicks"] is None
    assert (cuts[OVER, "orders"], cuts[SET_ASIDE, "payments"]) == (None, None)


@pytest.mark.parametrize(("left_out", "details"), [(0, {}), (1_234, {"members_left_out_at_least": 1_000})])
def test_a_group_over_its_budget_says_what_is_left_out_and_how_much_if_that_is_counted(
    left_out: int, details: dict[str, Any]
) -> None:
    one = find([replace(stuck("orders", 48), members_left_out=left_out)])[AlertKey(OVER, "orders")]
    assert one.details == {"left_out": "members", **details}


@pytest.mark.parametrize(("number", "is_flood"), [(4, False), (5, True)])
def test_many_new_groups_are_a_flood_also_if_nothing_is_wrong_with_them(number: int, *, is_flood: bool) -> None:
    groups = [replace(stuck(f"g{n}", 1), over_budget=None) for n in range(number)]
    settings = AlertSettings.model_validate({"rules": {FLOOD: {"groups": 5}}}).rule_settings_of()
    assert set(evaluate(groups, None, EvaluationContext(NOW), settings)) == (
        {AlertKey(FLOOD, None)} if is_flood else set()
    )


def test_few_new_groups_are_no_flood() -> None:
    assert AlertKey(FLOOD, None) not in find([stuck(f"g{number}", 1) for number in range(20)])


@pytest.mark.parametrize("length", [1, 32_000])
def test_a_rule_that_fails_for_a_group_sets_it_aside_and_holds_its_alerts(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    bad = "b" * length
    rule = next(one for one in evaluation.RULES_FOR_GROUPS if one.name == OVER)

    def fails(group: GroupSnapshot, *rest: Any) -> Any:
        if group.group_id == bad:
            raise ZeroDivisionError("b" * length)
        return find_failed(group, *rest)

    find_failed = rule.find
    monkeypatch.setattr(evaluation, "RULES_FOR_GROUPS", (replace(rule, find=fails),))
    evaluation._applicable_rules.cache_clear()
    try:
        context = EvaluationContext(NOW)
        found = evaluate([stuck(bad, 48), stuck("orders", 48)], None, context, SETTINGS)
    finally:
        evaluation._applicable_rules.cache_clear()
    assert AlertKey(OVER, "orders") in found
    assert "StreamsGroupOverBudget failed: ZeroDivisionError" in found[AlertKey(SET_ASIDE, bad)].summary
    assert is_held(AlertKey(OVER, bad), context)
    assert not is_held(AlertKey(OVER, "orders"), context)


def test_a_rule_about_the_job_that_fails_is_an_error_of_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    (first, *rest) = evaluation.RULES_FOR_JOB
    monkeypatch.setattr(evaluation, "RULES_FOR_JOB", (replace(first, find=fails), *rest))
    with pytest.raises(ZeroDivisionError):
        evaluate([], JobStatus(NOW), EvaluationContext(NOW), SETTINGS)


def test_a_rule_that_is_not_enabled_does_not_end_the_evaluation_of_those_after_it() -> None:
    failing = JobStatus(NOW - timedelta(days=9), caught_up=True, failing_since=NOW - timedelta(days=1), failure="no")
    (stopped,) = evaluate([], failing, EvaluationContext(NOW), SETTINGS)
    rules = [rule.name for rule in evaluation.RULES_FOR_JOB]
    before = rules[: rules.index(stopped.rule)]
    off = AlertSettings.model_validate({"rules": {name: {"enabled": False} for name in before}}).rule_settings_of()
    assert list(evaluate([], failing, EvaluationContext(NOW), off)) == [stopped]
