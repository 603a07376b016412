"""`demo --web` as a person uses it, with a real Kafka Streams application on its broker, from start to Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from streaming_app.jvm.java import java_home
from streaming_app.kafka.client import StreamsGroupClient
from tests.support.browser import find_chromium, view
from tests.support.processes import is_running, process_tree, read_process_file, send_signal
from tests.support.waiting import MINUTES, wait_until
from tests.support.wordcount import INPUT_TOPIC, OUTPUT_TOPIC, WordCount

pytestmark = [pytest.mark.broker, pytest.mark.spark]
GROUP = "views-by-region"


class Join(WordCount):
    """A Kafka Streams application with a join, two stores and a repartition topic."""

    program = str(Path(__file__).with_name("JoinExample.java"))
    topics = ("page-views", "user-regions", "views-by-region")
    titles = frozenset({"page-views", "user-regions", "Subtopology 0", "Subtopology 1"})
    changelogs = 2


class Count(WordCount):
    """The same without a join: a Java that cannot compile runs Kafka's own example."""

    topics = (INPUT_TOPIC, OUTPUT_TOPIC)
    titles = frozenset({INPUT_TOPIC, "Subtopology 0", "Subtopology 1"})
    changelogs = 1


def application() -> type[Join | Count]:
    """Return the application that this machine's Java can run."""
    return Join if (java_home() / "bin" / "javac").exists() else Count


class Demo:
    """The command, and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def find(self, pattern: str) -> str:
        """Wait for a line, and return the group of the pattern."""
        found: list[str] = []

        def is_there() -> bool:
            is_over = not self._reader.is_alive()
            found[:] = [one[1] for line in list(self.lines) if (one := re.search(pattern, line))]
            return bool(found) or is_over

        wait_until(is_there)
        assert found, "".join(self.lines)
        return found[0]


@contextmanager
def demo_web(directory: Path) -> Iterator[Demo]:
    command = [sys.executable, "-c", "from streaming_app.cli.main import main; main()", "demo", "--web"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--warehouse", str(directory / "w")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # a terminal sends Ctrl-C to the whole process group
    ) as process:
        try:
            yield Demo(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(text: Callable[[], str], *expected: str) -> str:
    """Return the text as soon as it has all that is expected."""
    seen = ""

    def has_all() -> bool:
        nonlocal seen
        seen = text()
        return all(one in seen for one in expected)

    assert wait_until(has_all, interval=0.2), f"{expected} in {seen}"
    return seen


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demo: a broker, a job and a page for both tests."""
    with demo_web(tmp_path_factory.mktemp("demo")) as one:
        yield one


def test_the_demo_serves_the_page_and_draws_a_real_application(
    demo: Demo, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broker = demo.find(r"Kafka is ready at (\S+)\. ")
    running = application()
    with StreamsGroupClient(broker) as client:
        for topic in running.topics:
            client.create_topic(topic, 2)
    with running(broker, tmp_path / "app", application_id=GROUP):
        url = demo.find(r"The page is at (\S+)$")
        wait_for(
            lambda: httpx2.get(url, timeout=MINUTES).text, "clickstream-sessions", "fraud-detection", "Job running"
        )
        row = f"{url}?q={GROUP}&state=Stable"
        wait_for(lambda: httpx2.get(row, timeout=MINUTES).text, f'href="group?id={GROUP}"')
        graph = httpx2.get(f"{url}graph?id={GROUP}", timeout=MINUTES).json()
        kinds = Counter(node["kind"] for node in graph["nodes"])
        assert kinds.keys() == {"topic", "subtopology", "repartition", "changelog"}
        assert kinds["changelog"] == running.changelogs
        if find_chromium():
            titles = draw(request, url)
            assert titles == {node["title"] for node in graph["nodes"]}
            assert running.titles <= titles
    alive = httpx2.get(f"{url}?q=clickstream&state=Stable", timeout=MINUTES).text
    assert "clickstream-sessions" in alive  # whose members would have been removed without heartbeats


def test_ctrl_c_leaves_nothing_running(demo: Demo) -> None:
    """Also where Spark does not end in time, as on a machine that is too busy."""
    url = demo.find(r"The page is at (\S+)$")
    wait_for(lambda: httpx2.get(url, timeout=MINUTES).text, "clickstream-sessions", "Job running")
    started = set(process_tree(demo.process.pid))
    assert len(started) > 3  # the broker, Spark, the page
    spark = [one for one in started if "SparkSubmit" in read_process_file(one, "cmdline")]
    assert len(spark) == 1
    send_signal(signal.SIGSTOP, spark)
    os.killpg(demo.process.pid, signal.SIGINT)
    demo.find("(All processes are stopped)")
    assert demo.process.wait(MINUTES) == 0
    assert not [line for line in demo.lines if "Traceback" in line]
    assert wait_until(lambda: not [one for one in started if is_running(one)])


def draw(request: pytest.FixtureRequest, url: str) -> set[str]:
    """Open the application's picture in a browser, and return the titles of its nodes."""
    with view(request.getfixturevalue("chromium"), url) as seen:
        seen.open(f"/group?id={GROUP}")
        seen.wait_for_picture()
        return {title.strip() for title in seen.page.locator("#picture .node .title").all_text_contents()}
