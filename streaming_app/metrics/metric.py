"""The definition of a metric: one entry from which samples and documentation come. The entries are in `*_metrics.py`.

Names follow Prometheus: base units, the unit last, `_total` for counters. All metrics have the label `cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

ScrapeT = TypeVar("ScrapeT")
_LONGEST_ID = 500
SUFFIXES = {"counter": "_total", "info": "_info"}
"""By type, of the samples; the name of the family has none."""


class Sample(NamedTuple):
    """One value, with the values of the metric's own labels; the suffix is for the parts of a summary."""

    value: float
    labels: tuple[str, ...] = ()
    suffix: str = ""


@dataclass(frozen=True)
class Metric(Generic[ScrapeT]):
    """A metric. Its type follows from its name, unless it is a summary.

    `read` gives at each scrape its value, None for no series, or its samples; `labels` are those besides `cluster` and
    `group`.
    """

    name: str
    help: str
    read: Callable[[ScrapeT], float | Iterable[Sample] | None]
    labels: tuple[str, ...] = ()
    is_summary: bool = False
    replaced_by: str | None = None
    """The name that it has now; under this one it is served for one more release."""

    @property
    def type(self) -> str:
        """The type, as Prometheus calls it."""
        by_name = (kind for kind, suffix in SUFFIXES.items() if self.name.endswith(suffix))
        return "summary" if self.is_summary else next(by_name, "gauge")

    def samples(self, scrape: ScrapeT) -> Iterable[Sample]:
        """Return its samples at a scrape."""
        found = self.read(scrape)
        if found is None:
            return ()
        return (Sample(found),) if isinstance(found, int | float) else found


def renamed(metric: Metric[ScrapeT], old_name: str) -> tuple[Metric[ScrapeT], Metric[ScrapeT]]:
    """Return a metric under its name, and under the one that it had before."""
    text = f"The same as `{metric.name}`, under the name that it had in 0.2.0, for one more release."
    return metric, replace(metric, name=old_name, help=text, replaced_by=metric.name)


def unix_seconds(time: datetime | None) -> float | None:
    """Return the time in seconds since the Unix epoch."""
    return None if time is None else time.timestamp()


def has_short_id(group_id: str) -> bool:
    """Return whether the id may be a label: one may have 32 kB, and is repeated in each of a group's series.

    An application's is part of the names of its internal topics, which have 249 characters at most.
    """
    return len(group_id) <= _LONGEST_ID
