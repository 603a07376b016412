"""Writes every generated file outside `docs/`: `python -m deploy.generate`, or `make generate`."""

import sys
from pathlib import Path

from deploy.generate import chart_schema, figures, metrics, prometheus, records, runbook
from deploy.generate.output import finish

ROOT = Path(__file__).parents[2]


def files() -> dict[str, str]:
    """Return the text of every generated file by its path in the project."""
    return {
        "schemas/RECORDS.md": records.page(),
        "deploy/METRICS.md": metrics.page(),
        **runbook.pages(),
        prometheus.NAME: prometheus.page(),
        chart_schema.NAME: chart_schema.page(ROOT),
        **figures.files(),
    }


if __name__ == "__main__" and finish(ROOT, files(), {}, sys.argv[1:]):
    sys.exit(1)
