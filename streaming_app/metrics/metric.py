"""The definition of a metric: one entry, from which samples and documentation are made. The entries: `*_metrics.py`.

Names follow Prometheus: base units, the unit last, `_total` for counters. All metrics have the label `cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from prometheus_client.core import Metric as MetricFamily

ScrapeT = TypeVar("ScrapeT")
_LONGEST_ID = 500
_SUFFIXES = {"counter": "_total", "info": "_info"}  # of samples, by type; family names have no suffix


class Sample(NamedTuple):
    """One value, with the values of the metric's own labels."""

    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric(Generic[ScrapeT]):
    """A metric, whose type follows from its name.

    At each scrape `read` returns the value (None: no series) or the samples. `labels` are the metric's own: all metrics
    also have `cluster`, and the metrics of groups `group`.
    """

    name: str
    help: str
    read: Callable[[ScrapeT], float | Iterable[Sample] | None]
    labels: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The type, in Prometheus' terms."""
        return next((kind for kind, suffix in _SUFFIXES.items() if self.name.endswith(suffix)), "gauge")

    def family(self, scrapes: Iterable[tuple[dict[str, str], ScrapeT]] = ()) -> MetricFamily:
        """Return the family with the samples of these scrapes, each with its labels."""
        family = MetricFamily(self.name.removesuffix(_SUFFIXES.get(self.type, "")), self.help, self.type)
        for labels, scrape in scrapes:
            found = self.read(scrape)
            for value, own in (Sample(found),) if isinstance(found, int | float) else found or ():
                family.add_sample(self.name, labels | dict(zip(self.labels, own, strict=True)), value)
        return family


def unix_seconds(time: datetime | None) -> float | None:
    """Return the time in seconds since the Unix epoch."""
    return None if time is None else time.timestamp()


def has_short_id(group_id: str) -> bool:
    """Return whether the id is short enough for a label: an id may have 32 kB, and each series of a group repeats it.

    The id of an application is part of the names of its internal topics, which have at most 249 characters.
    """
    return len(group_id) <= _LONGEST_ID
