"""What a metric is: one entry of data, from which samples and documentation are made. The entries are in `*_metrics`.

Names follow Prometheus: base units, the unit last, `_total` for counters. All metrics carry the label `cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, NamedTuple, TypeVar

Source = TypeVar("Source")


class Sampled(NamedTuple):
    """One value, with the values of the metric's own labels; the suffix is for the parts of a summary."""

    value: float
    labels: tuple[str, ...] = ()
    suffix: str = ""


@dataclass(frozen=True)
class Metric(Generic[Source]):
    """A metric, read off a `Source` at each scrape; `labels` are those besides `cluster` and `group`."""

    name: str
    kind: Literal["gauge", "counter", "summary", "info"]
    about: str
    samples: Callable[[Source], Iterable[Sampled]]
    labels: tuple[str, ...] = ()


def value(read: Callable[[Source], float | None]) -> Callable[[Source], Iterable[Sampled]]:
    """One value without labels, or none where nothing is known."""

    def samples(source: Source) -> Iterable[Sampled]:
        number = read(source)
        return () if number is None else (Sampled(number),)

    return samples


def seconds(time: datetime | None) -> float | None:
    """The time in seconds of the Unix epoch."""
    return None if time is None else time.timestamp()
