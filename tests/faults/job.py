"""The job as a process tree: Python, Spark's JVM, Spark's Python workers; each can be stopped, continued and killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.history.job import STARTS, JobProcess, StartOptions

# With the default of 10 s between its batches, most of the time would be spent on waiting for the second stream.
_SETUP = "import os; os.environ['STREAMS_GROUPS_OFFSETS__TRIGGER'] = '0.5'; "
_EXIT_SECONDS = 120.0


class FaultyJob(JobProcess):
    """A job whose output is outside its warehouse, which may be on a full disk."""

    def __init__(self, server: str, warehouse: Path, log: Path) -> None:
        super().__init__(server, log.parent)
        self.warehouse = warehouse
        self._log = log

    def start(self, how: StartOptions = STARTS[0]) -> None:
        """Start it."""
        super().start(how._replace(setup=_SETUP + how.setup))

    @property
    def pid(self) -> int | None:
        """The process that a user started, if it runs."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    def pids(self) -> list[int]:
        """Return the process that a user started, and all that it started in turn."""
        return list(_descendants(self.pid)) if self.pid else []

    def jvms(self) -> list[int]:
        """Return Spark's JVM, if it runs."""
        return [pid for pid in self.pids() if _name(pid) == "java"]

    def workers(self) -> list[int]:
        """Return Spark's Python workers."""
        started_by_jvm = [pid for jvm in self.jvms() for pid in _descendants(jvm) if pid != jvm]
        return [pid for pid in started_by_jvm if _name(pid).startswith("python")]

    def send(self, signal_number: int, pids: list[int]) -> None:
        """Send a signal to these processes; one may have exited."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)

    def kill_tree(self) -> None:
        """Kill all processes at once, as a machine that loses its power."""
        self.send(signal.SIGKILL, self.pids())
        self.wait_for_exit()

    def wait_for_exit(self, seconds: float = _EXIT_SECONDS) -> int | None:
        """Wait for the end of the process; return its exit code, None if it still runs."""
        assert self._process
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self.close()
        return code


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text("utf-8").split():
                yield from _descendants(int(child))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
    except OSError:
        return ""
