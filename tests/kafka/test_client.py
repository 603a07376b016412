import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from kafka.errors import KafkaError
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import MetadataRequest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.offsets_topic import OffsetsTopicClient
from streaming_app.kafka.properties import client_properties
from streaming_app.sandbox.child_process import reserve_port
from tests.support.container import Broker
from tests.support.waiting import wait_until

# kafka-python 3.0 does not close a socket whose connection was refused; the garbage collector does.
ignore_unclosed_sockets = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def disabled_kafka_log() -> Iterator[None]:
    """Pytest keeps log records, which refer to exceptions, which refer to the sockets, until after the test."""
    logger = logging.getLogger("kafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@ignore_unclosed_sockets
def test_a_cluster_that_does_not_answer_raises_and_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnThread(threading.Thread):
        """One that this test starts, or what it calls: others of the process may start some meanwhile."""

        def start(self) -> None:
            if threading.current_thread() is test:
                started.append(self)
            super().start()

    test, started = threading.current_thread(), list[threading.Thread]()
    monkeypatch.setattr(threading, "Thread", OwnThread)
    with reserve_port() as closed, pytest.raises(KafkaError):
        StreamsGroupClient(f"127.0.0.1:{closed.getsockname()[1]}", bootstrap_timeout_ms=300)
    assert started
    assert not any(thread.is_alive() for thread in started)
    gc.collect()


@pytest.mark.broker
def test_a_connection_whose_thread_has_ended_is_made_again(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    name = unique("offsets")
    client.create_topic(name)
    properties = client_properties(broker.bootstrap_server, None)
    with closing(SharedConnection(properties, Admin)) as connection:
        asked = OffsetsTopicClient(connection, name, None, threading.Event())
        asked.describe(to_read=False)
        with connection.use() as admin:
            admin._connections._net._exception = RuntimeError("why it ended")
        with pytest.raises(RuntimeError):
            asked.describe(to_read=False)
        asked.describe(to_read=False)


@pytest.mark.broker
def test_a_client_that_lives_longer_than_a_release_of_the_brokers_uses_the_versions_of_the_new_one(
    client: StreamsGroupClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its facts and those of copies would stay those of the old release until the job restarts."""
    connections = client._connections
    (node,) = client.broker_ids()
    client.alive_brokers()
    versions = connections.get_connection(node).broker_version_data.api_versions
    of_old = BrokerVersionData(api_versions={**versions, MetadataRequest.API_KEY: (0, 9)})
    monkeypatch.setattr(connections, "broker_version_data", of_old)
    connections.close(node)  # as when the broker is upgraded
    assert wait_until(lambda: client.alive_brokers() == {node})
    assert connections.get_connection(node).broker_version_data.api_versions == versions
