"""What 200 viewers of the page cost the running job: processor time, and the freshness of rows, in turns with none.

Each viewer follows the events of changes and loads the overview again at each, as a browser does, and a group once a
minute. They are a process of their own. Appends come at random moments, as in `freshness`.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from tests.bench.bench_harness import PARTITIONS, Harness, group_id
from tests.bench.freshness import append, await_commit, await_groups, is_visible, percentile_95
from tests.bench.memory import processor_seconds_by_process

_GROUPS, _VIEWERS, _TURNS, _APPENDS = 1_000, 200, 3, 15
_PAUSE_SECONDS = 4.0
_RELOAD_SECONDS = 60.0


def run(harness: Harness) -> None:
    """Print processor time and freshness without viewers and with them."""
    name, lines = "viewers", list[str]()
    harness.client.create_topic(name, PARTITIONS)
    harness.write_groups(name, _GROUPS)
    warehouse, chance, epoch = harness.directory / name, random.Random(1), 3  # noqa: S311 - no secret
    fresh, cores = defaultdict[int, list[float]](list), defaultdict[int, list[Counter[str]]](list)
    with harness.running(name, name, lines.append, page={"listen": "127.0.0.1:0"}):
        await_groups(warehouse, _GROUPS)
        while not (url := re.search(r"The page is at (\S+)", "\n".join(lines))):
            time.sleep(0.1)
        for turn in range(2 * _TURNS + 1):  # the first one warms up
            number = _VIEWERS * (turn % 2)
            with _viewers(url[1], number):
                before, begin = Counter(processor_seconds_by_process(os.getpid())), time.monotonic()
                seconds = []
                for _ in range(_APPENDS):
                    time.sleep(chance.uniform(0, _PAUSE_SECONDS))
                    group, epoch = chance.randrange(_GROUPS), epoch + 1
                    offset, appended = append(harness, name, group, epoch)
                    seconds.append(
                        await_commit(
                            warehouse / "groups", appended, lambda g=group, o=offset: is_visible(warehouse, g, o)
                        )
                    )
                used, lasted = Counter(processor_seconds_by_process(os.getpid())), time.monotonic() - begin
            if turn:
                fresh[number] += seconds
                cores[number].append(Counter({one: 100 * (used[one] - before[one]) / lasted for one in used}))
    for number in (0, _VIEWERS):
        of_core = cores[number]
        parts = ", ".join(f"{one} {statistics.median(turn[one] for turn in of_core):.0f} %" for one in of_core[0])
        p50, p95 = statistics.median(fresh[number]), percentile_95(fresh[number])
        print(
            f"{number} viewers, {_GROUPS:,} groups: append to queryable row p50 {p50:.2f} s, p95 {p95:.2f} s; {parts}"
        )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


@contextmanager
def _viewers(url: str, number: int) -> Iterator[None]:
    """Let so many viewers watch during the block; prints what they got."""
    if not number:
        yield
        return
    command = [sys.executable, "-m", "tests.bench.viewers", url, str(number)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "ready\n"
        yield
        process.stdin.close()
        print(process.stdout.read().strip(), flush=True)


async def _watch(url: str, number: int) -> None:
    ready, counted, seconds = asyncio.Semaphore(0), Counter[str](), list[float]()

    async def load(client: httpx2.AsyncClient, path: str) -> None:
        begin = time.monotonic()
        response = await client.get(f"{url}{path}")
        counted[str(response.status_code)] += 1
        seconds.append(time.monotonic() - begin)

    async def follow(client: httpx2.AsyncClient) -> None:
        async with client.stream("GET", f"{url}events") as response:
            counted[f"events {response.status_code}"] += 1
            first = True
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    await load(client, "")
                    if first:
                        ready.release()
                    first = False

    async def reload(client: httpx2.AsyncClient) -> None:
        await asyncio.sleep(random.uniform(0, _RELOAD_SECONDS))  # noqa: S311 - no secret
        while True:
            await load(client, f"group?id={group_id(random.randrange(_GROUPS))}")  # noqa: S311 - no secret
            await asyncio.sleep(_RELOAD_SECONDS)

    limits = httpx2.Limits(max_connections=3 * number)
    async with httpx2.AsyncClient(limits=limits, timeout=60) as client:
        tasks = [asyncio.create_task(do(client)) for _ in range(number) for do in (follow, reload)]
        for _ in range(number):
            await ready.acquire()
        print("ready", flush=True)
        seconds.clear()
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        ends = Counter(type(one).__name__ for one in await asyncio.gather(*tasks, return_exceptions=True))
    p95 = percentile_95(seconds)
    print(f"  {number} viewers: {dict(counted)}, p50 {statistics.median(seconds):.2f} s, p95 {p95:.2f} s; {dict(ends)}")


if __name__ == "__main__":
    asyncio.run(_watch(sys.argv[1], int(sys.argv[2])))
