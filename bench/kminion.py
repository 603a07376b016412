"""From the start of a process until it knows all committed offsets: the job against kminion.

Both read the same `__consumer_offsets`. It has many commits of groups whose topics do not exist, and commits of groups
that read topics of this broker, for which both show the lag. kminion reads everything at each start. It has read all
when its own count of records is complete; its `/ready` says so at the next of its steps of 15 s. The job is done when
both of its streams have caught up; its first start and a later one are measured. At the end the benchmark compares the
lag of both, partition by partition.
"""

import os
import re
import shutil
import statistics
import subprocess
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from kafka.admin import ConfigResource, ConfigResourceType

from bench.bench_harness import Harness, is_caught_up, print_table, process
from bench.memory import proportional_by_process
from streaming_app.sandbox.child_process import reserve_port
from streaming_app.tables.reader import WarehouseReader
from tests.support.encode import encode
from tests.support.http_client import answers
from tests.support.waiting import wait_until

ROUNDS = 5
PACKAGE = "github.com/cloudhut/kminion/v2@v2.3.5"
TOPIC = "__consumer_offsets"
_TOPICS, _PARTITIONS, _RECORDS = 10, 10, 1_000
_GROUPS = 20
_PARTITIONS_OF_TOPIC, _KEYS_OF_GROUP = 10, 100  # of the commits of topics that do not exist
_STRIDE = 30_011  # from a key to the next one that is written; a prime number, so that every key gets its turn
_SECONDS = 600.0
_READING, _KMINION = "kminion, reading", "kminion, ready"
_ADMIN = "__admin_client"  # with this client id a broker lets clients write to internal topics
_CONSUMED = re.compile(r"^kminion_exporter_offset_consumer_records_consumed_total (\S+)", re.MULTILINE)
_POLL_SECONDS = 0.5
_SERIES = re.compile(r"kminion_kafka_consumer_group_topic_partition_lag\{(.*?)\} (\S+)")
Lag = dict[tuple[str, str, int], int]


class Start(NamedTuple):
    """The measurements of a process at the time when it knew all commits."""

    seconds: float
    reading: float  # seconds until all records were read; only kminion reports it
    megabytes: float
    lag: Lag


def run(harness: Harness, commits: int, keys: int) -> None:
    """Print the seconds of both for rounds in turns, the ratio, the memory at the end, and differences of the lag."""
    program = _find_kminion(harness.directory)
    if program is None:
        print("kminion: skipped, neither kminion nor go is on the PATH", flush=True)
        return
    lag = _commit(harness)  # the very first commit makes the broker create the topic
    # Compaction would remove half of the records before the later rounds have read them.
    configs = {"min.compaction.lag.ms": str(86_400_000)}
    harness.client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs)])
    partitions = len(harness.client.end_offsets(TOPIC))
    _write_commits(harness, commits, keys, partitions)
    starts: dict[str, list[Start]] = {
        _KMINION: [],
        "the job, first start": [],
        "the job, started again": [],
    }
    for number in range(ROUNDS):
        wanted = lag if number == ROUNDS - 1 else {}
        for label, each in starts.items():
            if label == _KMINION:
                each.append(_start_kminion(harness, program, wanted))
            else:
                each.append(_start_job(harness, harness.directory / f"kminion-{number}", wanted))
            print(f"round {number}, {label}: {each[-1].seconds:.1f} s", flush=True)
    seconds = {_READING: [one.reading for one in starts[_KMINION]]}
    seconds |= {label: [one.seconds for one in each] for label, each in starts.items()}
    medians = {label: statistics.median(each) for label, each in seconds.items()}
    rows = [
        (label, ", ".join(f"{one:.1f}" for one in each), f"{medians[_READING] / medians[label]:.2f}")
        for label, each in seconds.items()
    ]
    print_table(f"{commits:,} commits of {keys:,} keys; rounds in turns", ("seconds, each round", "ratio"), rows)
    for label, each in starts.items():
        megabytes = statistics.median(one.megabytes for one in each)
        wrong = {key: value for key, value in lag.items() if each[-1].lag.get(key) != value}
        right = f"the lag of {len(lag) - len(wrong):,} of {len(lag):,} partitions is right"
        print(f"{label}: {megabytes:,.0f} MB (PSS, median); {right}; {wrong or ''}", flush=True)


def _find_kminion(directory: Path) -> Path | None:
    """Return the path of kminion: on the PATH, or built by Go; None if there is neither."""
    if (found := shutil.which("kminion")) or not shutil.which("go"):
        return Path(found) if found else None
    subprocess.run(["go", "install", PACKAGE], env={**os.environ, "GOBIN": str(directory)}, check=True)
    return directory / "kminion"


def _commit(harness: Harness) -> Lag:
    """Let groups commit offsets of topics with records; return the lag by partition."""
    lag: Lag = {}
    for topic in (f"kminion-{number}" for number in range(_TOPICS)):
        harness.client.create_topic(topic, _PARTITIONS)
        for partition in range(_PARTITIONS):
            for _ in range(_RECORDS):
                harness.producer.send(topic, b"x", partition=partition)
    harness.producer.flush()
    behind = count()
    for group in (f"kminion-group-{number}" for number in range(_GROUPS)):
        mine = {
            (f"kminion-{topic}", partition): next(behind) % _RECORDS
            for topic in range(_TOPICS)
            for partition in range(_PARTITIONS)
        }
        harness.client.commit_offsets(group, {key: _RECORDS - lag_of for key, lag_of in mine.items()})
        lag |= {(group, *key): lag_of for key, lag_of in mine.items()}
    return lag


def _write_commits(harness: Harness, count: int, keys: int, partitions: int) -> None:
    """Write offset commits in the format of 4.4, with Spark: Python would take minutes.

    Each key is written once before any is written again. The order is mixed, as groups commit independently.
    """
    what = {"offset": 0, "commit_timestamp": 1_764_000_000_000, "topic_id": "9QzJcRrXS2uSnzlC6FqG3w"}
    _, value = encode(1, {"group": "g", "topic": "t", "partition": 0}, what)
    assert value is not None
    group, number = f"CAST(key_number / {_KEYS_OF_GROUP} AS int)", f"CAST(key_number % {_KEYS_OF_GROUP} AS int)"
    of_keys = harness.spark.range(count).selectExpr("id", f"id * {_STRIDE} % {keys} AS key_number")
    rows = of_keys.selectExpr(
        "concat(X'0001000C', CAST(concat('group-', lpad(CAST("
        + group
        + " AS string), 6, '0')) AS binary), X'0007', CAST(concat('topic-', CAST("
        + f"CAST({number} / {_PARTITIONS_OF_TOPIC} AS int)"
        + f" AS string)) AS binary), unhex(lpad(hex({number} % {_PARTITIONS_OF_TOPIC}), 8, '0'))) AS key",
        f"concat(X'{value[:2].hex()}', unhex(lpad(hex(id), 16, '0')), X'{value[10:].hex()}') AS value",
        f"CAST({group} % {partitions} AS int) AS partition",
    )
    rows.write.format("kafka").options(
        **{
            "kafka.bootstrap.servers": harness.broker.bootstrap_server,
            "kafka.client.id": _ADMIN,
            "kafka.batch.size": "262144",
            "topic": TOPIC,
        }
    ).save()


def _start_kminion(harness: Harness, program: Path, wanted: Lag) -> Start:
    with reserve_port() as free:
        port = free.getsockname()[1]
    settings = {
        "KAFKA_BROKERS": harness.broker.bootstrap_server,
        "MINION_CONSUMERGROUPS_SCRAPEMODE": "offsetsTopic",
        "EXPORTER_HOST": "127.0.0.1",
        "EXPORTER_PORT": str(port),
    }
    url = f"http://127.0.0.1:{port}"
    records = sum(harness.client.end_offsets(TOPIC).values())
    started = time.monotonic()
    with process([str(program)], harness.directory / "kminion.log", settings) as pid:
        assert wait_until(lambda: answers(f"{url}/metrics"), _SECONDS)
        assert wait_until(lambda: _consumed(url) >= records, _SECONDS, interval=_POLL_SECONDS)
        reading = time.monotonic() - started
        assert wait_until(lambda: answers(f"{url}/ready"), _SECONDS)
        return Start(time.monotonic() - started, reading, _megabytes(pid), _their_lag(url) if wanted else {})


def _start_job(harness: Harness, warehouse: Path, wanted: Lag) -> Start:
    log = harness.directory / "kminion-job.log"
    started = time.monotonic()
    with process(harness.run_command(warehouse), log) as pid:
        assert wait_until(lambda: is_caught_up(log), _SECONDS)
        seconds = time.monotonic() - started
        return Start(seconds, 0.0, _megabytes(pid), _our_lag(warehouse, wanted) if wanted else {})


def _consumed(url: str) -> float:
    with urlopen(f"{url}/metrics", timeout=60) as response:  # noqa: S310 - http on loopback
        found = _CONSUMED.search(response.read().decode())
    return float(found.group(1)) if found else 0.0


def _their_lag(url: str) -> Lag:
    lag: Lag = {}
    with urlopen(f"{url}/metrics", timeout=60) as response:  # noqa: S310 - http on loopback
        text = response.read().decode()
    for labels, value in _SERIES.findall(text):
        names = dict(re.findall(r'(\w+)="(.*?)"', labels))
        lag[names["group_id"], names["topic_name"], int(names["partition_id"])] = int(float(value))
    return lag


def _our_lag(warehouse: Path, wanted: Lag) -> Lag:
    """Wait for a lag pass, and return its lag."""
    sql = "SELECT group_id, topic, partition, lag FROM lag WHERE group_id LIKE 'kminion-group-%' AND lag IS NOT NULL"

    def find() -> Lag:
        rows = WarehouseReader(warehouse).rows(sql)
        return {(row["group_id"], row["topic"], row["partition"]): row["lag"] for row in rows}

    assert wait_until(lambda: len(find()) == len(wanted), _SECONDS)
    return find()


def _megabytes(pid: int) -> float:
    return sum(proportional_by_process(pid).values()) / 1e6
