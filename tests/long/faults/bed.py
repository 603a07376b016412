"""What the faults happen to: a broker with groups that keep changing, and the job."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TypeVar

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from streaming_app.groups.partition import partition_of
from streaming_app.sandbox.broker import LocalBroker
from tests.long.campaign.bed import PARTITIONS, TOPIC, Bed
from tests.long.faults.operations import Operations
from tests.long.hostile.requests import internal_producer, raw_key
from tests.support.kafka_cluster import LocalCluster
from tests.support.odd_group_ids import ODD
from tests.support.processes import send_signal
from tests.support.waiting import MINUTES

T = TypeVar("T")
UNKNOWN_TYPE = 99
STOPPED_SECONDS = 12.0  # longer than sessions: of members, and of the broker with its controller
_DELETE_RETENTION_SECONDS = 15
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
_SMALLEST_BATCH, _MOST_BATCHES = 25, 15  # of a job that reads from the beginning: each takes a second or more
# With the default of 10 s between its batches, most of the time would be spent on waiting for the second stream.
_SETUP = "import os; os.environ['STREAMS_GROUPS_OFFSETS__TRIGGER'] = '0.5'; "
_DIFFER = "self-check: the tables differ"


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
        properties = {**SHORT_SESSIONS, **(_COMPACTING if compacting else KEEPING)}
        super().__init__(directory, broker or LocalBroker(directory / "broker", properties=properties), setup=_SETUP)
        self.random, self.timing = self._draw("groups"), self._draw("first start")
        """Of what a fault does, and of when."""
        self._operating = self._draw("operations")
        self._starts = self._faults = 0
        self._offsets = 0
        self._batch_size: int | None = None
        self._seen: Counter[Path] = Counter()  # of these lines
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
            self.client.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs)])

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
        key, value = raw_key(UNKNOWN_TYPE, group_id), random.randbytes(random.choice((0, 10, 1_000)))
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
            options = ("--max-offsets-per-trigger", str(self._batch_size), *options)
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

    def new_self_check_lines(self) -> list[str]:
        """Return the lines about differences that the job itself has found since the last call; it removes them."""
        new = []
        for log in self.directory.glob("job-*.log"):
            lines = [line for line in log.read_text("utf-8", "replace").splitlines() if _DIFFER in line]
            new += lines[self._seen[log] :]
            self._seen[log] = len(lines)
        return new

    def cleaned_offsets(self) -> dict[int, int]:
        """Return by partition the offset up to which the log was compacted, as the broker has recorded it."""
        file = self.broker.directory / "data" / "cleaner-offset-checkpoint"
        lines = file.read_text("utf-8").splitlines()[2:] if file.exists() else []
        fields = (line.split() for line in lines)
        return {int(partition): int(offset) for topic, partition, offset in fields if topic == TOPIC}
