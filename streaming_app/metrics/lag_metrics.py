"""The metrics of lag: definitions, and what one pass over the lag gives them. Absent where a value is not known.

`metrics.lag_by` is what has series: each group, each of its topics, or each partition. Coarser sums are a query's:
`sum by (cluster, group) (streams_group_lag_offsets)`. Topics that a topology does not read are in no sum.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from streaming_app.config.sections import MetricsSettings
from streaming_app.lag.model import LagRow
from streaming_app.lag.status import LEFT_OVER
from streaming_app.metrics.metric import Metric, Sample, has_short_id
from streaming_app.text import EPOCH

MAX_LAG_SERIES = 10_000  # of each metric
NO_COMMIT = "NO_COMMIT"
_SUBJECT = ("group", "topic", "partition")


class LagSum(NamedTuple):
    """The lag of a group, one of its topics or one of its partitions; None where it is known of no partition."""

    key: tuple[str | float | None, ...]
    lag: int | None
    lag_seconds: float | None
    unknown_partitions: int
    partition_time: float | None


def lag_sums(rows: Iterable[LagRow], by: str) -> list[LagSum]:
    """Return the sums by one of `group`, `topic` and `partition`; partitions whose lag is not known are counted."""
    found: defaultdict[tuple[str | float | None, ...], list[LagRow]] = defaultdict(list)
    for row in rows:
        if row.status != LEFT_OVER:
            found[row[: _SUBJECT.index(by) + 1]].append(row)
    return [
        LagSum(
            key,
            sum(known) if (known := [row.lag for row in those if row.lag is not None]) else None,
            max((row.lag_seconds for row in those if row.lag_seconds is not None), default=None),
            sum(row.is_unknown for row in those),
            min((row.partition_time for row in those if row.partition_time is not None), default=None),
        )
        for key, those in found.items()
    ]


class _Group(NamedTuple):
    rows: Sequence[LagRow]
    sums: Sequence[LagSum]


class LagScrape:
    """The groups whose lag has series: all of a group, or nothing; the groups that were seen first come first."""

    def __init__(
        self,
        newest: Sequence[LagRow],
        settings: MetricsSettings,
        first_seen: Mapping[str, datetime] | None = None,
        unknown_seen: datetime = EPOCH,
    ) -> None:
        """Choose among the rows of a pass. `unknown_seen` counts for groups of which it is not known: other types."""
        self.newest = newest
        seen, found = first_seen or {}, defaultdict[str, list[LagRow]](list)
        for row in newest:
            found[row.group_id].append(row)
        wanted = [group_id for group_id in found if has_short_id(group_id) and settings.groups.matches(group_id)]
        self.groups: dict[str, _Group] = {}
        room = MAX_LAG_SERIES
        for group_id in sorted(wanted, key=lambda one: (seen.get(one, unknown_seen), one)):
            group = _Group(found[group_id], lag_sums(found[group_id], settings.lag_by))
            if len(group.sums) <= room:
                self.groups[group_id] = group
                room -= len(group.sums)
        self.left_out = len(wanted) - len(self.groups)


_Samples = Callable[[LagScrape], Iterator[Sample]]


def _of_sums(value: Callable[[LagSum], float | None]) -> _Samples:
    """Return the samples of one value of the sums; none of those in which it is None."""

    def samples(scrape: LagScrape) -> Iterator[Sample]:
        for group in scrape.groups.values():
            for one in group.sums:
                if (found := value(one)) is not None:
                    key = [*map(str, one.key), "", ""]
                    yield Sample(found, tuple(key[: len(_SUBJECT)]))

    return samples


def _unowned(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, group in scrape.groups.items():
        if any(row.task_id is not None for row in group.rows):
            yield Sample(sum(row.lag or 0 for row in group.rows if row.is_unowned), (group_id,))


def _partitions(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, group in scrape.groups.items():
        counts = Counter(NO_COMMIT if row.committed_offset is None else row.status for row in group.rows)
        yield from (Sample(count, (group_id, status)) for status, count in sorted(counts.items()))


def _lost(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, group in scrape.groups.items():
        yield Sample(sum(row.lost_offsets or 0 for row in group.rows), (group_id,))


LAG_METRICS: tuple[Metric[LagScrape], ...] = (
    Metric(
        "streams_group_lag_offsets",
        "Lag of the group, of any type: offsets between its commits and the ends of the logs. Not records: "
        "transactions and compaction leave gaps.",
        _of_sums(lambda one: one.lag),
        _SUBJECT,
    ),
    Metric(
        "streams_group_lag_seconds",
        "Age of the oldest record that the group has not committed; at least that old where the job has not seen more.",
        _of_sums(lambda one: one.lag_seconds),
        _SUBJECT,
    ),
    Metric(
        "streams_group_lag_unknown_partitions",
        "Partitions of which the lag is not known, while there may be some: what `streams_group_lag_offsets` and "
        "`streams_group_lag_seconds` say is a lower bound unless this is 0.",
        _of_sums(lambda one: one.unknown_partitions),
        _SUBJECT,
    ),
    Metric(
        "streams_group_partition_time_seconds",
        "Stream time: the highest timestamp that the application has read in a partition, as Kafka Streams commits it; "
        "of several partitions the lowest.",
        _of_sums(lambda one: one.partition_time),
        _SUBJECT,
    ),
    Metric(
        "streams_group_unowned_lag_offsets",
        "Known lag of the tasks of a streams group without an active member.",
        _unowned,
        ("group",),
    ),
    Metric(
        "streams_group_lost_offsets",
        "Offsets that were deleted from the log before the group read them.",
        _lost,
        ("group",),
    ),
    Metric(
        "streams_group_partitions",
        "Partitions by status; `NO_COMMIT` are those that the tasks of a streams group read and have not committed. "
        "Statuses without any have no series.",
        _partitions,
        ("group", "status"),
    ),
)
