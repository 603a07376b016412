"""What a campaign plays on: brokers, and the job as a process, whose warehouse has a disk of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.process import Startable
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from streaming_app.tables.reader import WarehouseReader
from tests.long.campaign.disk import Disk
from tests.long.campaign.job import JobProcess
from tests.support.kafka_cluster import LocalCluster
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

TOPIC, CLUSTER, PARTITIONS = "__consumer_offsets", "default", 4
CHECKPOINTS = (CLUSTER, f"{CLUSTER}~offsets")
_CATCH_UP_SECONDS = 900.0
_STARTS_PER_PHASE = 12


class UnexpectedError(Exception):
    """The job did not do what it has to do at once; the text says what it did."""


class DidNotRecoverError(Exception):
    """The job did not come to the end of the topic; the text says what it printed."""


class Bed(Startable):
    """Start it, or use it as a context manager; once it is started the job has read everything."""

    def __init__(
        self, directory: Path, broker: LocalBroker | LocalCluster, *, setup: str = "", megabytes: int = 320
    ) -> None:
        """Prepare. The job executes `setup` before each start; the disk of its warehouse has so many `megabytes`."""
        self.directory, self.broker, self._setup = directory, broker, setup
        self.disk = Disk(directory / "disk", megabytes)
        self.warehouse = directory / "disk" / "warehouse"
        self.shown: list[str] = []
        """What the line about a phase says besides its faults."""
        self.start_seconds = 0.0
        """How long the first start took, until everything was in the tables: this machine may be slow."""
        self._effects: list[bool] = []
        self.broken: list[str] = []
        """The promises that were seen not to be kept."""
        self._stack = ExitStack()

    def start(self) -> None:
        try:
            self._stack.enter_context(self.disk)
            self._stack.enter_context(self.broker)
            self.client = self._stack.enter_context(StreamsGroupClient(self.server.split(",")))
            self.job = self.new_job()
            self._stack.callback(self._close_job)
            self._prepare()
            started_at = time.monotonic()
            self.start_job()
            self.settle()
            self.start_seconds = time.monotonic() - started_at
            self._complete()
        except BaseException:
            self.stop()
            raise

    def _prepare(self) -> None:
        """Start what the job is to find, before its first start."""

    def _complete(self) -> None:
        """Start what needs the tables, after its first start."""

    def stop(self) -> None:
        self._stack.close()

    @property
    def server(self) -> str:
        """Where the brokers are."""
        return self.broker.bootstrap_server

    def new_job(self) -> JobProcess:
        """Return another job of the same warehouse, not started."""
        logs = sum(1 for _ in self.directory.glob("job-*.log"))
        return JobProcess(self.server, self.warehouse, self.directory / f"job-{logs}.log", self._setup)

    def start_job(self, *options: str, setup: str = "") -> None:
        self.job.start(*options, setup=setup)

    def _close_job(self) -> None:
        send_signal(signal.SIGCONT, self.job.pids())
        self.job.close()

    def ensure_running(self) -> None:
        """Start broker and job if they are not running, as the machine's service manager does."""
        self.broker.start()
        if self.job.running and self.job.unexpected_exit:
            self.job.close()
        if not self.job.running:
            self.start_job()

    def begin(self, name: str) -> None:
        """Begin what a phase plays next."""

    def expect(self, effect: bool | Callable[[], bool], shown: str = "") -> None:
        """Note whether what is played has had its effect, which may take minutes. Without one it is not counted.

        `shown` is what the brokers showed instead, for the line about the phase.
        """
        self._effects.append(wait_until(effect) if callable(effect) else effect)
        if not self._effects[-1] and shown:
            self.shown.append(shown)

    def take_effects(self) -> list[bool]:
        effects, self._effects = self._effects, []
        return effects

    def rows(self, query: str) -> list[dict[str, Any]]:
        return WarehouseReader(self.warehouse).rows(query)

    def settle(self) -> None:
        """Wait until the job is at the end of the topic.

        Raises DidNotRecoverError if it does not come there although it is started again whenever it ends.
        """
        self.ensure_running()
        before, ends = len(self.job.output), self.client.end_offsets(TOPIC)
        starts = 0

        def is_over() -> bool:
            nonlocal starts
            if self.job.unexpected_exit:
                starts += 1
                self.ensure_running()
            return self._is_at(ends) or starts > _STARTS_PER_PHASE

        if not wait_until(is_over, _CATCH_UP_SECONDS, interval=0.1) or starts > _STARTS_PER_PHASE:
            raise DidNotRecoverError(f"not caught up after {starts} starts: {self.job.output[before:][-3000:]}")

    def is_caught_up(self) -> bool:
        """Return whether the job has processed what is in the topic now; not while no broker answers."""
        with suppress(KafkaError, OSError):
            return self._is_at(self.client.end_offsets(TOPIC))
        return False

    def _is_at(self, ends: dict[int, int]) -> bool:
        return self._behind(ends) == 0

    def _behind(self, ends: dict[int, int]) -> int:
        """Return how many offsets the slower query has to read, all of them if that is not known."""
        with suppress(Exception):  # the checkpoint may be removed or written right now
            both = [read_checkpoint_offsets(self.warehouse, name) for name in CHECKPOINTS]
            if None not in both:
                return max(sum(one.offsets_behind(ends).values()) for one in both if one)
        return sum(ends.values()) or 1
