"""The first catch-up of a log of many groups, from the start of the process: time, and the most memory that it takes.

Memory is the proportional size of all processes (PSS), sampled every tenth of a second.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

from tests.bench.bench_harness import PARTITIONS, Harness
from tests.bench.memory import proportional_by_process
from tests.job.job_runner import STREAMS_GROUPS

_LOOK_SECONDS = 0.1


def run(harness: Harness, groups: int, members: int) -> None:
    """Print seconds and megabytes."""
    topic = f"catchup-{groups}"
    harness.client.create_topic(topic, PARTITIONS)
    records = harness.write_groups(topic, groups, members)
    where = ["--bootstrap-server", harness.broker.bootstrap_server, "--warehouse", str(harness.directory / topic)]
    peak: Counter[str] = Counter()
    started = time.monotonic()
    with subprocess.Popen([*STREAMS_GROUPS, "run", "--once", "--topic", topic, *where], stdout=subprocess.PIPE) as job:
        while job.poll() is None:
            now = proportional_by_process(job.pid)
            peak |= now | {"sum": sum(now.values())}
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - started
        printed = job.stdout.read().decode() if job.stdout else ""
    sys.stdout.writelines(line for line in printed.splitlines(keepends=True) if line.startswith("batch"))
    assert job.returncode == 0, printed
    megabytes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in peak.most_common())
    print(f"first catch-up of {groups:,} groups of {members} members ({records:,} records), start of Spark included:")
    print(f"{seconds:.1f} s, most memory: {megabytes}", flush=True)
