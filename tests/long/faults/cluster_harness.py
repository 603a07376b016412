"""The same with three brokers, a real Kafka Streams application, and a watch on the statuses of its lag."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.groups.partition import partition_of
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.sandbox.process import Startable
from streaming_app.tables.reader import WarehouseReader, quote
from tests.long.faults import application
from tests.long.faults.application import GROUP, INPUTS, OUTPUT, Application
from tests.long.faults.disk import BlockDisk
from tests.long.faults.harness import KEEPING, PARTITIONS, SHORT_SESSIONS, TOPIC, DidNotRecoverError, FaultHarness
from tests.long.faults.job import StartOptions
from tests.support.kafka_cluster import LocalCluster
from tests.support.waiting import MINUTES, wait_until

_REST_SECONDS = MINUTES
_QUIET_SECONDS = 2.0
_POLL_SECONDS = 1.5
_SYNCED = "flush.messages"  # the brokers write each batch to the disk, so that a slow one makes them slow
# A version of the metadata that a release does not support yet may mean something else in the next one.
_UPGRADABLE = {"unstable.feature.versions.enable": "false"}
_ALARMS = ("LOST", "STOPPED")
_COLUMNS = "group_id, topic, partition, status, status_since, committed_offset, log_start_offset, observed_at"


class Alarm(NamedTuple):
    """A row of `lag` with a status that the campaign does not cause."""

    group_id: str
    topic: str
    partition: int
    status: str
    status_since: datetime
    committed_offset: int
    log_start_offset: int
    observed_at: datetime


class LagWatch(Startable):
    """Collects alarms while the job runs: whether they are false, the log shows later."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse, self._stop = warehouse, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: dict[tuple[Any, ...], Alarm] = {}
        self.reads = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> list[Alarm]:
        """Return the alarms since the last call, each once."""
        alarms, self._seen = [*self._seen.values()], {}
        return alarms

    def _run(self) -> None:
        among = ", ".join(map(quote, _ALARMS))
        query = f"SELECT {_COLUMNS} FROM lag WHERE status IN ({among})"
        while not self._stop.wait(_POLL_SECONDS):  # noqa: WAIT002 - how often it looks
            with suppress(Exception):  # the warehouse may be on a full disk, or removed
                for row in WarehouseReader(self._warehouse).rows(query):
                    alarm = Alarm(**row)
                    self._seen.setdefault((*alarm[:4], alarm.status_since), alarm)
                self.reads += 1


class ClusterHarness(FaultHarness):
    """Three brokers of a release, each with a disk of its own."""

    def __init__(self, directory: Path, seed: int, *, version: str) -> None:
        super().__init__(directory, seed, compacting=False, once=True)  # a round is to have many kinds
        properties = {**SHORT_SESSIONS, **KEEPING, **_UPGRADABLE}
        self.cluster = LocalCluster(directory / "cluster", properties=properties, version=version)
        self.broker = self.cluster
        self.disks = {number: BlockDisk(one.directory / "data") for number, one in self.cluster.brokers.items()}
        self._joined = 0

    def _start_brokers(self) -> None:
        for disk in self.disks.values():
            self._stack.enter_context(disk)
        super()._start_brokers()

    def _prepare(self) -> None:
        topics = {one: {"num_partitions": application.PARTITIONS, "replication_factor": 3} for one in (*INPUTS, OUTPUT)}
        self.client.admin.create_topics(topics, wait_for_metadata=True)
        synced = ConfigResource(ConfigResourceType.TOPIC, TOPIC, {_SYNCED: "1"})
        self.client.admin.alter_configs([synced])
        application.prepare(self.client)
        self.application = self._stack.enter_context(
            Application(self.cluster.bootstrap_server, self.directory / "application")
        )
        self.application.produce(on=True)

        def commits() -> bool:
            self.application.check()
            return bool(self.committed())

        if not wait_until(commits, interval=0.5):
            raise DidNotRecoverError("the application does not commit")
        self.watch = self._stack.enter_context(LagWatch(self.warehouse))

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
        self._batch_size = None
        self.job.start(StartOptions(options, setup=setup))

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
        self.measured.append((name, time.monotonic() - since))

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Query the warehouse."""
        return WarehouseReader(self.warehouse).rows(query)

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
                for partition in range(application.PARTITIONS):
                    sent = producer.send(topic, key=b"customer-0", value=b"region-0", partition=partition)
                    ends[topic, partition] = int(sent.get(MINUTES).offset) + 1
        return ends
