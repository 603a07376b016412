"""A running job, in its own process as a user starts it, or in a thread; a test can wait for its lines."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals

from pyspark.sql import SparkSession

from streaming_app.config.settings import JobConfig
from streaming_app.job.run import run_with
from streaming_app.tables.heartbeat_file import read_heartbeat
from tests.support.http_client import request
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.processes import spark_jvms
from tests.support.waiting import MINUTES, wait_until


class JobOutput:
    """The lines that a job has printed so far, and the pages that it serves."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def says(self, text: str) -> bool:
        return wait_until(lambda: any(text in line for line in self.lines))

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a page that the job serves, as soon as it serves it."""
        assert self.says("/metrics, /health and /ready"), self.lines
        url = next(match[1] for line in self.lines if (match := re.match(r"Serving (\S+)/metrics", line)))
        status, _, body = request(url, path)
        return status, body


class RunningJob(JobOutput):
    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__()
        self.process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def end(self, *signals: Signals) -> tuple[int, str]:
        """Send the signals; return exit code and standard error once the process has ended."""
        for number in signals:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        code = self.process.wait(MINUTES)
        self._reader.join(MINUTES)
        return code, self.process.stderr.read()

    def jvm(self) -> int:
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


@contextmanager
def job_in_thread(spark: SparkSession, config: JobConfig, log_file: Path) -> Iterator[JobOutput]:
    """Run a job in an existing session until the end of the block; fails if the job ends earlier."""
    job, stop = JobOutput(), threading.Event()
    thread = threading.Thread(target=run_with, args=(spark, config, job.lines.append, stop, log_file))
    thread.start()
    try:
        yield job
        assert thread.is_alive(), job.lines
    finally:
        stop.set()
        thread.join()


def is_caught_up(warehouse: Path) -> bool:
    """Return whether the last heartbeat of a job says that it has read all records."""
    last = read_heartbeat(warehouse, "default")
    return last is not None and last.facts.caught_up
