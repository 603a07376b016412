"""What a principal may not describe is unknown, hides nothing else, and makes nothing better: on a broker with ACLs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ACLOperation, ResourcePattern, ResourceType
from kafka.structs import OffsetAndMetadata

from streaming_app.health.verdict import IDLE, OK, UNKNOWN, Verdict
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.security import security_settings
from streaming_app.lag.model import LagRow
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from tests.security.conftest import ClientConfig
from tests.security.security_harness import SecurityHarness
from tests.support.health_harness import facts, group, verdict
from tests.support.lag_cluster import LagCluster
from tests.support.offsets_log import RawRecord
from tests.support.rows import group_row, subtopology_row

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("without_acls")]


@pytest.fixture
def limited(secured: SecurityHarness, client_configs: Mapping[str, ClientConfig]) -> Iterator[StreamsGroupClient]:
    """The client of the principal with the ACLs."""
    config = client_configs["PLAIN"]
    server = secured.broker.address(config.listener)
    with StreamsGroupClient(server, **security_settings(config.properties)) as client:
        yield client


def describe(*resources: tuple[ResourceType, str]) -> list[tuple[ACLOperation, ResourcePattern]]:
    return [(ACLOperation.DESCRIBE, ResourcePattern(*one)) for one in resources]


def test_a_group_that_may_not_be_described_ends_the_description_of_no_other(
    secured: SecurityHarness, limited: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    shown, hidden, of_hidden_topic = unique("shown"), unique("hidden"), unique("of-hidden-topic")
    client, topics = secured.client, {shown: unique("in"), hidden: unique("other"), of_hidden_topic: unique("secret")}
    for topic in topics.values():
        client.create_topic(topic)
    members = [SimulatedMember(client, one, topology(subtopology("0", source_topics=[topics[one]]))) for one in topics]
    for member in members:
        member.join()
    groups = [(ResourceType.GROUP, one) for one in (shown, of_hidden_topic)]
    secured.allow(*describe(*groups, (ResourceType.TOPIC, topics[shown])))

    found = limited.describe([hidden, shown, of_hidden_topic])

    assert [(one["group_id"], one["error_code"]) for one in found] == [(hidden, 30), (shown, 0), (of_hidden_topic, 29)]
    secured.allow()
    for member in members:
        member.leave()
    client.delete_groups([*topics])  # other tests of this broker look at all groups


def test_a_group_with_a_topic_that_may_not_be_described_is_not_idle_and_its_sum_is_a_lower_bound(
    secured: SecurityHarness,
    limited: StreamsGroupClient,
    read_offsets: Callable[..., list[RawRecord]],
    unique: Callable[[str], str],
    group_id: str,
    tmp_path: Path,
) -> None:
    client, server = secured.client, secured.broker.bootstrap_server
    shown, hidden, never, empty = (unique(name) for name in ("shown", "hidden", "never", "empty"))
    for topic in (shown, hidden, never, empty):
        client.create_topic(topic)
    with KafkaProducer(bootstrap_servers=server) as producer:
        for topic in (shown, hidden, never):
            for _ in range(5):
                producer.send(topic, b"x")
    client.commit_offsets(group_id, {(shown, 0): 5, (hidden, 0): 2})
    cluster = LagCluster(tmp_path / "warehouse", client, read_offsets, server)
    cluster.read_log(group_id)
    cluster.replace(
        "groups",
        [group_row(group_id, subtopologies=[subtopology_row("0", source_topics=[shown, hidden, never, empty])])],
    )
    seen = describe((ResourceType.GROUP, group_id), (ResourceType.TOPIC, shown), (ResourceType.TOPIC, empty))
    secured.allow(*seen)

    def look(seconds: float = 30.0) -> tuple[dict[str, LagRow], Verdict]:
        cluster.now += seconds
        result = cluster.passes.run(limited)
        judged = verdict(facts(group(), result.work[group_id], at=cluster.time()), at=cluster.time())
        return {row.topic: row for row in result.rows if row.group_id == group_id}, judged

    for _ in range(3):
        rows, found = look()
        assert {topic for topic, row in rows.items() if row.is_unknown} == {hidden, never}
        assert (rows[hidden].committed_offset, rows[hidden].lag, rows[empty].lag) == (2, None, 0)
        assert found.verdict == UNKNOWN
        assert "2 of 4 partitions" in found.why

    secured.allow(*seen, *describe((ResourceType.TOPIC, hidden), (ResourceType.TOPIC, never)))
    rows, _ = look(400)
    assert {row.topic: row.lag for row in rows.values() if row.committed_offset is not None} == {shown: 0, hidden: 3}
    secured.allow(*seen)
    for _ in range(3):
        rows, found = look()
        assert {row.topic for row in rows.values() if row.is_unknown} == {hidden, never}
        assert found.verdict not in {IDLE, OK}


def test_a_commit_that_is_open_or_aborted_ends_no_wait_of_a_group_that_may_not_be_described(
    secured: SecurityHarness,
    limited: StreamsGroupClient,
    read_offsets: Callable[..., list[RawRecord]],
    unique: Callable[[str], str],
    group_id: str,
    tmp_path: Path,
) -> None:
    client, server, topic = secured.client, secured.broker.bootstrap_server, unique("orders")
    client.create_topic(topic)
    client.commit_offsets(group_id, {(topic, 0): 2})
    cluster = LagCluster(tmp_path / "warehouse", client, read_offsets, server)
    reads = [(ACLOperation.READ, ResourcePattern(ResourceType.TOPIC, one)) for one in ("__consumer_offsets", topic)]
    secured.allow(*reads)

    def stands(passes: int) -> tuple[int | None, bool]:
        """Return the lag after so many passes, and whether the group is stalled."""
        cluster.read_log(group_id)
        for _ in range(passes):
            cluster.now += 30
            result = cluster.passes.run(limited)
        (row,) = (row for row in result.rows if row.group_id == group_id)
        return row.lag, result.work[group_id].stalled is not None

    with KafkaProducer(bootstrap_servers=server, transactional_id=unique("transaction")) as producer:
        producer.init_transactions()

        def commit(offset: int) -> None:
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}, group_id
            )

        with KafkaProducer(bootstrap_servers=server) as plain:
            for _ in range(10):
                plain.send(topic, b"x")
        assert stands(13) == (8, True)
        commit(10)
        assert stands(2) == (None, True)
        producer.abort_transaction()
        assert stands(3) == (None, True)
        cluster.restart()
        assert stands(3)[0] is None
        commit(10)
        producer.commit_transaction()
        assert stands(1) == (0, False)
