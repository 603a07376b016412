"""The definition of a metric: one entry from which samples and documentation come. The entries are in `*_metrics.py`.

Names follow Prometheus: base units, the unit last, `_total` for counters. All metrics have the label `cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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


def single_value(read: Callable[[ScrapeT], float | None]) -> Callable[[ScrapeT], Iterable[Sample]]:
    """Return a function that gives one sample without labels, or none if `read` returns None."""

    def samples(scrape: ScrapeT) -> Iterable[Sample]:
        value = read(scrape)
        return () if value is None else (Sample(value),)

    return samples


def unix_seconds(time: datetime | None) -> float | None:
    """Return the time in seconds since the Unix epoch."""
    return None if time is None else time.timestamp()
