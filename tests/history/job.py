"""The job as users run it, terminated and killed at random. Its tables are compared in `job_tables`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random
from typing import NamedTuple

from streaming_app.sandbox.process import Process
from tests.job.job_runner import STREAMS_GROUPS

_NO_SMALL_BATCHES = "from streaming_app.stream import source; source.FEW_RECORDS = 0; "
_EXIT_SECONDS = 600.0


class StartOptions(NamedTuple):
    """How the job is started."""

    options: tuple[str, ...] = ()
    as_large_batches: bool = False
    """Whether even small batches are processed like large ones."""
    setup: str = ""
    """Python statements, each ended by a semicolon, that its process executes before."""


STARTS = (
    StartOptions(),
    StartOptions(("--max-offsets-per-trigger", "25")),  # splits operations
    StartOptions(("--max-offsets-per-trigger", "60", "--trigger", "0")),
    StartOptions(as_large_batches=True),
)


class JobProcess:
    """`streams-groups run` in its own process, with its own warehouse."""

    def __init__(self, server: str, directory: Path) -> None:
        self.warehouse = directory / "warehouse"
        self._server = server
        self._log = directory / "job.log"
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def output(self) -> str:
        """Everything that the job has printed since its first start."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def start(self, how: StartOptions = STARTS[0]) -> None:
        python, option, program = STREAMS_GROUPS
        setup = how.setup + (_NO_SMALL_BATCHES if how.as_large_batches else "")
        command = [python, option, setup + program, "run"]
        self._process = Process(
            [*command, "--bootstrap-server", self._server, "--warehouse", self.warehouse, *how.options],
            self._log,
            grace_seconds=30,
        )

    def terminate(self) -> str | None:
        """Send SIGTERM; return an error if the job does not exit as expected."""
        return self._wait_for_exit(signal.SIGTERM, {0, 128 + signal.SIGTERM})  # the latter before it handles signals

    def kill(self) -> str | None:
        """Send SIGKILL to the process that the user started; its JVM then exits."""
        return self._wait_for_exit(signal.SIGKILL, {128 + signal.SIGKILL})

    def kill_jvm(self) -> str | None:
        """Send SIGKILL to Spark's JVM, as the kernel does when memory runs out. The job must report it, and exit."""
        assert self._process
        jvms = [pid for pid in _children(self._process.pid) if _name(pid) == "java"]
        for pid in jvms:
            os.kill(pid, signal.SIGKILL)
        return self._wait_for_exit(0, {1}) if jvms else self.kill()

    def close(self) -> None:
        if self._process:
            self._process.stop()
            self._process = None

    @property
    def unexpected_exit(self) -> str | None:
        """The exit code and the end of the output, if the job exited by itself."""
        if self._process is None or self._process.exit_code is None:
            return None
        return f"the job exited with {self._process.exit_code}: {self.output[-2000:]}"

    def _wait_for_exit(self, signal_number: int, expected: set[int]) -> str | None:
        assert self._process
        if self._process.exit_code is None and signal_number:
            self._process.kill(signal_number)
        code = self._process.wait(_EXIT_SECONDS)
        self.close()
        if code in expected:
            return None
        return f"the job exited with {code} after signal {signal_number}: {self.output[-2000:]}"


class RandomRestarts:
    """Stops the job at random, and starts it again later with other options."""

    def __init__(self, job: JobProcess, random: Random, every: int, max_pause: int = 30) -> None:
        """Stop the job every `every` operations on average, each time for at most `max_pause` operations."""
        self.job = job
        self.stops = {"terminate": 0, "kill": 0, "kill_jvm": 0}
        self._random = random
        self._every = every
        self._max_pause = max_pause
        self._pause = 0

    def step(self) -> str | None:
        """Start or stop the job, if it is time to; call it after every operation. Return an error of the job's exit."""
        if not self.job.running:
            self._pause -= 1
            if self._pause <= 0:
                self.job.start(self._random.choice(STARTS))
            return None
        if unexpected_exit := self.job.unexpected_exit:
            self.job.close()
            return unexpected_exit
        if self._random.random() >= 1 / self._every:
            return None
        (how,) = self._random.choices(list(self.stops), (2, 5, 1))
        self.stops[how] += 1
        self._pause = self._random.randrange(self._max_pause)
        error: str | None = getattr(self.job, how)()
        return error


def _children(pid: int) -> list[int]:
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children += [int(child) for child in task.read_text("utf-8").split()]
    return children


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
