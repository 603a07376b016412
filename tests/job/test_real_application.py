"""A word count of Kafka Streams, an application with a state store: from its commits to its lag and copies."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from streaming_app.job.copies_service import TaskCopies
from streaming_app.job.group_cache import GroupCache
from streaming_app.job.lag_pass import LagPass
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.lag.model import LagRow
from streaming_app.lag.tracker import LagTracker
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.text import utc_iso
from tests.cli.commands import as_json
from tests.support.a_job import a_job
from tests.support.container import Broker
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

INPUT_TOPIC, OUTPUT_TOPIC = "streams-plaintext-input", "streams-wordcount-output"
LINES, BEGIN_MS = 40, round(time.time()) * 1_000
"""A line a millisecond, into two partitions in turn."""
FAST = {"commit.interval.ms": "200", "heartbeat.interval.ms": "1000"}
GUARANTEES = {"alos": "at_least_once", "eos": "exactly_once_v2"}
Partition = tuple[str, int]


@pytest.fixture
def applications(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[dict[str, StreamsApplication]]:
    """One instance with each guarantee, which have processed all lines."""
    existing = client.list_topics()
    for topic in {INPUT_TOPIC, OUTPUT_TOPIC} - {one["name"] if isinstance(one, dict) else one for one in existing}:
        client.create_topic(topic, 2)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
        for number in range(LINES):
            line = f"all streams lead to kafka {number}".encode()
            producer.send(INPUT_TOPIC, line, partition=number % 2, timestamp_ms=BEGIN_MS + number)
    with ExitStack() as running:
        started = {
            name: running.enter_context(
                StreamsApplication(
                    broker.bootstrap_server,
                    tmp_path / name,
                    unique(name),
                    "words",
                    (INPUT_TOPIC, OUTPUT_TOPIC),
                    properties={**FAST, "processing.guarantee": guarantee},
                )
            )
            for name, guarantee in GUARANTEES.items()
        }
        ends = {(INPUT_TOPIC, partition): end for partition, end in client.end_offsets(INPUT_TOPIC).items()}

        def have_caught_up() -> bool:
            for one in started.values():
                one.check()
            return all(ends.items() <= committed(client, one.application_id).items() for one in started.values())

        assert wait_until(have_caught_up)
        yield started


def committed(client: StreamsGroupClient, group_id: str) -> dict[Partition, int]:
    try:
        offsets = client.list_group_offsets(group_id)[group_id]
    except KafkaError:  # the first group of a broker: it creates the topic of the offsets
        return {}
    return {(key.topic, key.partition): value.offset for key, value in offsets.items()}


def test_a_real_application_from_its_commits_to_its_lag_and_its_copies(
    broker: Broker,
    client: StreamsGroupClient,
    applications: dict[str, StreamsApplication],
    run: Callable[..., str],
    tmp_path: Path,
) -> None:
    run("__consumer_offsets", lag={"enabled": True}, offsets={"enabled": True})
    tables = LagTables(tmp_path, "default")
    at_rest = LagPass(tables, LagTracker())
    at_rest.restore(tables)
    rows = at_rest.run(client).rows
    job = a_job(tmp_path, pytest.fail, server=broker.bootstrap_server)
    groups = GroupCache(job)
    groups.refresh()
    copies = TaskCopies(replace(job, groups=groups.groups))
    copies.tick()

    reader = WarehouseReader(tmp_path)
    assert reader.rows("SELECT lag FROM lag_history") != []
    assert reader.rows("SELECT end_offsets FROM log_ends") != []
    for name, application in applications.items():
        check_lag(client, application.application_id, rows, is_transactional=name == "eos")
        check_commands(client, application.application_id, tmp_path)
        check_stores(application, tmp_path)


def check_lag(client: StreamsGroupClient, group_id: str, rows: list[LagRow], *, is_transactional: bool) -> None:
    mine = {(row.topic, row.partition): row for row in rows if row.group_id == group_id}
    offsets = committed(client, group_id)
    assert {key: row.committed_offset for key, row in mine.items() if row.committed_offset is not None} == offsets
    assert {row.subtopology_id for row in mine.values()} == {"0", "1"}, sorted(mine)
    assert {row.offset_status for key, row in mine.items() if key in offsets} == {"OK"}
    # With exactly-once, the repartition topic ends with the marker of a transaction, which nobody commits.
    assert {row.lag for key, row in mine.items() if key in offsets} <= ({0, 1} if is_transactional else {0})
    assert {row.client_host for row in mine.values()} == {"127.0.0.1"}


def check_commands(client: StreamsGroupClient, group_id: str, warehouse: Path) -> None:
    by_task = as_json(warehouse, "lag", "--group", group_id, "--by", "task")
    assert {one["task_id"] for one in by_task} == {"0_0", "0_1", "1_0", "1_1"}
    assert {one["client_host"] for one in by_task} == {"127.0.0.1"}
    described = as_json(warehouse, "describe", "--group", group_id, "--offsets")
    times = {(one["topic"], one["partition"]): one["partition_time"] for one in described}
    assert all(times[key] for key in committed(client, group_id))  # repartition topics have them, too
    last = [datetime.fromtimestamp((BEGIN_MS + LINES - 2 + number) / 1_000, timezone.utc) for number in range(2)]
    assert [times[INPUT_TOPIC, number] for number in range(2)] == [utc_iso(one) for one in last]
    of_tasks = {one["task_id"]: one["max_partition_time"] for one in by_task}
    assert (of_tasks["0_0"], of_tasks["0_1"]) == (times[INPUT_TOPIC, 0], times[INPUT_TOPIC, 1])
    (report,) = as_json(warehouse, "describe", group_id, "--copies")
    assert {(one["role"], one["subtopology_id"], one["stateful"]) for one in report["copies"]} == {
        ("active", "0", False),
        ("active", "1", True),
    }
    (process,) = report["processes"]
    assert (process["may_stop"], len(process["obstacles"])) == (False, 2)  # the state has no other copy


def check_stores(application: StreamsApplication, warehouse: Path) -> None:
    """Who has which partition of which store is what the client itself says (`metadataForLocalThreads`)."""
    found = as_json(warehouse, "describe", application.application_id, "--stores")
    has = [(one["store"], one["subtopology_id"], copy) for one in found for copy in one["copies"]]
    said = application.tasks()
    stores = {(one["store"], one["partition"]) for instance in said for one in instance["lags"]}
    active = {task for instance in said for thread in instance["threads"] for task in thread["active"]}
    assert {(store, copy["partition"]) for store, _, copy in has} == stores == {("counted", 0), ("counted", 1)}
    assert {f"{part}_{copy['partition']}" for _, part, copy in has if copy["role"] == "active"} == active - {
        "0_0",
        "0_1",
    }
    assert {one["changelog"] for one in found} == {f"{application.application_id}-counted-changelog"}
