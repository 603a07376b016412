"""A child process that never outlives its owner: the one way in which this package starts servers."""

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_app.local import watchdog
from streaming_app.local.errors import LocalError

_MARGIN_SECONDS = 10.0  # what the watchdog itself may take beyond the grace it gives


class Process:
    """A program with its output in a file, ended by `stop()`, at the interpreter's exit, or if this process is killed.

    It runs in a session of its own, so an interrupt typed at the terminal reaches the owner alone.
    """

    def __init__(self, command: Sequence[str | Path], log_file: Path, *, grace_seconds: float = 10.0) -> None:
        """Start `command`, its output appended to `log_file`. After SIGTERM it has `grace_seconds` before SIGKILL."""
        self.log_file = log_file
        self._patience = grace_seconds + _MARGIN_SECONDS
        guard = [sys.executable, "-I", "-S", watchdog.__file__, str(grace_seconds)]
        with log_file.open("ab") as log:
            self._guard = subprocess.Popen(  # noqa: S603 - our own watchdog
                [*guard, *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.stop)
        announced = self._guard.stdout.readline() if self._guard.stdout else b""
        if not announced:
            self.stop()
            raise LocalError(f"{command[0]} could not be started: {last_line(log_file)} (log: {log_file})")
        self.pid = int(announced)

    @property
    def exit_code(self) -> int | None:
        """None while the program runs; 128 + N if signal N ended it."""
        return self._guard.poll()

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the program to end by itself; raises subprocess.TimeoutExpired."""
        return self._guard.wait(timeout_seconds)

    def kill(self, signal: int) -> None:
        """Send the program itself a signal, as a crash would."""
        if self.exit_code is None:
            os.kill(self.pid, signal)

    def stop(self) -> None:
        """End the program and wait until it is gone. Harmless when it is gone already."""
        atexit.unregister(self.stop)
        with contextlib.suppress(BrokenPipeError):
            if self._guard.stdin:
                self._guard.stdin.close()
        if self._guard.stdout:
            self._guard.stdout.close()
        try:
            self._guard.wait(self._patience)
        except subprocess.TimeoutExpired:  # the watchdog itself hangs
            self.kill(9)
            self._guard.kill()
            self._guard.wait()


def last_line(log_file: Path, *wanted: str) -> str:
    """Find the last line of a log that holds one of `wanted`; without such a line, the last line of all."""
    lines = [line.strip() for line in log_file.read_text(encoding="utf-8", errors="replace").splitlines()]
    lines = [line for line in lines if line]
    relevant = [line for line in lines if any(word in line for word in wanted)]
    return (relevant or lines or ["nothing was logged"])[-1]
