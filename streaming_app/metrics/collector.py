"""Makes the samples of a scrape: from the mirror, the job's health, the open alerts and the sinks, at that moment.

A state is one series with the value 1, named by its label, and not one series for each state there is: six times fewer
series, and `streams_group_state{state="NotReady"}` is all that a query or an alert needs. When the group leaves the
state Prometheus marks that series as ended at the next scrape, so nothing lingers. The price is that a query over
time must not count on a 0.
"""

from __future__ import annotations

import heapq
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from streaming_app.core.alert import Alert
from streaming_app.core.facts import GroupFacts
from streaming_app.job.health import Health
from streaming_app.metrics.group_metrics import GROUP_METRICS, OfGroup
from streaming_app.metrics.job_metrics import JOB_METRICS, OfJob, SinkCounts
from streaming_app.metrics.metric import Metric, Source
from streaming_app.metrics.settings import MetricsSettings

_SUFFIXES = {"counter": "_total", "info": "_info"}  # of samples: the families are named without
_DEAD, _STABLE = "Dead", "Stable"


class Groups(Protocol):
    """Who knows the groups: `streaming_app.alerts.mirror.Mirror`."""

    def groups(self) -> Mapping[str, GroupFacts]:
        """The groups, by id."""

    def rebalances_total(self, group_id: str) -> int:
        """How often the group was assigned anew."""


@dataclass(frozen=True)
class Sources:
    """Whom each scrape asks, for one cluster."""

    cluster: str
    groups: Groups
    health: Health
    alerts: Callable[[], Iterable[Alert]] = tuple
    """Gives the open ones."""
    sinks: Callable[[], Sequence[SinkCounts]] = tuple


def make_registry(sources: Sources, settings: MetricsSettings) -> CollectorRegistry:
    """A registry that holds our metrics and no others."""
    registry = CollectorRegistry()
    registry.register(_OurCollector(sources, settings))
    return registry


class _OurCollector(Collector):
    def __init__(self, sources: Sources, settings: MetricsSettings) -> None:
        self._sources = sources
        self._allowed = re.compile(settings.groups, re.DOTALL)  # an id may hold any character
        self._most = settings.max_groups
        self._version = version("streams-groups")

    def describe(self) -> Iterator[Family]:
        """The names alone: what `?name[]=` of a scrape chooses by."""
        yield from (_family(metric) for metric in JOB_METRICS)
        yield from (_family(metric) for metric in GROUP_METRICS)

    def collect(self) -> Iterator[Family]:
        ask, now = self._sources, time.time()
        alive = [group for group in ask.groups.groups().values() if group.state != _DEAD]
        allowed = [group for group in alive if self._allowed.fullmatch(group.group_id)]
        shown = heapq.nsmallest(self._most, allowed, key=_urgency)
        job = OfJob(
            facts=ask.health.facts,
            counted=ask.health.counted,
            groups_by_state=Counter(group.state for group in alive),
            groups_left_out=len(allowed) - len(shown),
            alerts=Counter((alert.rule, alert.severity, alert.state) for alert in ask.alerts()),
            sinks=ask.sinks(),
            version=self._version,
        )
        for metric in JOB_METRICS:
            yield _with_samples(metric, [({"cluster": ask.cluster}, job)])
        sources = [OfGroup(group, ask.groups.rebalances_total(group.group_id), now) for group in shown]
        labelled = [({"cluster": ask.cluster, "group": source.facts.group_id}, source) for source in sources]
        for group_metric in GROUP_METRICS:
            yield _with_samples(group_metric, labelled)


def _urgency(group: GroupFacts) -> tuple[bool, str]:
    """The order in which groups get series of their own; the same groups in the same states: the same choice."""
    return group.state == _STABLE, group.group_id


def _family(metric: Metric[Source]) -> Family:
    return Family(metric.name.removesuffix(_SUFFIXES.get(metric.kind, "")), metric.about, metric.kind)


def _with_samples(metric: Metric[Source], sources: Iterable[tuple[dict[str, str], Source]]) -> Family:
    family = _family(metric)
    for labels, source in sources:
        for value, own, suffix in metric.samples(source):
            named = labels | dict(zip(metric.labels, own, strict=True)) if own else labels
            family.add_sample(metric.name + suffix, named, value)
    return family
