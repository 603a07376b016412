"""What the brokers say of groups, topics and transactions, asked of real ones."""

from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from kafka import KafkaProducer

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.fact_requests import (
    ACCEPTABLE_LAG,
    BrokerFact,
    configs_of_brokers,
    group_configs,
    has_description_plugin,
    open_transactions,
    topic_facts,
    transaction_facts,
)
from streaming_app.sandbox.broker import LocalBroker
from tests.support.container import Broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


def by_name(facts: list[BrokerFact]) -> dict[str, tuple[str, str | None]]:
    return {fact.name: (fact.value, fact.source) for fact in facts}


def test_the_configs_in_force_of_groups_and_brokers_say_where_they_come_from(
    client: StreamsGroupClient, group_id: str, start_broker: Callable[..., LocalBroker]
) -> None:
    # Kafka 4.4 describes these where the group or the broker sets them, and nowhere else.
    internal = {
        "streams.acceptable.recovery.lag": "50",
        "streams.num.warmup.replicas": "3",
        "streams.task.offset.interval.ms": "20000",
    }
    ask = partial(group_configs, client, [group_id])
    assert internal.keys().isdisjoint(by_name(ask()))
    client.configure_group(group_id, {**internal, "streams.num.standby.replicas": "2"})
    assert wait_until(lambda: ACCEPTABLE_LAG in by_name(ask()))
    assert {(fact.kind, fact.subject, fact.group_id) for fact in ask()} == {("group_config", group_id, group_id)}
    found = by_name(ask())
    assert {name: found[name] for name in internal} == {name: (value, "group") for name, value in internal.items()}
    assert found["streams.num.standby.replicas"] == ("2", "group")
    assert found["streams.session.timeout.ms"] == ("300000", "broker")
    assert found["streams.assignor.name"] == ("sticky", "default")
    assert all(name.startswith("streams.") for name in found)
    facts = configs_of_brokers(client, [1])
    assert {(fact.kind, fact.subject, fact.group_id) for fact in facts} == {("broker_config", "1", None)}
    found = by_name(facts)
    assert found["group.coordinator.rebalance.protocols"] == ("classic,consumer,streams", "default")
    assert found["group.streams.topology.description.plugin.class"][1] == "broker"

    broker = start_broker(properties={f"group.{name}": value for name, value in internal.items()})
    with StreamsGroupClient(broker.bootstrap_server) as other:
        found = by_name(group_configs(other, ["any"]))
        assert {name: found[name] for name in internal} == {name: (value, "broker") for name, value in internal.items()}
        assert by_name(configs_of_brokers(other, [1]))["group.streams.max.heartbeat.interval.ms"][0] == "15000"


def test_an_internal_topic_that_is_not_as_the_topology_asks_for_is_a_fact_with_both(
    client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    right, wrong = unique("app-right"), unique("app-wrong")
    client.create_topic(right, partitions=3, configs={"cleanup.policy": "compact"})
    client.create_topic(wrong, partitions=2, configs={"retention.ms": "1000"})
    configs = {"cleanup.policy": "compact", "retention.ms": "604800000"}
    asked = {"group_id": "app", "partitions": 3, "replication_factor": 1, "topic_configs": configs}
    by_default = {"partitions": 0, "replication_factor": -1, "topic_configs": {"cleanup.policy": "compact"}}
    topics = [
        {**asked, "name": right, **by_default},  # of a 4.4.0 client
        {**asked, "name": wrong, "replication_factor": 2},
        {**asked, "name": unique("app-missing")},
        {**asked, "name": right, "group_id": "another", "partitions": 5},  # it names a topic that is not its own
    ]
    found = topic_facts(client, [str(one["name"]) for one in topics], topics)
    facts = [fact for fact in found if fact.kind == "internal_topic"]
    assert sorted((fact.subject, fact.name, fact.value) for fact in facts) == sorted(
        [
            (right, "partitions", "3"),
            (wrong, "partitions", "2, asked for 3"),
            (wrong, "replication_factor", "1, asked for 2"),
            (wrong, "cleanup.policy", "delete, asked for compact"),
            (wrong, "retention.ms", "1000, asked for 604800000"),
        ]
    )
    assert {fact.group_id for fact in facts} == {"app"}


def test_a_transaction_that_is_open_for_longer_than_its_time_out_is_a_fact_of_each_partition(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    topic, other, name = unique("orders"), unique("others"), unique("payments-0_0")
    client.create_topic(topic, partitions=2)
    client.create_topic(other)
    now = datetime.now(timezone.utc)

    def ask(at: datetime) -> list[BrokerFact]:
        return transaction_facts(open_transactions(client, [topic]), [topic], at)

    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_server, transactional_id=name, transaction_timeout_ms=900_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for one, partition in ((topic, 0), (topic, 1), (other, 0)):
            producer.send(one, b"1", partition=partition).get(300)
        assert ask(now) == []
        overdue = ask(now + timedelta(hours=5))
        assert [(fact.kind, fact.subject, fact.name) for fact in overdue] == [
            ("transaction", f"{topic}-0", name),
            ("transaction", f"{topic}-1", name),
        ]
        assert overdue[0].value.startswith("open since 20")
        assert ", time-out 15m, producer " in overdue[0].value
        producer.commit_transaction()
        assert wait_until(lambda: ask(now + timedelta(hours=5)) == [])


def test_what_a_kafka_streams_application_writes_in_an_open_transaction_is_known(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    application, topic, other = unique("app"), unique("topic"), unique("other")
    names = [topic, other, f"{application}-counts-changelog"]
    for name in names:
        client.create_topic(name)
    thread = f"{application}-0b5e0a4c-7f0e-4a4a-9b5f-5d2f6f3a8c11-1"
    producers = []
    for transactional_id, topics in ((thread, [names[0], names[2]]), (f"{application}-else", [other])):
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, transactional_id=transactional_id)
        producer.init_transactions()
        producer.begin_transaction()
        for name in topics:
            producer.send(name, b"1", partition=0).get(300)
        producers.append(producer)

    def ask() -> list[BrokerFact]:
        return [fact for fact in transaction_facts(open_transactions(client, []), []) if application in fact.name]

    facts = ask()
    assert facts == [BrokerFact("writer", topic, application, "transaction", group_id=application)]
    for producer in producers:
        producer.commit_transaction()
        producer.close()
    assert wait_until(lambda: not ask())


def test_brokers_say_whether_they_have_a_plugin_for_descriptions_and_nobody_knows_once_they_are_away(
    broker: Broker, start_broker: Callable[..., LocalBroker]
) -> None:
    with closing(SharedConnection({"bootstrap.servers": broker.bootstrap_server}, Admin)) as connection:
        assert has_description_plugin(connection) is True
    without = start_broker(version="4.3.1")
    with closing(SharedConnection({"bootstrap.servers": without.bootstrap_server}, Admin)) as connection:
        assert has_description_plugin(connection) is False
        without.stop()
        assert has_description_plugin(connection) is None
