"""The same with three brokers and a real Kafka Streams application: exactly-once, with a join, stores and standbys."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.groups.partition import partition_of
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.reader import quote
from tests.long.campaign.bed import PARTITIONS, TOPIC, DidNotRecoverError
from tests.long.faults.bed import KEEPING, SHORT_SESSIONS, FaultBed
from tests.support.kafka_cluster import LocalCluster
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import MINUTES, wait_until

_REST_SECONDS = MINUTES
_QUIET_SECONDS = 2.0
# A version of the metadata that a release does not support yet may mean something else in the next one.
_UPGRADABLE = {"unstable.feature.versions.enable": "false"}
GROUP = "shop"
INPUTS = ("customers", "orders")
OUTPUT = "ordered"
INPUT_PARTITIONS = 3
_CONFIGURATIONS = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "1000",
    "num.stream.threads": "1",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "20000",
    "transaction.timeout.ms": "10000",
    "metadata.max.age.ms": "3000",
    "reconnect.backoff.max.ms": "500",
    "producer.delivery.timeout.ms": "15000",
    "producer.request.timeout.ms": "3000",
}


class ClusterBed(FaultBed):
    """Three brokers of a release."""

    def __init__(self, directory: Path, seed: int, *, version: str) -> None:
        properties = {**SHORT_SESSIONS, **KEEPING, **_UPGRADABLE}
        self.cluster = LocalCluster(directory / "cluster", properties=properties, version=version)
        super().__init__(directory, seed, once=True, broker=self.cluster)  # a round is to have many kinds
        self._joined = 0

    def _prepare(self) -> None:
        super()._prepare()
        topics = {one: {"num_partitions": INPUT_PARTITIONS, "replication_factor": 3} for one in (*INPUTS, OUTPUT)}
        self.client.admin.create_topics(topics, wait_for_metadata=True)
        self.client.configure_group(GROUP, {"streams.num.standby.replicas": 1})
        self.application = self._stack.enter_context(
            StreamsApplication(
                self.cluster.bootstrap_server,
                self.directory / "application",
                GROUP,
                "join",
                ("orders", "customers", OUTPUT),
                instances=2,
                properties=_CONFIGURATIONS,
            )
        )
        self.application.produce(on=True)

        def commits() -> bool:
            self.application.check()
            return bool(self.committed())

        if not wait_until(commits, interval=0.5):
            raise DidNotRecoverError("the application does not commit")

    def committed(self) -> dict[Any, Any]:
        """Return what the application has committed, by topic and partition."""
        with suppress(KafkaError, OSError):
            return dict(self.client.admin.list_group_offsets(GROUP)[GROUP])
        return {}

    def _resume(self) -> None:
        for number in self.cluster.brokers:
            if self.cluster.brokers[number].pid is not None:
                self.cluster.resume(number)

    def start_job(self, *options: str, setup: str = "") -> None:
        """Start the job as users do: what is measured is how long that one takes."""
        self.job.start(*options, setup=setup)

    def ensure_running(self) -> None:
        self._resume()
        super().ensure_running()
        self.reconnect()
        self.application.start()

    def wait_before(self) -> None:
        """Let little time pass: the application works all the time."""
        self.operate(self.seconds(0, 2))
        self.ensure_running()

    def operate(self, seconds: float) -> None:
        self.application.start()
        self.application.produce(on=True)
        super().operate(seconds)

    def settle(self) -> None:
        """Let the application come to rest, all replicas be in sync, and the job be at the end of the topic."""
        self.ensure_running()
        self.application.produce(on=False)
        self.cluster.await_all_in_sync(TOPIC, *INPUTS)
        ends, since, until = self.ends(), time.monotonic(), time.monotonic() + _REST_SECONDS
        while time.monotonic() - since < _QUIET_SECONDS and time.monotonic() < until:
            self.last(0.3)
            if (now := self.ends()) != ends:
                ends, since = now, time.monotonic()
        super().settle()

    def ends(self) -> dict[int, int]:
        """Return the ends of the logs of the offsets topic's partitions."""
        return self.retry(lambda: self.client.end_offsets(TOPIC))

    # What faults do

    def any_leader(self) -> int:
        """Return the id of a broker that leads a partition of the offsets topic: one that came back may lead none."""
        return self.pick(sorted({leader for leader, _ in self.cluster.leaders(TOPIC).values()}))

    def new_group(self, partition: int) -> str:
        """Return an id that no group has, whose records are in this partition."""
        while True:
            self._joined += 1
            group_id = f"passing-{self._joined}"
            if partition_of(group_id, PARTITIONS) == partition:
                return group_id

    def reconnect(self) -> None:
        """Connect to the brokers that answer: kafka-python asks those that it knows, which may all be away."""
        self.client.admin.close()
        self.client.admin = Admin(bootstrap_servers=self.cluster.running_server.split(","))

    def join(self, group_id: str) -> None:
        """Let a group appear: one member joins it."""
        self.reconnect()
        topics = next(iter(self.operations.topics))
        member = SimulatedMember(self.client, group_id, topology(subtopology("0", source_topics=[topics])))
        self.retry(member.join)

    def retry(self, call: Callable[[], Any]) -> Any:
        """Call until the brokers answer, for minutes."""
        again, stop = retry_if_exception_type((KafkaError, GroupError, OSError)), stop_after_delay(MINUTES)
        return Retrying(retry=again, stop=stop, wait=wait_fixed(0.2), reraise=True)(call)

    def measure(self, name: str, since: float, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition on the tables holds, and note how long it took. Raises DidNotRecoverError."""

        def holds() -> bool:
            if self.job.unexpected_exit:
                self.ensure_running()
            with suppress(Exception):  # the tables are written meanwhile
                return condition()
            return False

        if not wait_until(holds, seconds, interval=0.2):
            raise DidNotRecoverError(f"{name}: not within {seconds:.0f} s: {self.job.output[-2000:]}")
        self.shown.append(f"{name} {time.monotonic() - since:.1f} s")

    def lag_rows(self) -> list[tuple[str, int, int | None, int | None]]:
        """Return topic, partition, commit and end of the log where the application's lag is known."""
        columns = "topic, partition, committed_offset, log_end_offset"
        query = f"SELECT {columns} FROM lag WHERE group_id = {quote(GROUP)} AND lag IS NOT NULL"
        return [tuple(row.values()) for row in self.rows(query)]  # type: ignore[misc]

    def produce(self) -> dict[tuple[str, int], int]:
        """Append a record to each partition of the input; return the ends of their logs."""
        ends = {}
        with KafkaProducer(
            bootstrap_servers=self.cluster.running_server.split(","), enable_idempotence=False, retries=10
        ) as producer:
            for topic in INPUTS:
                for partition in range(INPUT_PARTITIONS):
                    sent = producer.send(topic, key=b"customer-0", value=b"region-0", partition=partition)
                    ends[topic, partition] = int(sent.get(MINUTES).offset) + 1
        return ends
