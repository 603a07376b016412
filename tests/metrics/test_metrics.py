"""The metrics, as a real scrape gets them, against the tables that define them."""

from __future__ import annotations

import gzip
import math
import subprocess
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from streaming_app.alerts.mirror import Mirror
from streaming_app.core.facts import GroupFacts
from streaming_app.job.health import Health
from streaming_app.metrics.collector import Groups as AnyGroups
from streaming_app.metrics.collector import Sources, make_registry
from streaming_app.metrics.document import PAGE, page
from streaming_app.metrics.group_metrics import GROUP_METRICS
from streaming_app.metrics.http import make_app
from streaming_app.metrics.job_metrics import JOB_METRICS
from streaming_app.metrics.server import Server
from streaming_app.metrics.settings import MetricsSettings
from tests.metrics.scene import NOW, SINCE, busy_health, group, sources
from tests.tools import MissingToolError, debian_tool

Scrape = Callable[..., str]

SOME = (
    group("a"),
    group("b", "NotReady", description_status="FAILED", unsolicited_pushes=2, solicitable=True),
    group("gone", "Dead"),
)
SUFFIXES = {"summary": ("_count", "_sum")}


@pytest.fixture
def scrape() -> Iterator[Scrape]:
    """Serves these sources and gives what a scrape gets."""
    servers = []

    def get(
        groups: Iterable[GroupFacts] = SOME, settings: MetricsSettings | None = None, accept: str = "", **others: object
    ) -> str:
        asked: Sources = sources(groups, **others)
        app = make_app(make_registry(asked, settings or MetricsSettings()), asked.health, asked.cluster)
        servers.append(Server("127.0.0.1:0", app))
        request = Request(f"{servers[-1].url}/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})  # noqa: S310
        with urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
            assert answer.status == 200
            return gzip.decompress(answer.read()).decode()

    yield get
    for server in servers:
        server.close()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Name and label values, in the order of the labels' names but without the cluster, to value."""
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "cluster")): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_every_metric_of_the_tables_is_there_with_its_type_its_help_and_its_labels(scrape: Scrape) -> None:
    families = {family.name: family for family in parse(scrape())}
    for metric, of_group in [*((m, False) for m in JOB_METRICS), *((m, True) for m in GROUP_METRICS)]:
        family = families.pop(metric.name.removesuffix("_total"))
        assert family.type == {"info": "gauge"}.get(metric.kind, metric.kind), metric.name
        assert family.documentation == metric.about
        assert family.samples, metric.name
        labels = {"cluster", *(("group",) if of_group else ()), *metric.labels}
        for sample in family.samples:
            assert set(sample.labels) == labels
            assert sample.labels["cluster"] == "prod"
            assert sample.name in {metric.name + suffix for suffix in SUFFIXES.get(metric.kind, ("",))}
    assert not families, "nothing but what the tables say"


def test_the_values_of_a_group_are_those_of_its_row(scrape: Scrape) -> None:
    told = samples(scrape())
    assert {key[1:]: value for key, value in told.items() if key[0] == "streams_group_state"} == {
        ("a", "Stable"): 1,
        ("b", "NotReady"): 1,
    }
    assert told["streams_group_description_status", "b", "FAILED"] == 1
    of_a = {key[0]: value for key, value in told.items() if key[1:] == ("a",)}
    assert of_a.pop("streams_group_state_since_timestamp_seconds") == pytest.approx(SINCE.timestamp())
    assert of_a == {
        "streams_group_epoch": 7,
        "streams_group_assignment_epoch": 6,
        "streams_group_topology_epoch": 3,
        "streams_group_validated_topology_epoch": 3,
        "streams_group_stored_description_epoch": 3,
        "streams_group_failed_description_epoch": -1,
        "streams_group_members": 4,
        "streams_group_stale_members": 1,
        "streams_group_rebalances_total": 6,
        "streams_group_description_stale_seconds": 0,
        "streams_group_unsolicited_descriptions_total": 0,
        "streams_group_solicitable": 0,
    }
    assert told["streams_group_solicitable", "b"] == 1
    assert told["streams_group_unsolicited_descriptions_total", "b"] == 2
    assert 600 <= told["streams_group_description_stale_seconds", "b"] < 3600  # since the scene was made


def test_the_values_of_the_job_are_those_of_its_health(scrape: Scrape) -> None:
    told = samples(scrape(health=busy_health(behind=40)))
    expected = {
        ("streams_groups", "Stable"): 1,
        ("streams_groups", "NotReady"): 1,
        ("streams_groups", "Empty"): 0,
        ("streams_groups_caught_up",): 1,
        ("streams_groups_brokers_answering",): 1,
        ("streams_groups_stream_failing",): 0,
        ("streams_groups_stream_restarts_total",): 1,
        ("streams_groups_lag_offsets", "0"): 40,
        ("streams_groups_lag_offsets", "1"): 0,
        ("streams_groups_batches_total",): 2,
        ("streams_groups_batch_duration_seconds_sum",): 5,
        ("streams_groups_batch_duration_seconds_count",): 2,
        ("streams_groups_last_batch_duration_seconds",): 2.5,
        ("streams_groups_records_seen_total",): 2_000,
        ("streams_groups_records_total", "StreamsGroupMetadata"): 40,
        ("streams_groups_records_total", "24"): 2,
        ("streams_groups_records_total", "none"): 4,
        ("streams_groups_quarantined_records_total",): 6,
        ("streams_groups_unknown_tags_records_total",): 8,
        ("streams_groups_alerts", "StreamsGroupNotReady", "critical", "firing"): 2,
        ("streams_groups_alerts", "StreamsGroupsJobBehind", "critical", "pending"): 1,
        ("streams_groups_notifications_total", "sent", "pager"): 5,
        ("streams_groups_notifications_total", "failed", "pager"): 2,
        ("streams_groups_notifications_waiting", "mail"): 0,
    }
    assert {key: told[key] for key in expected} == expected
    assert ("streams_groups", "Dead") not in told
    sent_at = told["streams_groups_notifications_last_success_timestamp_seconds", "pager"]
    assert sent_at == pytest.approx(NOW.timestamp())
    assert ("streams_groups_notifications_last_success_timestamp_seconds", "mail") not in told


def test_what_is_not_known_has_no_series(scrape: Scrape) -> None:
    bare = group("a", "Unknown", state_since=None, group_epoch=None, assignment_epoch=None, topology_epoch=None)
    told = samples(scrape([bare], health=Health()))
    assert ("streams_group_members", "a") in told
    for name in ("state_since_timestamp_seconds", "epoch", "assignment_epoch", "topology_epoch"):
        assert (f"streams_group_{name}", "a") not in told
    assert ("streams_groups_last_success_timestamp_seconds",) not in told
    assert told["streams_groups_caught_up",] == 0
    assert not any(key[0] == "streams_groups_lag_offsets" for key in told)
    assert not any(math.isnan(value) for value in told.values())


def test_openmetrics_is_given_to_who_asks_for_it_and_is_valid(scrape: Scrape) -> None:
    text = scrape(accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    families: dict[str, Family] = {family.name: family for family in parse_openmetrics(text)}
    assert families["streams_groups_build"].type == "info"
    assert families["streams_group_rebalances"].type == "counter"


def test_promtool_finds_nothing_to_say(scrape: Scrape) -> None:
    try:
        promtool = debian_tool("prometheus", "promtool")
    except MissingToolError as missing:
        pytest.skip(str(missing))
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=scrape(), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def shown(text: str) -> list[str]:
    return sorted(key[1] for key in samples(text) if key[0] == "streams_group_members")


MANY = [group(f"s{number}") for number in range(5)] + [group("z-moving", "Assigning"), group("y-empty", "Empty")]


@pytest.mark.parametrize(
    ("settings", "expected", "dropped"),
    [
        (MetricsSettings(), ["s0", "s1", "s2", "s3", "s4", "y-empty", "z-moving"], 0),
        (MetricsSettings(max_groups=3), ["s0", "y-empty", "z-moving"], 4),
        (MetricsSettings(max_groups=1), ["y-empty"], 6),
        (MetricsSettings(max_groups=0), [], 7),
        (MetricsSettings(groups="s[0-2]|z"), ["s0", "s1", "s2"], 0),
        (MetricsSettings(groups="s.*", max_groups=2), ["s0", "s1"], 3),
    ],
    ids=str,
)
def test_series_are_for_allowed_groups_up_to_the_bound_and_those_in_trouble_come_first(
    scrape: Scrape, settings: MetricsSettings, expected: list[str], dropped: int
) -> None:
    text = scrape(MANY, settings)
    assert shown(text) == expected
    assert samples(text)["streams_groups_series_dropped",] == dropped
    assert samples(text)["streams_groups", "Stable"] == 5
    assert shown(scrape(MANY[::-1], settings)) == expected


def test_names_that_prometheus_must_quote_arrive_whole(scrape: Scrape) -> None:
    name = 'a "quoted"\\ group\nüber'
    assert shown(scrape([group(name)])) == [name]


def test_the_mirror_is_what_the_collector_asks(tmp_path: Path) -> None:
    mirror: AnyGroups = Mirror(tmp_path, "default", timedelta(hours=1))
    assert mirror.groups() == {}
    assert mirror.rebalances_total("a") == 0


def test_the_page_of_all_metrics_is_as_the_tables_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m streaming_app.metrics.document"
    named = [line.split("`")[1] for line in page().splitlines() if line.startswith("| `")]
    assert named == [metric.name for metric in (*JOB_METRICS, *GROUP_METRICS)]
    assert len(named) == len(set(named))
