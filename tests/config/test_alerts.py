"""The sections `alerts:` and `labels:`: the groups to which an entry applies, and which one wins."""

from typing import Any

import pytest
from pydantic import ValidationError

from streaming_app.alerts.catalog import rules
from streaming_app.alerts.evaluate import watches_any
from streaming_app.config.alerts import AlertSettings
from streaming_app.config.declared import make_labels
from streaming_app.config.settings import Settings

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
    groups = ("payments", "batch-1", "a-gold")
    assert [name for name in groups if "StreamsGroupDown" in rule_settings_of(name)] == ["a-gold"]


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


LABELS = [
    {"groups": ".*", "team": "platform", "tier": "bronze"},
    {"groups": "payments-.*", "team": "payments"},
    {"groups": "payments-fraud", "tier": "gold"},
]


@pytest.mark.parametrize(
    ("group_id", "labels"),
    [
        ("search", {"team": "platform", "tier": "bronze"}),
        ("payments-ledger", {"team": "payments", "tier": "bronze"}),
        ("payments-fraud", {"team": "payments", "tier": "gold"}),
    ],
)
def test_all_labels_that_match_apply_and_the_last_one_wins(group_id: str, labels: dict[str, str]) -> None:
    settings = Settings.model_validate({"labels": LABELS})
    assert make_labels(settings.labels)(group_id) == labels


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"groups": ".*"}, "has no label"),
        ({"groups": ".*", "group": "x"}, "streams-groups sets it itself"),
        ({"groups": ".*", "since": "x"}, "streams-groups sets it itself"),
        ({"groups": ".*", "my-team": "x"}, "use letters, digits and _"),
        ({"groups": "(", "team": "x"}, "groups"),
        ({"team": "x"}, "groups"),
        ({"groups": ".*", "team": ""}, "team"),
    ],
)
def test_a_wrong_entry_of_labels_is_refused_with_what_is_wrong(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Settings.model_validate({"labels": [entry]})
