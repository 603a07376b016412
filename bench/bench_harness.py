"""Shared by the benchmarks: a broker, records as brokers write them, a Spark session, the job; tables of figures."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kafka import KafkaProducer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from streaming_app.config.settings import JobConfig
from streaming_app.job.run import run_with
from streaming_app.jvm.spark_session import spark_session
from streaming_app.kafka.client import StreamsGroupClient
from tests.support.container import Broker, select_broker
from tests.support.delta import delta_conf
from tests.support.encoded import FIRST_EPOCH, group_records
from tests.support.job_runner import STREAMS_GROUPS

PARTITIONS = 50  # the default of __consumer_offsets
_GIVE_UP_SECONDS = 60.0


class Harness(NamedTuple):
    """A broker, a Spark session, and a temporary directory."""

    broker: Broker
    client: StreamsGroupClient
    producer: KafkaProducer
    spark: SparkSession
    directory: Path

    def config(self, topic: str) -> JobConfig:
        """The configuration of a job of a topic, whose warehouse has the same name."""
        values = {"bootstrap_server": self.broker.bootstrap_server, "warehouse": self.directory / topic, "topic": topic}
        return JobConfig.model_validate(values)

    @contextmanager
    def running(self, topic: str) -> Iterator[None]:
        """Run the job continuously with its defaults."""
        stop = threading.Event()
        arguments = (self.spark, self.config(topic), lambda _line: None, stop, self.directory / "spark.log")
        job = threading.Thread(target=run_with, args=arguments)
        job.start()
        try:
            yield
        finally:
            stop.set()
            job.join()

    def run_command(self, warehouse: object, *options: str) -> list[str]:
        """Return the command with which a user would run the job."""
        where = ["--bootstrap-server", self.broker.bootstrap_server, "--warehouse", str(warehouse)]
        return [*STREAMS_GROUPS, "run", *where, *options]

    def write_groups(self, topic: str, count: int, members: int = 3) -> int:
        """Write the records of `count` groups that are two days old, of `members` members; return their number.

        The job gives groups of less than a day their verdicts some at a time.
        """
        written, at = 0, int(1_000 * (time.time() - 2 * 86_400))
        for number in range(count):
            for key, value in group_records(group_id(number), FIRST_EPOCH, members):
                self.producer.send(topic, key=key, value=value, partition=number % PARTITIONS, timestamp_ms=at)
                written += 1
        self.producer.flush()
        return written


@contextmanager
def open_harness(*, with_spark: bool = True) -> Iterator[Harness]:
    """Start the broker and, with `with_spark`, the session; stop them after the block."""
    with TemporaryDirectory(prefix="streams-groups-bench-") as made:
        directory = Path(made)
        session = (
            spark_session(directory / "spark.log", conf=delta_conf(), progress=print) if with_spark else nullcontext()
        )
        with select_broker(directory / "broker", progress=print) as broker, session as spark:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, linger_ms=5, batch_size=1 << 18)
            try:
                with StreamsGroupClient(broker.bootstrap_server) as client:
                    yield Harness(broker, client, producer, spark, directory)
            finally:
                producer.close()


@contextmanager
def process(command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run a command until the end of the block, with its output in a file; give its process id."""
    with log.open("wb") as output:
        started = subprocess.Popen(command, env={**os.environ, **(variables or {})}, stdout=output, stderr=output)
        try:
            yield started.pid
        finally:
            started.terminate()
            started.wait()


def is_caught_up(log: Path) -> bool:
    """Return whether both streams of a job with this log have caught up."""
    return log.read_text("utf-8").count("Caught up") == 2


@contextmanager
def repeating(call: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call `call` at intervals of so many seconds while the block runs."""
    end = threading.Event()

    def repeat() -> None:
        while not end.wait(seconds):
            call()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def group_id(number: int) -> str:
    return f"group-{number:06d}"


def await_commit(table: Path, appended: float, has_row: Callable[[], bool]) -> float:
    """Wait for the commit with which `has_row` becomes true; return the seconds from `appended` to the commit.

    A row counts as visible when the file of its Delta commit exists. A query then confirms it; its duration does not
    count.
    """
    looked_at: set[Path] = set()
    while time.time() - appended < _GIVE_UP_SECONDS:
        for commit in sorted(path for path in (table / "_delta_log").glob("*.json") if path not in looked_at):
            looked_at.add(commit)
            written = commit.stat().st_mtime
            if written >= appended and has_row():
                return written - appended
        time.sleep(0.02)
    raise TimeoutError("the records did not come through")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of texts; the first column has no title."""
    table = Table("", *columns, title=f"{title}; load {os.getloadavg()[0]:.1f}")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)
