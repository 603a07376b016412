"""Writes the page of all metrics, `deploy/METRICS.md`, from their definitions.

`python -m streaming_app.metrics.document`
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streaming_app.metrics.group_metrics import GROUP_METRICS
from streaming_app.metrics.job_metrics import JOB_METRICS
from streaming_app.metrics.metric import Metric
from streaming_app.metrics.settings import MAX_GROUPS

PAGE = Path(__file__).parents[2] / "deploy" / "METRICS.md"

_INTRODUCTION = f"""\
# The metrics

Written from `streaming_app/metrics/` by `python -m streaming_app.metrics.document`: change those files, not this page.

The job serves them at `/metrics` of the address in `metrics.listen`, as Prometheus text or OpenMetrics, whichever is
asked for. All carry `cluster`. Counters start at 0 with the job, unless their description says otherwise.

`/health` answers 200 while the job does its work, 503 while its stream fails or stands still although brokers answer:
restart it then. `/ready` answers 200 once the job has caught up with the topic, and 503 before, while it is far
behind, and while no broker answers: what it shows is old then, but a restart would not help. Both say why, in JSON.

## Cardinality

A group has at most {len(GROUP_METRICS)} series, and at most {MAX_GROUPS:,} groups have series of their own
(`metrics.max_groups`). If there are more, those that are not Stable come first, then it goes by name, and
`streams_groups_series_dropped` says how many are left out. `metrics.groups` is a regular expression that the whole
group id must match to be among them. The counts by state in `streams_groups` are always those of all groups. Deleted
groups have no series.

State and description status are one series each, with the value 1, named by a label. The other states have no series:
`streams_group_state{{state="NotReady"}}` is all that a query needs, and it ends when the group leaves the state.

"""
_HEADER = "| name | type | labels | what it is |\n|---|---|---|---|\n"


def page() -> str:
    """Return the page's text."""
    return (
        _INTRODUCTION
        + "## Of the job and the cluster\n\n"
        + _table(JOB_METRICS, ())
        + "\n## Of each group\n\n"
        + _table(GROUP_METRICS, ("group",))
    )


def _table(metrics: Iterable[Metric[Any]], labels: tuple[str, ...]) -> str:
    rows = (
        f"| `{metric.name}` | {metric.kind} | {_spelled(('cluster', *labels, *metric.labels))} | {metric.about} |\n"
        for metric in metrics
    )
    return _HEADER + "".join(rows)


def _spelled(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
