"""The definition of a metric, from which samples and documentation are made. The metrics are in `*_metrics.py`.

Names follow Prometheus: base units, the unit last, `_total` for counters. All metrics have the label `cluster`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from prometheus_client.core import Metric as MetricFamily

ScrapeT = TypeVar("ScrapeT")
_LONGEST_ID = 500
_COUNTER = "_total"  # the suffix of the samples of a counter; names of families have none


class Sample(NamedTuple):
    """One value (None: no series), with the values of `Metric.labels`."""

    value: float | None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric(Generic[ScrapeT]):
    """A metric. Its name determines its type.

    At each scrape `read` returns the value (None: no series) or the samples. All metrics also have the label `cluster`,
    and the metrics of groups have `group`; `labels` has all other labels.
    """

    name: str
    help: str
    read: Callable[[ScrapeT], float | Iterable[Sample] | None]
    labels: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The Prometheus type."""
        return "counter" if self.name.endswith(_COUNTER) else "gauge"

    def family(self, scrapes: Iterable[tuple[dict[str, str], ScrapeT]] = ()) -> MetricFamily:
        """Return the family with the samples of these scrapes, each with its labels."""
        family = MetricFamily(self.name.removesuffix(_COUNTER), self.help, self.type)
        for labels, scrape in scrapes:
            found = self.read(scrape)
            for value, own in (Sample(found),) if isinstance(found, int | float) else found or ():
                if value is not None:
                    family.add_sample(self.name, labels | dict(zip(self.labels, own, strict=True)), value)
        return family


def unix_seconds(time: datetime | None) -> float | None:
    """Return the time in seconds since the Unix epoch."""
    return None if time is None else time.timestamp()


def has_short_id(group_id: str) -> bool:
    """Return whether the id is short enough for a label. An id may have 32 kB, and each series of a group repeats it.

    Real ids are shorter: the names of internal topics contain the application id, and have at most 249 characters.
    """
    return len(group_id) <= _LONGEST_ID
