"""From the start of the process until 40 new records are in the tables; the job resumes from a checkpoint."""

import statistics
import subprocess
import time
from itertools import count

from bench.bench_harness import PARTITIONS, Harness
from bench.freshness import append
from bench.rounds import print_table
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from tests.support.encoded import FIRST_EPOCH

ROUNDS, GROUPS = 6, 100
_APPENDS = 5  # groups with a new rebalance: each has 8 records


def run(harness: Harness, rounds: int = ROUNDS) -> None:
    """Print the seconds of the rounds. A first, extra round creates the tables."""
    topic, epochs, seconds = "startup", count(FIRST_EPOCH + 1), []
    harness.client.create_topic(topic, PARTITIONS)
    harness.write_groups(topic, GROUPS)
    for number in range(rounds + 1):
        epoch = next(epochs)
        for group in range(_APPENDS if number else 0):
            append(harness, topic, group, epoch)
        seconds.append(_start(harness, topic))
        print(f"round {number} of {rounds}: {seconds[-1]:.1f} s", flush=True)
    title = f"process start to 40 new records in the tables, {rounds} rounds"
    row = ("the job", f"{statistics.median(seconds[1:]):.1f}", f"{max(seconds[1:]):.1f}")
    print_table(title, ("median, s", "longest, s"), [row])


def _start(harness: Harness, topic: str) -> float:
    """Start the job, wait until all records are in its tables, and end it; return the seconds."""
    warehouse, ends = harness.directory / topic, harness.client.end_offsets(topic)
    with (harness.directory / "output.log").open("ab") as log:
        started = time.monotonic()
        with subprocess.Popen(harness.run_command(warehouse, "--topic", topic), stdout=log, stderr=log) as process:
            while (done := read_checkpoint_offsets(warehouse, "default")) is None or done.offsets_behind(ends):
                if process.poll() is not None:
                    raise RuntimeError(f"It failed, see {log.name}")
                time.sleep(0.05)
            taken = time.monotonic() - started
            process.terminate()
    return taken
