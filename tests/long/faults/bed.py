"""What the faults happen to: brokers with groups that keep changing, and the job.

Of three brokers there is a real Kafka Streams application, too: exactly-once, with a join, stores and standbys.
"""

import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.groups.partition import partition_of
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.reader import quote
from tests.long.bed import PARTITIONS, TOPIC, Bed, DidNotRecoverError, in_batches_of, join
from tests.long.faults.operations import Operations
from tests.support.internal_topic import internal_producer, raw_key
from tests.support.kafka_cluster import LocalCluster
from tests.support.odd_group_ids import ODD
from tests.support.processes import send_signal
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import MINUTES, wait_until

T = TypeVar("T")
UNKNOWN_TYPES = range(1_000, 30_000)
STOPPED_SECONDS = 12.0  # longer than sessions: of members, and of the broker with its controller
_DELETE_RETENTION_SECONDS = 15
COMPACTING = {
    "log.roll.ms": "2000",  # the newest segment is never compacted
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.delete.retention.ms": str(1000 * _DELETE_RETENTION_SECONDS),
}
SHORT_SESSIONS = {
    "group.streams.min.session.timeout.ms": "5000",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.heartbeat.interval.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "1000",
}
KEEPING = {"log.cleaner.enable": "false"}
_GROUPS = 8
_MOST_TIMES = 3
_SMALLEST_BATCH, _MOST_BATCHES = 25, 15  # of a job that reads from the beginning: each takes a second or more
# With the default of 10 s between its batches, most of the time would be spent on waiting for the second stream.
_SETUP = "import os; os.environ['STREAMS_GROUPS_OFFSETS__TRIGGER'] = '0.5'; "
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


class FaultBed(Bed):
    """One broker, its groups, one job.

    What a fault does and when it does it depend on the seed and on the number of the fault, and on nothing else: what
    is drawn as often as this machine is fast (operations, starts of the job) comes from other generators.
    """

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        compacting: bool = False,
        once: bool = False,
        broker: LocalCluster | None = None,
    ) -> None:
        """Prepare. With `compacting` the log is compacted all the time, else never; `once` is as in `Round`."""
        self.compacting, self._once, self._seed = compacting, once, seed
        properties = {**SHORT_SESSIONS, **(COMPACTING if compacting else KEEPING)}
        super().__init__(directory, broker or LocalBroker(directory / "broker", properties=properties), setup=_SETUP)
        self.random, self.timing = self._draw("groups"), self._draw("first start")
        """Of what a fault does, and of when."""
        self._operating = self._draw("operations")
        self._starts = self._faults = 0
        self._offsets, self._unknown = 0, iter(UNKNOWN_TYPES)
        self._batch_size: int | None = None
        self.retention_seconds = _DELETE_RETENTION_SECONDS
        """How long the topic keeps tombstones."""
        ids = [one for one in ODD.values() if one]
        self._ids = [*self.random.sample(ids, _GROUPS - 3), "plain", "${spark.sql.session.timeZone}", "UTC"]

    def _draw(self, *of: object) -> Random:
        return Random(f"{self._seed} {of}")  # noqa: S311 - no secret

    def _prepare(self) -> None:
        seed, ids = self._operating.randrange(2**32), list(dict.fromkeys(self._ids))
        self.operations = Operations(self.client, self.server, seed, ids)
        while not self.client.end_offsets(TOPIC):  # the topic is created for the first group
            self.operations.step()

    def _complete(self) -> None:
        """Keep tombstones for longer than the job is not at the end of the topic while nothing happens to it."""
        if self.compacting:
            self.retention_seconds = max(_DELETE_RETENTION_SECONDS, int(2 * self.start_seconds))
            configs = {"delete.retention.ms": str(1000 * self.retention_seconds)}
            self.client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs)])

    # What goes on besides the faults

    @property
    def _slowness(self) -> float:
        """How slow this machine is; 1 for one on which a start takes 4 s. What it has to process is less then."""
        return max(1.0, self.start_seconds / 4)

    def begin(self, name: str) -> None:
        """Start new generators for the next fault: how many numbers the faults before it drew does not change it."""
        self._faults += 1
        self.random, self.timing = self._draw("what", self._faults, name), self._draw("when", self._faults, name)

    def seconds(self, low: float, high: float) -> float:
        return self.timing.uniform(low, high)

    def pick(self, among: Sequence[T]) -> T:
        """Return one of these: a single draw, however many there are at this moment."""
        return among[int(self.random.random() * len(among))]

    def times(self, most: int = _MOST_TIMES) -> int:
        """Return how often a fault that may be repeated happens."""
        return 1 if self._once else self.random.randint(1, most)

    @staticmethod
    def last(seconds: float) -> None:
        """Let a fault, or the pause between two operations, last so long."""
        time.sleep(seconds)  # noqa: TID251 - how long it lasts is what a campaign plays, and nothing is asserted of it

    def operate(self, seconds: float) -> None:
        """Let the groups change for a while. Operations that fail since the broker is away are left out."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.broker.pid is None:
                self.last(0.1)
                continue
            with suppress(KafkaError, OSError):
                if self._operating.random() < 0.02:
                    self.write_unknown_record(self._operating)
                else:
                    self.operations.step()
            self.last(0.02 * self._slowness)

    def wait_before(self) -> None:
        """Let some time pass before a fault: it finds the job while it starts, or while it writes small batches."""
        if self.timing.random() < 0.5:
            self.operate(self.seconds(0, 1.2) * self.start_seconds)
        else:
            until = time.monotonic() + 2 * self.start_seconds
            while not self.is_caught_up() and not self.job.unexpected_exit and time.monotonic() < until:
                self.operate(0.3)
            self.operate(self.seconds(0, 3))
        self.ensure_running()

    def operate_during_start(self) -> None:
        """Let the groups change for some of the time that a start takes, or a little longer."""
        self.operate(self.seconds(0.3, 1.5) * self.start_seconds)

    def write_unknown_record(self, random: Random) -> tuple[int, int]:
        """Write a record of a type that no release knows; its id is not always valid UTF-8. Return where it is."""
        group_id = random.choice([*(one.encode() for one in self.operations.groups), b"\xff\xfe", b"\xed\xa0\x80"])
        partition = partition_of(group_id.decode("utf-8", "replace"), PARTITIONS)
        kind = next(self._unknown)  # another one each time: of a type only one record is kept
        key, value = raw_key(kind, group_id), random.randbytes(random.choice((0, 10, 1_000)))
        with internal_producer(self.server, max_block_ms=10_000) as producer:
            sent = producer.send(TOPIC, key=key, value=value, partition=partition)
            return partition, int(sent.get(MINUTES).offset)

    # The job

    def start_job(self, *options: str, setup: str = "") -> None:
        """Start the job in one of several ways, with these options in addition."""
        self._starts += 1
        random = self._draw("start", self._starts)
        batches = random.choice((None, _MOST_BATCHES, _MOST_BATCHES // 3, None))
        large = batches is None and random.random() < 0.5
        self._batch_size = None
        if batches:  # splits operations
            self._batch_size = max(int(_SMALLEST_BATCH * self._slowness), self._topic_size() // batches)
            setup += in_batches_of(self._batch_size)
        self.job.start(*options, setup=setup, as_large_batches=large)

    def _topic_size(self) -> int:
        """Return how many offsets a job that reads from the beginning has to read; no broker need answer."""
        if self.broker.pid is not None:
            with suppress(KafkaError, OSError):
                self._offsets = sum(self.client.end_offsets(TOPIC).values())
        return self._offsets

    def start_job_for_workers(self, setup: str = "") -> None:
        """Start the job so that every batch is processed by workers."""
        self._batch_size = None
        self.job.start(setup=setup, as_large_batches=True)

    def kill_job(self, *, with_stopped_jvm: bool = False) -> None:
        """Kill the process that a user started, if it runs; a JVM that was stopped goes on, so that it can end."""
        if self.job.running:
            if not with_stopped_jvm:
                send_signal(signal.SIGCONT, self.job.pids())
            self.job.kill()

    def remove(self, *names: str) -> bool:
        """Remove files or directories of the warehouse; return whether one was there."""
        existed = any((self.warehouse / name).exists() for name in names)
        for name in names:
            path = self.warehouse / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return existed

    def settle(self) -> None:
        """Wait until the job is at the end of the topic, without limits of batches if it is far from it."""
        self.ensure_running()
        if self._batch_size and self._behind(self.client.end_offsets(TOPIC)) > _MOST_BATCHES * self._batch_size:
            self.kill_job()  # it would take many minutes on a slow machine
            self._batch_size = None
            self.job.start()
        super().settle()

    def cleaned_offsets(self) -> dict[int, int]:
        """Return by partition the offset up to which the log was compacted, as the broker has recorded it."""
        file = self.broker.directory / "data" / "cleaner-offset-checkpoint"
        lines = file.read_text("utf-8").splitlines()[2:] if file.exists() else []
        fields = (line.split() for line in lines)
        return {int(partition): int(offset) for topic, partition, offset in fields if topic == TOPIC}


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
        self.client.create_topics(topics, wait_for_metadata=True)
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
            return dict(self.client.list_group_offsets(GROUP)[GROUP])
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
        self.client.close()
        self.client.__init__(self.cluster.running_server.split(","))  # type: ignore[misc] # members have this object

    def join(self, group_id: str) -> None:
        """Let a group appear: one member joins it."""
        self.reconnect()
        self.retry(lambda: join(self.client, group_id, topic=next(iter(self.operations.topics))))

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
