"""The metrics of lag: their definitions, and their values from one lag pass. An unknown value has no series.

By `metrics.lag_by`, there are series for each group, each topic of a group, or each partition. Queries can sum them:
`sum by (cluster, group) (streams_group_lag_offsets)`. The sums here are the same as in the view `group_lag`, computed
from the rows in the job's memory.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from streaming_app.config.sections import MetricsSettings
from streaming_app.lag.model import LagRow
from streaming_app.lag.statuses import LEFT_OVER
from streaming_app.metrics.metric import Metric, Sample, has_short_id
from streaming_app.text import EPOCH

MAX_LAG_SERIES = 10_000  # per metric
NO_COMMIT = "NO_COMMIT"
_SUBJECT = ("group", "topic", "partition")


@dataclass(slots=True)
class _Sum:
    """The sum over rows of a group, a topic or a partition. A value is None if it is not known for any row."""

    lag: int | None = None
    lag_seconds: float | None = None
    unknown_partitions: int = 0
    partition_time: float | None = None

    def add(self, row: LagRow) -> None:
        self.unknown_partitions += row.is_unknown
        if row.lag is not None:
            self.lag = (self.lag or 0) + row.lag
        if row.lag_seconds is not None:
            self.lag_seconds = max(row.lag_seconds, self.lag_seconds or 0.0)
        if (time := row.partition_time) is not None:
            self.partition_time = time if self.partition_time is None else min(time, self.partition_time)


class _Group(NamedTuple):
    rows: Sequence[LagRow]
    sums: Mapping[tuple[str, ...], _Sum]
    """By the first names of `_SUBJECT`, as far as `metrics.lag_by` says."""


class LagScrape:
    """The groups whose lag has series, the oldest first. A group has all of its series or none."""

    def __init__(
        self,
        newest: Sequence[LagRow],
        settings: MetricsSettings,
        first_seen: Mapping[str, datetime] | None = None,
        unknown_seen: datetime = EPOCH,
    ) -> None:
        """Select from the rows of a pass. For groups that are not in `first_seen` (other types), use `unknown_seen`."""
        self.newest = newest
        seen, found = first_seen or {}, defaultdict[str, list[LagRow]](list)
        for row in newest:
            found[row.group_id].append(row)
        wanted = [group_id for group_id in found if has_short_id(group_id) and settings.groups.matches(group_id)]
        self.groups: dict[str, _Group] = {}
        room, columns = MAX_LAG_SERIES, _SUBJECT.index(settings.lag_by) + 1
        for group_id in sorted(wanted, key=lambda one: (seen.get(one, unknown_seen), one)):
            sums = defaultdict[tuple[str, ...], _Sum](_Sum)
            for row in found[group_id]:
                if row.offset_status != LEFT_OVER:  # else the topology does not read the topic
                    sums[(row.group_id, row.topic, str(row.partition))[:columns]].add(row)
            if len(sums) <= room:
                self.groups[group_id] = _Group(found[group_id], sums)
                room -= len(sums)
        self.left_out = len(wanted) - len(self.groups)


def _of_sums(value: Callable[[_Sum], float | None]) -> Callable[[LagScrape], Iterator[Sample]]:
    return lambda scrape: (
        Sample(value(one), (*key, "", "")[: len(_SUBJECT)])
        for group in scrape.groups.values()
        for key, one in group.sums.items()
    )


def _partitions(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, group in scrape.groups.items():
        counts = Counter(NO_COMMIT if row.committed_offset is None else row.offset_status for row in group.rows)
        yield from (Sample(count, (group_id, status)) for status, count in sorted(counts.items()))


LAG_METRICS: tuple[Metric[LagScrape], ...] = (
    Metric(
        "streams_group_lag_offsets",
        "Lag of the group, of any type: offsets between its commits and the ends of the logs. Offsets are not records: "
        "transactions and compaction leave gaps.",
        _of_sums(lambda one: one.lag),
        _SUBJECT,
    ),
    Metric(
        "streams_group_lag_seconds",
        "Age of the oldest record that the group has not committed; a lower bound if the record is older than what the "
        "job has seen of the log.",
        _of_sums(lambda one: one.lag_seconds),
        _SUBJECT,
    ),
    Metric(
        "streams_group_lag_unknown_partitions",
        "Partitions whose lag is not known. If this is not 0, `streams_group_lag_offsets` and "
        "`streams_group_lag_seconds` are lower bounds.",
        _of_sums(lambda one: one.unknown_partitions),
        _SUBJECT,
    ),
    Metric(
        "streams_group_partition_time_seconds",
        "Stream time: the highest timestamp that the application has read in a partition, as Kafka Streams commits it. "
        "For several partitions, the lowest of these.",
        _of_sums(lambda one: one.partition_time),
        _SUBJECT,
    ),
    Metric(
        "streams_group_partitions",
        "Partitions by offset status, see docs/lag.md. `NO_COMMIT`: a task of Kafka Streams reads the partition, but "
        "has not committed. A status without partitions has no series.",
        _partitions,
        ("group", "status"),
    ),
)
