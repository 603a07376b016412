"""The first catch-up of a log of many groups, from the start of the process: time, and the most memory that it takes.

Memory is looked at every tenth of a second.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

from tests.bench.memory import resident_by_process
from tests.bench.scene import PARTITIONS, Scene
from tests.job.running import STREAMS_GROUPS

_LOOK_SECONDS = 0.1


def run(scene: Scene, groups: int, members: int) -> None:
    """Print seconds and megabytes."""
    topic = f"catchup-{groups}"
    scene.client.create_topic(topic, PARTITIONS)
    records = scene.write_groups(topic, groups, members)
    where = ["--bootstrap-server", scene.broker.bootstrap_server, "--warehouse", str(scene.directory / topic)]
    peak: Counter[str] = Counter()
    started = time.monotonic()
    with subprocess.Popen([*STREAMS_GROUPS, "run", "--once", "--topic", topic, *where], stdout=subprocess.PIPE) as job:
        while job.poll() is None:
            now = resident_by_process(job.pid)
            peak |= now | {"sum": sum(now.values())}
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - started
        said = job.stdout.read().decode() if job.stdout else ""
    sys.stdout.writelines(line for line in said.splitlines(keepends=True) if line.startswith("batch"))
    assert job.returncode == 0, said
    megabytes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in peak.most_common())
    print(f"first catch-up of {groups:,} groups of {members} members ({records:,} records), start of Spark included:")
    print(f"{seconds:.1f} s, most memory: {megabytes}", flush=True)
