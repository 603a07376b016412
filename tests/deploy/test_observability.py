"""The dashboard and the alert rules in `deploy/`: what they ask for is there, and asked as Prometheus wants it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from streaming_app.core.rules import RULES
from streaming_app.metrics.group_metrics import GROUP_METRICS
from streaming_app.metrics.job_metrics import JOB_METRICS
from tests.tools import MissingToolError, debian_tool

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES_FILE = DEPLOY / "prometheus" / "streams-groups.rules.yml"
RULES_TEST = DEPLOY / "prometheus" / "streams-groups.rules.test.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "streams-groups.json").read_text("utf-8"))
GROUPS = yaml.safe_load(RULES_FILE.read_text("utf-8"))["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}

_SUFFIXES = {"summary": ("_count", "_sum")}
LABELS = {
    metric.name + suffix: {"cluster", *group, *metric.labels}
    for metrics, group in ((JOB_METRICS, ()), (GROUP_METRICS, ("group",)))
    for metric in metrics
    for suffix in _SUFFIXES.get(metric.kind, ("",))
}
"""What a scrape gives: the name of each series, and its labels."""
COUNTERS = {name for name in LABELS if name.endswith(("_total", "_sum", "_count"))}

QUERIES = [
    *((f"alert {rule['alert']}", rule["expr"]) for rule in ALERTS),
    *((f"panel {panel['title']}", target["expr"]) for panel in PANELS for target in panel["targets"]),
]


def nodes(query: str) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(query), found.append)
    return found


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_asks_for_metrics_and_labels_that_there_are(where: str, query: str) -> None:
    found = nodes(query)
    selectors = [node for node in found if isinstance(node, promql_parser.VectorSelector)]
    assert selectors, where
    known: set[str] = set()
    for selector in selectors:
        assert selector.name in LABELS, where
        assert {matcher.name for matcher in selector.matchers.matchers} <= LABELS[selector.name], where
        known |= LABELS[selector.name]
    for node in found:
        modifier = getattr(node, "modifier", None)
        grouped = modifier if isinstance(node, promql_parser.AggregateExpr) else getattr(modifier, "matching", None)
        assert set(grouped.labels if grouped else ()) <= known, where


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_rates_are_of_counters(where: str, query: str) -> None:
    for node in nodes(query):
        if isinstance(node, promql_parser.Call) and node.func.name in {"rate", "increase"}:
            assert node.args[0].vector_selector.name in COUNTERS, where


def test_label_values_are_those_that_the_job_gives() -> None:
    said = {value for _, query in QUERIES for value in re.findall(r'(?:state|status)[=!]~?"([^"]+)"', query)}
    named = {name for value in said for name in value.split("|")}
    known = {"Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Unknown", "firing", "pending"}
    known |= {"CURRENT", "FAILED", "UNCERTAIN", "NEVER_STORED", "STALE", "NO_TOPOLOGY"}
    assert named <= known
    assert {"NotReady", "FAILED", "firing"} <= named


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_where_to_look(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"deploy/RUNBOOK.md#{rule['alert'].lower()}"
    headings = [
        line.lstrip("# ") for line in (DEPLOY / "RUNBOOK.md").read_text("utf-8").splitlines() if line[:1] == "#"
    ]
    assert rule["alert"] in headings


def test_alerts_have_the_names_and_severities_of_the_jobs_own_rules() -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS}
    assert len(severities) == len(ALERTS)
    assert {name: severities.get(name) for name in RULES} == {name: rule.severity for name, rule in RULES.items()}


def promtool(*arguments: object) -> str:
    try:
        program = debian_tool("prometheus", "promtool")
    except MissingToolError as missing:
        pytest.skip(str(missing))
    ran = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", "--lint-fatal", RULES_FILE)


def test_the_rules_fire_when_they_should_and_not_else() -> None:
    assert "SUCCESS" in promtool("test", "rules", RULES_TEST)


def test_every_rule_is_tried_by_the_rules_test() -> None:
    text = RULES_TEST.read_text("utf-8")
    patterns = re.findall(r'alertname=~"([^"]+)"', text)
    for rule in ALERTS:
        name = rule["alert"]
        assert name in text or any(re.fullmatch(pattern, name) for pattern in patterns), name


def test_the_dashboard_has_what_grafana_needs_of_one() -> None:
    assert DASHBOARD["uid"] == "streams-groups"
    assert DASHBOARD["schemaVersion"] >= 41
    assert "__inputs" not in DASHBOARD, "it is provisioned from a file, too, and that asks nobody"
    assert list(VARIABLES) == ["datasource", "cluster", "group"]
    assert VARIABLES["datasource"]["query"] == "prometheus"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"] == [
        "Overview",
        "Group $group",
        "Topology descriptions (KIP-1331)",
        "Job",
    ]


@pytest.mark.parametrize("name", ["cluster", "group"])
def test_a_variable_is_filled_from_a_label_that_there_is(name: str) -> None:
    asked = re.fullmatch(r"label_values\((\w+)(\{.+\})?, (\w+)\)", VARIABLES[name]["query"]["query"])
    assert asked
    assert asked[3] == name
    assert name in LABELS[asked[1]]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_unit_a_description_and_the_datasource_of_the_variable(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    assert all(target["datasource"] == chosen for target in panel["targets"])
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    assert all('cluster="$cluster"' in target["expr"] for target in panel["targets"])
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panel)))
    assert used <= set(VARIABLES)


def cells(panel: dict[str, Any]) -> Iterator[tuple[int, int]]:
    at = panel["gridPos"]
    return ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))


def test_no_two_panels_overlap_and_none_leaves_the_grid() -> None:
    for panel in DASHBOARD["panels"]:
        assert 0 <= panel["gridPos"]["x"] <= panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations(DASHBOARD["panels"], 2):
        assert not set(cells(one)) & set(cells(other)), (one["title"], other["title"])


def test_every_metric_is_shown_or_alerted_on() -> None:
    asked = {node.name for _, query in QUERIES for node in nodes(query) if hasattr(node, "matchers")}
    assert asked == set(LABELS)
