"""SIGTERM ends the job while Spark starts; `test_taken_over` has the one of a job that just runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.running_job import RunningJob, running_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark
NO_BROKER = "127.0.0.1:1"


def assert_ends(job: RunningJob) -> None:
    code, errors = job.end(signal.SIGTERM)
    assert (code, errors) == (0, ""), job.lines
    assert "Stopping ...\n" in job.lines


def test_a_signal_while_spark_starts_is_no_error(tmp_path: Path) -> None:
    with running_job(NO_BROKER, tmp_path) as job:
        assert job.says("Starting Spark")
        assert wait_until(lambda: any((tmp_path / "_jobs").glob("default.spark.properties")))
        assert_ends(job)
        assert job.lines[-1] == "Stopped.\n"
