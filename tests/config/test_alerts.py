"""The section `alerts:`: the groups it applies to, and which override wins."""

from typing import Any

import pytest

from streaming_app.alerts.catalog import rules
from streaming_app.alerts.evaluate import watches_any
from streaming_app.config.alerts import AlertSettings

OFF = {name: {"enabled": False} for name in rules()}
ON = {"StreamsGroupDown": {"enabled": True}}


def test_patterns_match_whole_ids() -> None:
    rule_settings_of = AlertSettings.model_validate(
        {"groups": "pay.*|orders", "ignore_groups": ["payroll", ".*-test"]}
    ).rule_settings_of()
    included = [
        g for g in ("payments", "orders", "orders-2", "payroll", "payroll-2", "pay-test", "x") if rule_settings_of(g)
    ]
    assert included == ["payments", "orders", "payroll-2"]
    assert "StreamsGroupsJobStopped" in rule_settings_of(None)
    assert AlertSettings.model_validate({"ignore_groups": "a"}).rule_settings_of()("a") == {}


def test_the_last_override_wins_key_by_key() -> None:
    not_ready = "StreamsGroupOffsetsRewound"
    rule_settings_of = AlertSettings.model_validate(
        {
            "rules": {not_ready: {"severity": "warning"}, "StreamsGroupDown": {"enabled": False}},
            "overrides": [
                {"groups": "batch-.*", "rules": {not_ready: {"for": "1h", "severity": "info"}}},
                {
                    "groups": ".*-gold",
                    "rules": {not_ready: {"severity": "critical"}, "StreamsGroupDown": {"enabled": True}},
                },
                {"groups": "batch-x", "rules": {not_ready: {"enabled": False}, "StreamsGroupBehind": {"for": 99}}},
            ],
        }
    ).rule_settings_of()

    def severity_and_for(group_id: str) -> tuple[str, float]:
        rule = rule_settings_of(group_id)[not_ready]
        return rule.severity, rule.for_seconds

    assert severity_and_for("payments") == ("warning", 120)
    assert severity_and_for("batch-1") == ("info", 3600)
    assert severity_and_for("batch-gold") == ("critical", 3600)
    assert not_ready not in rule_settings_of("batch-x")
    assert rule_settings_of("batch-x")["StreamsGroupBehind"].for_seconds == 99
    assert ["StreamsGroupDown" in rule_settings_of(name) for name in ("payments", "batch-1", "a-gold")] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("values", "is_watched"),
    [
        ({}, True),
        ({"ignore_groups": ".*"}, False),
        ({"overrides": [{"groups": ".*", "rules": {"StreamsGroupDown": {"enabled": False}}}]}, True),
        ({"overrides": [{"groups": ".*", "rules": OFF}]}, False),
        ({"overrides": [{"groups": ".*", "rules": OFF}, {"groups": "pay.*", "rules": ON}]}, True),
        ({"overrides": [{"groups": "pay.*", "rules": ON}, {"groups": ".*", "rules": OFF}]}, False),
    ],
)
def test_a_pattern_that_matches_everything_leaves_no_group_to_watch(values: dict[str, Any], is_watched: bool) -> None:
    rule_settings_of = AlertSettings.model_validate(values).rule_settings_of()
    assert watches_any(["payments", "orders"], rule_settings_of) is is_watched
    assert "StreamsGroupsJobStopped" in rule_settings_of(None)
