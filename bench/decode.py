"""The speed of decoding: Construct against the generated reader that the job uses, in one run.

Each record is decoded whole, key and value. Both decoders come from the same definitions. Times are processor times,
and every figure is the best of several short rounds in turns. So a busy machine changes the figures little.
"""

import time
from collections.abc import Callable, Iterator

from bench.bench_harness import print_table
from offsets_decoder import Record, decode
from offsets_decoder.reference import reference_decode
from tests.support.encode import encode

TASKS = (1, 20, 200)
GROUP = "payments-enrichment"
MEMBER = "7b0c5c1e-3f5a-4f0e-9a57-2d8c1f6f3b11"
UUID = "9QzJcRrXS2uSnzlC6FqG3w"
_ROUNDS = 5


def samples() -> Iterator[tuple[str, bytes, bytes | None]]:
    """Yield records as a 4.4 broker writes them: the most frequent type, and the largest type in three sizes.

    Their tasks are spread over up to four subtopologies, as a topology of that size would have.
    """
    offset = {"group": GROUP, "topic": "payments", "partition": 7}
    committed = {"offset": 1 << 40, "commit_timestamp": 1_764_000_000_000, "topic_id": UUID}
    yield "1 OffsetCommit", *encode(1, offset, committed)
    for tasks in TASKS:
        width = min(4, tasks)
        partitions = list(range(tasks // width))
        active = [
            {"subtopology_id": str(number), "partitions": partitions, "assignment_epochs": [7] * len(partitions)}
            for number in range(width)
        ]
        value = {"member_epoch": 7, "previous_member_epoch": 6, "state": 1, "active_tasks": active}
        yield f"22 CurrentAssignment, {tasks} tasks", *encode(22, {"group_id": GROUP, "member_id": MEMBER}, value)


def _rate(way: Callable[[bytes, bytes | None], Record], key: bytes, value: bytes | None, seconds: float) -> float:
    """Return how many records one core decodes a second."""
    count, start = 0, time.process_time()
    now = start
    while now - start < seconds:
        for _ in range(16):
            way(key, value)
        count += 16
        now = time.process_time()
    return count / (now - start)


def run(seconds: float = 1.5) -> None:
    """Print one line for each sample; `seconds` is the time given to each."""
    rows = []
    for label, key, value in samples():
        assert decode(key, value) == reference_decode(key, value)
        budget, construct, job = seconds / _ROUNDS / 2, 0.0, 0.0
        for _ in range(_ROUNDS):
            construct = max(construct, _rate(reference_decode, key, value, budget))
            job = max(job, _rate(decode, key, value, budget))
        size = str(len(key) + len(value or b""))
        rows.append((label, size, f"{construct:,.0f}", f"{job:,.0f}", f"{job / construct:.1f}"))
    columns = ("bytes", "Construct", "job", "job / Construct")
    print_table("Decoding, records/s on one core (key and value)", columns, rows)
