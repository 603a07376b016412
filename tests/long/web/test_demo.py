"""`demo --web` as a person uses it, from start to Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.support.processes import is_running, process_tree, read_process_file, send_signal
from tests.support.running_job import RunningJob
from tests.support.waiting import MINUTES, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]
COMMAND = (sys.executable, "-c", "from streaming_app.cli.main import main; main()", "demo", "--web")


def find(demo: RunningJob, pattern: str) -> str:
    """Wait for a line, and return the group of the pattern."""
    assert wait_until(lambda: re.search(pattern, "".join(demo.lines), re.MULTILINE) is not None), demo.lines
    (found,) = re.findall(pattern, "".join(demo.lines), re.MULTILINE)
    return str(found)


def test_the_demo_serves_the_page_and_leaves_nothing_running(tmp_path: Path) -> None:
    """Ctrl-C ends all also where Spark does not end in time, as on a machine that is too busy."""
    with subprocess.Popen(
        [*COMMAND, "--listen", "127.0.0.1:0", "--warehouse", str(tmp_path / "w")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # a terminal sends Ctrl-C to the whole process group
    ) as process:
        try:
            demo = RunningJob(process)
            url = find(demo, r"The page is at (\S+)$")
            shown = ("clickstream-sessions", "fraud-detection", "Job running")
            assert wait_until(lambda: all(one in httpx2.get(url, timeout=MINUTES).text for one in shown), interval=0.2)
            check_end(demo)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def check_end(demo: RunningJob) -> None:
    started = set(process_tree(demo.process.pid))
    assert len(started) > 3  # the broker, Spark, the page
    spark = [one for one in started if "SparkSubmit" in read_process_file(one, "cmdline")]
    assert len(spark) == 1
    send_signal(signal.SIGSTOP, spark)
    os.killpg(demo.process.pid, signal.SIGINT)
    find(demo, "(All processes are stopped)")
    assert demo.process.wait(MINUTES) == 0
    assert not [line for line in demo.lines if "Traceback" in line]
    assert wait_until(lambda: not [one for one in started if is_running(one)])
