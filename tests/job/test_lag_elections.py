"""The lag while a broker of three is away: the service on real brokers, from the election of new leaders on."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import InvalidReplicationAssignmentError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.config.sections import LagSettings
from streaming_app.job.lag_ends import LogEndsReader
from streaming_app.job.lag_service import LagService
from streaming_app.job.service import describes_requests
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import Admin, connect
from streaming_app.kafka.lag_offsets import LogEndsClient, TopicPartition
from streaming_app.tables.lag_tables import LagTables
from tests.support.away_brokers import connection, killed, others, paused
from tests.support.kafka_cluster import LocalCluster
from tests.support.waiting import wait_until
from tests.support.warehouses import make_warehouse, replace_rows

pytestmark = pytest.mark.broker

PARTITIONS = 12
INTERVAL = 86_400.0
"""Seconds between two passes: what a test waits for is never the work of the next pass that is due by itself.

How soon the lag is known on a machine that does nothing else, the campaigns of `tests.long.faults` measure (goal 10 s).
"""


class Rig:
    """A group with commits on partitions that three brokers lead, and the service that finds its lag."""

    def __init__(self, cluster: LocalCluster, path: Path, topic: str, group_id: str, replicas: int = 3) -> None:
        self.cluster, self.topic, self.group_id = cluster, topic, group_id
        self.lines: list[str] = []
        self.keys = [(topic, number) for number in range(PARTITIONS)]
        create_spread(cluster, topic, replicas)
        self.ends: dict[TopicPartition, int] = {}
        self.produce(cluster.bootstrap_server)
        with StreamsGroupClient(cluster.bootstrap_server.split(",")) as client:
            client.commit_offsets(group_id, dict.fromkeys(self.keys, 0))
        self.path = make_warehouse(path)
        commits = [
            {"group_id": group_id, "topic": topic, "partition": number, "committed_offset": 0, "last_offset": number}
            for _, number in self.keys
        ]
        replace_rows(self.path, "offset_commits", *commits)
        properties = {"bootstrap.servers": cluster.bootstrap_server}
        self.service = LagService(
            LagSettings(interval=INTERVAL),
            LagTables(self.path, "default"),
            partial(connect, properties),
            report=self.lines.append,
            describe_error=describes_requests(properties, "the lag needs Describe"),
        )

    def produce(self, server: str) -> None:
        """Append a record to each partition, or two where an answer of a broker does not arrive."""
        with KafkaProducer(bootstrap_servers=server.split(","), enable_idempotence=False) as producer:
            sent = {key: producer.send(self.topic, b"x", partition=key[1]) for key in self.keys}
            self.ends = {key: int(one.get(300).offset) + 1 for key, one in sent.items()}

    def lags(self) -> dict[TopicPartition, int | None]:
        """Return the lags of the newest pass."""
        result = self.service.result
        rows = result.rows if result else []
        return {(row.topic, row.partition): row.lag for row in rows if row.group_id == self.group_id}

    def has_passed_since(self, at: float) -> bool:
        """Return whether a pass has begun after this time; until then let the next one be due."""
        self.service._next_at = 0.0
        return self.service.result is not None and self.service.result.at > at

    def has_lag(self) -> bool:
        return self.lags() == self.ends  # each has committed offset 0

    def knows_lag_since(self, at: float) -> bool:
        """Return whether a pass has begun after this time, and knows the lag of each partition."""
        lags = self.lags()
        return (
            self.service.result is not None
            and self.service.result.at > at
            and set(lags) == set(self.keys)
            and None not in lags.values()
        )


def create_spread(cluster: LocalCluster, topic: str, replicas: int) -> None:
    """Create a topic whose partitions the three brokers lead in turn."""
    ids = list(cluster.brokers)
    assignments = {number: [ids[(number + one) % len(ids)] for one in range(replicas)] for number in range(PARTITIONS)}
    with connection(cluster.bootstrap_server) as admin:
        while_fenced = retry_if_exception_type(
            InvalidReplicationAssignmentError
        )  # a broker that was away is, for a moment
        create = Retrying(retry=while_fenced, wait=wait_fixed(0.5), stop=stop_after_delay(60), reraise=True)
        create(admin.create_topics, {topic: {"assignments": assignments}})
        assert wait_until(lambda: {*leaders(admin, topic)} == {*ids})


def leaders(admin: Admin, topic: str) -> list[int]:
    return list(LogEndsClient(admin).describe([topic])[topic].leaders.values())


def test_a_partition_has_lag_at_once_after_the_election_of_its_leader(
    three_brokers: LocalCluster, tmp_path: Path, unique: Callable[[str], str], group_id: str
) -> None:
    rig = Rig(three_brokers, tmp_path / "warehouse", unique("orders"), group_id)
    victim, *_ = three_brokers.brokers
    rig.service.start()
    try:
        assert wait_until(rig.has_lag), rig.lines
        with paused(three_brokers, victim), connection(others(three_brokers, victim)) as admin:
            away_at = time.time()
            # A pass in the moment between its last answer and the election, when nobody leads the partitions.
            rig.service._next_at = 0.0
            assert wait_until(lambda: not {-1, victim} & {*leaders(admin, rig.topic)})
            assert wait_until(lambda: rig.knows_lag_since(away_at)), (rig.lags(), rig.lines)
            rig.produce(others(three_brokers, victim))
            rig.service._next_at = 0.0
            assert wait_until(rig.has_lag), (rig.lags(), rig.lines)
    finally:
        rig.service.close()
    assert not [line for line in rig.lines if "No Kafka broker" in line]


def test_the_line_about_a_broker_that_is_away_names_it_and_its_partitions_and_lag_is_known_when_it_is_back(
    three_brokers: LocalCluster, tmp_path: Path, unique: Callable[[str], str], group_id: str
) -> None:
    victim, *_ = three_brokers.brokers
    rig = Rig(three_brokers, tmp_path / "warehouse", unique("single"), group_id, replicas=1)
    led = {(rig.topic, number) for number in range(0, PARTITIONS, len(three_brokers.brokers))}
    rig.service.start()
    try:
        assert wait_until(rig.has_lag), rig.lines
        with killed(three_brokers, victim), connection(others(three_brokers, victim)) as admin:
            killed_at = time.time()
            rig.service._next_at = 0.0
            assert wait_until(lambda: -1 in leaders(admin, rig.topic))
            assert wait_until(lambda: {key for key, lag in rig.lags().items() if lag is None} == led)
            at = time.time()
            assert wait_until(lambda: rig.has_passed_since(at))
            rows = rig.service.result.rows if rig.service.result else []
            until = {(row.topic, row.partition): row.known_until or 0.0 for row in rows}
            assert {key for key in rig.keys if until[key] < killed_at} == led
            ((name, partitions),) = LogEndsReader(time.time).away_of(admin, rig.topic).items()
            assert (name.startswith(f"broker {victim}"), set(partitions)) == (True, led)
            assert LogEndsReader(time.time).away_of(admin, "__consumer_offsets") == {}, "its replicas have taken over"
        assert wait_until(rig.has_lag), rig.lines
    finally:
        rig.service.close()
    (away, known) = rig.lines
    assert f"broker {victim} ({three_brokers.brokers[victim].bootstrap_server}) does not answer" in away
    assert f"{rig.topic}-0, {rig.topic}-3, {rig.topic}-6 and 1 more" in away
    assert known == "lag: the lag of all partitions is known"
