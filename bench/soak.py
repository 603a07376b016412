"""Shows whether a busy job changes over time: memory, files and freshness at the beginning, in between and at the end.

There are 10,000 streams groups, 5,000 offset commits a second of 50,000 keys, and sometimes a rebalance of a random
group. The job runs with its defaults. The catch-up does not count.
"""

from __future__ import annotations

import random
import statistics
import time
from itertools import count, cycle, islice
from pathlib import Path

from bench.bench_harness import PARTITIONS, Harness, is_caught_up, process, repeating
from bench.freshness import append, await_commit, await_groups, is_visible, percentile_95
from bench.memory import file_sizes, format_megabytes, processor_seconds, proportional_by_process
from tests.support.encode import encode
from tests.support.waiting import wait_until

GROUPS, COMMITS_PER_SECOND, KEYS = 10_000, 5_000, 50_000
_TOPICS, _PARTITIONS = 10, 5  # read by each of the groups with commits
_ROUNDS, _APPENDS, _WARM_UP = 4, 20, 10
_CATCH_UP_SECONDS = 600.0
_LONGEST_PAUSE_SECONDS = 3.0


def run(harness: Harness, minutes: float) -> None:
    """Print the figures in several rounds, the last one after `minutes`."""
    topic = "soak"
    harness.client.create_topic(topic, PARTITIONS)
    for number in range(_TOPICS):
        harness.client.create_topic(f"in-{number}", _PARTITIONS)
    harness.write_groups(topic, GROUPS)
    warehouse, log = harness.directory / topic, harness.directory / "soak.log"
    with process(harness.run_command(warehouse, "--topic", topic), log) as job:
        await_groups(warehouse, GROUPS)
        assert wait_until(lambda: is_caught_up(log), _CATCH_UP_SECONDS)
        keys = cycle(enumerate(_commit_keys()))
        epochs, chance = count(3), random.Random(GROUPS)  # noqa: S311 - no secret
        with repeating(lambda: _commit(harness, topic, keys), 1.0):
            _measure_freshness(harness, topic, warehouse, epochs, chance, _WARM_UP)
            began = time.monotonic()
            for number in range(_ROUNDS):
                time.sleep(max(0.0, began + 60 * minutes * number / (_ROUNDS - 1) - time.monotonic()))
                used, at = processor_seconds(job), time.monotonic()
                seconds = sorted(_measure_freshness(harness, topic, warehouse, epochs, chance, _APPENDS))
                busy = (processor_seconds(job) - used) / (time.monotonic() - at)
                sizes, memory = file_sizes(warehouse), proportional_by_process(job)
                memory["sum"] = sum(memory.values())
                print(
                    f"after {(time.monotonic() - began) / 60:.0f} minutes: append to queryable row "
                    f"p50 {statistics.median(seconds):.2f} s, p95 {percentile_95(seconds):.2f} s; "
                    f"{format_megabytes(memory)} (PSS); {len(sizes):,} files, {sum(sizes) / 1e6:,.0f} MB; "
                    f"{busy:.0%} of a core",
                    flush=True,
                )
    print(*log.read_text("utf-8").splitlines()[-3:], sep="\n")


def _measure_freshness(
    harness: Harness, topic: str, warehouse: Path, epochs: count[int], chance: random.Random, appends: int
) -> list[float]:
    seconds = []
    for epoch in islice(epochs, appends):
        time.sleep(chance.uniform(0, _LONGEST_PAUSE_SECONDS))
        number = chance.randrange(GROUPS)
        offset, at = append(harness, topic, number, epoch)
        seconds.append(await_commit(warehouse / "groups", at, lambda: is_visible(warehouse, number, offset)))  # noqa: B023 - called here
    return seconds


def _commit_keys() -> list[bytes]:
    names = (
        {
            "group": f"app-{number // (_TOPICS * _PARTITIONS)}",
            "topic": f"in-{number % _TOPICS}",
            "partition": number // _TOPICS % _PARTITIONS,
        }
        for number in range(KEYS)
    )
    return [encode(1, name, {"offset": 0})[0] for name in names]


def _commit(harness: Harness, topic: str, keys: cycle[tuple[int, bytes]]) -> None:
    at = int(time.time() * 1000)
    _, value = encode(1, {"group": "g", "topic": "t", "partition": 0}, {"offset": at, "commit_timestamp": at})
    for number, key in islice(keys, COMMITS_PER_SECOND):
        harness.producer.send(topic, key=key, value=value, partition=number // (_TOPICS * _PARTITIONS) % PARTITIONS)
