"""The metrics of lag: definitions, and what one pass over the lag gives them. Absent where a value is not known.

What a sum is of comes from `streaming_app.lag.sums`. Those of tasks and of partitions are served on request only, and
so are the series under the names of kafka-lag-exporter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

from streaming_app.config.sections import LagSubject, MetricsSettings
from streaming_app.lag.model import LagRow
from streaming_app.lag.sums import LagSum, is_unknown, lag_sums
from streaming_app.metrics.metric import Metric, Sample, has_short_id
from streaming_app.regex import compiled


class LagStatus(NamedTuple):
    """The newest pass: its rows, when it was, and what it cost; and the passes that failed since the start."""

    rows: Sequence[LagRow]
    at: float
    seconds: float
    requests: int
    partitions: int
    failures: int


@dataclass
class LagScrape:
    """What the metrics read: the sums of one pass, made when they are first asked for, as far as the settings go."""

    status: LagStatus
    settings: MetricsSettings
    newcomers: frozenset[str] = frozenset()
    """Groups whose sums come after those of all others, where there is not room for all."""
    dropped: int = field(default=0, init=False)

    @cached_property
    def rows(self) -> list[LagRow]:
        """The rows of groups that have series of their own."""
        wanted = compiled(self.settings.groups)
        ids = {row.group_id for row in self.status.rows}
        matching = {group_id for group_id in ids if has_short_id(group_id) and wanted.matches(group_id)}
        return [row for row in self.status.rows if row.group_id in matching]

    @cached_property
    def _sums(self) -> dict[str, list[LagSum]]:
        return {}

    def sums(self, by: LagSubject) -> list[LagSum]:
        """Return as many sums as may have series, the largest of each group first; none if the settings do not say so.

        Where there is not room for all, each group has its largest one before any has its second, and new groups come
        last: one tenant with much lag takes no series of others.
        """
        if by not in self.settings.lag_by:
            return []
        if by not in self._sums:
            every = lag_sums(self.rows, by)
            most = self.settings.max_lag_series
            self._sums[by] = every if len(every) <= most else _in_turns(every, self.newcomers)[:most]
            self.dropped += len(every) - len(self._sums[by])
        return self._sums[by]

    @cached_property
    def groups(self) -> dict[str, list[LagRow]]:
        """The rows of each group whose own sum has a series."""
        found: dict[str, list[LagRow]] = {str(one.key[0]): [] for one in self.sums("group")}
        for row in self.rows:
            if row.group_id in found:
                found[row.group_id].append(row)
        return found


def _in_turns(sums: Iterable[LagSum], newcomers: frozenset[str]) -> list[LagSum]:
    """Return the sums, the largest first, in turns from each group, those of newcomers last."""
    taken: Counter[str] = Counter()
    ranked = []
    for one in sums:
        group_id = str(one.key[0])
        ranked.append((group_id in newcomers, taken[group_id], one))
        taken[group_id] += 1
    return [one for *_, one in sorted(ranked, key=lambda ranked_sum: ranked_sum[:2])]


_Samples = Callable[[LagScrape], Iterable[Sample]]
_Labels = Callable[[LagSum], tuple[str, ...] | None]


def _sums(value: Callable[[LagSum], float | None], by: LagSubject, labels: _Labels) -> _Samples:
    """Return the samples of one value of the sums; none of those in which it, or the labels, are None."""

    def samples(scrape: LagScrape) -> Iterator[Sample]:
        for one in scrape.sums(by):
            found, values = value(one), labels(one)
            if found is not None and values is not None:
                yield Sample(found, values)

    return samples


_offsets = partial(_sums, lambda one: one.lag)
_seconds = partial(_sums, lambda one: one.lag_seconds)
_unknown = partial(_sums, lambda one: one.unknown_partitions)


def _key(one: LagSum) -> tuple[str, ...]:
    return tuple(str(value) for value in one.key)


def _process(one: LagSum) -> tuple[str, ...] | None:
    group_id, process_id, host = one.key
    return None if process_id is None else (str(group_id), str(process_id), str(host or ""))


def _task(one: LagSum) -> tuple[str, ...]:
    subtopology, _, partition = str(one.key[1]).rpartition("_")
    return str(one.key[0]), subtopology, partition


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
        _offsets("group", _key),
        ("group",),
    ),
    Metric(
        "streams_group_lag_seconds",
        "Age of the oldest record that the group has not committed; at least that old where the job has not seen more.",
        _seconds("group", _key),
        ("group",),
    ),
    Metric(
        "streams_group_lag_unknown_partitions",
        "Partitions of which the lag is not known, while there may be some: what `streams_group_lag_offsets` and "
        "`streams_group_lag_seconds` say is a lower bound unless this is 0.",
        _unknown("group", _key),
        ("group",),
    ),
    Metric(
        "streams_group_topic_lag_offsets",
        "Lag of the group in one topic.",
        _offsets("topic", _key),
        ("group", "topic"),
    ),
    Metric(
        "streams_group_topic_lag_seconds",
        "Age of the oldest record of one topic that the group has not committed.",
        _seconds("topic", _key),
        ("group", "topic"),
    ),
    Metric(
        "streams_group_topic_lag_unknown_partitions",
        "The same as `streams_group_lag_unknown_partitions` for one topic.",
        _unknown("topic", _key),
        ("group", "topic"),
    ),
    Metric(
        "streams_group_subtopology_lag_offsets",
        "Lag of the tasks of one subtopology.",
        _offsets("subtopology", _key),
        ("group", "subtopology"),
    ),
    Metric(
        "streams_group_subtopology_lag_unknown_partitions",
        "The same as `streams_group_lag_unknown_partitions` for one subtopology.",
        _unknown("subtopology", _key),
        ("group", "subtopology"),
    ),
    Metric(
        "streams_group_process_lag_offsets",
        "Lag of the tasks that the members of one process have as active.",
        _offsets("process", _process),
        ("group", "process", "host"),
    ),
    Metric(
        "streams_group_process_lag_seconds",
        "Age of the oldest record that the tasks of one process have not committed.",
        _seconds("process", _process),
        ("group", "process", "host"),
    ),
    Metric(
        "streams_group_process_lag_unknown_partitions",
        "The same as `streams_group_lag_unknown_partitions` for one process.",
        _unknown("process", _process),
        ("group", "process", "host"),
    ),
    Metric(
        "streams_group_task_lag_offsets",
        "Lag of one task; only if `metrics.lag_by` includes `task`.",
        _offsets("task", _task),
        ("group", "subtopology", "partition"),
    ),
    Metric(
        "streams_group_task_lag_unknown_partitions",
        "The same as `streams_group_lag_unknown_partitions` for one task; only if `metrics.lag_by` includes `task`.",
        _unknown("task", _task),
        ("group", "subtopology", "partition"),
    ),
    Metric(
        "streams_group_partition_lag_offsets",
        "Lag of the group in one partition; only if `metrics.lag_by` includes `partition`.",
        _offsets("partition", _key),
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
    Metric(
        "streams_groups_lag_observed_timestamp_seconds",
        "When the ends of the logs were last asked for.",
        lambda scrape: scrape.status.at,
    ),
    Metric(
        "streams_groups_lag_pass_seconds",
        "How long the newest pass over the lag took.",
        lambda scrape: scrape.status.seconds,
    ),
    Metric(
        "streams_groups_lag_partitions",
        "Partitions that the newest pass asked for.",
        lambda scrape: scrape.status.partitions,
    ),
    Metric(
        "streams_groups_lag_requests",
        "ListOffsets requests of the newest pass.",
        lambda scrape: scrape.status.requests,
    ),
    Metric(
        "streams_groups_lag_failures_total",
        "Passes over the lag that failed as a whole since the job started.",
        lambda scrape: scrape.status.failures,
    ),
    Metric(  # the last one: by then all sums are made
        "streams_groups_lag_series_dropped",
        "Series that were left out because of `metrics.max_lag_series`.",
        lambda scrape: scrape.dropped,
    ),
)


# --- Under the names of kafka-lag-exporter, for dashboards that were made for it --------------------------------------


def compatible_series(
    scrape: LagScrape, cluster: str
) -> Iterator[tuple[str, str, list[tuple[Mapping[str, str], float]]]]:
    """Yield name, help and series."""
    rows = [row for row in scrape.rows if row.committed_offset is not None]
    logs = {(row.topic, row.partition): row for row in rows}.values()
    sources: dict[str, Iterable[LagRow | LagSum]] = {
        "partition": rows,
        "log": logs,
        "group": lag_sums(rows, "group"),
        "topic": lag_sums(rows, "topic"),
    }
    for of, name, text, value in _COMPATIBLE:
        labelled = (({"cluster_name": cluster} | _LABELS[of](one), value(one)) for one in sources[of])
        yield name, text, [(labels, found) for labels, found in labelled if found is not None]


_COMPATIBLE: tuple[tuple[str, str, str, Callable[[Any], float | None]], ...] = (
    ("partition", "kafka_consumergroup_group_offset", "Committed offset.", lambda row: row.committed_offset),
    ("partition", "kafka_consumergroup_group_lag", "Lag in offsets.", lambda row: row.lag),
    ("partition", "kafka_consumergroup_group_lag_seconds", "Lag in seconds.", lambda row: row.lag_seconds),
    ("log", "kafka_partition_latest_offset", "End of the log.", lambda row: row.log_end_offset),
    ("log", "kafka_partition_earliest_offset", "Start of the log.", lambda row: row.log_start_offset),
    (
        "group",
        "kafka_consumergroup_group_max_lag",
        "Largest lag of a partition, in offsets.",
        lambda one: one.max_lag,
    ),
    (
        "group",
        "kafka_consumergroup_group_max_lag_seconds",
        "Oldest lag of a partition, in seconds.",
        lambda one: one.lag_seconds,
    ),
    (
        "group",
        "kafka_consumergroup_group_sum_lag",
        "Sum of the lag of the partitions of which it is known.",
        lambda one: one.lag,
    ),
    (
        "topic",
        "kafka_consumergroup_group_topic_sum_lag",
        "Sum of the lag of a group in a topic, of the partitions of which it is known.",
        lambda one: one.lag,
    ),
)
"""What a value is of, a key of `_LABELS`; its name and help; and the value, of a `LagRow` or a `LagSum`."""
_LABELS: Mapping[str, Callable[[Any], dict[str, str]]] = {
    "partition": lambda row: {
        "group": row.group_id,
        "topic": row.topic,
        "partition": str(row.partition),
        "member_host": row.client_host or "",
        "consumer_id": row.member_id or "",
        "client_id": "",
    },
    "log": lambda row: {"topic": row.topic, "partition": str(row.partition)},
    "group": lambda one: {"group": str(one.key[0])},
    "topic": lambda one: {"group": str(one.key[0]), "topic": str(one.key[1])},
}
