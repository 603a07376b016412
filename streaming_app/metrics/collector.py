"""Collects the samples of a scrape from the cached groups, the job's status, the open alerts and the sinks.

The state of a group is one series with the value 1 and the state as a label, not one series for each possible state.
This is a sixth of the series, and queries and alerts need only `streams_group_state{state="NotReady"}`. When the group
leaves the state, Prometheus marks the series as stale at the next scrape. The cost: a range query gets no sample for
the time outside the state, instead of 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector

from streaming_app.alerts.problem import FIRING, Problem
from streaming_app.config.sections import MetricsSettings
from streaming_app.groups.snapshot import NEW_FOR, GroupSnapshot, select
from streaming_app.groups.state_rules import DEAD
from streaming_app.groups.task_copies import CopiesSum
from streaming_app.health.verdict import Verdict
from streaming_app.job_status import SinkStatus
from streaming_app.lag.model import LagRow
from streaming_app.metrics.group_metrics import GROUP_METRICS, LABELS_METRIC, GroupScrape
from streaming_app.metrics.job_metrics import JOB_METRICS, JobScrape
from streaming_app.metrics.lag_metrics import LAG_METRICS, LagScrape
from streaming_app.metrics.metric import has_short_id
from streaming_app.stream.health import Health
from streaming_app.text import EPOCH


class GroupSource(Protocol):
    """The groups for the collector; implemented by `streaming_app.job.group_cache.GroupCache`."""

    def groups(self) -> Mapping[str, GroupSnapshot]:
        """Return the groups by id."""

    def rebalances_total(self, group_id: str) -> int:
        """Return the number of new target assignments of the group."""


@dataclass(frozen=True)
class MetricSources:
    """The objects that each scrape reads, for one cluster."""

    cluster: str
    groups: GroupSource
    health: Health
    alerts: Callable[[], Iterable[Problem]] = tuple
    """Returns the open alerts."""
    sinks: Callable[[], Sequence[SinkStatus]] = tuple
    lag: Callable[[], Sequence[LagRow] | None] = lambda: None
    """Returns the rows of the newest lag pass; None before the first one, or without `lag`."""
    copies: Callable[[], Mapping[str, Mapping[str, CopiesSum]]] = dict
    """Returns the sums over the copies of tasks, by group."""
    verdicts: Callable[[], Mapping[str, Verdict]] = dict
    """Returns the newest verdict of each group."""
    types: Callable[[], Mapping[str, int]] = dict
    """Returns the number of groups by type; empty while it is not known."""
    newcomers_left_out: Callable[[], Mapping[str, int]] = dict
    """Returns for how many new groups something is omitted; see `AlertService.newcomers_left_out`."""
    labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {}
    """Returns the labels that the configuration declares for a group."""


def make_registry(sources: MetricSources, settings: MetricsSettings) -> CollectorRegistry:
    """Return a registry that has only the metrics of this project."""
    registry = CollectorRegistry()
    registry.register(_StreamsGroupsCollector(sources, settings))
    return registry


class _StreamsGroupsCollector(Collector):
    def __init__(self, sources: MetricSources, settings: MetricsSettings) -> None:
        self._sources, self._settings = sources, settings
        self._lag: LagScrape | None = None
        self._version = version("streams-groups")

    def describe(self) -> Iterator[MetricFamily]:
        """Yield the families without samples; a scrape with `?name[]=` selects by them."""
        for metrics in (JOB_METRICS, (*GROUP_METRICS, LABELS_METRIC), LAG_METRICS):
            yield from (metric.family() for metric in metrics)

    def collect(self) -> Iterator[MetricFamily]:
        sources, now, cluster = self._sources, time.time(), {"cluster": self._sources.cluster}
        existing = [group for group in sources.groups.groups().values() if group.state != DEAD]
        matching = [group for group in existing if self._settings.groups.matches(group.group_id)]
        selected = select((one for one in matching if has_short_id(one.group_id)), self._settings.max_groups)
        lag = self._newest_lag()
        job = JobScrape(
            status=sources.health.status,
            totals=sources.health.totals,
            groups_by_state=Counter(group.state for group in existing),
            left_out={
                "series": len(matching) - len(selected),
                **({"lag": lag.left_out} if lag else {}),
                **sources.newcomers_left_out(),
            },
            alerts=Counter((one.rule, one.severity) for one in sources.alerts() if one.state == FIRING),
            sinks=sources.sinks(),
            version=self._version,
            groups_by_type=sources.types(),
        )
        yield from (metric.family([(cluster, job)]) for metric in JOB_METRICS)
        copies, verdicts = sources.copies(), sources.verdicts()
        scrapes = [
            GroupScrape(
                group,
                sources.groups.rebalances_total(group.group_id),
                now,
                copies.get(group.group_id),
                verdicts.get(group.group_id),
            )
            for group in selected
        ]
        labelled = [({**cluster, "group": scrape.snapshot.group_id}, scrape) for scrape in scrapes]
        yield from (metric.family(labelled) for metric in GROUP_METRICS)
        declared = [(sources.labels_of(own["group"]), own, scrape) for own, scrape in labelled]
        yield LABELS_METRIC.family(({**labels, **own}, scrape) for labels, own, scrape in declared if labels)
        if lag:
            yield from (metric.family([(cluster, lag)]) for metric in LAG_METRICS)

    def _newest_lag(self) -> LagScrape | None:
        """Return the newest lag pass; its sums are computed once for all scrapes."""
        rows, scrape = self._sources.lag(), self._lag
        if rows is None:
            return None
        if scrape is None or scrape.newest is not rows:
            groups = self._sources.groups.groups().values()
            first_seen = {group.group_id: group.first_seen_at or EPOCH for group in groups}
            scrape = self._lag = LagScrape(rows, self._settings, first_seen, datetime.now(timezone.utc) - NEW_FOR)
        return scrape
