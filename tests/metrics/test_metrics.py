"""The metrics of a real scrape, compared with their definitions."""

import gzip
import math
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from streaming_app.config.sections import MetricsSettings
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.task_copies import TaskCopy, sum_copies
from streaming_app.metrics import lag_metrics
from streaming_app.metrics.collector import make_registry
from streaming_app.metrics.group_metrics import GROUP_METRICS, LABELS_METRIC
from streaming_app.metrics.job_metrics import ALERT_METRICS, JOB_METRICS
from streaming_app.metrics.lag_metrics import LAG_METRICS, LagScrape
from streaming_app.metrics.metric import Metric
from streaming_app.stream.job_state import JobState
from streaming_app.tables.definitions import tables, views
from streaming_app.web.monitoring import monitoring_server
from tests.support.lag_harness import row
from tests.support.metrics_harness import NOW, SINCE, busy_health, group, scraped
from tests.support.tools import debian_tool
from tests.support.waiting import MINUTES

Scrape = Callable[..., str]

EXAMPLES = (
    group("a"),
    group("b", "NotReady", description_status="FAILED", unsolicited_pushes=2, solicitable=True),
    group("deleted", "Dead"),
)
RESTORES = TaskCopy("g", "m", "p", "h", "restoring", "0", 0, stateful=True, lag=60, ready_at=NOW + timedelta(hours=1))
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def scrape() -> Iterator[Scrape]:
    """Serves the given sources and returns the response of a scrape."""
    servers = []

    def get(groups: Iterable[GroupSnapshot] = EXAMPLES, settings: MetricsSettings | None = None, **fields: Any) -> str:
        registry = make_registry(scraped(groups, **fields), settings or MetricsSettings())
        servers.append(monitoring_server("127.0.0.1:0", registry, JobState(), "prod"))
        servers[-1].start()
        request = Request(f"{servers[-1].url}/metrics", headers={"Accept-Encoding": "gzip"})  # noqa: S310
        with urlopen(request, timeout=MINUTES) as response:  # noqa: S310 - our own
            assert response.status == 200
            return gzip.decompress(response.read()).decode()

    yield get
    for server in servers:
        server.close()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return each value by name and label values, in the order of the label names, without the cluster."""
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "cluster")): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_a_scrape_has_every_defined_metric_with_its_type_its_help_and_its_labels(scrape: Scrape) -> None:
    families = {family.name: family for family in parse(scrape())}
    defined: list[tuple[Metric[Any], bool]] = [(metric, False) for metric in (*JOB_METRICS, *ALERT_METRICS)]
    defined += [(metric, True) for metric in GROUP_METRICS]
    for metric, is_group_metric in defined:
        family = families.pop(metric.name.removesuffix("_total"))
        assert family.type == {"info": "gauge"}.get(metric.type, metric.type), metric.name
        assert family.documentation == metric.help
        assert family.samples, metric.name
        labels = {"cluster", *(("group",) if is_group_metric else ()), *metric.labels}
        for sample in family.samples:
            assert set(sample.labels) == labels
            assert sample.labels["cluster"] == "prod"
            assert sample.name == metric.name
    assert list(families) == [LABELS_METRIC.name]  # without declared labels it has no samples


def test_the_values_of_a_group_come_from_its_snapshot(scrape: Scrape) -> None:
    values = samples(scrape())
    assert {key[1:]: value for key, value in values.items() if key[0] == "streams_group_state"} == {
        ("a", "Stable"): 1,
        ("b", "NotReady"): 1,
    }
    assert values["streams_group_description_status", "b", "FAILED"] == 1
    of_a = {key[0]: value for key, value in values.items() if key[1:] == ("a",)}
    assert 0 < of_a.pop("streams_group_restore_remaining_seconds") <= 3_600
    assert of_a == {
        "streams_group_health_since_timestamp_seconds": pytest.approx(SINCE.timestamp()),
        "streams_group_members": 4,
        "streams_group_stale_members": 1,
        "streams_group_rebalances_total": 6,
        "streams_group_description_stale_seconds": 0,
        "streams_group_unsolicited_descriptions_total": 0,
    }
    copies = {key: value for key, value in values.items() if key[0].startswith("streams_group_copies")}
    assert {key: copies[key] for key in copies if key[1] == "a"} == {
        ("streams_group_copies", "a", "restoring"): 2,
        ("streams_group_copies", "a", "standby"): 3,
        ("streams_group_copies", "a", "warmup"): 2,
        ("streams_group_copies_lag_offsets", "a", "restoring"): 900,
        ("streams_group_copies_lag_offsets", "a", "standby"): 60,
        ("streams_group_copies_lag_offsets", "a", "warmup"): 5_000,
        ("streams_group_copies_lag_unknown", "a", "restoring"): 0,
        ("streams_group_copies_lag_unknown", "a", "standby"): 1,
        ("streams_group_copies_lag_unknown", "a", "warmup"): 0,
    }
    names = ("streams_group_copies", "streams_group_copies_lag_unknown")
    assert {key[0]: value for key, value in copies.items() if key[1] == "b"} == dict.fromkeys(names, 0)
    assert {key[2]: value for key, value in values.items() if key[:2] == ("streams_group_epoch", "a")} == {
        "group": 7,
        "assignment": 6,
        "topology": 3,
        "validated_topology": 3,
        "stored_description": 3,
        "failed_description": -1,
    }
    assert values["streams_group_unsolicited_descriptions_total", "b"] == 2
    assert 600 <= values["streams_group_description_stale_seconds", "b"] < 3600  # seconds since the groups were created


def test_a_classic_group_has_only_its_health_and_takes_no_place_of_a_streams_group(scrape: Scrape) -> None:
    classic = group("a", "Unknown", group_type="classic", protocol="classic", first_seen_at=None)
    groups = [classic, group("b"), replace(classic, group_id="c")]
    values = samples(scrape(groups, labels_of=lambda _group: {"team": "x"}))
    names = ("health", "health_since_timestamp_seconds", "labels")
    assert {key[0] for key in values if key[1:2] == ("a",)} == {f"streams_group_{name}" for name in names}
    assert {key: value for key, value in values.items() if key[0] == "streams_groups" and value} == {
        ("streams_groups", "Stable"): 1
    }
    few = samples(scrape(groups, settings=MetricsSettings(max_groups=1)))
    assert {key[1] for key in few if key[0] == "streams_group_members"} == {"b"}
    assert not [key for key in few if key[0] == "streams_group_health"]


@pytest.mark.parametrize(
    "copies",
    [[], [RESTORES, RESTORES._replace(partition=1, ready_at=None)], [RESTORES._replace(ready_at=SINCE)]],
    ids=["nothing restores", "one is not known", "overdue"],
)
def test_the_time_left_of_a_restore_is_absent_where_it_is_not_known(copies: list[TaskCopy], scrape: Scrape) -> None:
    values = samples(scrape([group("g")], copies={"g": sum_copies(copies)}))
    assert not [key for key in values if key[0] == "streams_group_restore_remaining_seconds"]


def test_the_declared_labels_of_a_group_are_a_metric_that_takes_no_label_of_the_job(scrape: Scrape) -> None:
    text = scrape(labels_of=lambda group_id: {"team": "payments", "tier": "gold"} if group_id == "a" else {})
    (family,) = (one for one in parse(text) if one.name == LABELS_METRIC.name)
    labels = {"cluster": "prod", "group": "a", "team": "payments", "tier": "gold"}
    assert [(one.labels, one.value) for one in family.samples] == [(labels, 1)]


def test_the_values_of_the_job_come_from_its_health(scrape: Scrape) -> None:
    values = samples(scrape(health=busy_health(behind=40)))
    expected = {
        ("streams_groups", "Stable"): 1,
        ("streams_groups", "NotReady"): 1,
        ("streams_groups", "Empty"): 0,
        ("streams_groups_by_protocol", "classic"): 40,
        ("streams_groups_left_out", "alerts"): 7,
        ("streams_groups_left_out", "verdicts"): 0,
        ("streams_groups_job_caught_up",): 1,
        ("streams_groups_job_brokers_answering",): 1,
        ("streams_groups_job_stream_failing", "groups"): 0,
        ("streams_groups_job_stream_failing", "offsets"): 1,
        ("streams_groups_job_behind_offsets", "0", "groups"): 40,
        ("streams_groups_job_behind_offsets", "1", "groups"): 0,
        ("streams_groups_job_behind_offsets", "", "offsets"): 41,
        ("streams_groups_job_batches_total",): 2,
        ("streams_groups_job_records_read_total",): 2_000,
        ("streams_groups_job_group_records_total", "StreamsGroupMetadata"): 40,
        ("streams_groups_job_group_records_total", "24"): 2,
        ("streams_groups_job_group_records_total", "none"): 4,
        ("streams_groups_job_quarantined_records_total",): 6,
        ("streams_groups_job_unknown_tags_records_total",): 8,
        ("streams_groups_alerts", "StreamsGroupNotReady", "critical"): 2,
        ("streams_groups_job_notifications_total", "sent", "pager"): 5,
        ("streams_groups_job_notifications_total", "failed", "pager"): 2,
        ("streams_groups_job_notifications_waiting", "mail"): 0,
    }
    assert {key: values[key] for key in expected} == expected
    assert ("streams_groups", "Dead") not in values


def test_an_unknown_value_has_no_series(scrape: Scrape) -> None:
    unknown = group("a", "Unknown", state_since=None, group_epoch=None, assignment_epoch=None, topology_epoch=None)
    values = samples(scrape([unknown], health=JobState()))
    assert ("streams_group_members", "a") in values
    assert not {"group", "assignment", "topology"} & {key[2] for key in values if key[0] == "streams_group_epoch"}
    assert not any(key[0] == "streams_groups_job_last_success_timestamp_seconds" for key in values)
    assert values["streams_groups_job_caught_up",] == 0
    assert not any(key[0] == "streams_groups_job_behind_offsets" for key in values)
    assert not any(math.isnan(value) for value in values.values())


@pytest.mark.slow
def test_promtool_finds_no_alert(scrape: Scrape) -> None:
    command = [debian_tool("prometheus", "promtool"), "check", "metrics"]
    result = subprocess.run(command, input=scrape(), capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def groups_with_series(text: str) -> list[str]:
    return sorted(key[1] for key in samples(text) if key[0] == "streams_group_members")


MANY = [group(f"s{number}") for number in range(5)] + [group("z-moving", "Assigning"), group("y-empty", "Empty")]


@pytest.mark.parametrize(
    ("settings", "expected", "dropped"),
    [
        (MetricsSettings(), ["s0", "s1", "s2", "s3", "s4", "y-empty", "z-moving"], 0),
        (MetricsSettings(max_groups=3), ["s0", "s1", "s2"], 4),
        (MetricsSettings(max_groups=0), [], 7),
        (MetricsSettings(groups="s.*", max_groups=2), ["s0", "s1"], 3),
    ],
    ids=str,
)
def test_matching_groups_have_series_up_to_the_maximum_and_those_known_the_longest_come_first(
    scrape: Scrape, settings: MetricsSettings, expected: list[str], dropped: int
) -> None:
    text = scrape(MANY, settings)
    assert groups_with_series(text) == expected
    assert samples(text)["streams_groups_left_out", "series"] == dropped
    assert samples(text)["streams_groups", "Stable"] == 5
    assert groups_with_series(scrape(MANY[::-1], settings)) == expected


def test_a_group_whose_id_is_longer_than_any_applications_has_no_series(scrape: Scrape) -> None:
    text = scrape([group("x" * 500), group("y" * 501), group("z" * 32_000)])
    assert groups_with_series(text) == ["x" * 500]
    assert samples(text)["streams_groups_left_out", "series"] == 2
    assert len(text) < 100_000


def test_names_that_need_escapes_are_returned_unchanged(scrape: Scrape) -> None:
    name = 'a "quoted"\\ group\nüber'
    assert groups_with_series(scrape([group(name)])) == [name]


def test_the_table_of_names_of_other_exporters_names_metrics_and_columns_that_exist() -> None:
    rows = [line.split("|")[3] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    used = {name for row in rows for name in re.findall(r"streams_group\w+", row)}
    defined: list[tuple[Metric[Any], ...]] = [GROUP_METRICS, LAG_METRICS]
    assert used <= {metric.name for metrics in defined for metric in metrics}
    columns = {tuple(name.split(".")) for row in rows for name in re.findall(r"`(\w+\.\w+)`", row)}
    assert columns <= {(one.name, column.name) for one in (*tables(), *views()) for column in one.columns}


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


def of(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric by those label values that are not empty."""
    return {tuple(filter(None, key[1:])): value for key, value in samples(text).items() if key[0] == name}


def test_the_default_series_of_lag(scrape: Scrape) -> None:
    values = scrape([], lag=ROWS)
    assert of(values, "streams_group_lag_offsets") == {("payments", "orders"): 510, ("plain", "clicks"): 7}
    assert of(values, "streams_group_lag_seconds") == {("payments", "orders"): 90}
    assert of(values, "streams_group_partitions") == {
        ("payments", "OK"): 1,
        ("payments", "LOST"): 1,
        ("payments", "LEFT_OVER"): 1,
        ("payments", "NO_COMMIT"): 1,
        ("plain", "OK"): 1,
    }


def test_a_group_for_whose_series_there_is_no_room_has_none_and_is_counted(
    scrape: Scrape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_metrics, "MAX_LAG_SERIES", 1)
    values = scrape([], lag=ROWS)
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
