"""The metrics of lag: definitions, and what one pass over the lag gives them. Absent where a value is not known.

What a sum is of comes from `streaming_app.lag.sums`. Those of partitions are served on request only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial

from streaming_app.config.sections import LagSubject, MetricsSettings
from streaming_app.lag.model import LagRow
from streaming_app.lag.sums import LagSum, is_unknown, lag_sums
from streaming_app.metrics.metric import Metric, Sample, has_short_id
from streaming_app.text import EPOCH

MAX_LAG_SERIES = 10_000  # of each kind of lag


@dataclass
class LagScrape:
    """What the metrics read: the sums of one pass, made when they are first asked for, as far as the settings go."""

    newest: Sequence[LagRow]
    """The rows of the pass."""
    settings: MetricsSettings
    first_seen: Mapping[str, datetime] = field(default_factory=dict)
    """Where there is not room for all, the sums of the groups that were seen first have series."""
    unknown_seen: datetime = EPOCH
    """What counts for groups of other types, of which it is not known: they come before newcomers."""
    dropped: int = field(default=0, init=False)

    @cached_property
    def rows(self) -> list[LagRow]:
        """The rows of groups that have series of their own."""
        wanted = self.settings.groups
        ids = {row.group_id for row in self.newest}
        matching = {group_id for group_id in ids if has_short_id(group_id) and wanted.matches(group_id)}
        return [row for row in self.newest if row.group_id in matching]

    @cached_property
    def _sums(self) -> dict[str, list[LagSum]]:
        return {}

    def sums(self, by: LagSubject) -> list[LagSum]:
        """Return as many sums as may have series, those of the oldest groups; none if the settings do not say so."""
        if by not in self.settings.lag_by:
            return []
        if by not in self._sums:
            every = lag_sums(self.rows, by)
            most = MAX_LAG_SERIES
            self._sums[by] = every if len(every) <= most else sorted(every, key=self._seen)[:most]
            self.dropped += len(every) - len(self._sums[by])
        return self._sums[by]

    def _seen(self, one: LagSum) -> datetime:
        return self.first_seen.get(str(one.key[0]), self.unknown_seen)

    @cached_property
    def groups(self) -> dict[str, list[LagRow]]:
        """The rows of each group whose own sum has a series."""
        found: dict[str, list[LagRow]] = {str(one.key[0]): [] for one in self.sums("group")}
        for row in self.rows:
            if row.group_id in found:
                found[row.group_id].append(row)
        return found


_Samples = Callable[[LagScrape], Iterable[Sample]]


def _sums(value: Callable[[LagSum], float | None], by: LagSubject) -> _Samples:
    """Return the samples of one value of the sums; none of those in which it is None."""

    def samples(scrape: LagScrape) -> Iterator[Sample]:
        for one in scrape.sums(by):
            if (found := value(one)) is not None:
                yield Sample(found, tuple(map(str, one.key)))

    return samples


_offsets = partial(_sums, lambda one: one.lag)
_seconds = partial(_sums, lambda one: one.lag_seconds)
_unknown = partial(_sums, lambda one: one.unknown_partitions)


def _unowned(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, rows in scrape.groups.items():
        if any(row.task_id is not None for row in rows):
            yield Sample(sum(row.lag or 0 for row in rows if row.is_unowned), (group_id,))


def _unowned_unknown(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, rows in scrape.groups.items():
        if any(row.task_id is not None for row in rows):
            yield Sample(sum(row.is_unowned and is_unknown(row) for row in rows), (group_id,))


def _partitions(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, rows in scrape.groups.items():
        counts = Counter(row.status for row in rows if row.committed_offset is not None)
        yield from (Sample(count, (group_id, status)) for status, count in sorted(counts.items()))


def _without_commit(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, rows in scrape.groups.items():
        yield Sample(sum(row.committed_offset is None for row in rows), (group_id,))


def _lost(scrape: LagScrape) -> Iterator[Sample]:
    for group_id, rows in scrape.groups.items():
        yield Sample(sum(row.lost_offsets or 0 for row in rows), (group_id,))


LAG_METRICS: tuple[Metric[LagScrape], ...] = (
    Metric(
        "streams_group_lag_offsets",
        "Lag of the group, of any type: offsets between its commits and the ends of the logs. Not records: "
        "transactions and compaction leave gaps.",
        _offsets("group"),
        ("group",),
    ),
    Metric(
        "streams_group_lag_seconds",
        "Age of the oldest record that the group has not committed; at least that old where the job has not seen more.",
        _seconds("group"),
        ("group",),
    ),
    Metric(
        "streams_group_lag_unknown_partitions",
        "Partitions of which the lag is not known, while there may be some: what `streams_group_lag_offsets` and "
        "`streams_group_lag_seconds` say is a lower bound unless this is 0.",
        _unknown("group"),
        ("group",),
    ),
    Metric(
        "streams_group_topic_lag_offsets",
        "Lag of the group in one topic.",
        _offsets("topic"),
        ("group", "topic"),
    ),
    Metric(
        "streams_group_topic_lag_seconds",
        "Age of the oldest record of one topic that the group has not committed.",
        _seconds("topic"),
        ("group", "topic"),
    ),
    Metric(
        "streams_group_topic_lag_unknown_partitions",
        "The same as `streams_group_lag_unknown_partitions` for one topic.",
        _unknown("topic"),
        ("group", "topic"),
    ),
    Metric(
        "streams_group_partition_lag_offsets",
        "Lag of the group in one partition; only if `metrics.lag_by` includes `partition`.",
        _offsets("partition"),
        ("group", "topic", "partition"),
    ),
    Metric(
        "streams_group_partition_time_seconds",
        "Stream time: the highest timestamp that the application has read in one partition, as Kafka Streams commits "
        "it; only if `metrics.lag_by` includes `partition`, and where it is known.",
        _sums(lambda one: one.min_partition_time, "partition"),
        ("group", "topic", "partition"),
    ),
    Metric(
        "streams_group_unowned_lag_offsets",
        "Lag of the tasks of a streams group that no member has as active.",
        _unowned,
        ("group",),
    ),
    Metric(
        "streams_group_unowned_lag_unknown_partitions",
        "The same as `streams_group_lag_unknown_partitions` for the tasks that no member has as active.",
        _unowned_unknown,
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
        "Partitions that the group has committed, by status; statuses without any have no series.",
        _partitions,
        ("group", "status"),
    ),
    Metric(
        "streams_group_partitions_without_commit",
        "Partitions that the tasks of a streams group read and have not committed yet.",
        _without_commit,
        ("group",),
    ),
    Metric(  # the last one: by then all sums are made
        "streams_groups_lag_series_dropped",
        f"Series that were left out: of each kind {MAX_LAG_SERIES:,} are served.",
        lambda scrape: scrape.dropped,
    ),
)
