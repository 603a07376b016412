"""A job in a process of its own, as a user starts it, whose lines a test can wait for."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from urllib.error import HTTPError
from urllib.request import urlopen

from streaming_app.tables.heartbeat_file import read_heartbeat
from tests.job.job_runner import STREAMS_GROUPS
from tests.processes import spark_jvms
from tests.waiting import wait_until

_START_SECONDS = 120


class RunningJob:
    """The process, and the lines of its output so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def says(self, text: str, seconds: float = _START_SECONDS) -> bool:
        """Wait for a line that contains the text."""
        return wait_until(lambda: any(text in line for line in self.lines), seconds)

    def end(self, *signals: Signals) -> tuple[int, str, float]:
        """Send the signals; return exit code, standard error, and the seconds until the process has ended."""
        began = time.monotonic()
        for number in signals:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        code = self.process.wait(60)
        seconds = time.monotonic() - began
        self._reader.join(10)
        return code, self.process.stderr.read(), seconds

    def jvm(self) -> int:
        """Return the process id of Spark's JVM."""
        return spark_jvms(self.process.pid)[0]


@contextmanager
def running_job(server: str, warehouse: Path, *options: object) -> Iterator[RunningJob]:
    """Start `run`, and kill it after the block if it still runs."""
    command = [*STREAMS_GROUPS, "run", "--bootstrap-server", server, "--warehouse", str(warehouse), *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield RunningJob(process)
        finally:
            process.kill()


def status_of(url: str) -> int:
    """Return the status of an HTTP response."""
    try:
        with urlopen(url, timeout=10) as response:  # noqa: S310 - our own server
            return int(response.status)
    except HTTPError as error:
        return error.code


def is_caught_up(warehouse: Path) -> bool:
    """Return whether the last heartbeat of a job says that it has read all records."""
    last = read_heartbeat(warehouse, "default")
    return last is not None and last.facts.caught_up
