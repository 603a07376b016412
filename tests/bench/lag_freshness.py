"""How long it takes from a broker's acknowledgement of a commit until the table `lag` has it.

The job runs as by default: a pass begins every 30 s, so most of the time is spent waiting for it. Groups commit at
random moments, all of them in parallel.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path

from kafka import KafkaProducer

from streaming_app.errors import WarehouseError
from streaming_app.tables.reader import WarehouseReader
from tests.bench.bench_harness import Harness
from tests.bench.freshness import percentile_95
from tests.waiting import wait_until

GROUPS, SECONDS = 40, 120.0
RECORDS = 100
_GIVE_UP_SECONDS = 180.0
_POLL_SECONDS = 0.1


def run(harness: Harness) -> None:
    """Print p50 and p95 over the commits."""
    topic, warehouse = "lag-freshness", harness.directory / "lag-freshness"
    harness.client.create_topic(topic)
    with KafkaProducer(bootstrap_servers=harness.broker.bootstrap_server) as producer:
        for _ in range(RECORDS):
            producer.send(topic, b"x")
    for number in range(GROUPS):
        harness.client.commit_offsets(_group(number), {(topic, 0): 1})
    chance = random.Random(GROUPS)  # noqa: S311 - no secret
    commits = sorted((chance.uniform(0, SECONDS), _group(number)) for number in range(GROUPS))
    committed: dict[str, float] = {}
    with harness.running("__consumer_offsets", warehouse.name, lambda _line: None):
        assert wait_until(lambda: len(_visible(warehouse)) == GROUPS, _GIVE_UP_SECONDS, interval=1), "no pass"
        thread = threading.Thread(target=_commit, args=(harness, topic, commits, committed))
        thread.start()
        seconds: dict[str, float] = {}
        deadline = time.monotonic() + SECONDS + _GIVE_UP_SECONDS
        while len(seconds) < GROUPS and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            rows, now = _visible(warehouse), time.monotonic()
            for group_id, offset in rows.items():
                if offset == RECORDS and group_id in committed and group_id not in seconds:
                    seconds[group_id] = now - committed[group_id]
        thread.join()
    measured = sorted(seconds.values())
    print(
        f"commit to its row in `lag`, {len(measured)} of {GROUPS} commits, a pass every 30 s: p50 "
        f"{statistics.median(measured):.1f} s, p95 {percentile_95(measured):.1f} s, most {measured[-1]:.1f} s; load "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )


def _group(number: int) -> str:
    return f"lag-freshness-{number}"


def _commit(harness: Harness, topic: str, commits: list[tuple[float, str]], committed: dict[str, float]) -> None:
    began = time.monotonic()
    for at, group_id in commits:
        time.sleep(max(0.0, began + at - time.monotonic()))
        harness.client.commit_offsets(group_id, {(topic, 0): RECORDS})
        committed[group_id] = time.monotonic()


def _visible(warehouse: Path) -> dict[str, int]:
    with suppress(WarehouseError):  # its tables are still being made
        rows = WarehouseReader(warehouse).rows(
            "SELECT group_id, committed_offset FROM lag WHERE topic = 'lag-freshness'"
        )
        return {row["group_id"]: row["committed_offset"] for row in rows}
    return {}
