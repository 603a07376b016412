"""Spark starts while the brokers do, and ends with the job, or with whatever ends before it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError
from streaming_app.job.early_start import EarlyStart
from streaming_app.job.lock import hold_job_lock
from streaming_app.tables.location import Location
from tests.support.processes import is_running, process_name, process_tree
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PROGRAM = """
import sys
from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError
from streaming_app.job.early_start import EarlyStart
from streaming_app.job.lock import hold_job_lock

conf = dict(pair.split("=") for pair in sys.argv[2:])
config = JobConfig(bootstrap_server="localhost:1", warehouse=sys.argv[1], conf=conf)
with EarlyStart(config, print) as early:
    try:
        with early.lock() as lock, early.session(lambda: None) as spark:
            print(spark.range(3).count(), early.jvm.is_running)
    except JobError as error:
        print(error)
    with hold_job_lock(lock.directory, config.cluster):
        print(early.jvm.is_running)
"""


def run(directory: Path, *conf: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, str(directory / "warehouse"), *conf]
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True)
    assert not (directory / "artifacts").exists()
    return done.stdout.splitlines()


def test_the_session_and_the_lock_are_the_jobs_and_end_with_it(tmp_path: Path) -> None:
    assert run(tmp_path) == ["3 True", "False"]


def test_what_kept_spark_from_starting_is_the_error_of_the_job(tmp_path: Path) -> None:
    first, last = run(tmp_path, "spark.driver.memory=much")
    assert first.startswith("Spark did not start: ")
    assert last == "False"


def test_a_cluster_that_another_job_writes_is_refused_before_anything_starts(tmp_path: Path) -> None:
    config = JobConfig(bootstrap_server="localhost:1", warehouse=Location.of(tmp_path))
    with hold_job_lock(tmp_path / "_jobs", config.cluster), pytest.raises(JobError, match="Another job already writes"):
        EarlyStart(config, print)


def test_a_demo_that_is_interrupted_while_spark_and_the_broker_start_leaves_neither_processes_nor_files(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", "from streaming_app.cli.main import main; main()", "demo"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        while not demo.stdout.readline().startswith("Starting a Kafka broker"):
            assert demo.poll() is None
        started: set[int] = set()

        def have_started() -> bool:
            started.update(process_tree(demo.pid))
            return demo.poll() is not None or sum(process_name(pid) == "java" for pid in started) >= 2

        assert wait_until(have_started)
        assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        started.update(process_tree(demo.pid))
        output = demo.stdout.read()
    assert output.endswith("\nAborted!\n")
    assert wait_until(lambda: not any(map(is_running, started)))
    assert {path.name for path in tmp_path.iterdir()} == {"warehouse"}
    left = {path.name for path in (tmp_path / "warehouse" / "_jobs").iterdir()}
    assert not left & {"default.spark.java", "default.spark.properties"}
