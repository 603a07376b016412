"""The lag while a broker of three is away: the service on real brokers, from the election of new leaders on."""

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import InvalidReplicationAssignmentError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.job.lag_service import LagService
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.topic_reader import describe_topics
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import LagRow
from tests.support.a_job import AtTheEnd, a_job
from tests.support.away_brokers import connection, killed, others
from tests.support.kafka_cluster import LocalCluster
from tests.support.waiting import wait_until
from tests.support.warehouses import make_warehouse, replace_rows

pytestmark = pytest.mark.broker

PARTITIONS = 12
INTERVAL = 86_400.0
"""Seconds between two passes: what a test waits for is never the work of the next pass that is due by itself.

The campaigns of `tests.long.campaign` measure how soon the lag is known on a quiet machine (goal 10 s).
"""


class Rig:
    """A group with commits on two topics, and the service that finds its lag.

    Three brokers lead the partitions of both topics in turn. Each partition of `single` is on one broker only.
    """

    def __init__(self, cluster: LocalCluster, path: Path, topic: str, single: str, group_id: str) -> None:
        self.topic, self.single, self.group_id = topic, single, group_id
        self.lines: list[str] = []
        self.keys = [(name, number) for name in (topic, single) for number in range(PARTITIONS)]
        create_spread(cluster, topic, 3)
        create_spread(cluster, single, 1)
        self.ends: dict[TopicPartition, int] = {}
        self.produce(cluster.bootstrap_server, self.keys)
        with StreamsGroupClient(cluster.bootstrap_server.split(",")) as client:
            client.commit_offsets(group_id, dict.fromkeys(self.keys, 0))
        path = make_warehouse(path)
        of_group = {"group_id": group_id, "committed_offset": 0}
        commits = [
            {**of_group, "topic": name, "partition": number, "last_offset": offset}
            for offset, (name, number) in enumerate(self.keys)
        ]
        replace_rows(path, "offset_commits", *commits)
        settings, server = {"lag": {"interval": INTERVAL}}, cluster.bootstrap_server
        self.service = LagService(a_job(path, self.lines.append, settings, server, health=AtTheEnd()))

    def produce(self, server: str, keys: Iterable[TopicPartition]) -> None:
        """Append a record to each partition, or two where an answer of a broker does not arrive."""
        with KafkaProducer(bootstrap_servers=server.split(","), enable_idempotence=False) as producer:
            sent = {key: producer.send(key[0], b"x", partition=key[1]) for key in keys}
            self.ends |= {key: int(one.get(300).offset) + 1 for key, one in sent.items()}

    def pass_is_due(self) -> None:
        self.service._next_at = 0.0

    def rows_since(self, at: float) -> dict[TopicPartition, LagRow]:
        """Return the rows of the newest pass if it has begun after this time; until then let the next one be due."""
        result = self.service.result
        if result is None or result.at <= at:
            self.pass_is_due()
            return {}
        return {(row.topic, row.partition): row for row in result.rows if row.group_id == self.group_id}

    def has_lag(self, without: Collection[TopicPartition] = (), since: float = 0.0) -> bool:
        """Return whether a pass knows the lag of each partition, and that of those `without` is not known."""
        lags = {key: row.lag for key, row in self.rows_since(since).items()}
        return lags == self.ends | dict.fromkeys(without)  # each has committed offset 0


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
    return list(describe_topics(admin, [topic])[topic].leaders.values())


def test_lag_is_known_after_an_election_and_a_line_names_the_broker_that_is_away_and_what_it_alone_has(
    three_brokers: LocalCluster, tmp_path: Path, unique: Callable[[str], str], group_id: str
) -> None:
    rig = Rig(three_brokers, tmp_path / "warehouse", unique("orders"), unique("single"), group_id)
    victim, *_ = three_brokers.brokers
    led = {(rig.single, number) for number in range(0, PARTITIONS, len(three_brokers.brokers))}
    there = [key for key in rig.keys if key not in led]
    rig.service.start()
    try:
        assert wait_until(rig.has_lag), rig.lines
        with killed(three_brokers, victim), connection(others(three_brokers, victim)) as admin:
            killed_at = time.time()
            rig.pass_is_due()  # in the moment between its last answer and the election, when nobody leads them
            assert wait_until(lambda: not {-1, victim} & {*leaders(admin, rig.topic)})
            assert wait_until(lambda: -1 in leaders(admin, rig.single))
            assert wait_until(lambda: rig.has_lag(led)), "the election is news: the next pass is not waited for"
            rig.produce(others(three_brokers, victim), there)
            produced_at = time.time()
            assert wait_until(lambda: rig.has_lag(led, produced_at)), (rig.rows_since(0.0), rig.lines)
            until = {key: row.known_until or 0.0 for key, row in rig.rows_since(0.0).items()}
            assert {key for key in rig.keys if until[key] < killed_at} == led
            assert rig.service.result is not None
            ((name, partitions),) = rig.service.result.away.items()  # replicas of the offsets topic have taken over
            assert (name.startswith(f"broker {victim}"), partitions) == (True, {f"{one[0]}-{one[1]}" for one in led})
        assert wait_until(rig.has_lag), rig.lines
    finally:
        rig.service.close()
    # A pass before the election also names partitions of the other topic, and the line is not said again afterwards.
    broker = f"broker {victim} ({three_brokers.brokers[victim].bootstrap_server})"
    (away,) = [line for line in rig.lines if broker in line]
    assert "does not answer" in away
    assert rig.lines[-1] == "lag: the lag of all partitions is known"
    assert not [line for line in rig.lines if "No Kafka broker" in line]
