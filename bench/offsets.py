"""The stream of committed offsets: against Spark's bare count, its memory, and what it costs the streams groups.

The count and the stream read the same topic with the same consumer settings in the same session, in turns. The stream's
session is warm, and its tables are made; it is timed from asking the cluster about the topic to the end of the query,
and its batches as its lines tell, each up to the last commit into the tables.
"""

from __future__ import annotations

import re
import threading
import time

from bench.bench_harness import PARTITIONS, Harness
from bench.memory import format_megabytes, run_and_sample
from bench.rounds import print_rounds
from offsets_decoder import encode
from streaming_app.job.stream_query import wait_for_listeners
from streaming_app.job.streams import CommitsStream, StreamParts
from streaming_app.kafka.offsets_topic import describe_offsets_topic
from streaming_app.kafka.properties import client_properties
from streaming_app.stream.first_reading import FirstReading
from streaming_app.stream.health import Health
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.spark_writer import SparkWriter
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.reading import read_once

ROUNDS = 5
PARTITIONS_OF_TOPIC, TOPICS = 10, 10
KEYS_OF_GROUP = PARTITIONS_OF_TOPIC * TOPICS
_STRIDE = 30_011  # from a key to the next that is written; a prime number, so that all get their turn


def run(harness: Harness, commits: int, keys: int) -> None:
    """Print how long both take for `commits` offset commits of `keys` keys, and the ratio."""
    topic = f"offsets-{commits}"
    harness.client.create_topic(topic, PARTITIONS)
    write_commits(harness, topic, commits, keys)
    _timed_stream(harness, topic, "offsets-warm-up")
    timed: dict[str, list[float]] = {"Spark's bare count": [], "the stream's batches": [], "the stream's whole run": []}
    for number in range(ROUNDS):
        each = (_timed_count(harness, topic, commits), *_timed_stream(harness, topic, f"{topic}-{number}"))
        for label, seconds in zip(timed, each, strict=True):
            timed[label].append(seconds)
    found = WarehouseReader(harness.directory / f"{topic}-0").rows("SELECT count(*) AS n FROM offsets")
    assert found == [{"n": keys}]
    print_rounds(f"{commits:,} commits of {keys:,} keys", timed, commits)


def run_memory(harness: Harness, keys: int) -> None:
    """Print seconds and megabytes of a job that reads a commit of each of `keys` keys, and one for a tenth of them."""
    topic = f"offsets-memory-{keys}"
    harness.client.create_topic(topic, PARTITIONS)
    write_commits(harness, topic, keys, keys)
    where = ["--bootstrap-server", harness.broker.bootstrap_server, "--warehouse", str(harness.directory / topic)]
    for attempt in ("first", "second"):
        _, seconds, peak = run_and_sample([*STREAMS_GROUPS, "run", "--once", "--topic", topic, *where])
        print(
            f"{attempt} run over {keys:,} keys, start of Spark included: {seconds:.1f} s; "
            f"most memory: {format_megabytes(peak)}"
        )
        write_commits(harness, topic, keys // 10, keys)
    started = time.monotonic()
    rows = WarehouseReader(harness.directory / topic).query("SELECT * FROM offsets").num_rows
    print(f"all {rows:,} rows of `offsets` with `sql`: {time.monotonic() - started:.1f} s", flush=True)


def write_commits(
    harness: Harness,
    topic: str,
    count: int,
    keys: int,
    *,
    partitions: int = PARTITIONS,
    client_id: str = "bench",
) -> None:
    """Write offset commits as 4.4 writes them, through Spark: Python would take minutes.

    Each key is written once before one is written again; they are in no order, as groups commit on their own.
    """
    what = {"offset": 0, "commit_timestamp": 1_764_000_000_000, "topic_id": "9QzJcRrXS2uSnzlC6FqG3w"}
    _, value = encode(1, {"group": "g", "topic": "t", "partition": 0}, what)
    assert value is not None
    group, number = f"CAST(key_number / {KEYS_OF_GROUP} AS int)", f"CAST(key_number % {KEYS_OF_GROUP} AS int)"
    of_keys = harness.spark.range(count).selectExpr("id", f"id * {_STRIDE} % {keys} AS key_number")
    rows = of_keys.selectExpr(
        "concat(X'0001000C', CAST(concat('group-', lpad(CAST("
        + group
        + " AS string), 6, '0')) AS binary), X'0007', CAST(concat('topic-', CAST("
        + f"CAST({number} / {PARTITIONS_OF_TOPIC} AS int)"
        + f" AS string)) AS binary), unhex(lpad(hex({number} % {PARTITIONS_OF_TOPIC}), 8, '0'))) AS key",
        f"concat(X'{value[:2].hex()}', unhex(lpad(hex(id), 16, '0')), X'{value[10:].hex()}') AS value",
        f"CAST({group} % {partitions} AS int) AS partition",
    )
    rows.write.format("kafka").options(
        **{
            "kafka.bootstrap.servers": harness.broker.bootstrap_server,
            "kafka.client.id": client_id,
            "kafka.batch.size": "262144",
            "topic": topic,
        }
    ).save()


def _timed_count(harness: Harness, name: str, total: int) -> float:
    properties = client_properties(harness.broker.bootstrap_server, None)
    started = time.monotonic()
    topic = describe_offsets_topic(harness.spark, properties, name)
    assert read_once(harness.spark, properties, topic).count() == total
    return time.monotonic() - started


def _timed_stream(harness: Harness, topic: str, warehouse: str) -> tuple[float, float]:
    """Seconds in batches, and of the whole run."""
    config = harness.config(topic, warehouse, once=True)
    writer = SparkWriter(harness.spark, config.warehouse, config.cluster)
    writer.prepare()
    lines: list[str] = []
    properties = client_properties(config.bootstrap_server, None)
    parts = StreamParts(harness.spark, config, properties, writer, Health(), lines.append, threading.Event())
    stream = CommitsStream(parts, FirstReading(properties, lines.append, parts.stop))
    stream.first_reading.leave()
    harness.spark.streams.addListener(stream.progress)
    try:
        started = time.monotonic()
        stream.start().awaitTermination()
        seconds = time.monotonic() - started
        wait_for_listeners(harness.spark)
    finally:
        harness.spark.streams.removeListener(stream.progress)
    print(*lines, sep="\n", flush=True)
    return sum(float(found) for line in lines for found in re.findall(r"^batch .* ([\d.]+) s,", line)), seconds
