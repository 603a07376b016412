"""The lag in a real job: whose task a lag is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer

from streaming_app.cli.main import main
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.broker


def join(client: StreamsGroupClient, group_id: str, *topics: str) -> SimulatedMember:
    """Return the only member of a group, with all of its tasks."""
    member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=list(topics))))
    member.join()
    settle([member])
    return member


def send(broker: Broker, topic: str, partition: int, count: int) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
        for _ in range(count):
            producer.send(topic, b"x", partition=partition)
        producer.flush()


def test_a_run_to_the_end_says_whose_task_the_lag_is(
    broker: Broker,
    client: StreamsGroupClient,
    run: Callable[..., str],
    unique: Callable[[str], str],
    group_id: str,
    tmp_path: Path,
) -> None:
    orders, clicks, old = unique("orders"), unique("clicks"), unique("old")
    for topic in (orders, clicks, old):
        client.create_topic(topic, 2)
    send(broker, orders, 1, 10)
    send(broker, clicks, 1, 5)
    send(broker, old, 0, 3)
    member = join(client, group_id, orders, clicks)
    offsets = {(orders, 0): 0, (orders, 1): 4, (clicks, 1): 5, (old, 0): 1}
    client.commit_offsets(group_id, offsets, member.member_id, member.epoch)

    run("__consumer_offsets", lag={"enabled": True})

    rows = WarehouseReader(tmp_path).rows(f"SELECT * FROM lag WHERE group_id = '{group_id}'")
    by_key = {(row["topic"], row["partition"]): row for row in rows}
    assert by_key.keys() == {*offsets, (clicks, 0)}
    assert {key: row["lag"] for key, row in by_key.items()} == {
        (orders, 0): 0,
        (orders, 1): 6,
        (clicks, 0): None,
        (clicks, 1): 0,
        (old, 0): 2,
    }
    assert by_key[orders, 1]["task_id"] == by_key[clicks, 1]["task_id"] == "0_1"
    assert by_key[orders, 1]["member_id"] == member.member_id
    assert by_key[orders, 1]["client_host"] == "127.0.0.1"
    assert (by_key[old, 0]["status"], by_key[old, 0]["task_id"]) == ("LEFT_OVER", None)
    shown = CliRunner().invoke(main, ["lag", "--group", group_id, "--by", "task", "--warehouse", str(tmp_path)])
    assert [line.split()[1:5:3] for line in shown.stdout.splitlines()[1:]] == [["0_1", "6"], ["0_0", "0"]]
    assert (
        WarehouseReader(tmp_path).rows(f"SELECT lag FROM lag_history WHERE group_id = '{group_id}' AND lag > 0") != []
    )
    assert WarehouseReader(tmp_path).rows(f"SELECT end_offsets FROM log_ends WHERE topic = '{orders}'") != []
