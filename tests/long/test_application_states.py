"""Real applications in each state that they get into: all commands equal Kafka's own tool, and the verdict is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer

from streaming_app.config.settings import JobConfig
from streaming_app.errors import WarehouseError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.compared_tools import SHORT_SESSIONS, ComparedGroup
from tests.support.kafka_tool import StreamsGroupsTool
from tests.support.running_job import job_in_thread
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAST = {"commit.interval.ms": "200"}
_LONG_SESSION = {"streams.session.timeout.ms": 60_000}
_AT_ONCE = {"alerts": {"rules": {"StreamsGroupDown": {"for": 0}, "StreamsGroupStalled": {"for": 0}}}}


class World:
    """A broker, a job that reads it, and Kafka's tool."""

    def __init__(
        self, server: str, warehouse: Path, directory: Path, tool: StreamsGroupsTool, stack: ExitStack
    ) -> None:
        self.server, self.warehouse, self._directory = server, warehouse, directory
        self._tool, self._stack = tool, stack
        self.client = stack.enter_context(StreamsGroupClient(server))

    def application(
        self, group_id: str, topology: str, topics: Mapping[str, int], name: str = "1", **options: Any
    ) -> StreamsApplication:
        """Start an instance of an application, with its topics."""
        known = {one if isinstance(one, str) else one["name"] for one in self.client.admin.list_topics()}
        for topic, partitions in topics.items():
            if topic not in known:
                self.client.create_topic(topic, partitions)
        properties = {**_FAST, **options.pop("properties", {})}
        one = StreamsApplication(
            self.server,
            self._directory / f"{group_id}-{name}",
            group_id,
            topology,
            [*topics],
            properties=properties,
            **options,
        )
        return self._stack.enter_context(one)

    def compared(self, group_id: str, *applications: StreamsApplication) -> ComparedGroup:
        return ComparedGroup(group_id, self.server, self.warehouse, self._tool, *applications)

    def verdict(self, group_id: str) -> str | None:
        return self._health(group_id).get("verdict")

    def await_verdict(self, group_id: str, *verdicts: str) -> None:
        assert wait_until(lambda: self.verdict(group_id) in verdicts, interval=1), self._health(group_id)

    def _health(self, group_id: str) -> dict[str, Any]:
        try:
            rows = WarehouseReader(self.warehouse).rows(
                f"SELECT verdict, why, evidence FROM group_health WHERE group_id = {quote(group_id)}"
            )
        except WarehouseError:  # the job has not created the tables yet
            return {}
        return rows[0] if rows else {}

    def produce(self, topic: str, *lines: str) -> None:
        with KafkaProducer(bootstrap_servers=self.server) as producer:
            for line in lines:
                producer.send(topic, line.encode())


@pytest.fixture
def world(
    start_broker: Callable[..., LocalBroker], spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> Iterator[World]:
    server = start_broker(
        properties=SHORT_SESSIONS | {"group.streams.max.session.timeout.ms": "60000"}
    ).bootstrap_server
    config = {"bootstrap_server": server, "warehouse": empty_warehouse, **_AT_ONCE}
    with ExitStack() as running:
        tool = running.enter_context(closing(StreamsGroupsTool(server)))
        found = World(server, empty_warehouse, tmp_path, tool, running)
        running.enter_context(job_in_thread(spark, JobConfig.model_validate(config), tmp_path / "spark.log"))
        yield found


def test_a_join_with_standbys_and_tags_rebalances_while_an_instance_is_frozen(world: World) -> None:
    topics = {"orders": 4, "customers": 4, "by-region": 4}
    world.client.configure_group("enriched", {**_LONG_SESSION, "streams.num.standby.replicas": 1})
    tagged = {"client.tag.zone": "a", "rack.aware.assignment.tags": "zone"}
    first = world.application("enriched", "join", topics, "1", properties=tagged)
    second = world.application("enriched", "join", topics, "2", properties={**tagged, "client.tag.zone": "b"})
    first.produce(on=True)
    group = world.compared("enriched", first, second)
    world.await_verdict("enriched", "Ok")
    first.produce(on=False)
    group.await_equal("Stable")
    rows = WarehouseReader(world.warehouse).rows("SELECT client_tags FROM members WHERE group_id = 'enriched'")
    assert {dict(row["client_tags"])["zone"] for row in rows} == {"a", "b"}
    first.freeze(on=True)
    third = world.application("enriched", "join", topics, "3", properties={**tagged, "client.tag.zone": "a"})
    group.applications.append(third)
    group.await_equal("Reconciling", answering=False)
    first.freeze(on=False)
    group.await_equal("Stable")


def test_an_exactly_once_filter_and_a_global_table_are_equal_while_they_run_and_when_they_are_stopped(
    world: World,
) -> None:
    exactly_once = {"processing.guarantee": "exactly_once_v2"}
    filtered = world.application("filtered", "filter", {"events": 2, "passed": 2}, properties=exactly_once)
    located = world.application("located", "global", {"sales": 2, "regions": 1, "located-sales": 2})
    for one in (filtered, located):
        one.produce(on=True)
        world.await_verdict(one.application_id, "Ok")
        one.produce(on=False)
        world.compared(one.application_id, one).await_equal("Stable")
        one.stop()
        world.compared(one.application_id).await_equal("Empty")
        world.await_verdict(one.application_id, "Off", "Idle")


def test_a_topic_that_is_deleted_under_an_application_is_down_and_well_again_once_it_is_back(world: World) -> None:
    world.client.configure_group("orphaned", _LONG_SESSION)
    topics = {"lines": 2, "counts": 2}
    one = world.application("orphaned", "words", topics)
    one.produce(on=True)
    world.await_verdict("orphaned", "Ok")
    world.client.admin.delete_topics(["lines"])
    group = world.compared("orphaned", one)
    group.await_equal("NotReady", answering=False)
    world.await_verdict("orphaned", "Down")
    one.kill()
    again = world.application("orphaned", "words", topics, "2")
    again.produce(on=True)
    group.applications = [again]
    world.await_verdict("orphaned", "Ok")
    again.produce(on=False)
    group.await_equal("Stable", answering=False)


def test_a_poisoned_record_kills_every_instance_and_the_group_is_down(world: World) -> None:
    topics = {"lines": 1, "counts": 1}
    one = world.application("poisoned", "words", topics)
    one.produce(on=True)
    world.await_verdict("poisoned", "Ok")
    world.produce("lines", "poison", *["after it"] * 20)
    assert wait_until(lambda: one.pid is None)
    group = world.compared("poisoned")
    group.await_equal("Empty")
    world.await_verdict("poisoned", "Down")
    two = world.application("poisoned", "words", topics, "2", instances=2)  # each is started again when it has died
    world.await_verdict("poisoned", "Down", "Unstable", "Stalled")
    two.kill()
    group.await_equal("Empty")
