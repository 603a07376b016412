"""What the faults happen to: a broker with groups that keep changing, and the job as a process with its warehouse."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TypeVar

from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from streaming_app.groups.partition import partition_of
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.process import Startable
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from tests.long.faults.disk import Disk
from tests.long.faults.job import JobProcess, StartOptions
from tests.long.faults.operations import Operations
from tests.support.kafka_cluster import LocalCluster
from tests.support.odd_group_ids import ODD
from tests.support.processes import send_signal
from tests.support.waiting import MINUTES, wait_until

T = TypeVar("T")
TOPIC, CLUSTER, PARTITIONS = "__consumer_offsets", "default", 4
CHECKPOINTS = (CLUSTER, f"{CLUSTER}~offsets")
UNKNOWN_TYPE = 99
_DELETE_RETENTION_SECONDS = 15
STOPPED_SECONDS = 12.0  # longer than sessions: of members, and of the broker with its controller
_COMPACTING = {
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
_CATCH_UP_SECONDS = 900.0
_STARTS_PER_PHASE = 12
_SMALLEST_BATCH, _MOST_BATCHES = 25, 15  # of a job that reads from the beginning: each takes a second or more
# With the default of 10 s between its batches, most of the time would be spent on waiting for the second stream.
JOB_SETUP = "import os; os.environ['STREAMS_GROUPS_OFFSETS__TRIGGER'] = '0.5'; "
_DIFFER = "self-check: the tables differ"
_INTERNAL_CLIENT = "__admin_client"  # the client id with which a broker accepts records for internal topics


class UnexpectedError(Exception):
    """The job did not do what it has to do at once; the text says what it did."""


class DidNotRecoverError(Exception):
    """The job did not come to the end of the topic; the text says what it printed."""


class FaultHarness(Startable):
    """One broker, its groups, one job.

    What a fault does and when it does it depend on the seed and on the number of the fault, and on nothing else: what
    is drawn as often as this machine is fast (operations, starts of the job) comes from other generators.
    """

    def __init__(self, directory: Path, seed: int, *, compacting: bool, once: bool = False) -> None:
        """Prepare. With `compacting` the log is compacted all the time, else never; `once` is as in `Round`."""
        self.directory, self.compacting, self._once = directory, compacting, once
        self._seed = seed
        self.random, self.timing = self._draw("groups"), self._draw("first start")
        """Of what a fault does, and of when."""
        self._operating = self._draw("operations")
        self._starts = self._faults = 0
        self.warehouse = directory / "disk" / "warehouse"
        self.killed_at: float | None = None
        self.measured: list[tuple[str, float]] = []
        """By fault, or by what is measured, seconds: from a kill until everything was in the tables, for example."""
        self._effects: list[bool] = []
        self.shown: list[str] = []
        self._pending: tuple[str, float] | None = None
        self.start_seconds = 0.0
        """How long the first start took, until everything was in the tables: this machine may be slow."""
        self._offsets = 0
        self._batch_size: int | None = None
        self._seen: Counter[Path] = Counter()  # of these lines
        self.retention_seconds = _DELETE_RETENTION_SECONDS
        """How long the topic keeps tombstones."""
        self._stack = ExitStack()
        self.disk = Disk(directory / "disk")
        properties = {**SHORT_SESSIONS, **(_COMPACTING if compacting else KEEPING)}
        self.broker: LocalBroker | LocalCluster = LocalBroker(directory / "broker", properties=properties)
        ids = [one for one in ODD.values() if one]
        self._ids = [*self.random.sample(ids, _GROUPS - 3), "plain", "${spark.sql.session.timeZone}", "UTC"]

    def _draw(self, *of: object) -> Random:
        return Random(f"{self._seed} {of}")  # noqa: S311 - no secret

    def start(self) -> None:
        """Start the broker, let some groups appear, and start the job."""
        try:
            self._stack.enter_context(self.disk)
            self._start_brokers()
            server = self.broker.bootstrap_server
            self.client = self._stack.enter_context(StreamsGroupClient(server.split(",")))
            self.operations = Operations(
                self.client, server, self._operating.randrange(2**32), group_ids=list(dict.fromkeys(self._ids))
            )
            self.job = self.new_job()
            self._stack.callback(self._close_job)
            while not self.client.end_offsets(TOPIC):  # the topic is created for the first group
                self.operations.step()
            self._prepare()
            started_at = time.monotonic()
            self.start_job()
            self.settle()
            self.start_seconds = time.monotonic() - started_at
            if self.compacting:
                self._set_retention()
        except BaseException:
            self.stop()
            raise

    def _start_brokers(self) -> None:
        self._stack.enter_context(self.broker)

    def _prepare(self) -> None:
        """Start what the job is to find, before its first start."""

    def _set_retention(self) -> None:
        """Keep tombstones for longer than the job is not at the end of the topic while nothing happens to it."""
        self.retention_seconds = max(_DELETE_RETENTION_SECONDS, int(2 * self.start_seconds))
        configs = {"delete.retention.ms": str(1000 * self.retention_seconds)}
        self.client.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs)])

    def stop(self) -> None:
        """Stop everything."""
        self._stack.close()

    def new_job(self) -> JobProcess:
        """Return another job of the same warehouse, not started."""
        logs = sum(1 for _ in self.directory.glob("job-*.log"))
        return JobProcess(self.broker.bootstrap_server, self.warehouse, self.directory / f"job-{logs}.log", JOB_SETUP)

    def _close_job(self) -> None:
        send_signal(signal.SIGCONT, self.job.pids())
        self.job.close()

    # What goes on besides the faults

    @property
    def _slowness(self) -> float:
        """How slow this machine is; 1 for one on which a start takes 4 s. What it has to process is less then."""
        return max(1.0, self.start_seconds / 4)

    def seconds(self, low: float, high: float) -> float:
        """Return a random number of seconds."""
        return self.timing.uniform(low, high)

    def pick(self, among: Sequence[T]) -> T:
        """Return one of these: a single draw, however many there are at this moment."""
        return among[int(self.random.random() * len(among))]

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

    def begin_fault(self, name: str) -> None:
        """Start new generators for the next fault: how many numbers the faults before it drew does not change it."""
        self._faults += 1
        self.random, self.timing = self._draw("what", self._faults, name), self._draw("when", self._faults, name)

    def expect(self, effect: bool | Callable[[], bool], shown: str = "") -> None:
        """Note whether a fault has had its effect, which may take minutes. One without is not counted as a fault.

        `shown` is what the brokers showed instead, for the line about the phase.
        """
        self._effects.append(wait_until(effect) if callable(effect) else effect)
        if not self._effects[-1] and shown:
            self.shown.append(shown)

    def after_fault(self, name: str) -> list[bool]:
        """Return the effects of a fault that is over. If it killed the job, it is measured when it has caught up."""
        self._pending, self.killed_at = (name, self.killed_at) if self.killed_at else None, None
        effects, self._effects = self._effects, []
        return effects

    def times(self, most: int = _MOST_TIMES) -> int:
        """Return how often a fault that may be repeated happens."""
        return 1 if self._once else self.random.randint(1, most)

    def wait_before(self) -> None:
        """Let some time pass before a fault: it finds the job while it starts, or while it writes small batches."""
        if self.timing.random() < 0.5:
            self.operate(self.seconds(0, 1.2) * self.start_seconds)
        else:
            until = time.monotonic() + 2 * self.start_seconds
            while not (caught_up := self.is_caught_up()) and not self.job.unexpected_exit and time.monotonic() < until:
                self.operate(0.3)
            if caught_up:
                self._note_caught_up()
            self.operate(self.seconds(0, 3))
        self._pending = None
        self.ensure_running()

    def _note_caught_up(self) -> None:
        if self._pending:
            name, killed_at = self._pending
            self.measured.append((name, time.monotonic() - killed_at))
            self._pending = None

    def operate_during_start(self) -> None:
        """Let the groups change for some of the time that a start takes, or a little longer."""
        self.operate(self.seconds(0.3, 1.5) * self.start_seconds)

    def write_unknown_record(self, random: Random) -> tuple[int, int]:
        """Write a record of a type that no release knows; its id is not always valid UTF-8. Return where it is."""
        group_id = random.choice([*(one.encode() for one in self.operations.groups), b"\xff\xfe", b"\xed\xa0\x80"])
        partition = partition_of(group_id.decode("utf-8", "replace"), PARTITIONS)
        key = UNKNOWN_TYPE.to_bytes(2, "big") + len(group_id).to_bytes(2, "big") + group_id
        value = random.randbytes(random.choice((0, 10, 1_000)))
        with internal_producer(self.broker.bootstrap_server) as producer:
            sent = producer.send(TOPIC, key=key, value=value, partition=partition)
            return partition, int(sent.get(MINUTES).offset)

    # The job

    def start_job(self, *options: str, setup: str = "") -> None:
        """Start the job in one of several ways, with these options in addition."""
        self._starts += 1
        random = self._draw("start", self._starts)
        batches = random.choice((None, _MOST_BATCHES, _MOST_BATCHES // 3, None))
        large = batches is None and random.random() < 0.5
        if batches:  # splits operations
            self._batch_size = max(int(_SMALLEST_BATCH * self._slowness), self._topic_size() // batches)
            options = ("--max-offsets-per-trigger", str(self._batch_size), *options)
        else:
            self._batch_size = None
        self.job.start(StartOptions(options, large, setup))

    def _topic_size(self) -> int:
        """Return how many offsets a job that reads from the beginning has to read; no broker need answer."""
        if self.broker.pid is not None:
            with suppress(KafkaError, OSError):
                self._offsets = sum(self.client.end_offsets(TOPIC).values())
        return self._offsets

    def start_job_for_workers(self, setup: str = "") -> None:
        """Start the job so that every batch is processed by workers."""
        self._batch_size = None
        self.job.start(StartOptions(as_large_batches=True, setup=setup))

    def kill_job(self) -> None:
        """Kill the process that a user started, if it runs, and note when."""
        self.killed_at = time.monotonic()
        if self.job.running:
            send_signal(signal.SIGCONT, self.job.pids())
            self.job.kill()

    def kill_job_only(self) -> None:
        """Kill the process that a user started, and leave its JVM as it is."""
        self.killed_at = time.monotonic()
        self.job.kill()

    def ensure_running(self) -> None:
        """Start broker and job if they are not running, as the machine's service manager does."""
        self.broker.start()
        if self.job.running and self.job.unexpected_exit:
            self.job.close()
        if not self.job.running:
            self.start_job()

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

    def copy_warehouse(self, to: Path) -> None:
        """Copy the warehouse while the job runs: in the order that `docs/operating.md` gives."""

        def copy_file(source: str, target: str) -> str:
            with suppress(FileNotFoundError):  # Spark and Delta remove temporary and old files
                shutil.copy2(source, target)
            return target

        def copy(source: Path, *left_out: str) -> None:
            with suppress(shutil.Error, FileNotFoundError):  # a directory was removed meanwhile
                shutil.copytree(
                    source,
                    to / source.relative_to(self.warehouse),
                    copy_function=copy_file,
                    ignore=shutil.ignore_patterns(*left_out),
                    dirs_exist_ok=True,
                )

        logs = sorted(self.warehouse.glob("*/_delta_log"), key=lambda log: log.parent.name != "groups")
        for source in (self.warehouse / "_checkpoints", *logs):
            copy(source)
        for log in logs:
            copy(log.parent, log.name)

    def new_self_check_lines(self) -> list[str]:
        """Return the lines about differences that the job itself has found since the last call; it removes them."""
        new = []
        for log in self.directory.glob("job-*.log"):
            lines = [line for line in log.read_text("utf-8", "replace").splitlines() if _DIFFER in line]
            new += lines[self._seen[log] :]
            self._seen[log] = len(lines)
        return new

    # The end of a phase

    def settle(self) -> None:
        """Wait until the job is at the end of the topic.

        Raises DidNotRecoverError if it does not come there although it is started again whenever it ends.
        """
        self.ensure_running()
        outputs = len(self.job.output)
        ends = self.client.end_offsets(TOPIC)
        if self._batch_size and self._behind(ends) > _MOST_BATCHES * self._batch_size:
            self.kill_job()  # it would take many minutes on a slow machine
            self.job.start()
        until = time.monotonic() + _CATCH_UP_SECONDS
        starts = 0
        while not self._is_at(ends):
            if self.job.unexpected_exit:
                starts += 1
                self.ensure_running()
            if time.monotonic() > until or starts > _STARTS_PER_PHASE:
                raise DidNotRecoverError(f"not caught up after {starts} starts: {self.job.output[outputs:][-3000:]}")
            self.last(0.1)
        self._note_caught_up()

    def is_caught_up(self) -> bool:
        """Return whether the job has processed what is in the topic now; not while no broker answers."""
        with suppress(KafkaError, OSError):
            return self._is_at(self.client.end_offsets(TOPIC))
        return False

    def _is_at(self, ends: dict[int, int]) -> bool:
        with suppress(Exception):  # the checkpoint may be removed or written right now
            both = [read_checkpoint_offsets(self.warehouse, name) for name in CHECKPOINTS]
            return all(done is not None and not done.offsets_behind(ends) for done in both)
        return False

    def _behind(self, ends: dict[int, int]) -> int:
        """Return how many offsets the slower query has to read, all of them if that is not known."""
        with suppress(Exception):  # as above
            both = [read_checkpoint_offsets(self.warehouse, name) for name in CHECKPOINTS]
            return max(sum(ends.values()) if one is None else sum(one.offsets_behind(ends).values()) for one in both)
        return sum(ends.values())

    def cleaned_offsets(self) -> dict[int, int]:
        """Return by partition the offset up to which the log was compacted, as the broker has recorded it."""
        file = self.broker.directory / "data" / "cleaner-offset-checkpoint"
        lines = file.read_text("utf-8").splitlines()[2:] if file.exists() else []
        return {int(partition): int(offset) for topic, partition, offset in _fields(lines) if topic == TOPIC}


@contextmanager
def internal_producer(server: str) -> Iterator[KafkaProducer]:
    """Give a producer that writes to internal topics: the broker lets it by its client id, kafka-python by nothing.

    kafka-python takes them out of its list of topics, and then refuses to write. It is not idempotent: a broker that
    loads commits of a producer id takes them for those of an open transaction.
    """
    producer = KafkaProducer(
        bootstrap_servers=server.split(","), client_id=_INTERNAL_CLIENT, enable_idempotence=False, max_block_ms=10_000
    )
    topics = producer._metadata.topics
    producer._metadata.topics = lambda **_: topics(exclude_internal_topics=False)
    try:
        yield producer
    finally:
        producer.close(timeout=5)


def _fields(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for line in lines:
        topic, partition, offset = line.split()
        yield topic, partition, offset
