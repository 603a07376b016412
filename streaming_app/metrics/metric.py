"""The definition of a metric: one entry from which samples and documentation come. The entries are in `*_metrics.py`.

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
_SUFFIXES = {"counter": "_total", "info": "_info"}  # of samples, by type; the name of the family has none


class Sample(NamedTuple):
    """One value, with the values of the metric's own labels."""

    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric(Generic[ScrapeT]):
    """A metric, whose type follows from its name.

    `read` gives at each scrape its value, None for no series, or its samples; `labels` are those besides `cluster` and,
    of the metrics of each group, `group`.
    """

    name: str
    help: str
    read: Callable[[ScrapeT], float | Iterable[Sample] | None]
    labels: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The type, as Prometheus calls it."""
        return next((kind for kind, suffix in _SUFFIXES.items() if self.name.endswith(suffix)), "gauge")

    def family(self, scrapes: Iterable[tuple[dict[str, str], ScrapeT]] = ()) -> MetricFamily:
        """Return the family, with the samples of scrapes that have these labels."""
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
    """Return whether the id may be a label: one may have 32 kB, and is repeated in each of a group's series.

    An application's is part of the names of its internal topics, which have 249 characters at most.
    """
    return len(group_id) <= _LONGEST_ID
