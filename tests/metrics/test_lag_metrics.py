"""The metrics of lag: what a scrape of some rows gives, and how many series."""

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
from tests.support.metrics_harness import NOW, scraped

ALICE = {"member_id": "alice", "process_id": "p-1", "client_host": "10.0.0.1", "subtopology_id": "0"}
ROWS = [
    row(partition=0, task_id="0_0", lag=10, lag_seconds=3.0, log_start_offset=5, **ALICE),
    row(
        partition=1, task_id="0_1", subtopology_id="0", lag=500, lag_seconds=90.0, lost_offsets=7, offset_status="LOST"
    ),
    row(
        partition=2, task_id="0_2", committed_offset=None, lag=None, lag_seconds=None, offset_status="UNKNOWN", **ALICE
    ),
    row(topic="old", lag=9999, lag_seconds=1e6, offset_status="LEFT_OVER"),
    row(group_id="plain", topic="clicks", lag=7, lag_seconds=None),
]

Values = dict[tuple[str, ...], float]


def scrape(rows: list[LagRow], settings: MetricsSettings) -> Values:
    """Return the samples about lag by name and those label values that are not empty, without the cluster."""
    text = generate_latest(make_registry(scraped([], lag=rows), settings)).decode()
    labels = ("group", "topic", "partition", "status", "of")
    return {
        (sample.name, *(sample.labels[name] for name in labels if sample.labels.get(name))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if any(part in sample.name for part in ("lag", "partition", "lost", "left_out"))
    }


def of(values: Values, name: str) -> dict[tuple[str, ...], float]:
    return {key[1:]: value for key, value in values.items() if key[0] == name}


def test_the_default_series() -> None:
    values = scrape(ROWS, MetricsSettings())
    assert of(values, "streams_group_lag_offsets") == {("payments", "orders"): 510, ("plain", "clicks"): 7}
    assert of(values, "streams_group_lag_seconds") == {("payments", "orders"): 90}
    assert of(values, "streams_group_partitions") == {
        ("payments", "OK"): 1,
        ("payments", "LOST"): 1,
        ("payments", "LEFT_OVER"): 1,
        ("payments", "NO_COMMIT"): 1,
        ("plain", "OK"): 1,
    }
    assert not any(value < 0 for value in values.values())


@pytest.mark.parametrize(
    ("lag_by", "expected"),
    [
        ("topic", {("payments", "orders"): 510, ("plain", "clicks"): 7}),
        ("partition", {("payments", "orders", "0"): 10, ("payments", "orders", "1"): 500, ("plain", "clicks", "0"): 7}),
    ],
    ids=str,
)
def test_what_has_series_is_a_setting(lag_by: object, expected: dict[tuple[str, ...], float]) -> None:
    values = scrape(ROWS, MetricsSettings.model_validate({"lag_by": lag_by}))
    assert of(values, "streams_group_lag_offsets") == expected


def test_a_group_for_whose_series_there_is_no_room_has_none_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_metrics, "MAX_LAG_SERIES", 1)
    values = scrape(ROWS, MetricsSettings())
    assert of(values, "streams_group_lag_offsets") == {("payments", "orders"): 510}
    assert {group for group, _ in of(values, "streams_group_partitions")} == {"payments"}
    assert of(values, "streams_groups_left_out")["lag",] == 1


def test_the_oldest_groups_have_series_then_those_of_other_types_then_newcomers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_metrics, "MAX_LAG_SERIES", 3)
    large = [row(group_id="!new", topic=f"t{number}", partition=0, lag=99_999) for number in range(9)]
    small = [row(group_id=name, partition=0, lag=99_999) for name in ("!newer", "!newest")]
    first_seen = {"!new": NOW, "!newer": NOW, "!newest": NOW + timedelta(1), "payments": NOW - timedelta(days=9)}
    scrape = LagScrape([*large, *small, *ROWS], MetricsSettings(), first_seen, NOW - timedelta(days=1))
    assert (list(scrape.groups), scrape.left_out) == (["payments", "plain", "!newer"], 2)
