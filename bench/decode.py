"""The speed of decoding: Construct against the generated reader that the job uses, in one run.

Each record is decoded whole, key and value. Both decoders come from the same definitions. Times are processor times,
and every figure is the best of several short rounds in turns. So a busy machine changes the figures little.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.rounds import print_table
from offsets_decoder import decode
from offsets_decoder.reference import reference_decode
from tests.support.encode import encode

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS = (1, 20, 200)
GROUP = "payments-enrichment"
MEMBER = "7b0c5c1e-3f5a-4f0e-9a57-2d8c1f6f3b11"
UUID = "9QzJcRrXS2uSnzlC6FqG3w"


class Sample(NamedTuple):
    label: str
    record_type: int
    key: dict[str, Any]
    value: dict[str, Any]


class Rates(NamedTuple):
    """Records per second of one core's time."""

    construct: float
    job: float


def samples() -> list[Sample]:
    """Records as a 4.4 broker writes them: the most frequent type, and the largest type in three sizes."""
    offset = {"group": GROUP, "topic": "payments", "partition": 7}
    committed = {"offset": 1 << 40, "commit_timestamp": 1_764_000_000_000, "topic_id": UUID}
    return [Sample("1 OffsetCommit", 1, offset, committed), *map(_current_assignment, TASKS)]


def _current_assignment(tasks: int) -> Sample:
    """Spread the tasks over up to four subtopologies, as a topology of that size would have."""
    width = min(4, tasks)
    partitions = list(range(tasks // width))
    active = [
        {"subtopology_id": str(number), "partitions": partitions, "assignment_epochs": [7] * len(partitions)}
        for number in range(width)
    ]
    value = {"member_epoch": 7, "previous_member_epoch": 6, "state": 1, "active_tasks": active}
    return Sample(f"22 CurrentAssignment, {tasks} tasks", 22, {"group_id": GROUP, "member_id": MEMBER}, value)


def measure(sample: Sample, seconds: float) -> Rates:
    """Decode one sample again and again in each of the two ways, for about `seconds` in total."""
    key, value = encode(sample.record_type, sample.key, sample.value)
    assert value is not None
    assert decode(key, value) == reference_decode(key, value)
    ways = [lambda: reference_decode(key, value), lambda: decode(key, value)]
    rounds = 5
    budget = seconds / (rounds * len(ways))
    best = [0.0] * len(ways)
    for _ in range(rounds):
        for way, function in enumerate(ways):
            best[way] = max(best[way], _rate(function, budget))
    return Rates(*best)


def _rate(function: Callable[[], object], seconds: float) -> float:
    count, calls = 0, 16
    start = now = time.process_time()
    while now - start < seconds:
        for _ in range(calls):
            function()
        count += calls
        now = time.process_time()
    return count / (now - start)


def run(seconds: float = 1.5) -> None:
    """Print one line for each sample; `seconds` is the time given to each."""
    rows = []
    for sample in samples():
        key, value = encode(sample.record_type, sample.key, sample.value)
        rates = measure(sample, seconds)
        size = f"{len(key) + len(value or b'')}"
        rows.append((sample.label, size, *(f"{rate:,.0f}" for rate in rates), f"{rates.job / rates.construct:.1f}"))
    columns = ("bytes", "Construct", "job", "job / Construct")
    print_table("Decoding, records/s on one core (key and value)", columns, rows)
