"""The first catch-up of a log of many groups by part, and then batches of 50 of these groups.

The floor is Spark's reading and Parquet's writing of the records that the job wants, without fold and verdicts. The
fold, the commit of the rows and the verdicts run alone, each in this process, over the same records. The job is
`run --once` in a process of its own. Seconds of the processor count all processes; wall time beyond them is waiting.
"""

import os
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from bench import rules
from bench.bench_harness import PARTITIONS, Harness, await_commit, group_id, is_caught_up, print_table, process
from bench.memory import file_sizes, processor_seconds, proportional_by_process
from streaming_app.alerts.engine_facts import Observed
from streaming_app.groups.snapshot import Versions
from streaming_app.kafka.properties import client_properties
from streaming_app.stream.fold_stage import fold_stream, sort_for_fold
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.source import RAW, source_options, wanted_records
from streaming_app.tables.reader import WarehouseReader
from tests.support.encoded import FIRST_EPOCH, group_records
from tests.support.offsets_topic import describe_offsets_topic
from tests.support.processes import read_process_file, spark_jvms
from tests.support.waiting import wait_until

SIZES = (1_000, 10_000, 100_000)
_CHANGED, _BATCHES, _WARM_UP = 50, 9, 2
_SECONDS, _SETTLE_SECONDS = 3_600.0, 30.0
_FLOOR = "Spark reads, Parquet is written"


class Cost(NamedTuple):
    """What a part has cost; seconds, and megabytes of the files that it wrote, or of memory."""

    wall: float
    processor: float
    megabytes: float = 0.0


def run(harness: Harness, sizes: Iterable[int] = SIZES) -> None:
    """Print the costs for logs of so many groups of one member each."""
    for groups in sizes:
        topic = f"parts-{groups}"
        harness.client.create_topic(topic, PARTITIONS)
        records = harness.write_groups(topic, groups, 1)
        costs = dict(_parts(harness, topic, groups))
        floor, rows = costs[_FLOOR], []
        for name, one in costs.items():
            ratios = one.wall / floor.wall, one.processor / floor.processor
            rows.append((name, *(f"{value:,.2f}" for value in (one.wall, one.processor, *ratios, one.megabytes))))
        columns = ("wall, s", "processor, s", "wall / floor", "processor / floor", "MB")
        print_table(f"first catch-up of {groups:,} groups ({records:,} records) by part", columns, rows)
        walls, used, memory = _batches(harness, topic, groups)
        print_table(
            f"then {_BATCHES} batches of {_CHANGED} of {groups:,} groups",
            ("append to rows, s", "smallest", "largest", "processor, s, each", "PSS, MB"),
            [("", *(f"{value:.2f}" for value in (statistics.median(walls), min(walls), max(walls), used, memory)))],
        )


def _parts(harness: Harness, topic: str, groups: int) -> Iterator[tuple[str, Cost]]:
    raw, rows = harness.directory / f"{topic}-raw", harness.directory / f"{topic}-rows"
    properties = client_properties(harness.broker.bootstrap_server, None)
    with _measured(raw) as read:
        source = source_options(properties, describe_offsets_topic(harness.spark, properties, topic))
        records = wanted_records(harness.spark.read.format("kafka").options(**source).load())
        records.select(*RAW).write.parquet(str(raw))
    yield _FLOOR, read[0]
    folded: list[pa.Table] = []
    with _measured() as fold:
        for file in sorted(raw.glob("*.parquet")):
            ordered = sort_for_fold(pq.read_table(file), None)
            parts = fold_stream(ordered.to_batches(), FoldOptions("default", topic))
            folded += [part.tables["groups"] for part in parts]
    yield "the fold, in one process", fold[0]
    with _measured(rows) as commit:
        write_deltalake(str(rows), pa.concat_tables(folded))
    yield "the commit of the rows, by delta-rs", commit[0]
    folded.clear()
    everything = Versions((group.group_id, group) for group in rules.facts(groups))
    with _measured() as verdicts:
        rules.step(rules.engine_of(), Observed(everything, job=rules.caught_up(rules.NOW)), rules.NOW)
    yield "the first verdicts", verdicts[0]
    command = harness.run_command(harness.directory / topic, "--topic", topic, "--once")
    yield "the job, with Spark's start (MB: memory)", _once(command, harness.directory / f"{topic}.log")


@contextmanager
def _measured(written: Path | None = None) -> Iterator[list[Cost]]:
    """Give a list that has the cost of the block after it: of this process and of Spark's JVM."""
    costs: list[Cost] = []
    wall, used = time.monotonic(), _used()
    yield costs
    size = sum(file_sizes(written)) / 1e6 if written else 0.0
    costs.append(Cost(time.monotonic() - wall, _used() - used, size))


def _used() -> float:
    """Return the seconds of the processor of this process and of Spark's JVM; the broker is another child."""
    jvms = [one for one in spark_jvms(os.getpid()) if "org.apache.spark" in read_process_file(one, "cmdline")]
    return time.process_time() + sum(map(processor_seconds, jvms))


def _once(command: list[str], log: Path) -> Cost:
    """Run the job to its end, and sample what it uses."""
    started, used, peak = time.monotonic(), 0.0, 0
    with process(command, log) as job:
        while read_process_file(job, "stat").rpartition(")")[2].split()[:1] not in (["Z"], []):
            used = max(used, processor_seconds(job))
            peak = max(peak, sum(proportional_by_process(job).values()))
            time.sleep(0.5)
    return Cost(time.monotonic() - started, used, peak / 1e6)


def _batches(harness: Harness, topic: str, groups: int) -> tuple[list[float], float, float]:
    """Return the seconds from each append of 50 groups to their rows, the mean of the processor's, and the memory."""
    warehouse, log = harness.directory / topic, harness.directory / f"{topic}.log"
    seconds: list[float] = []
    with process(harness.run_command(warehouse, "--topic", topic), log) as job:
        assert wait_until(lambda: is_caught_up(log), _SECONDS)
        time.sleep(_SETTLE_SECONDS)
        for number in range(_WARM_UP + _BATCHES):
            if number == _WARM_UP:
                used = processor_seconds(job)
            seconds.append(_batch(harness, topic, range(number, groups, groups // _CHANGED), FIRST_EPOCH + 1 + number))
            time.sleep(2)
        used, memory = processor_seconds(job) - used, Counter(proportional_by_process(job)).total()
    return seconds[_WARM_UP:], used / _BATCHES, memory / 1e6


def _batch(harness: Harness, topic: str, numbers: range, epoch: int) -> float:
    """Append a rebalance of each of these groups; return after how many seconds their rows have it."""
    for number in numbers:
        for key, value in group_records(group_id(number), epoch, 1):
            sent = harness.producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
    harness.producer.flush()
    appended = time.time()
    sent.get(60)
    query = f"SELECT count(*) AS n FROM groups WHERE assignment_epoch = {epoch}"
    warehouse = harness.directory / topic

    def has_rows() -> bool:
        return bool(WarehouseReader(warehouse).rows(query)[0]["n"] >= len(numbers))

    return await_commit(warehouse / "groups", appended, has_rows)
