"""The reference of all metrics, `deploy/METRICS.md`, from their definitions."""

from collections.abc import Iterable
from typing import Any

from streaming_app.config.sections import MAX_GROUPS
from streaming_app.metrics.group_metrics import GROUP_METRICS, LABELS_METRIC
from streaming_app.metrics.job_metrics import ALERT_METRICS, JOB_METRICS
from streaming_app.metrics.lag_metrics import LAG_METRICS, MAX_LAG_SERIES
from streaming_app.metrics.metric import Metric

_INTRODUCTION = f"""\
# Metrics

Generated from `streaming_app/metrics/` by `python -m deploy.generate`: edit those files, not this page.

The job serves the metrics at `/metrics` of the address in `metrics.listen`, in the text format of Prometheus or in
OpenMetrics, depending on the `Accept` header. All have the label `cluster`. Counters start at 0 when the job starts,
unless their description says otherwise.

`/health` returns 503 while a thread is stuck: for 15 minutes no alert was evaluated, or the stream made no progress,
although brokers respond. Restart the job then. It returns 200 while the stream fails: the job starts it again, and ends
by itself if that does not help. `/ready` returns 200 once the job has caught up with the topic. It returns 503 before
that, while the job is far behind, while its stream fails, and while no broker responds: the tables are then out of
date, but a restart would not help. Both return the reason as JSON.

## Cardinality

A group has at most {len(GROUP_METRICS) + 9} series, and at most {MAX_GROUPS:,} groups have series of their own
(`metrics.max_groups`). If there are more groups, the ones that were first seen the longest ago have series;
`streams_groups_left_out` counts the others. `metrics.groups` is a regular expression that
must match the whole group id. The counts by state in `streams_groups` always include all groups. Deleted groups have
no series.

State and description status are one series each, with the value 1 and the name in a label. The other states have no
series: `streams_group_state{{state="NotReady"}}` is all that a query needs. The series ends when the group
leaves the state.

"""
_LAG = f"""\
These metrics are for groups of any type that match `metrics.groups`. An unknown value is absent, never -1.
`metrics.lag_by` chooses what has series: `group`, `topic` (the default) or `partition`; finer labels are absent.
Queries can compute coarser sums: `sum by (cluster, group) (streams_group_lag_offsets)`,
`max by (cluster, group) (streams_group_lag_seconds)`. Each metric has at most {MAX_LAG_SERIES:,} series. The oldest
groups have them: a group has all its series or none. `streams-groups lag --by process` adds up the lag by process, and
in the same way by subtopology, task and host; so does SQL over the table `lag`.
`streams_groups_job_input_timestamp_seconds` is the time at which each broker last returned its end offsets.

"""
_HEADER = "| name | type | labels | description |\n|---|---|---|---|\n"


def page() -> str:
    """Return the text of the page."""
    return (
        _INTRODUCTION
        + "## Job and cluster\n\n"
        + _table((*JOB_METRICS, *ALERT_METRICS), ())
        + "\n## Each group\n\n"
        + _table((*GROUP_METRICS, LABELS_METRIC), ("group",))
        + "\n## Lag\n\n"
        + _LAG
        + _table(LAG_METRICS, ())
    )


def _table(metrics: Iterable[Metric[Any]], labels: tuple[str, ...]) -> str:
    rows = (
        f"| `{metric.name}` | {metric.type} | {_code(('cluster', *labels, *metric.labels))} | {metric.help} |\n"
        for metric in metrics
    )
    return _HEADER + "".join(rows)


def _code(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)
