"""The definition of a metric: one entry from which samples and documentation come. The entries are in `*_metrics.py`.

Names follow Prometheus: base units, the unit last, `_total` for counters. All metrics have the label `cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Literal, NamedTuple, TypeVar

ScrapeT = TypeVar("ScrapeT")


class Sample(NamedTuple):
    """One value, with the values of the metric's own labels; the suffix is for the parts of a summary."""

    value: float
    labels: tuple[str, ...] = ()
    suffix: str = ""


@dataclass(frozen=True)
class Metric(Generic[ScrapeT]):
    """A metric: `samples` reads its values at each scrape; `labels` are those besides `cluster` and `group`."""

    name: str
    type: Literal["gauge", "counter", "summary", "info"]
    help: str
    samples: Callable[[ScrapeT], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    replaced_by: str | None = None
    """The name that it has now; under this one it is served for one more release."""


def renamed(metric: Metric[ScrapeT], old_name: str) -> tuple[Metric[ScrapeT], Metric[ScrapeT]]:
    """Return a metric under its name, and under the one that it had before."""
    text = f"The same as `{metric.name}`, under the name that it had in 0.2.0, for one more release."
    return metric, replace(metric, name=old_name, help=text, replaced_by=metric.name)


def single_value(read: Callable[[ScrapeT], float | None]) -> Callable[[ScrapeT], Iterable[Sample]]:
    """Return a function that gives one sample without labels, or none if `read` returns None."""

    def samples(scrape: ScrapeT) -> Iterable[Sample]:
        value = read(scrape)
        return () if value is None else (Sample(value),)

    return samples


def unix_seconds(time: datetime | None) -> float | None:
    """Return the time in seconds since the Unix epoch."""
    return None if time is None else time.timestamp()
