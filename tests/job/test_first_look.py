"""What `check` says of the groups before the first run, on a real broker: as the job does afterwards."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kafka import KafkaProducer

from streaming_app.checks.result import OK, SKIPPED, WARNING
from streaming_app.config.settings import JobConfig
from streaming_app.job import first_look
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology

pytestmark = pytest.mark.broker
SOON = {"rules": {"StreamsGroupDown": {"for": "100ms"}}}


def look(broker: LocalBroker, seconds: float = 600, **alerts: Any) -> tuple[str, str, list[str]]:
    lines: list[str] = []
    config = {"bootstrap_server": broker.bootstrap_server, "alerts": alerts or SOON}
    properties = {"bootstrap.servers": broker.bootstrap_server}
    found = first_look.look(properties, JobConfig.model_validate(config), lines.append, seconds)
    return found.status, found.text, lines


def test_the_groups_are_counted_by_verdict_and_the_bad_ones_named_and_none_is_a_line(
    start_broker: Callable[..., LocalBroker],
) -> None:
    broker = start_broker()
    status, text, _ = look(broker)
    assert status in {OK, SKIPPED}
    assert "\n" not in text
    with StreamsGroupClient(broker.bootstrap_server) as client:
        for name in ("in", "stopped-in", "plain"):
            client.create_topic(name)
        with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
            for name in ("in", "stopped-in", "plain"):
                for _ in range(5):
                    producer.send(name, b"x")
        not_ready = SimulatedMember(client, "not-ready", topology(subtopology("0", source_topics=["missing"])))
        not_ready.join()
        busy, stopped = (
            SimulatedMember(client, name, topology(subtopology("0", source_topics=[topic])))
            for name, topic in (("busy", "in"), ("stopped", "stopped-in"))
        )
        for member, topic, offset in ((busy, "in", 5), (stopped, "stopped-in", 2)):
            member.join()
            settle([member])
            client.commit_offsets(member.group_id, {(topic, 0): offset}, member.member_id, member.epoch)
        stopped.leave()
        client.commit_offsets("consumer", {("plain", 0): 1})
        status, text, lines = look(broker)
        assert (status, lines) == (OK, [])
        assert text.startswith("the job would say of 3 streams groups: 2 Down (")
        assert "not-ready" in text
        assert "stopped" in text
        assert text.endswith(("1 Ok", "1 Idle"))  # its offset has just moved

        status, text, lines = look(broker, 0)
        assert status == WARNING
        assert "partitions of the log were not read in time: their groups are not counted" in text


def test_a_group_that_waits_for_a_transaction_is_counted_and_stalled_once_that_is_open_for_too_long(
    start_broker: Callable[..., LocalBroker],
) -> None:
    """The records are an hour old, and the broker looks for transactions to abort once an hour."""
    broker = start_broker(properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000"})
    old = int((time.time() - 3_600) * 1_000)
    with StreamsGroupClient(broker.bootstrap_server) as client, ExitStack() as producers:
        for name, timeout in (("short", 1_000), ("long", 900_000)):
            client.create_topic(name)
            producer = producers.enter_context(
                KafkaProducer(
                    bootstrap_servers=broker.bootstrap_server,
                    transactional_id=f"upstream-{name}",
                    transaction_timeout_ms=timeout,
                )
            )
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(3):
                producer.send(name, b"x", timestamp_ms=old if name == "short" else None).get(300)
            producers.callback(producer.abort_transaction)
            member = SimulatedMember(client, f"reads-{name}", topology(subtopology("0", source_topics=[name])))
            member.join()
            settle([member])
            client.commit_offsets(member.group_id, {(name, 0): 0}, member.member_id, member.epoch)
        status, text, _ = look(broker)
    assert status == OK
    assert "the job would say of 2 streams groups: 1 Stalled (reads-short), " in text
    assert text.endswith(", 2 held by a transaction")
