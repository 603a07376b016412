"""The cost of a rebalance of a large application with the classic protocol in a batch of the job.

Its record holds all of the group, and the batch replaces its whole row. Two batches alternate: 50 streams groups that
change, with the application and without. Each is folded from stored rows and encoded as a file, as in the driver. Times
are processor times, so a busy machine changes them little.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa

from bench.bench_harness import print_table
from streaming_app.stream.batch_rows import join, schema_of
from streaming_app.stream.fold_stage import fold_stream, sort_for_fold, stored_as_records
from streaming_app.stream.group_result import FoldOptions
from streaming_app.tables.data_files import decode_file, encode_file
from tests.groups.classic_records import assignment, generation, subscription, thread
from tests.stream.test_fold_stage import RAW, Pair, group, records
from tests.support.encode import encode
from tests.support.encoded import metadata_record

THREADS, TASKS, SUBTOPOLOGIES = 200, 2_000, 4
_GROUPS, _ROUNDS = 50, 15
_OPTIONS = FoldOptions("default", "topic")


def application(number: int) -> Pair:
    """A generation in which each thread has ten tasks, and a standby of the ten tasks of the thread after it."""
    tasks = [(one % SUBTOPOLOGIES, one // SUBTOPOLOGIES) for one in range(TASKS)]
    sources = {one: [f"topic-{one}"] for one in range(SUBTOPOLOGIES)}

    def member(place: int) -> dict[str, Any]:
        active, standby = tasks[place::THREADS], tasks[(place + number) % THREADS :: THREADS]
        sums = {**dict.fromkeys(standby, 1_000 + number), **dict.fromkeys(active, -2)}
        told = subscription(UUID(int=place), sums)
        return thread(f"application-{place:03}", told, assignment(active, standby, sources=sources))

    key, value = encode(2, {"group": "application"}, generation(number, *map(member, range(THREADS))))
    return key, value


def batches(number: int) -> Iterator[tuple[str, list[Pair]]]:
    """Yield a batch without and one with the application; each changes what the batch before has left."""
    changed = [metadata_record({"group_id": f"g{one}"}, 2 + number) for one in range(_GROUPS)]
    yield "without", changed
    yield "with", [*changed, application(number)]


def fold(pairs: list[Pair], stored: bytes | None, number: int) -> pa.Table:
    """Return the rows after a batch, given the file of the stored ones."""
    rows = stored_as_records(decode_file(stored, "default", schema_of("groups"))) if stored else None
    raw = pa.Table.from_pylist(records(pairs, first=1_000_000 * number, second=number), RAW)
    return join(fold_stream(sort_for_fold(raw, rows).to_batches(), _OPTIONS)).tables["groups"]


def run() -> None:
    """Print the processor time of both batches, and the difference of each pair."""
    first = [pair for one in range(_GROUPS) for pair in group(f"g{one}")]
    stored = fold([*first, application(1)], None, 1)
    files = {"without": encode_file(stored.filter(pa.compute.field("group_id") != "application")).content}
    files["with"] = encode_file(stored).content
    taken: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(2, 2 + _ROUNDS):
        for label, pairs in batches(number):
            began = time.process_time()
            files[label] = encode_file(fold(pairs, files[label], number)).content
            taken[label].append(1_000 * (time.process_time() - began))
    taken["difference"] = [two - one for one, two in zip(taken["without"], taken["with"], strict=True)]
    size = len(application(1)[1] or b"")
    print_table(
        f"a batch of {_GROUPS} groups and an application of {THREADS} threads and {TASKS:,} tasks ({size:,} bytes)",
        ("ms, median", "smallest", "largest"),
        [(name, *(f"{of(each):.0f}" for of in (statistics.median, min, max))) for name, each in taken.items()],
    )
