"""Measures the time from a broker's acknowledgement of a group's records until a query can see the group's new row.

A row counts as visible when the file of its Delta commit exists. A query then confirms it; the duration of the query
does not count. An append is one rebalance of one group. `floor` and `soak` use this module.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.bench_harness import PARTITIONS, Harness, group_id
from streaming_app.errors import WarehouseError
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.encoded import group_records

LONGEST_PAUSE_SECONDS = 3.0
_GIVE_UP_SECONDS = 60.0
_CATCH_UP_SECONDS = 900.0


def percentile_95(seconds: list[float]) -> float:
    """Return the 95th percentile."""
    return sorted(seconds)[round(0.95 * len(seconds)) - 1]


def append(harness: Harness, topic: str, number: int, epoch: int) -> tuple[int, float]:
    """Append the records of a rebalance of a group; return the last offset and the time of the acknowledgement."""
    sent = [
        harness.producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
        for key, value in group_records(group_id(number), epoch)
    ]
    harness.producer.flush()
    return sent[-1].get(30).offset, time.time()


def is_visible(warehouse: Path, number: int, offset: int) -> bool:
    """Return whether the row of a group contains the record at `offset`."""
    query = f"SELECT last_offset FROM groups WHERE group_id = {quote(group_id(number))}"
    return bool(WarehouseReader(warehouse).rows(query)[0]["last_offset"] >= offset)


def await_commit(table: Path, appended: float, has_row: Callable[[], bool]) -> float:
    """Wait for the commit with which `has_row` becomes true; return the seconds from `appended` to the commit."""
    looked_at: set[Path] = set()
    while time.time() - appended < _GIVE_UP_SECONDS:
        for commit in sorted(path for path in (table / "_delta_log").glob("*.json") if path not in looked_at):
            looked_at.add(commit)
            written = commit.stat().st_mtime
            if written >= appended and has_row():
                return written - appended
        time.sleep(0.02)
    raise TimeoutError("the records did not come through")


def await_groups(warehouse: Path, groups: int) -> None:
    """Wait until the table has so many groups."""
    ends = time.monotonic() + _CATCH_UP_SECONDS
    while time.monotonic() < ends:
        time.sleep(0.5)
        with suppress(WarehouseError):  # the job may still be creating the tables
            counted = WarehouseReader(warehouse).rows("SELECT count(*) AS n FROM groups")
            if counted[0]["n"] == groups:
                return
    raise TimeoutError(f"the job did not come to {groups} groups")
