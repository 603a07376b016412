"""What clients and `check` do while a broker of three is away that is the first one in `--bootstrap-server`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import pytest

from streaming_app.checks.brokers import check_brokers
from streaming_app.checks.result import FAILED
from streaming_app.kafka import connection as connection_module
from streaming_app.kafka import diagnose
from streaming_app.kafka.client import StreamsGroupClient
from tests.support.away_brokers import connection, killed, others, paused
from tests.support.kafka_cluster import LocalCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("away", [killed, paused])
def test_the_others_are_asked_and_who_is_away_is_named(
    three_brokers: LocalCluster,
    away: Callable[[LocalCluster, int], AbstractContextManager[None]],
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, *_ = three_brokers.brokers
    with connection(three_brokers.bootstrap_server) as admin:
        admin.create_topics({unique("alone"): {"assignments": {0: [first]}}})
    monkeypatch.setattr(connection_module, "CONNECT_SECONDS", 120.0)  # one that waits for the first one alone fails
    monkeypatch.setattr(
        connection_module, "random", SimpleNamespace(shuffle=lambda brokers: brokers.sort(key=is_another))
    )
    address, servers = three_brokers.brokers[first].bootstrap_server, three_brokers.bootstrap_server
    properties = {"bootstrap.servers": servers}

    def is_another(broker: Any) -> bool:
        """Let the one that is away be asked first: by its id, or as a server by its address."""
        name = f"{broker.host}:{broker.port}" if hasattr(broker, "port") else str(broker)
        return name not in {str(first), address}

    with away(three_brokers, first):
        with StreamsGroupClient.of(properties) as client:
            assert client.describe(["no-such-group"])[0]["error_code"] == 69
        with connection(others(three_brokers, first)) as admin:
            assert wait_until(lambda: first not in admin.alive_brokers())
        results = {result.check: result for result in check_brokers(properties, "__consumer_offsets")}
        failure = diagnose.explain(servers, properties)

    assert results[f"broker {first}"].status == FAILED
    assert f"does not answer at {address}" in results[f"broker {first}"].text
    assert "partitions that need it" in results[f"broker {first}"].text
    assert "fenced" in results[f"broker {first}"].text
    assert f"{address} does not (" in failure.line
    assert failure.some_answer
    assert not [line for line in (failure.line, *(one.text for one in results.values())) if "No Kafka" in line]
