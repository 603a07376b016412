"""The page: the cost of reading and rendering, 200 viewers, and the layout of pictures."""

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import httpx2
from playwright.sync_api import Browser, sync_playwright
from starlette.testclient import TestClient

from bench.memory import processor_seconds
from streaming_app.tables.location import Location
from streaming_app.web.access import Access
from streaming_app.web.page import Page
from streaming_app.web.page_snapshot import CHECK_SECONDS, SnapshotSource, read_other_groups, read_snapshot
from tests.support.browser import find_chromium, view
from tests.support.sample_groups import RICH, group, part, replace_group, write_sample
from tests.support.warehouses import append

_FEW, _MANY = 100, 10_000
_VIEWERS = 200
_ASK_AGAIN = 2  # seconds, as page.js does
_CHANGES = 20
_PARTITIONS = 4  # with lag, per group
_NODES = (40, 120, 400)
_IN_SUBTOPOLOGY = 10  # topics of each


def run_costs() -> None:
    """Print the processor time of reading and rendering, without a browser."""
    for groups in (_FEW, _MANY):
        with _warehouse(groups) as warehouse:
            _processor_time(groups, warehouse)


def run() -> None:
    """Print the figures."""
    for groups in (_FEW, _MANY):
        with _warehouse(groups) as warehouse, _server(warehouse) as (url, pid, started):
            print(f"{groups:,} groups: the first overview {started:.2f} s after the start of the process")
            asyncio.run(_viewers(warehouse, url, pid))
            if executable := find_chromium():
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
                    _in_browser(browser, url)
                    browser.close()


@contextmanager
def _warehouse(groups: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        warehouse = write_sample(Path(directory) / "w", datetime.now(timezone.utc), more=groups, hostile=False)
        append(warehouse, "lag", *_lag(groups))
        append(warehouse, "group_records", *_consumer_groups(groups))
        append(warehouse, "offset_commits", *_commits(groups))
        for nodes in _NODES:
            append(warehouse, "groups", _topology(nodes))
        yield warehouse


def _processor_time(groups: int, warehouse: Path) -> None:
    location = Location.of(warehouse)

    def milliseconds(call: Callable[[], object]) -> str:
        taken = []
        for _ in range(7):
            begin = time.process_time()
            call()
            taken.append(time.process_time() - begin)
        return f"{1_000 * statistics.median(taken):.0f} ms"

    now = datetime.now(timezone.utc)
    streams = milliseconds(lambda: read_snapshot(location, "default", now))
    others = milliseconds(lambda: read_other_groups(location, "default"))
    print(f"{groups:,} groups: reading the streams groups {streams}, the others {others}")
    source = SnapshotSource(warehouse, "default")
    with TestClient(Page(source, Access()).app, base_url="http://localhost") as client:
        client.get("/")
        time.sleep(3)  # the groups of other types
        group_page = f"/group?id={RICH}&range=24h"
        for path in ("/?", "/?q=application-00042", "/?type=consumer", "/?page=2", group_page, f"{group_page}&at=700m"):
            numbers = itertools.count()
            cost = milliseconds(lambda path=path, numbers=numbers: client.get(f"{path}&x={next(numbers)}"))
            print(f"  {path}: {cost}, {int(client.get(path).headers['Content-Length']):,} bytes compressed")

        def check() -> None:
            source._checked_at = -CHECK_SECONDS
            source.current()

        print(f"  asking whether the tables have changed: {milliseconds(check)}")


@contextmanager
def _server(warehouse: Path) -> Iterator[tuple[str, int, float]]:
    """Run `streams-groups web`; give its address, its process id, and the seconds to its first answer."""
    code = "from streaming_app.cli.main import main; main()"
    command = [sys.executable, "-c", code, "web", "--warehouse", str(warehouse), "--listen", "127.0.0.1:0"]
    begin = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[4]
        httpx2.get(url, timeout=60)
        try:
            yield url, process.pid, time.monotonic() - begin
        finally:
            process.terminate()


async def _viewers(warehouse: Path, url: str, pid: int) -> None:
    """Let viewers watch the overview, change a group, and print the cost for the server."""
    received: list[float] = []

    async def watch(client: httpx2.AsyncClient, ready: asyncio.Semaphore) -> None:
        tag = None
        while True:
            answer = (await client.get(f"{url}changes")).json()
            if answer["tag"] != tag:
                await client.get(url)
                if tag is None:
                    ready.release()
                else:
                    received.append(time.monotonic())
                tag = answer["tag"]
            await asyncio.sleep(_ASK_AGAIN)

    limits = httpx2.Limits(max_connections=3 * _VIEWERS)
    async with httpx2.AsyncClient(limits=limits, timeout=60) as client:
        ready = asyncio.Semaphore(0)
        viewers = [asyncio.create_task(watch(client, ready)) for _ in range(_VIEWERS)]
        for _ in range(_VIEWERS):
            await ready.acquire()
        idle = processor_seconds(pid)
        await asyncio.sleep(10)
        before = processor_seconds(pid)
        delays = []
        for number in range(_CHANGES):
            received.clear()
            changed = group("clickstream-sessions", "Stable", datetime.now(timezone.utc), number)
            await asyncio.to_thread(replace_group, warehouse, changed)
            committed = time.monotonic()
            while len(received) < _VIEWERS and time.monotonic() < committed + 30:  # noqa: ASYNC110 - a benchmark polls
                await asyncio.sleep(0.05)
            delays.append(max(received) - committed)
        used, megabytes = processor_seconds(pid) - before, _resident(pid) / 1e6
        for viewer in viewers:
            viewer.cancel()
        await asyncio.gather(*viewers, return_exceptions=True)
    print(
        f"  {_VIEWERS} viewers: {10 * (before - idle):.1f} % of a core while nothing changes, "
        f"{used / _CHANGES:.2f} CPU seconds for a change that all of them load, "
        f"the last of them after {statistics.median(delays):.1f} s; {megabytes:.0f} MB"
    )


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _in_browser(browser: Browser, url: str) -> None:
    with view(browser, url, own_context=True) as seen:
        seen.open("/")
        seen.page.wait_for_timeout(500)
        paint, loaded = seen.page.evaluate(
            "[performance.getEntriesByName('first-contentful-paint')[0].startTime, "
            "performance.getEntriesByType('navigation')[0].loadEventEnd]"
        )
        print(f"  first contentful paint after {paint:.0f} ms, everything loaded after {loaded:.0f} ms")
    _slowed(browser, url)
    with view(browser, url, own_context=True) as seen:
        for nodes in _NODES:
            seen.open(f"/group?id=topology-{nodes}")
            seen.wait_for_picture()
            milliseconds = seen.page.locator(".picture-stage").get_attribute("data-layout-milliseconds")
            drawn = seen.page.locator("#picture .node").count()
            print(f"  layout of {drawn} nodes: {milliseconds} ms")


_LONG_TASKS = (
    "window.long = []; new PerformanceObserver((list) => list.getEntries().forEach("
    "(one) => long.push(one.startTime + one.duration))).observe({type: 'longtask', buffered: true})"
)


def _slowed(browser: Browser, url: str) -> None:
    """Print when the overview is usable on a processor slowed down by four: after the last task of more than 50 ms."""
    found = []
    for _ in range(6):  # the first one fills caches of the server
        with view(browser, url, own_context=True) as seen:
            seen.page.add_init_script(_LONG_TASKS)
            seen.page.context.new_cdp_session(seen.page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
            seen.open("/")
            seen.page.wait_for_timeout(2_500)
            loaded = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
            found.append(seen.page.evaluate(f"Math.max({loaded}, ...long)"))
    print(f"  on a processor four times slower: to be used after {statistics.median(found[1:]):.0f} ms")


def _lag(groups: int) -> Iterator[dict[str, object]]:
    now = datetime.now(timezone.utc)
    for number in range(groups * _PARTITIONS):
        group_id, partition = f"application-{number // _PARTITIONS:05}", number % _PARTITIONS
        ends = {
            "committed_offset": 1_000,
            "log_end_offset": 1_000 + number % 50,
            "lag": number % 50,
            "offset_status": "OK",
        }
        times = {"lag_seconds": float(number % 50), "lag_seconds_is_lower_bound": False, "observed_at": now}
        yield {"cluster": "default", "group_id": group_id, "topic": "t", "partition": partition, **ends, **times}


def _consumer_groups(groups: int) -> Iterator[dict[str, object]]:
    """Yield the records of consumer groups, half as many as `groups`."""
    now = datetime.now(timezone.utc)
    for number in range(groups // 2):
        for place, record_type in enumerate((3, 6, 5, 8)):
            key = {"group_id": f"consumer-{number:05}", "record_type": record_type, "deleted": False}
            value = {"epoch": 3, "member_state": 0, "member_id": "m" if place > 1 else ""}
            where = {"cluster": "default", "recorded_at": now, "source_partition": 0, "last_offset": 4 * number + place}
            yield {**key, **value, **where}


def _commits(groups: int) -> Iterator[dict[str, object]]:
    """Yield the committed offsets of the consumer groups and of the streams groups."""
    now = datetime.now(timezone.utc)
    names = [f"application-{n:05}" for n in range(groups)] + [f"consumer-{n:05}" for n in range(groups // 2)]
    for number, name in enumerate(names * _PARTITIONS):
        key = {"cluster": "default", "group_id": name, "topic": "t", "partition": number // len(names)}
        yield {**key, "committed_offset": 1_000, "recorded_at": now, "source_partition": 0, "last_offset": number}


def _topology(nodes: int) -> dict[str, object]:
    parts = []
    for number in range(nodes // (_IN_SUBTOPOLOGY + 3)):
        topics = [f"topic-{number}-{other}" for other in range(_IN_SUBTOPOLOGY)]
        repartition = [f"r-{number - 1}"] if number else []
        parts.append(part(str(number), topics, repartition, [f"r-{number}"], [f"store-{number}-changelog"]))
    return group(f"topology-{nodes}", "Stable", datetime.now(timezone.utc), 1, subtopologies=parts)
