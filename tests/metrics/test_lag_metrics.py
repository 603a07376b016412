"""The metrics of lag: what a scrape of some rows gives, and how many series."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streaming_app.config.sections import MetricsSettings
from streaming_app.lag.model import LagRow
from streaming_app.metrics import lag_metrics
from streaming_app.metrics.collector import make_registry
from streaming_app.metrics.lag_metrics import LagScrape
from tests.support.lag_harness import row
from tests.support.metrics_harness import NOW, sources

ALICE = {"member_id": "alice", "process_id": "p-1", "client_host": "10.0.0.1", "subtopology_id": "0"}
ROWS = [
    row(partition=0, task_id="0_0", lag=10, lag_seconds=3.0, log_start_offset=5, **ALICE),
    row(partition=1, task_id="0_1", subtopology_id="0", lag=500, lag_seconds=90.0, lost_offsets=7, status="LOST"),
    row(partition=2, task_id="0_2", committed_offset=None, lag=None, lag_seconds=None, status="UNKNOWN", **ALICE),
    row(topic="old", lag=9999, lag_seconds=1e6, status="LEFT_OVER"),
    row(group_id="plain", topic="clicks", lag=7, lag_seconds=None),
]

Values = dict[tuple[str, ...], float]


def scrape(rows: list[LagRow], settings: MetricsSettings) -> Values:
    """Return the samples about lag by name and label values, in the order of the labels' names, without the cluster."""
    text = generate_latest(make_registry(sources([], lag=lambda: rows), settings)).decode()
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name != "cluster")): (sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if any(part in sample.name for part in ("lag", "partition", "lost"))
    }


def of(values: Values, name: str) -> dict[tuple[str, ...], float]:
    return {key[1:]: value for key, value in values.items() if key[0] == name}


def test_the_default_series() -> None:
    values = scrape(ROWS, MetricsSettings())

    assert of(values, "streams_group_lag_offsets") == {("payments",): 510, ("plain",): 7}
    assert of(values, "streams_group_lag_seconds") == {("payments",): 90}
    assert of(values, "streams_group_topic_lag_offsets") == {("payments", "orders"): 510, ("plain", "clicks"): 7}
    assert of(values, "streams_group_unowned_lag_offsets") == {("payments",): 500}
    assert of(values, "streams_group_lost_offsets") == {("payments",): 7, ("plain",): 0}
    assert of(values, "streams_group_partitions_without_commit") == {("payments",): 1, ("plain",): 0}
    assert of(values, "streams_group_partitions") == {
        ("payments", "OK"): 1,
        ("payments", "LOST"): 1,
        ("payments", "LEFT_OVER"): 1,
        ("plain", "OK"): 1,
    }
    assert of(values, "streams_group_partition_lag_offsets") == {}
    assert not any(value < 0 for value in values.values())


def test_the_stream_time_of_a_partition_is_served_where_it_is_known_and_partitions_are() -> None:
    rows = [row(partition=0, partition_time=1_795_000_000.001), row(partition=1)]
    by_partition = scrape(rows, MetricsSettings.model_validate({"lag_by": ["group", "partition"]}))

    assert of(scrape(rows, MetricsSettings()), "streams_group_partition_time_seconds") == {}
    assert of(by_partition, "streams_group_partition_time_seconds") == {("payments", "0", "orders"): 1_795_000_000.001}


def test_beside_each_sum_is_of_how_many_partitions_the_lag_is_not_known() -> None:
    unknown = row(partition=3, lag=None, lag_seconds=None, log_end_offset=None, task_id="0_3", subtopology_id="0")
    empty = row(partition=4, committed_offset=None, lag=None, log_start_offset=9, log_end_offset=9)
    values = scrape([*ROWS, unknown, empty], MetricsSettings())

    assert of(values, "streams_group_lag_unknown_partitions") == {("payments",): 2, ("plain",): 0}
    assert of(values, "streams_group_topic_lag_unknown_partitions") == {
        ("payments", "orders"): 2,
        ("plain", "clicks"): 0,
    }
    assert of(values, "streams_group_unowned_lag_unknown_partitions") == {("payments",): 1}


def test_series_end_at_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_metrics, "MAX_LAG_SERIES", 1)
    values = scrape(ROWS, MetricsSettings())

    assert of(values, "streams_group_lag_offsets") == {("payments",): 510}
    assert of(values, "streams_group_partitions_without_commit") == {("payments",): 1}
    assert of(values, "streams_groups_lag_series_dropped") == {(): 2}  # of groups and of topics: 1 each


def test_the_oldest_groups_have_series_then_those_of_other_types_then_newcomers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_metrics, "MAX_LAG_SERIES", 3)
    new = [row(group_id="!new", topic=f"t{number}", partition=0, lag=99_999) for number in range(9)]
    first_seen = {"!new": NOW, "payments": NOW - timedelta(days=9)}
    sums = LagScrape([*new, *ROWS], MetricsSettings(), first_seen, NOW - timedelta(days=1)).sums("topic")
    assert [one.key for one in sums] == [("payments", "orders"), ("plain", "clicks"), ("!new", "t0")]
