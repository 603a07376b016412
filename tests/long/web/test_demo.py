"""`demo --web` as a person uses it, with a real Kafka Streams application on its broker, from start to Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from streaming_app.kafka.client import StreamsGroupClient
from tests.support.processes import is_running, process_tree, read_process_file, send_signal
from tests.support.running_job import RunningJob
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import MINUTES, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]
TOPICS = ("lines", "counts")
COMMAND = (sys.executable, "-c", "from streaming_app.cli.main import main; main()", "demo", "--web")


def find(demo: RunningJob, pattern: str) -> str:
    """Wait for a line, and return the group of the pattern."""
    assert wait_until(lambda: re.search(pattern, "".join(demo.lines), re.MULTILINE) is not None), demo.lines
    (found,) = re.findall(pattern, "".join(demo.lines), re.MULTILINE)
    return str(found)


def wait_for(text: Callable[[], str], *expected: str) -> None:
    assert wait_until(lambda: all(one in text() for one in expected), interval=0.2), f"{expected} in {text()}"


def test_the_demo_serves_the_page_draws_a_real_application_and_leaves_nothing_running(tmp_path: Path) -> None:
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
            check_page(demo, tmp_path / "app")
            check_end(demo)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def check_page(demo: RunningJob, application: Path) -> None:
    broker, group_id = find(demo, r"Kafka is ready at (\S+)\. "), "word-count"
    with StreamsGroupClient(broker) as client:
        for topic in TOPICS:
            client.create_topic(topic, 2)
    with StreamsApplication(broker, application, group_id, "words", TOPICS):
        url = find(demo, r"The page is at (\S+)$")

        def page(query: str = "") -> str:
            return httpx2.get(f"{url}{query}", timeout=MINUTES).text

        wait_for(page, "clickstream-sessions", "fraud-detection", "Job running")
        wait_for(lambda: page(f"?q={group_id}&state=Stable"), f'href="group?id={group_id}"')
        graph = httpx2.get(f"{url}graph?id={group_id}", timeout=MINUTES).json()
        kinds = Counter(node["kind"] for node in graph["nodes"])
        assert kinds.keys() == {"topic", "subtopology", "repartition", "changelog"}
        assert {TOPICS[0], "Subtopology 0", "Subtopology 1"} <= {node["title"] for node in graph["nodes"]}
    # its members would have been removed without heartbeats
    assert "clickstream-sessions" in page("?q=clickstream&state=Stable")


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
