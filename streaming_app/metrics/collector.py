"""Collects the samples of a scrape from the cached groups, the job's status, the open alerts and the sinks.

The state of a group is one series with the value 1 and the state as a label. One series for each possible state would
be six times as many, and queries and alerts need only `streams_group_state{state="NotReady"}`. When the group leaves
the state, Prometheus marks the series as stale at the next scrape. The disadvantage: for the time outside the state, a
range query gets no sample instead of 0.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector

from streaming_app.config.sections import MetricsSettings
from streaming_app.groups.group import CLASSIC, STREAMS
from streaming_app.groups.snapshot import NEW_FOR, GroupSnapshot, select
from streaming_app.groups.state_rules import DEAD
from streaming_app.metrics.group_metrics import GROUP_METRICS, HEALTH_METRICS, LABELS_METRIC, GroupScrape
from streaming_app.metrics.job_metrics import ALERT_METRICS, JOB_METRICS, JobScrape, alerts_with_series
from streaming_app.metrics.lag_metrics import LAG_METRICS, LagScrape
from streaming_app.metrics.metric import has_short_id
from streaming_app.text import EPOCH

_ALERT_SERIES = 1_000


def make_registry(scrape: Callable[[], JobScrape], settings: MetricsSettings) -> CollectorRegistry:
    """Return a registry with only the metrics of this project. Each scrape calls `scrape` for its input."""
    registry = CollectorRegistry()
    registry.register(_StreamsGroupsCollector(scrape, settings))
    return registry


class _StreamsGroupsCollector(Collector):
    def __init__(self, scrape: Callable[[], JobScrape], settings: MetricsSettings) -> None:
        self._scrape, self._settings = scrape, settings
        self._lag: LagScrape | None = None

    def describe(self) -> Iterator[MetricFamily]:
        """Yield the families without samples: a scrape with `?name[]=` selects families by name."""
        for metrics in (JOB_METRICS, ALERT_METRICS, (*GROUP_METRICS, LABELS_METRIC), LAG_METRICS):
            yield from (metric.family() for metric in metrics)

    def collect(self) -> Iterator[MetricFamily]:
        job, now = self._scrape(), time.time()
        cluster = {"cluster": job.cluster}
        existing = [group for group in job.groups.values() if group.state != DEAD]
        matching = [group for group in existing if self._settings.groups.matches(group.group_id)]
        selected = list[GroupSnapshot]()
        for protocol in (STREAMS, CLASSIC):  # these have only their health, and take no place of the others
            of_protocol = (one for one in matching if one.protocol == protocol and has_short_id(one.group_id))
            selected += select(of_protocol, self._settings.max_groups - len(selected))
        lag = None if job.lag is None else self._lag
        if job.lag is not None and (lag is None or lag.newest is not job.lag):  # else a scrape has computed its sums
            first_seen = {group.group_id: group.first_seen_at or EPOCH for group in job.groups.values()}
            lag = self._lag = LagScrape(job.lag, self._settings, first_seen, datetime.now(timezone.utc) - NEW_FOR)
        alerts, without_series = alerts_with_series(job, _ALERT_SERIES)
        left_out = {"series": len(matching) - len(selected), **({"lag": lag.left_out} if lag else {}), **job.left_out}
        left_out["alert_series"] = without_series
        yield from (metric.family([(cluster, replace(job, left_out=left_out))]) for metric in JOB_METRICS)
        yield from (metric.family([(cluster, replace(job, alerts=alerts))]) for metric in ALERT_METRICS)
        scrapes = [
            GroupScrape(
                group,
                job.rebalances_total(group.group_id),
                now,
                job.copies.get(group.group_id),
                job.verdicts.get(group.group_id),
            )
            for group in selected
        ]
        labelled = [({**cluster, "group": scrape.snapshot.group_id}, scrape) for scrape in scrapes]
        of_streams = [one for one in labelled if one[1].snapshot.protocol == STREAMS]
        yield from (one.family(labelled if one in HEALTH_METRICS else of_streams) for one in GROUP_METRICS)
        declared = [(job.labels_of(own["group"]), own, scrape) for own, scrape in labelled]
        yield LABELS_METRIC.family(({**labels, **own}, scrape) for labels, own, scrape in declared if labels)
        if lag:
            yield from (metric.family([(cluster, lag)]) for metric in LAG_METRICS)
