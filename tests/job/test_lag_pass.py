"""Passes over the lag of groups on a real broker; the log's commits are put into the tables without Spark."""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from streaming_app.health.facts import to_time
from streaming_app.health.verdict import Verdict
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.fact_requests import by_partition, first_producers, open_transactions
from streaming_app.kafka.topic_reader import TopicReader, describe_topics
from streaming_app.lag.model import LagRow
from streaming_app.lag.open_transactions import Transactions, held_for_long
from streaming_app.lag.work import GroupWork
from streaming_app.tables.reader import WarehouseReader
from tests.support.container import Broker
from tests.support.health_harness import facts, group, verdict
from tests.support.lag_cluster import LagCluster
from tests.support.offsets_log import RawRecord
from tests.support.rows import group_row, member_row, subtopology_row, task_row
from tests.support.waiting import delete_topic, wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def cluster(
    broker: Broker, client: StreamsGroupClient, read_offsets: Callable[..., list[RawRecord]], tmp_path: Path
) -> LagCluster:
    return LagCluster(tmp_path / "warehouse", client, read_offsets, broker.bootstrap_server)


@pytest.fixture
def topic(client: StreamsGroupClient, unique: Callable[[str], str]) -> str:
    """A topic with one partition."""
    name = unique("orders")
    client.create_topic(name)
    return name


@pytest.fixture
def produce(broker: Broker) -> Iterator[Callable[..., None]]:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:

        def send(topic: str, count: int, partition: int = 0, timestamp: float | None = None) -> None:
            for _ in range(count):
                producer.send(
                    topic, b"x", partition=partition, timestamp_ms=None if timestamp is None else int(timestamp * 1000)
                )
            producer.flush()

        yield send


@pytest.fixture
def transactions(broker: Broker, unique: Callable[[str], str]) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server, transactional_id=unique("transaction")) as producer:
        producer.init_transactions()
        yield producer


@pytest.mark.parametrize(
    ("ages", "age"),
    [(range(7_200, 0, -120), 3_600), ([None] * 60, None), ([400] * 5 + [-3_000] + [400] * 54, None)],
    ids=["times of the records", "no times", "one that is stamped ahead"],
)
def test_the_age_of_the_lag_is_known_at_once_where_the_times_of_the_records_say_it(
    cluster: LagCluster,
    produce: Callable[..., None],
    topic: str,
    group_id: str,
    ages: Sequence[float | None],
    age: float | None,
) -> None:
    for one in ages:
        produce(topic, 1, timestamp=-0.001 if one is None else cluster.now - one)
    cluster.client.commit_offsets(group_id, {(topic, 0): 30})
    cluster.read_log(group_id)

    (first,) = cluster.rows(group_id, 0).values()
    (later,) = cluster.rows(group_id, 30).values()

    assert first.lag == later.lag == 30
    assert first.lag_seconds == (age and pytest.approx(age, rel=0.05))
    assert first.lag_seconds_is_lower_bound is (False if age else None)
    assert later.lag_seconds_is_lower_bound is not bool(age)
    assert later.lag_seconds == pytest.approx((age or 0) + 30, rel=0.05)


def test_a_topic_that_gets_partitions_is_deleted_or_is_created_again_is_an_event_of_each_streams_group_that_reads_it(
    cluster: LagCluster, topic: str, group_id: str
) -> None:
    client, other = cluster.client, group_row("other", subtopologies=[subtopology_row(source_topics=["elsewhere"])])
    cluster.replace("groups", [group_row(group_id, subtopologies=[subtopology_row(source_topics=[topic])]), other])

    def found(seconds: float = 400) -> list[tuple[Any, ...]]:
        result = cluster.run(seconds)
        for _ in range(2):  # as after a crash
            cluster.store.append_events(result.topic_events)
        names = ("group_id", "kind", "topic", "old", "new")
        assert [row["group_id"] for row in result.topic_events] == [group_id] * len(result.topic_events)
        query = f"SELECT {', '.join(names)} FROM group_events ORDER BY at"
        return [tuple(row.values())[1:] for row in WarehouseReader(cluster.path).rows(query)]

    assert found() == []
    client.create_partitions({topic: 3})
    grown = ("topic_grown", topic, "1", "3")
    assert found() == [grown]
    cluster.store.replace_lag(cluster.run(1).rows)
    cluster.store.replace_samples(cluster.passes.tracker.samples)
    before = describe_topics(client, [topic])[topic].topic_id
    delete_topic(client, topic)
    cluster.restart()
    deleted = ("topic_deleted", topic, before, None)
    assert found() == [grown, deleted]
    client.create_topic(topic)
    recreated = ("topic_recreated", topic, before, describe_topics(client, [topic])[topic].topic_id)
    assert [found(), found()] == [[grown, deleted, recreated]] * 2


def test_markers_are_no_lag_open_transactions_hold_the_stable_offset_and_only_committed_offsets_are_in_rows(
    cluster: LagCluster, transactions: KafkaProducer, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, asked = TopicReader.offsets, list[int]()

    def noted(reader: TopicReader, admin: Any, keys: Collection[Any], *at: Any, committed_only: bool = False) -> Any:
        asked.extend([len(keys)] * committed_only)
        return offsets(reader, admin, keys, *at, committed_only=committed_only)

    monkeypatch.setattr(TopicReader, "offsets", noted)

    def begin(offset: int) -> None:
        transactions.begin_transaction()
        transactions.send(topic, b"x").get(300)
        commit = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        transactions.send_offsets_to_transaction(commit, group_id)

    def look() -> LagRow:
        cluster.read_log(group_id)
        return cluster.rows(group_id)[topic, 0]

    begin(1)
    transactions.commit_transaction()
    at_rest = [look() for _ in range(2)][-1]
    begin(2)
    is_open = look()
    transactions.abort_transaction()
    aborted = [look() for _ in range(3)]

    assert (at_rest.offset_status, at_rest.lag, at_rest.lag_seconds) == ("OK", 1, 0.0)
    assert (is_open.log_end_offset, is_open.last_stable_offset) == (3, 2)
    assert asked == [1, 0, 1, 1, 0, 0], "the end of a log that has not moved is still the last stable offset"
    rows = (at_rest, is_open, *aborted)
    assert {(row.committed_offset, row.rewound_from) for row in rows} == {(1, None)}
    assert "REWOUND" not in {row.offset_status for row in rows}
    (in_log,) = cluster.store.commits(cluster.store.reader()).values()
    assert in_log.offset == 2, "the log cannot tell that it was aborted"


@pytest.mark.parametrize(("count", "records"), [(3, 1), (1, 20)], ids=["markers", "records"])
def test_markers_and_aborted_records_at_the_end_of_a_partition_are_no_work_and_a_record_between_them_is(
    cluster: LagCluster,
    produce: Callable[..., None],
    transactions: KafkaProducer,
    topic: str,
    group_id: str,
    count: int,
    records: int,
) -> None:
    client = cluster.client
    cluster.replace("groups", [group_row(group_id, subtopologies=[subtopology_row("0", source_topics=[topic])])])
    produce(topic, 1)
    client.commit_offsets(group_id, {(topic, 0): 1})
    cluster.read_log(group_id)
    cluster.run()
    abort(transactions, topic, count, records)

    found = cluster.passes_with_work(group_id, 20)
    client.delete_records({TopicPartition(topic, 0): -1})
    deleted = cluster.passes_with_work(group_id, 20)
    abort(transactions, topic, count, records)
    produce(topic, 1)
    abort(transactions, topic, count, records)
    with_record = cluster.passes_with_work(group_id, 20)

    assert [one.stalled for _, one in (*found, *deleted)] == [None] * 40
    (row,), work = found[-1]
    assert (row.lag or 0) > 2
    assert (row.offset_status, row.lag_seconds, work.waiting) == ("OK", 0.0, 0)
    assert {one.offset_status for rows, _ in deleted for one in rows} == {"OK"}
    assert deleted[-1][1].lost is None
    assert with_record[-1][1].stalled is not None


def abort(producer: KafkaProducer, topic: str, count: int, records: int = 1) -> None:
    """Do so many transactions with so many records each, and abort them: a marker follows the records of each."""
    for _ in range(count):
        producer.begin_transaction()
        for _ in range(records):
            producer.send(topic, b"x", partition=0).get(300)
        producer.abort_transaction()


def running(cluster: LagCluster, group_id: str, topic: str, **columns: Any) -> None:
    """Let the tables have a group with one member, which has the task of this topic."""
    since = datetime.fromtimestamp(cluster.now - 7_200, timezone.utc)
    cluster.replace(
        "groups",
        [
            group_row(
                group_id,
                state_since=since,
                members=[member_row("m", joined_at=since)],
                assignments=[task_row("m", "0_0", current=True, target=True)],
                subtopologies=[subtopology_row("0", source_topics=[topic], **columns)],
            )
        ],
    )


def test_a_transaction_upstream_is_no_outage_of_its_readers_until_it_is_open_for_longer_than_one_may_be(
    cluster: LagCluster,
    broker: Broker,
    produce: Callable[..., None],
    topic: str,
    group_id: str,
    unique: Callable[[str], str],
) -> None:
    running(cluster, group_id, topic)
    produce(topic, 1)
    cluster.client.commit_offsets(group_id, {(topic, 0): 1})
    cluster.read_log(group_id)
    cluster.run()
    name = unique("upstream")
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_server, transactional_id=name, transaction_timeout_ms=900_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(5):
            producer.send(topic, b"x", partition=0).get(300)
        (*_, (_, at_two_minutes)) = cluster.passes_with_work(group_id, 4)
        (*_, (rows, at_ten_minutes)) = cluster.passes_with_work(group_id, 16)
        (*_, (_, at_half_an_hour)) = cluster.passes_with_work(group_id, 40)
        described = open_transactions(cluster.client, [topic])
        assert held_for_long([at_two_minutes]) == []
        held = held_for_long([at_half_an_hour])
        first, orphan = (first_producers(cluster.client, held, one) for one in (described, ()))
        producer.commit_transaction()
        assert wait_until(lambda: first_producers(cluster.client, held, described) == {})
    (*_, (_, after_it)) = cluster.passes_with_work(group_id, 12)

    assert [(one.offset_status, one.lag, one.lag_seconds) for one in rows] == [("HELD", 5, 0.0)]
    known = Transactions(by_partition(described), first=first)
    assert (judged(at_ten_minutes, known).verdict, judged(at_ten_minutes, known).severity) == ("Ok", None)
    producer_id = first[topic, 0].producer_id
    for found, named, severity in (
        (known, f"transactional id {name}, producer {producer_id}, open since", "critical"),
        (Transactions(by_partition(described)), f"transactional id {name}, producer {producer_id}", "critical"),
        (Transactions(longest=900.0, first=orphan), f"producer {producer_id}, transactional id not known", "critical"),
        (Transactions(first=orphan), f"producer {producer_id}, transactional id not known", "warning"),
    ):
        said = judged(at_half_an_hour, found)
        assert (said.verdict, said.severity) == ("Stalled", severity)
        assert f"{topic}-0 at 1, {named}" in said.why
        assert said.evidence["partitions"][0]["producer_id"] == producer_id
    said = judged(after_it, Transactions())
    assert (said.verdict, said.severity) == ("Stalled", "critical")
    assert "no offset of 1 partition moved since" in said.why


def judged(work: GroupWork, found: Transactions) -> Verdict:
    return verdict(facts(group(), work, transactions=found), at=to_time(work.known_at))


def test_what_came_before_the_start_of_the_job_waits_for_members_that_never_committed(
    cluster: LagCluster, produce: Callable[..., None], topic: str, group_id: str
) -> None:
    running(cluster, group_id, topic)
    produce(topic, 40, timestamp=cluster.now - 90_000)
    produce(topic, 3, timestamp=cluster.now - 600)

    (_, first), (rows, second) = cluster.passes_with_work(group_id, 2)

    assert first.stalled is None
    assert second.stalled is not None
    assert (second.stalled.offsets, cluster.now - second.stalled.since) == (3, pytest.approx(660, abs=1))
    assert [(one.committed_offset, one.lag, one.lag_seconds_is_lower_bound) for one in rows] == [(None, 3, True)]
