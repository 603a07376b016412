"""Runs the commands as a user does, and the job in this process."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from streaming_app.config.settings import JobConfig
from streaming_app.job.run import run_with

RUN_SECONDS = 300
STREAMS_GROUPS = (sys.executable, "-c", "from streaming_app.cli.main import main; main(prog_name='streams-groups')")


def streams_groups(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [*STREAMS_GROUPS, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, cwd=cwd)


def run_job(
    server: str, warehouse: object, *options: object, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `run --once`, which processes all available records."""
    return streams_groups("run", "--once", "--bootstrap-server", server, "--warehouse", warehouse, *options, cwd=cwd)


def run_once(spark: SparkSession, server: str, warehouse: object, **settings: Any) -> list[str]:
    """Do the same in this process, in an existing session; return the lines that the job reports.

    By default it reads no committed offsets and computes no lag: most tests are about streams groups.
    """
    lines: list[str] = []
    without = {"offsets": {"enabled": False}, "lag": {"enabled": False}}
    values = {"bootstrap_server": server, "warehouse": warehouse, "once": True, **without, **settings}
    config = JobConfig.model_validate(values)
    with TemporaryDirectory() as directory:
        run_with(spark, config, lines.append, Event(), Path(directory) / "spark.log")
    return lines


def error_line(ran: subprocess.CompletedProcess[str]) -> str:
    """Return the line on stderr of a command that failed; there must be only one."""
    assert ran.returncode == 1, ran
    assert ran.stderr.startswith("Error: ")
    assert ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr
