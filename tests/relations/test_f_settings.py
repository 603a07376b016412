"""Relation F: whatever the settings of the rules are, all surfaces have the same alerts with the same severities.

A history is played with the default settings, and with others. Groups, times and texts of the verdicts stay. At each
change, the metrics have the open alerts with the severity of the table `alerts`, the rules for Prometheus fire for
those that are not muted, the messages have the same, and the rules of 0.3.0, which read the verdicts, fire for no group
without an open alert.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate.prometheus import NAME
from streaming_app.alerts.alert import FIRING, Alert
from streaming_app.alerts.catalog import RULE_OF_VERDICT, rules
from streaming_app.config.sections import MetricsSettings
from streaming_app.health.verdict import Verdict
from streaming_app.metrics.collector import make_registry
from streaming_app.metrics.job_metrics import JobScrape
from streaming_app.notify.webhook import payload
from streaming_app.text import utc_iso
from tests.histories.outcome import Outcome
from tests.relations import surfaces
from tests.relations.engine import a_fifth, play
from tests.support.documents import ROOT
from tests.support.metrics_harness import busy_health, group

DOWN, STALLED, BEHIND = "StreamsGroupDown", "StreamsGroupStalled", "StreamsGroupBehind"
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "ignored": {"ignore_groups": ".*"},
    "disabled": {"rules": {DOWN: {"enabled": False}, STALLED: {"enabled": False}}},
    "lowered": {"rules": {DOWN: {"severity": "warning"}, STALLED: {"severity": "info"}}},
    "raised": {"overrides": [{"groups": ".*", "rules": {BEHIND: {"severity": "critical"}}}]},
    "later": {"rules": {DOWN: {"for": "20m"}, STALLED: {"for": "20m"}}},
}
RULE = re.compile(r'max by \(cluster, group, severity\) \(streams_group_alert\{rule="(\w+)", muted="false"\}\) == 1')
RULES = [
    one["alert"]
    for one in yaml.safe_load((ROOT / NAME).read_text("utf-8"))["groups"][0]["rules"]
    if (found := RULE.fullmatch(one["expr"])) and found[1] == one["alert"]
]
"""The rules for Prometheus that fire for each alert with their name that is open and not muted."""
HISTORIES = a_fifth("F")[::3]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_surface_says_the_same_whatever_the_settings_are(
    name: str, tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    """Metrics, rules and messages at each change; the surfaces that read tables at the last one with open alerts."""
    seen = 0
    for number, history in enumerate(HISTORIES):
        outcome = _play(number, name)
        if name != "later":  # severities change neither verdicts nor their times
            assert _verdicts(outcome) == _verdicts(_play(number, "default")), history.name
        for at, verdicts, alerts in _instants(outcome):
            _check_instant(verdicts, alerts, at)
            seen += len(alerts)
        instants = list(_instants(outcome))
        at, verdicts, alerts = next((one for one in reversed(instants) if one[2]), instants[-1])
        warehouse = create_warehouse(tmp_path / str(number))
        surfaces.write(warehouse, verdicts, alerts)
        surfaces.check(warehouse, verdicts, alerts, at)
    assert bool(seen) is (name != "ignored")


@cache
def _play(number: int, name: str) -> Outcome:
    history = HISTORIES[number]
    return play(replace(history, settings={**history.settings, **SETTINGS[name]}, later_settings={}))


def _verdicts(outcome: Outcome) -> list[tuple[object, ...]]:
    """Return the verdicts, without those that differ from the one before in severity alone."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for one in outcome.changes:
        shown = one.group_id, one.verdict.verdict, one.verdict.since, one.verdict.why
        of_group = found.setdefault(one.group_id, [])
        if of_group[-1:] != [shown]:
            of_group.append(shown)
    return [one for of_group in found.values() for one in of_group]


def _instants(outcome: Outcome) -> Iterator[tuple[datetime, Mapping[str, Verdict], list[Alert]]]:
    """Yield for each change of a verdict or alert: when, the verdicts, and the open alerts as they were then."""
    lines = {line.at for one in outcome.all_alerts for line in one.timeline}
    verdicts: dict[str, Verdict] = {}
    changes = sorted(outcome.changes, key=lambda one: one.at)
    for at in sorted({*lines, *(one.at for one in changes)}):
        while changes and changes[0].at <= at:
            change = changes.pop(0)
            verdicts[change.group_id] = change.verdict
        yield at, dict(verdicts), [then for one in outcome.all_alerts if (then := _as_of(one, at))]


def _as_of(one: Alert, at: datetime) -> Alert | None:
    """Return an open alert as it was at a time; None if it was not open."""
    lines = [line for line in one.timeline if line.at <= at]
    if not lines or (one.ended_at is not None and one.ended_at <= at):
        return None
    return replace(one, rule=lines[-1].rule, severity=lines[-1].severity, ended_at=None, ended_by=None)


def _check_instant(verdicts: Mapping[str, Verdict], alerts: list[Alert], at: datetime) -> None:
    muted = {one.alert_id for one in alerts[::2]}
    health = busy_health()
    groups = {group_id: group(group_id) for group_id in verdicts}
    scrape = JobScrape(
        "prod", groups, health.status, health.totals, alerts, lambda one: one.alert_id in muted, verdicts=verdicts
    )
    families = {one.name: one.samples for one in make_registry(lambda: scrape, MetricsSettings()).collect()}
    series = [one.labels for one in families["streams_group_alert"]]
    is_open = {(one.group_id or "", one.rule, one.severity) for one in alerts}
    assert {(one["group"], one["rule"], one["severity"]) for one in series} == is_open
    sent = {(one.group_id or "", one.rule, one.severity) for one in alerts if one.alert_id not in muted}
    fires = {
        (one["group"], rule, one["severity"])
        for rule in RULES
        for one in series
        if (one["rule"], one["muted"]) == (rule, "false")
    }
    assert fires == sent
    samples = families["streams_group_alert_since_timestamp_seconds"]
    since = {(one.labels["group"], one.labels["rule"]): one.value for one in samples}
    for one in alerts:
        data = payload(one, FIRING, {})["data"]
        assert (data["rule"], data["severity"]) == (one.rule, one.severity)
        assert data["pending_since"] == utc_iso(
            datetime.fromtimestamp(since[one.group_id or "", one.rule], timezone.utc)
        )
    for labels in (one.labels for one in families["streams_group_health"]):  # what the rules of 0.3.0 read
        rule = RULE_OF_VERDICT.get(labels["verdict"])
        if rule and labels["severity"] != "none":
            assert any(one.group_id == labels["group"] for one in alerts), (at, labels)


def test_the_rules_of_prometheus_read_the_open_alerts_of_each_rule_of_the_catalogue() -> None:
    assert set(RULES) == set(rules())
