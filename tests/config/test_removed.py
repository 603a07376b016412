"""Keys of 0.2.0 that went are left out; each is named once with what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.catalog import rules
from streaming_app.config.load import load
from streaming_app.config.removed import REMOVED

GONE = sorted(path[-1] for path in REMOVED if path[:2] == ("alerts", "rules") and len(path) == 3)


def test_a_rule_that_went_is_not_a_rule() -> None:
    assert len(GONE) >= 7
    assert rules().keys().isdisjoint(GONE)


@pytest.mark.parametrize("rule", GONE)
def test_settings_of_a_rule_that_went_are_named_and_change_nothing(rule: str, write: Callable[[Any], Path]) -> None:
    old = {rule: {"enabled": False, "severity": "critical", "for": "1h"}, "StreamsGroupDown": {"after": "7m"}}
    overrides = [{"groups": "a", "rules": {rule: {"severity": "info"}}}] * 2
    loaded = load(write({"alerts": {"rules": old, "overrides": overrides}}))
    assert sorted(loaded.removed) == [
        f"alerts.overrides.rules.{rule} was removed and does nothing: use {REMOVED['alerts', 'rules', rule]}",
        f"alerts.rules.{rule} was removed and does nothing: use {REMOVED['alerts', 'rules', rule]}",
    ]
    settings = loaded.settings.alerts.rule_settings_of()("a")
    assert settings["StreamsGroupDown"].for_seconds == 420
    assert rule not in settings


def test_a_variable_of_a_rule_that_went_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_ALERTS__RULES__STREAMSGROUPSFLOOD__GROUPS", "5")
    (line,) = load().removed
    assert line.startswith("alerts.rules.streamsgroupsflood was removed and does nothing: use the metrics ")
