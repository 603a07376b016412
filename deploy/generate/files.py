"""The list of generated files outside `docs/`, and the generator of each."""

from __future__ import annotations

from pathlib import Path

from deploy.generate import figures, metrics, prometheus, records, runbook
from tests.long import adding

ROOT = Path(__file__).parents[2]


def files() -> dict[str, str]:
    """Return the text of every generated file by its path in the project."""
    return {
        "CONTRIBUTING.md": adding.page(),
        "schemas/RECORDS.md": records.page(),
        "deploy/METRICS.md": metrics.page(),
        **runbook.pages(),
        prometheus.NAME: prometheus.page(),
        **figures.files(),
    }
