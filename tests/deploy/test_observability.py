"""The dashboard and the alert rules in `deploy/`: their queries are valid and use metrics that exist."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from streaming_app.health.verdict import VERDICTS
from streaming_app.lag.statuses import STATUSES
from streaming_app.metrics.group_metrics import GROUP_METRICS
from streaming_app.metrics.job_metrics import ALERT_METRICS, JOB_METRICS
from streaming_app.metrics.lag_metrics import LAG_METRICS
from tests.support.tools import debian_tool

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = DEPLOY / "charts" / "streams-groups" / "files"
RULES_FILE = FILES / "streams-groups.rules.yml"
RULES_TEST = DEPLOY / "prometheus" / "streams-groups.rules.test.yml"
DASHBOARD = json.loads((FILES / "streams-groups.json").read_text("utf-8"))
GROUPS = yaml.safe_load(RULES_FILE.read_text("utf-8"))["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

LABELS = {
    metric.name: {"cluster", *group, *metric.labels}
    for metrics, group in ((JOB_METRICS, ()), (ALERT_METRICS, ()), (GROUP_METRICS, ("group",)), (LAG_METRICS, ()))
    for metric in metrics
}
"""The labels of each metric, by name."""
COUNTERS = {name for name in LABELS if name.endswith("_total")}

QUERIES = [
    *((f"alert {rule['alert']}", rule["expr"]) for rule in ALERTS),
    *((f"panel {panel['title']}", target["expr"]) for panel in PANELS for target in panel["targets"]),
]


def nodes(query: str) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(query), found.append)
    return found


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_uses_existing_metrics_and_labels(where: str, query: str) -> None:
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


def test_rates_are_of_counters() -> None:
    calls = [(where, node) for where, query in QUERIES for node in nodes(query) if isinstance(node, promql_parser.Call)]
    rated = {
        (where, node.args[0].vector_selector.name) for where, node in calls if node.func.name in {"rate", "increase"}
    }
    assert rated
    assert {(where, name) for where, name in rated if name not in COUNTERS} == set()


def test_label_values_are_values_that_the_job_exports() -> None:
    matched = {value for _, query in QUERIES for value in re.findall(r'(?:state|status|verdict)[=!]~?"([^"]+)"', query)}
    used = {name for value in matched for name in value.split("|")}
    known = {"Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Unknown"}
    known |= {*STATUSES, *VERDICTS, "CURRENT", "FAILED", "UNCERTAIN", "NEVER_STORED", "STALE", "NO_TOPOLOGY"}
    assert used <= known
    assert "FAILED" in used


def run_promtool(*arguments: object) -> str:
    command = [debian_tool("prometheus", "promtool"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_promtool_accepts_the_rules() -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in run_promtool("check", "rules", "--lint-fatal", RULES_FILE)


@pytest.mark.slow
def test_the_rules_fire_exactly_when_expected() -> None:
    assert "SUCCESS" in run_promtool("test", "rules", RULES_TEST)
