"""Starts the command as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Any

from streaming_app.job.run import JobConfig, run_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_SECONDS = 300
STREAMS_GROUPS = (sys.executable, "-c", "from streaming_app.cli.main import main; main(prog_name='streams-groups')")


def streams_groups(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [*STREAMS_GROUPS, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, cwd=cwd)


def run_job(
    server: str, warehouse: object, *options: object, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the job once over what there is."""
    return streams_groups("run", "--once", "--bootstrap-server", server, "--warehouse", warehouse, *options, cwd=cwd)


def run_once(spark: SparkSession, server: str, warehouse: object, **settings: Any) -> list[str]:
    """The same within this process, in a session that is there; the lines of the job."""
    lines: list[str] = []
    config = JobConfig.model_validate({"bootstrap_server": server, "warehouse": warehouse, "once": True, **settings})
    with TemporaryDirectory() as directory:
        run_with(spark, config, lines.append, Event(), Path(directory) / "spark.log")
    return lines


def refusal(ran: subprocess.CompletedProcess[str]) -> str:
    """The one line that a command that cannot do its work leaves on stderr."""
    assert ran.returncode == 1, ran
    assert ran.stderr.startswith("Error: ")
    assert ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr
