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
from streaming_app.kafka.topic_reader import describe_topics
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import LagRow
from tests.support.a_job import AtTheEnd, a_job
from tests.support.away_brokers import connection, killed, others
from tests.support.kafka_cluster import LocalCluster
from tests.support.waiting import wait_until
from tests.support.warehouses import append, make_warehouse

pytestmark = pytest.mark.broker

PARTITIONS = 12
INTERVAL = 86_400.0
"""Seconds between two passes: what a test waits for is never the work of the next pass that is due by itself.

The campaigns of `tests.long.campaign` measure how soon the lag is known on a quiet machine (goal 10 s).
"""


def leaders(server: str, topic: str) -> set[int]:
    with connection(server) as admin:
        return set(describe_topics(admin, [topic])[topic].leaders.values())


def produce(server: str, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Append a record to each partition, or two where an answer of a broker does not arrive; return the ends."""
    with KafkaProducer(bootstrap_servers=server.split(","), enable_idempotence=False) as producer:
        sent = {key: producer.send(key[0], b"x", partition=key[1]) for key in keys}
        return {key: int(one.get(300).offset) + 1 for key, one in sent.items()}


def create_spread(cluster: LocalCluster, topic: str, replicas: int) -> None:
    """Create a topic whose partitions the three brokers lead in turn."""
    ids = list(cluster.brokers)
    turns = {number: [ids[(number + one) % len(ids)] for one in range(replicas)] for number in range(PARTITIONS)}
    while_fenced = retry_if_exception_type(InvalidReplicationAssignmentError)  # one that was away is, for a moment
    create = Retrying(retry=while_fenced, wait=wait_fixed(0.5), stop=stop_after_delay(60), reraise=True)
    with connection(cluster.bootstrap_server) as admin:
        create(admin.create_topics, {topic: {"assignments": turns}})
    assert wait_until(lambda: leaders(cluster.bootstrap_server, topic) == {*ids})


def test_lag_is_known_after_an_election_and_a_line_names_the_broker_that_is_away_and_what_it_alone_has(
    three_brokers: LocalCluster, tmp_path: Path, unique: Callable[[str], str], group_id: str
) -> None:
    """Each partition of `single` is on one broker only."""
    victim, *_ = three_brokers.brokers
    topic, single = unique("orders"), unique("single")
    create_spread(three_brokers, topic, 3)
    create_spread(three_brokers, single, 1)
    keys = [(name, number) for name in (topic, single) for number in range(PARTITIONS)]
    led = {(single, number) for number in range(0, PARTITIONS, len(three_brokers.brokers))}
    ends = produce(three_brokers.bootstrap_server, keys)
    with StreamsGroupClient(three_brokers.bootstrap_server.split(",")) as client:
        client.commit_offsets(group_id, dict.fromkeys(keys, 0))
    warehouse, lines = make_warehouse(tmp_path / "warehouse"), list[str]()
    commits = [{"topic": key[0], "partition": key[1], "last_offset": offset} for offset, key in enumerate(keys)]
    append(warehouse, "offset_commits", *({"group_id": group_id, "committed_offset": 0, **one} for one in commits))
    settings = {"lag": {"interval": INTERVAL}}
    service = LagService(a_job(warehouse, lines.append, settings, three_brokers.bootstrap_server, health=AtTheEnd()))

    def rows(since: float = 0.0) -> dict[TopicPartition, LagRow]:
        """Return the rows of the newest pass if it has begun after this time; until then let the next one be due."""
        if service.result is None or service.result.at <= since:
            service._next_at = 0.0
            return {}
        return {(row.topic, row.partition): row for row in service.result.rows if row.group_id == group_id}

    def has_lag(without: Collection[TopicPartition] = (), since: float = 0.0) -> bool:
        """Return whether a pass knows the lag of each partition, and that of those `without` is not known."""
        lags = {key: row.lag for key, row in rows(since).items()}
        return lags == ends | dict.fromkeys(without)  # each has committed offset 0

    service.start()
    try:
        assert wait_until(has_lag), lines
        with killed(three_brokers, victim):
            killed_at, left = time.time(), others(three_brokers, victim)
            service._next_at = 0.0  # in the moment between its last answer and the election, when nobody leads them
            assert wait_until(lambda: not {-1, victim} & leaders(left, topic))
            assert wait_until(lambda: -1 in leaders(left, single))
            assert wait_until(lambda: has_lag(led)), "the election is news: the next pass is not waited for"
            ends |= produce(left, [key for key in keys if key not in led])
            produced_at = time.time()
            assert wait_until(lambda: has_lag(led, produced_at)), (rows(), lines)
            assert {key for key, row in rows().items() if (row.known_until or 0.0) < killed_at} == led
            assert service.result
            ((name, partitions),) = service.result.away.items()  # replicas of the offsets topic have taken over
            assert (name.startswith(f"broker {victim}"), partitions) == (True, {f"{one[0]}-{one[1]}" for one in led})
        assert wait_until(has_lag), lines
    finally:
        service.close()
    # A pass before the election also names partitions of the other topic, and the line is not said again afterwards.
    address = three_brokers.brokers[victim].bootstrap_server
    (away,) = [line for line in lines if f"broker {victim} ({address})" in line]
    assert "does not answer" in away
    assert lines[-1] == "lag: the lag of all partitions is known"
    assert not [line for line in lines if "No Kafka broker" in line]
