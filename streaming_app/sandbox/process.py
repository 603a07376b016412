"""A child process that never outlives its parent: the only way in which this package starts servers."""

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_app.errors import SetupError
from streaming_app.jvm.java import last_line
from streaming_app.sandbox import watchdog

_MARGIN_SECONDS = 10.0  # what the watchdog itself may take in addition to the grace period


class Process:
    """A program that logs to a file, terminated by `stop()`, at the interpreter's exit, or if this process is killed.

    It runs in a session of its own, so Ctrl-C in the terminal interrupts only this process.
    """

    def __init__(self, command: Sequence[str | Path], log_file: Path, *, grace_seconds: float = 10.0) -> None:
        """Start `command`, its output appended to `log_file`. After SIGTERM it has `grace_seconds` before SIGKILL."""
        self.log_file = log_file
        self._stop_seconds = grace_seconds + _MARGIN_SECONDS
        watchdog_command = [sys.executable, "-I", "-S", watchdog.__file__, str(grace_seconds)]
        with log_file.open("ab") as log:
            self._watchdog = subprocess.Popen(  # noqa: S603 - our own watchdog
                [*watchdog_command, *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.stop)
        pid = self._watchdog.stdout.readline() if self._watchdog.stdout else b""
        if not pid:
            self.stop()
            raise SetupError(f"{command[0]} could not be started: {last_line(log_file)} (log: {log_file})")
        self.pid = int(pid)

    @property
    def exit_code(self) -> int | None:
        """None while the program runs; 128 + N if it was terminated by signal N."""
        return self._watchdog.poll()

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the program to exit by itself and return its exit code; raises subprocess.TimeoutExpired."""
        return self._watchdog.wait(timeout_seconds)

    def kill(self, signal: int) -> None:
        """Send a signal to the program itself, as in a crash."""
        if self.exit_code is None:
            os.kill(self.pid, signal)

    def stop(self) -> None:
        """Terminate the program and wait until it has exited. Does nothing if it has exited already."""
        atexit.unregister(self.stop)
        with contextlib.suppress(BrokenPipeError):
            if self._watchdog.stdin:
                self._watchdog.stdin.close()
        if self._watchdog.stdout:
            self._watchdog.stdout.close()
        try:
            self._watchdog.wait(self._stop_seconds)
        except subprocess.TimeoutExpired:  # the watchdog itself hangs
            self.kill(9)
            self._watchdog.kill()
            self._watchdog.wait()
