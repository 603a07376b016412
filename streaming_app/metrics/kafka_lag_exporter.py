"""The series of a pass over the lag under the names of kafka-lag-exporter, for dashboards that were made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from streaming_app.lag.model import LagRow
from streaming_app.lag.sums import LagSum, lag_sums
from streaming_app.metrics.lag_metrics import LagScrape


def compatible_series(
    scrape: LagScrape, cluster: str
) -> Iterator[tuple[str, str, list[tuple[Mapping[str, str], float]]]]:
    """Yield name, help and series."""
    rows = [row for row in scrape.rows if row.committed_offset is not None]
    partitions: dict[tuple[str, int], LagRow] = {(row.topic, row.partition): row for row in rows}
    for name, text, value in _OF_PARTITION:
        yield name, text, [(_consumer_labels(cluster, row), v) for row in rows if (v := value(row)) is not None]
    for name, text, value in _OF_LOG:
        labelled = (
            ({"cluster_name": cluster, "topic": topic, "partition": str(partition)}, value(row))
            for (topic, partition), row in partitions.items()
        )
        yield name, text, [(labels, v) for labels, v in labelled if v is not None]
    sums = lag_sums(rows, "group")
    for name, text, of_group in _OF_GROUP:
        yield (
            name,
            text,
            [
                ({"cluster_name": cluster, "group": str(one.key[0])}, v)
                for one in sums
                if (v := of_group(one)) is not None
            ],
        )
    topics = lag_sums(rows, "topic")
    yield (
        "kafka_consumergroup_group_topic_sum_lag",
        "Sum of the lag of a group in a topic, in offsets.",
        [
            ({"cluster_name": cluster, "group": str(one.key[0]), "topic": str(one.key[1])}, float(one.lag))
            for one in topics
            if one.lag is not None
        ],
    )


_Value = Callable[[LagRow], float | None]
_OF_PARTITION: tuple[tuple[str, str, _Value], ...] = (
    ("kafka_consumergroup_group_offset", "Committed offset.", lambda row: row.committed_offset),
    ("kafka_consumergroup_group_lag", "Lag in offsets.", lambda row: row.lag),
    ("kafka_consumergroup_group_lag_seconds", "Lag in seconds.", lambda row: row.lag_seconds),
)
_OF_LOG: tuple[tuple[str, str, _Value], ...] = (
    ("kafka_partition_latest_offset", "End of the log.", lambda row: row.log_end_offset),
    ("kafka_partition_earliest_offset", "Start of the log.", lambda row: row.log_start_offset),
)
_OF_GROUP: tuple[tuple[str, str, Callable[[LagSum], float | None]], ...] = (
    ("kafka_consumergroup_group_max_lag", "Largest lag of a partition, in offsets.", lambda one: one.max_lag),
    (
        "kafka_consumergroup_group_max_lag_seconds",
        "Oldest lag of a partition, in seconds.",
        lambda one: one.lag_seconds,
    ),
    ("kafka_consumergroup_group_sum_lag", "Sum of the lag, in offsets.", lambda one: one.lag),
)


def _consumer_labels(cluster: str, row: LagRow) -> dict[str, str]:
    return {
        "cluster_name": cluster,
        "group": row.group_id,
        "topic": row.topic,
        "partition": str(row.partition),
        "member_host": row.client_host or "",
        "consumer_id": row.member_id or "",
        "client_id": "",
    }
