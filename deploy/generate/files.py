"""Which files outside of `docs/` are generated, and from what. A test compares each with what is in the project."""

from __future__ import annotations

from pathlib import Path

from deploy.generate import figures, metrics, prometheus, records, runbook
from tests import adding

ROOT = Path(__file__).parents[2]
_CHART_FILES = "deploy/charts/streams-groups/files"
_COPIED = ("deploy/grafana/*.json", "deploy/prometheus/*.rules.yml")


def files() -> dict[str, str]:
    """Return the text of every generated file by its path in the project."""
    return {
        "CONTRIBUTING.md": adding.page(),
        "schemas/RECORDS.md": records.page(),
        "deploy/METRICS.md": metrics.page(),
        "deploy/RUNBOOK.md": runbook.page(),
        "deploy/prometheus/streams-groups.rules.yml": prometheus.page(),
        **chart_files(),
        **figures.files(),
    }


def chart_files() -> dict[str, str]:
    """Return the dashboards and rules of the chart, which Helm can only read from its own directory: copies."""
    originals = (file for pattern in _COPIED for file in sorted(ROOT.glob(pattern)))
    texts = {file.name: file.read_text("utf-8") for file in originals} | {prometheus.PAGE.name: prometheus.page()}
    return {f"{_CHART_FILES}/{name}": text for name, text in texts.items()}
