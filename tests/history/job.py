"""The job as users run it, ended and crashed as machines and people do. Its tables are compared in `tables`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random
from typing import NamedTuple

from streaming_app.local.process import Process
from tests.job.running import STREAMS_GROUPS

_MANY = "from streaming_app.job import pipeline; pipeline._FEW_RECORDS = 0; "
_END_SECONDS = 600.0


class Start(NamedTuple):
    """How the job is started: options that cut batches small, and whether each goes the way of large ones."""

    options: tuple[str, ...] = ()
    as_if_many: bool = False


STARTS = (
    Start(),
    Start(("--max-offsets-per-trigger", "25")),  # cuts operations in two
    Start(("--max-offsets-per-trigger", "60", "--trigger", "0")),
    Start(as_if_many=True),
)


class Job:
    """`streams-groups run` in a process of its own, with its own warehouse."""

    def __init__(self, server: str, directory: Path) -> None:
        self.warehouse = directory / "warehouse"
        self._server = server
        self._log = directory / "job.log"
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def said(self) -> str:
        """Everything that it has printed, over all starts."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def start(self, how: Start = STARTS[0]) -> None:
        python, option, program = STREAMS_GROUPS
        command = [python, option, (_MANY if how.as_if_many else "") + program, "run"]
        self._process = Process(
            [*command, "--bootstrap-server", self._server, "--warehouse", self.warehouse, *how.options],
            self._log,
            grace_seconds=30,
        )

    def end(self) -> str | None:
        """SIGTERM; what was wrong with its end, if anything."""
        return self._gone(signal.SIGTERM, {0, 128 + signal.SIGTERM})  # the latter before it can take a signal

    def crash(self) -> str | None:
        """SIGKILL, to the process that the user started; its JVM follows by itself."""
        return self._gone(signal.SIGKILL, {128 + signal.SIGKILL})

    def lose_jvm(self) -> str | None:
        """SIGKILL to Spark's JVM, as the kernel does when memory runs out. The job must say so, and end."""
        assert self._process
        jvms = [pid for pid in _children(self._process.pid) if _name(pid) == "java"]
        for pid in jvms:
            os.kill(pid, signal.SIGKILL)
        return self._gone(0, {1}) if jvms else self.crash()

    def close(self) -> None:
        if self._process:
            self._process.stop()
            self._process = None

    @property
    def died(self) -> str | None:
        """What it said last, if it has ended unasked."""
        if self._process is None or self._process.exit_code is None:
            return None
        return f"the job ended with {self._process.exit_code}: {self.said[-2000:]}"

    def _gone(self, number: int, codes: set[int]) -> str | None:
        assert self._process
        if self._process.exit_code is None and number:
            self._process.kill(number)
        code = self._process.wait(_END_SECONDS)
        self.close()
        return None if code in codes else f"the job ended with {code} after signal {number}: {self.said[-2000:]}"


class Trouble:
    """Ends the job now and then, lets it lie for a while, and starts it again in another way."""

    def __init__(self, job: Job, random: Random, every: int, rest: int = 30) -> None:
        """On average one end in `every` operations; then up to `rest` operations without a job."""
        self.job = job
        self.ends = {"end": 0, "crash": 0, "lose_jvm": 0}
        self._random = random
        self._every = every
        self._rest = rest
        self._lies_for = 0

    def step(self) -> str | None:
        """Told of every operation; what was wrong with the job's end, if anything."""
        if not self.job.running:
            self._lies_for -= 1
            if self._lies_for <= 0:
                self.job.start(self._random.choice(STARTS))
            return None
        if died := self.job.died:
            self.job.close()
            return died
        if self._random.random() >= 1 / self._every:
            return None
        (how,) = self._random.choices(list(self.ends), (2, 5, 1))
        self.ends[how] += 1
        self._lies_for = self._random.randrange(self._rest)
        wrong: str | None = getattr(self.job, how)()
        return wrong


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text("utf-8").split()]
    return found


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
