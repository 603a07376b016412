"""The job as users run it, in a process of its own: started in several ways, stopped, continued and killed."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from streaming_app.sandbox.process import Process
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.processes import process_tree, send_signal, spark_jvms, spark_workers

_NO_SMALL_BATCHES = (
    "from streaming_app.tables.driver_limits import GROUPS, MOST; MOST[GROUPS] = MOST[GROUPS]._replace(records=0); "
)
_EXIT_SECONDS = 600.0


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
        """Start it with these options, and these statements in addition.

        With `as_large_batches` even small batches are processed like large ones.
        """
        python, option, program = STREAMS_GROUPS
        statements = self._setup + setup + (_NO_SMALL_BATCHES if as_large_batches else "")
        command = [python, option, statements + program, "run"]
        self._process = Process(
            [*command, "--bootstrap-server", self._server, "--warehouse", self.warehouse, *options],
            self._log,
            grace_seconds=30,
        )

    def terminate(self) -> str | None:
        """Send SIGTERM; return an error if the job does not exit as expected."""
        return self._end(signal.SIGTERM, {0, 128 + signal.SIGTERM})  # the latter before it handles signals

    def kill(self) -> str | None:
        """Send SIGKILL to the process that the user started; its JVM then exits."""
        return self._end(signal.SIGKILL, {128 + signal.SIGKILL})

    def kill_tree(self) -> None:
        """Kill all processes at once, as a machine that loses its power."""
        send_signal(signal.SIGKILL, self.pids())
        self._end(0, set())

    def kill_jvm(self) -> str | None:
        """Send SIGKILL to Spark's JVM, as the kernel does when memory runs out. The job must report it, and exit."""
        jvms = self.jvms()
        send_signal(signal.SIGKILL, jvms)
        return self._end(0, {1}) if jvms else self.kill()

    def close(self) -> None:
        if self._process:
            self._process.stop()
            self._process = None

    def _end(self, signal_number: int, expected: set[int]) -> str | None:
        """Send a signal, if it is not 0, and wait for the end; return an error if the exit code is another one."""
        assert self._process
        if self._process.exit_code is None and signal_number:
            self._process.kill(signal_number)
        try:
            code = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"the job still runs {_EXIT_SECONDS:.0f} s after signal {signal_number}"
        self.close()
        if code in expected:
            return None
        return f"the job exited with {code} after signal {signal_number}: {self.output[-2000:]}"
