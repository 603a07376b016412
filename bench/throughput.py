"""How fast the job reads offset commits to find the groups among them, against Spark that only counts the records.

Both read the same topic with the same consumer settings in the same session, in turns. The job has a warm session and
existing tables, and it does not read committed offsets (`offsets` measures that). The times of its batches are those in
its log lines, up to the last commit into the tables. The whole run is timed from the request for the topic's
description to the end of the stream; a job does both once.
"""

from __future__ import annotations

import re
import time

from bench.bench_harness import PARTITIONS, Harness
from bench.offsets import write_commits
from bench.rounds import print_rounds
from streaming_app.kafka.offsets_topic import describe_offsets_topic
from streaming_app.kafka.properties import client_properties
from streaming_app.tables.writer import TableWriter
from tests.support.frames import read_once

ROUNDS = 5
TOPIC = "throughput"
_KEYS = 50_000


def run(harness: Harness, commits: int, groups: int) -> None:
    """Print the seconds of both for `commits` offset commits and the records of `groups` groups, and the ratio."""
    harness.client.create_topic(TOPIC, PARTITIONS)
    write_commits(harness, TOPIC, commits // 2, _KEYS)
    written = harness.write_groups(TOPIC, groups)
    write_commits(harness, TOPIC, commits - commits // 2, _KEYS)
    total = commits + written
    _timed_job(harness, "warm-up")
    timed: dict[str, list[float]] = {"Spark's bare count": [], "the job's batches": [], "the job's whole run": []}
    for number in range(ROUNDS):
        for label, seconds in zip(
            timed, (_timed_count(harness, total), *_timed_job(harness, f"round-{number}")), strict=True
        ):
            timed[label].append(seconds)
    print_rounds(f"{commits:,} offset commits, {written:,} records of {groups:,} groups", timed, total)


def _timed_count(harness: Harness, total: int) -> float:
    properties = client_properties(harness.broker.bootstrap_server, None)
    started = time.monotonic()
    topic = describe_offsets_topic(harness.spark, properties, TOPIC)
    assert read_once(harness.spark, properties, topic).count() == total
    return time.monotonic() - started


def _timed_job(harness: Harness, warehouse: str) -> tuple[float, float]:
    """Return the seconds in batches, and of the whole run."""
    TableWriter(harness.spark, str(harness.directory / warehouse), "default").prepare()
    started = time.monotonic()
    lines = harness.run_once(TOPIC, warehouse, offsets={"enabled": False})
    seconds = time.monotonic() - started
    print(*lines[1:-1], sep="\n", flush=True)
    return sum(float(found) for line in lines for found in re.findall(r"^batch .* ([\d.]+) s,", line)), seconds
