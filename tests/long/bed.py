"""What long tests play on: brokers, and the job as a process, whose warehouse has a disk of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.child_process import Process, Startable
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from streaming_app.tables.reader import WarehouseReader
from tests.support.http_client import request
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.kafka_cluster import LocalCluster
from tests.support.processes import process_tree, send_signal, spark_jvms, spark_workers
from tests.support.waiting import wait_until

TOPIC, CLUSTER, PARTITIONS = "__consumer_offsets", "default", 4
CHECKPOINTS = (CLUSTER, f"{CLUSTER}~offsets")
_CATCH_UP_SECONDS = 900.0
_STARTS_PER_PHASE = 12
_NO_SMALL_BATCHES = (
    "from streaming_app.tables.driver_limits import GROUPS, MOST; MOST[GROUPS] = MOST[GROUPS]._replace(records=0); "
)
_EXIT_SECONDS = 600.0


class Disk(Startable):
    """A directory in memory, as a file system of its own if this process may mount one; else it is never full."""

    def __init__(self, directory: Path, megabytes: int = 320) -> None:
        self.directory, self._megabytes = directory, megabytes
        self._filler = directory / "filler"
        self._is_mounted = False

    def start(self) -> None:
        """Mount the file system, if that is allowed."""
        while self.directory.is_mount():  # of a campaign that was killed
            self._unmount()
        self.directory.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.directory)]
        with suppress(FileNotFoundError):
            self._is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self) -> None:
        if self._is_mounted:
            self._unmount()

    def _unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.directory)], capture_output=True, check=True)

    def fill(self, leave: int = 0) -> None:
        """Leave no space, or so many bytes."""
        if not self._is_mounted:
            return
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            size = 1 << 20
            while (free := shutil.disk_usage(self.directory).free) > leave or not leave:
                os.posix_fallocate(file.fileno(), file.tell(), max(1, min(size, free)))
                file.seek(0, os.SEEK_END)

    @property
    def is_full(self) -> bool:
        return self._is_mounted and shutil.disk_usage(self.directory).free == 0

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


def in_batches_of(offsets: int) -> str:
    """Return a statement that limits the batches of a job, for `setup`."""
    return f"import os; os.environ['STREAMS_GROUPS_MAX_OFFSETS_PER_TRIGGER'] = '{offsets}'; "


class JobProcess:
    """`streams-groups run` with a warehouse; its output is outside of that, which may be on a full disk."""

    def __init__(self, server: str, warehouse: Path, log: Path, setup: str = "") -> None:
        """`setup` are Python statements, each ended by a semicolon, that its process executes before each start."""
        self.warehouse = warehouse
        self._server, self._log, self._setup = server, log, setup
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and its end was not noticed yet."""
        return self._process is not None

    @property
    def output(self) -> str:
        """Everything that the job has printed since its first start."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    @property
    def unexpected_exit(self) -> str | None:
        """The exit code and the end of the output, if the job exited by itself."""
        if self._process is None or self._process.exit_code is None:
            return None
        return f"the job exited with {self._process.exit_code}: {self.output[-2000:]}"

    @property
    def pid(self) -> int | None:
        """The process that a user started, if it runs."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    def pids(self) -> list[int]:
        """Return the process that a user started, and all that it started in turn."""
        return list(process_tree(self.pid)) if self.pid else []

    def jvms(self) -> list[int]:
        return spark_jvms(self.pid) if self.pid else []

    def workers(self) -> list[int]:
        return spark_workers(self.pid) if self.pid else []

    def start(self, *options: str, setup: str = "", as_large_batches: bool = False) -> None:
        """Start it, with further statements; `as_large_batches`: small batches are processed like large ones."""
        python, option, program = STREAMS_GROUPS
        statements = self._setup + setup + (_NO_SMALL_BATCHES if as_large_batches else "")
        command = [python, option, statements + program, "run"]
        self._process = Process(
            [*command, "--bootstrap-server", self._server, "--warehouse", self.warehouse, *options],
            self._log,
            grace_seconds=30,
        )

    def kill(self, *pids: int) -> int:
        """Send SIGKILL to the process that the user started, or to these; return its exit code once it has ended."""
        assert self._process
        send_signal(signal.SIGKILL, pids or ([self.pid] if self.pid else []))
        try:
            code = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UnexpectedError(f"the job still runs {_EXIT_SECONDS:.0f} s after its end") from error
        self.close()
        return code

    def close(self) -> None:
        if self._process:
            self._process.stop()
            self._process = None


def join(client: StreamsGroupClient, group_id: str, *, topic: str = "orders-in", **member: Any) -> SimulatedMember:
    """Let a member join a group that reads this topic, which need not exist."""
    joined = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[topic])), **member)
    joined.join()
    return joined


class UnexpectedError(Exception):
    """The job did not do what it has to do at once; the text says what it did."""


class DidNotRecoverError(Exception):
    """The job did not come to the end of the topic; the text says what it printed."""


class Bed(Startable):
    """Start it, or use it as a context manager; once it is started the job has read everything."""

    def __init__(
        self,
        directory: Path,
        broker: LocalBroker | LocalCluster,
        *,
        setup: str = "",
        config: Mapping[str, Any] | None = None,
        megabytes: int = 320,
    ) -> None:
        """Prepare. The job executes `setup` before each start; the disk of its warehouse has so many `megabytes`.

        `config` is the configuration of the job besides brokers and warehouse, if it has a file.
        """
        self.directory, self.broker, self._setup = directory, broker, setup
        self.config = dict(config or {})
        self.config_file = directory / "streams-groups.yaml"
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
            if self.client.end_offsets(TOPIC):  # it is created for the first group
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
        if self.config:
            values = {"bootstrap_server": self.server, "warehouse": str(self.warehouse), **self.config}
            self.config_file.write_text(json.dumps(values), "utf-8")  # YAML holds JSON
            options = ("--config", str(self.config_file), *options)
        self.job.start(*options, setup=setup)

    def get(self, path: str) -> str:
        """Return the body of what the job serves there, once it serves."""
        found: list[str] = []

        def serves() -> bool:
            found[:] = re.findall(r"^Serving (\S+)/metrics", self.job.output, re.MULTILINE)
            return bool(found)

        assert wait_until(serves), self.job.output
        return request(found[-1], path)[2]

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
        """Note whether what is played has had its effect, within minutes; if not, `shown` is for the phase's line."""
        self._effects.append(wait_until(effect) if callable(effect) else effect)
        if not self._effects[-1] and shown:
            self.shown.append(shown)

    def take_effects(self) -> list[bool]:
        effects, self._effects = self._effects, []
        return effects

    def rows(self, query: str) -> list[dict[str, Any]]:
        return WarehouseReader(self.warehouse).rows(query)

    def settle(self) -> None:
        """Wait until the job, started again whenever it ends, is at the end of the topic. Raises DidNotRecoverError."""
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
