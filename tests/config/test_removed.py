"""Keys of 0.2.0 that went are left out; each is named once with what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.catalog import rules
from streaming_app.config.load import load
from streaming_app.config.removed import REMOVED

RULES_OF_0_2_0: dict[str, dict[str, Any]] = {
    "StreamsGroupOffsetsRewound": {"for": "2m"},
    "StreamsGroupUnsolicitedDescription": {"severity": "warning", "window": "1h"},
    "StreamsGroupDescriptionMissing": {"for": "90m", "upgraded_for": "7d"},
    "StreamsGroupsJobStopped": {"for": "2m", "silence": "10m"},
    "StreamsGroupsUndecodableRecords": {"window": "1d"},
    "StreamsGroupsSelfCheckFailed": {"window": "1h"},
}
"""Some of the section that the example of 0.2.0 has, with every key that the rules of this release lack."""
RULES = "alerts.rules."
GONE = sorted(path.removeprefix(RULES) for path in REMOVED if path.startswith(RULES) and path.count(".") == 2)


@pytest.mark.parametrize("rule", GONE)
def test_settings_of_a_rule_that_went_are_named_and_change_nothing(rule: str, write: Callable[[Any], Path]) -> None:
    old = {rule: {"enabled": False, "severity": "critical", "for": "1h"}, "StreamsGroupDown": {"after": "7m"}}
    overrides = [{"groups": "a", "rules": {rule: {"severity": "info"}}}] * 2
    loaded = load(write({"alerts": {"rules": old, "overrides": overrides}}))
    assert sorted(loaded.removed) == [
        f"alerts.overrides.rules.{rule} was removed and does nothing: use {REMOVED[RULES + rule]}",
        f"alerts.rules.{rule} was removed and does nothing: use {REMOVED[RULES + rule]}",
    ]
    settings = loaded.settings.alerts.rule_settings_of()("a")
    assert settings["StreamsGroupDown"].for_seconds == 420
    assert rule not in settings


def test_the_rules_of_the_example_of_0_2_0_are_read_and_what_went_is_named(write: Callable[[Any], Path]) -> None:
    loaded = load(write({"alerts": {"rules": RULES_OF_0_2_0, "overrides": [{"groups": "a", "rules": RULES_OF_0_2_0}]}}))
    assert rules().keys() | set(GONE) >= RULES_OF_0_2_0.keys()
    named = " ".join(loaded.removed)
    for name, section in RULES_OF_0_2_0.items():
        for key in section.keys() - {"enabled", "severity", "for"} if name in rules() else ():
            assert f"alerts.rules.{name}.{key} was removed" in named
            assert f"alerts.overrides.rules.{name}.{key} was removed" in named
    assert "alerts.rules.StreamsGroupsSelfCheckFailed was removed" in named
    assert loaded.settings.alerts.rule_settings_of()("a")["StreamsGroupOffsetsRewound"].for_seconds == 120


def test_a_variable_of_a_rule_that_went_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_ALERTS__RULES__STREAMSGROUPSFLOOD__GROUPS", "5")
    (line,) = load().removed
    assert line.startswith("alerts.rules.streamsgroupsflood was removed and does nothing: use the metric ")


def test_a_kind_of_sink_and_an_item_that_went_are_named_and_left_out(write: Callable[[Any], Path]) -> None:
    sinks = [
        {"type": "slack", "url": "${env:NO_SUCH_VARIABLE}"},
        {"type": "watchdog", "url": "http://h", "interval": 9},
        {"type": "alertmanager", "urls": ["http://h"], "watchdog": True},
    ]
    loaded = load(write({"sinks": sinks, "metrics": {"lag_by": ["group", "task"]}}))
    assert {line.partition(" was removed and does nothing: use ")[0] for line in loaded.removed} == {
        "sinks.type: slack",
        "sinks.interval",
        "metrics.lag_by.task",
        "sinks.watchdog",
    }
    assert [sink.name for sink in loaded.settings.sinks] == ["watchdog", "alertmanager"]
    assert loaded.settings.metrics.lag_by == "group"
