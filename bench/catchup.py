"""The first catch-up of a log of many groups, from the start of the process, and then the job at rest.

Memory is the proportional size of all processes (PSS): for the catch-up the maximum of a sample every tenth of a
second, at rest a single sample.
"""

import sys
import time
from pathlib import Path

from bench.bench_harness import PARTITIONS, Harness, is_caught_up, process
from bench.memory import format_megabytes, processor_seconds, proportional_by_process, run_and_sample
from tests.support.waiting import wait_until

_SETTLE_SECONDS, _REST_SECONDS = 60.0, 60.0
_START_SECONDS = 300.0


def run(harness: Harness, groups: int, members: int) -> None:
    """Print seconds and megabytes."""
    topic = f"catchup-{groups}"
    harness.client.create_topic(topic, PARTITIONS)
    records = harness.write_groups(topic, groups, members)
    command = harness.run_command(harness.directory / topic, "--topic", topic)
    printed, seconds, peak = run_and_sample([*command, "--once"])
    sys.stdout.writelines(line for line in printed.splitlines(keepends=True) if line.startswith("batch"))
    print(f"first catch-up of {groups:,} groups of {members} members ({records:,} records), including Spark's start:")
    print(f"{seconds:.1f} s, most memory: {format_megabytes(peak)}", flush=True)
    _rest(command, harness.directory / "catchup.log", groups)


def _rest(command: list[str], log: Path, groups: int) -> None:
    """Start the job again, and print its memory and processor time at rest."""
    with process(command, log) as job:
        assert wait_until(lambda: is_caught_up(log), _START_SECONDS), "the job did not catch up"
        time.sleep(_SETTLE_SECONDS)
        used = processor_seconds(job)
        time.sleep(_REST_SECONDS)
        used = processor_seconds(job) - used
        sizes = proportional_by_process(job)
    sizes["sum"] = sum(sizes.values())
    taken = f"{format_megabytes(sizes)}, {used / _REST_SECONDS:.1%} of a core"
    print(f"started again and at rest with {groups:,} groups: {taken}", flush=True)
