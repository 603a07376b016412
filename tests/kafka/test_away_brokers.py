"""What clients and `check` do while a broker of three is away that is the first one in `--bootstrap-server`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from streaming_app.checks.brokers import check_brokers
from streaming_app.checks.result import FAILED
from streaming_app.kafka import diagnose
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import CONNECT_SECONDS
from tests.away_brokers import connection, killed, others, paused
from tests.kafka_cluster import LocalCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("away", [killed, paused])
def test_the_others_are_asked_and_who_is_away_is_named(
    three_brokers: LocalCluster, away: Callable[[LocalCluster, int], AbstractContextManager[None]]
) -> None:
    first, *_ = three_brokers.brokers
    address, servers = three_brokers.brokers[first].bootstrap_server, three_brokers.bootstrap_server
    properties = {"bootstrap.servers": servers}
    with away(three_brokers, first):
        began = time.monotonic()
        for _ in range(5):  # kafka-python chooses one of the servers at random
            with StreamsGroupClient.of(properties) as client:
                assert client.describe(["no-such-group"])[0]["error_code"] == 69
        seconds = (time.monotonic() - began) / 5
        with connection(others(three_brokers, first)) as admin:
            assert wait_until(lambda: first not in admin.alive_brokers(), 60)
        results = {result.check: result for result in check_brokers(properties, "__consumer_offsets")}
        failure = diagnose.explain(servers, properties)

    assert seconds < CONNECT_SECONDS / 2
    assert results[f"broker {first}"].status == FAILED
    assert f"does not answer at {address}" in results[f"broker {first}"].text
    assert "it leads" in results[f"broker {first}"].text
    assert "fenced" in results[f"broker {first}"].text
    assert f"{address} does not (" in failure.line
    assert failure.some_answer
    assert not [line for line in (failure.line, *(one.text for one in results.values())) if "No Kafka" in line]
