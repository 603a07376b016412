"""What several clusters cost as several jobs at rest: memory, of which jobs share a part, and processor time.

All jobs read one broker, with a warehouse each, which costs as much as clusters of their own. The proportional size
(PSS) divides what jobs share, such as jars and the archive of classes, among them.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from contextlib import ExitStack

from tests.bench.bench_harness import PARTITIONS, Harness
from tests.bench.memory import format_megabytes, processor_seconds, proportional_by_process
from tests.job.job_runner import STREAMS_GROUPS
from tests.waiting import wait_until

_JOBS = (1, 5)
_GROUPS = 100
_SETTLE_SECONDS, _REST_SECONDS, _START_SECONDS = 60.0, 60.0, 300.0


def run(harness: Harness) -> None:
    """Print megabytes and processor time of one job and of five."""
    harness.client.create_topic("many-jobs", PARTITIONS)
    harness.write_groups("many-jobs", _GROUPS)
    where = ["--bootstrap-server", harness.broker.bootstrap_server, "--topic", "many-jobs"]
    for count in _JOBS:
        with ExitStack() as running:
            jobs = []
            for number in range(count):
                name = f"{count}-{number}"
                log = harness.directory / f"{name}.log"
                command = [*STREAMS_GROUPS, "run", *where, "--warehouse", str(harness.directory / name)]
                output = running.enter_context(log.open("wb"))
                job = running.enter_context(subprocess.Popen(command, stdout=output, stderr=output))
                running.callback(job.terminate)
                jobs.append(job.pid)
                # One after the other, as twenty units are to be started, too: a start takes two cores for seconds.
                assert wait_until(lambda log=log: "Caught up" in log.read_text("utf-8"), _START_SECONDS)  # type: ignore[misc]
            time.sleep(_SETTLE_SECONDS)
            used = sum(map(processor_seconds, jobs))
            time.sleep(_REST_SECONDS)
            used = sum(map(processor_seconds, jobs)) - used
            sizes = sum(map(proportional_by_process, jobs), Counter[str]())
        sizes["sum"] = sum(sizes.values())
        share = used / _REST_SECONDS
        print(f"jobs at rest: {count}; {format_megabytes(sizes)}; {share:.1%} of a core", flush=True)
