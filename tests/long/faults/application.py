"""A real Kafka Streams application, exactly-once with joins, stores and standby replicas; its oracle is the brokers."""

from __future__ import annotations

from pathlib import Path

from streaming_app.kafka.client import StreamsGroupClient
from tests.support.wordcount import WordCount

GROUP = "shop"
INPUTS = ("customers", "orders", "payments")
OUTPUT = "paid"
PARTITIONS = 3
_CONFIGURATIONS = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "1000",
    "num.stream.threads": "1",
    "statestore.cache.max.bytes": "0",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "20000",
    "transaction.timeout.ms": "10000",
    "metadata.max.age.ms": "3000",
    "reconnect.backoff.max.ms": "500",
    "producer.delivery.timeout.ms": "15000",
    "producer.request.timeout.ms": "3000",
}


class Application(WordCount):
    """Two instances in one process, which are started again whenever one ends, and the producer of their input."""

    program = str(Path(__file__).with_name("Application.java"))

    def __init__(self, bootstrap_server: str, directory: Path) -> None:
        super().__init__(bootstrap_server, directory, application_id=GROUP, properties=_CONFIGURATIONS)
        self._flag = self.directory / "produce"

    def produce(self, *, on: bool) -> None:
        """Let the producer write, or let it pause."""
        if on:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._flag.touch()
        else:
            self._flag.unlink(missing_ok=True)


def prepare(client: StreamsGroupClient) -> None:
    """Give the group a standby of each task."""
    client.configure_group(GROUP, {"streams.num.standby.replicas": 1})
