"""Many committed offsets, as brokers write them, and the memory of a job that reads them."""

import time

from bench.bench_harness import PARTITIONS, Harness
from bench.memory import format_megabytes, run_and_sample
from streaming_app.tables.reader import WarehouseReader
from tests.support.encode import encode

PARTITIONS_OF_TOPIC, TOPICS = 10, 10
KEYS_OF_GROUP = PARTITIONS_OF_TOPIC * TOPICS
_STRIDE = 30_011  # from a key to the next one that is written; a prime number, so that every key gets its turn


def run_memory(harness: Harness, keys: int) -> None:
    """Print seconds and megabytes of a job that reads one commit per key, then new commits for a tenth of the keys."""
    topic = f"offsets-memory-{keys}"
    harness.client.create_topic(topic, PARTITIONS)
    write_commits(harness, topic, keys, keys)
    command = harness.run_command(harness.directory / topic, "--topic", topic, "--once")
    for attempt in ("first", "second"):
        _, seconds, peak = run_and_sample(command)
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
    """Write offset commits in the format of 4.4, with Spark: Python would take minutes.

    Each key is written once before any is written again. The order is mixed, as groups commit independently.
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
