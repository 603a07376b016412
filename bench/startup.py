"""From the start of a process until 40 new records are in the tables: the job against a process with a bare session.

Both resume from a checkpoint. The bare session has the job's settings; its batch appends one row to one Delta table.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

from deltalake import DeltaTable

from bench.bench_harness import PARTITIONS, Harness
from bench.freshness import append
from bench.rounds import print_table
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from tests.support.encoded import FIRST_EPOCH

ROUNDS, GROUPS = 6, 100
_APPENDS = 5  # groups with a new rebalance: each has 8 records
BARE, JOB = "a bare session", "the job"


def run(harness: Harness, rounds: int = ROUNDS) -> None:
    """Print the seconds of both for rounds in turns, and the ratio. A first, extra round creates the tables."""
    topic, epochs = "startup", count(FIRST_EPOCH + 1)
    harness.client.create_topic(topic, PARTITIONS)
    harness.write_groups(topic, GROUPS)
    seconds: dict[str, list[float]] = {BARE: [], JOB: []}
    for number in range(rounds + 1):
        for label, each in seconds.items():
            epoch = next(epochs)
            for group in range(_APPENDS if number else 0):
                append(harness, topic, group, epoch)
            taken = _start(harness, topic, label)
            if number:
                each.append(taken)
            print(f"round {number} of {rounds}, {label}: {taken:.1f} s", flush=True)
    medians = {label: statistics.median(each) for label, each in seconds.items()}
    rows = [
        (label, f"{median:.1f}", f"{max(seconds[label]):.1f}", f"{median / medians[BARE]:.2f}")
        for label, median in medians.items()
    ]
    title = f"process start to 40 new records in the tables, {rounds} rounds in turns"
    print_table(title, ("median, s", "longest, s", "ratio"), rows)


def _start(harness: Harness, topic: str, label: str) -> float:
    """Start the process, wait until all records are in its tables, and end it; return the seconds."""
    directory, server = harness.directory / topic, harness.broker.bootstrap_server
    bare = [sys.executable, "-m", "bench.bare_start", server, topic, str(directory / "bare")]
    directory.mkdir(exist_ok=True)
    ends = harness.client.end_offsets(topic)
    with (directory / "output.log").open("ab") as log:
        started = time.monotonic()
        command = bare if label == BARE else harness.run_command(directory / "job", "--topic", topic)
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            done = _bare_is_done if label == BARE else _job_is_done
            while not done(directory, ends):
                if process.poll() not in {None, 0}:
                    raise RuntimeError(f"It failed, see {directory / 'output.log'}")
                time.sleep(0.05)
            taken = time.monotonic() - started
            if label == JOB:  # the bare session ends by itself, since it must write its checkpoint
                process.terminate()
    return taken


def _bare_is_done(directory: Path, ends: dict[int, int]) -> bool:
    table = directory / "bare"
    if not DeltaTable.is_deltatable(str(table)):
        return False
    return sum(DeltaTable(table).to_pyarrow_table()["records"].to_pylist()) == sum(ends.values())


def _job_is_done(directory: Path, ends: dict[int, int]) -> bool:
    done = read_checkpoint_offsets(directory / "job", "default")
    return done is not None and not done.offsets_behind(ends)
