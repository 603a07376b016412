"""A backlog of many commits and groups: the job alone, and on Spark clusters of one, two and four workers on loopback.

Each worker has one core, and all share the cores of this machine with the broker and the driver: beyond that number of
workers the seconds cannot fall. The phases in the job's lines show what scales: executors do `read` and `fold`, the
driver does the others, with or without a cluster.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.bench_harness import PARTITIONS, Harness
from tests.bench.memory import format_megabytes, run_and_sample
from tests.bench.offsets import write_commits
from tests.deploy.spark_cluster import spark_cluster
from tests.job.job_runner import STREAMS_GROUPS

ROUNDS = 2
WORKERS = (0, 1, 2, 4)
"""0: no cluster, but threads of the driver."""
_TOPIC = "cluster"
_GROUPS = 20_000  # more than the job folds in the driver
_LINE = re.compile(r"^(offsets: )?batch .* ([\d.]+) s, [\d,]+ behind$", re.MULTILINE)


def run(harness: Harness, commits: int, keys: int) -> None:
    """Print seconds, those in each phase, and the driver's most memory, of rounds in turns."""
    harness.client.create_topic(_TOPIC, PARTITIONS)
    write_commits(harness, _TOPIC, commits, keys)
    records = harness.write_groups(_TOPIC, _GROUPS)
    print(f"{commits:,} commits of {keys:,} keys, {records:,} records of {_GROUPS:,} groups", flush=True)
    for number in range(ROUNDS):
        for workers in WORKERS:
            with TemporaryDirectory(dir=harness.directory) as made, ExitStack() as at_exit:
                directory = Path(made)
                settings = at_exit.enter_context(spark_cluster(directory, workers)) if workers else {}
                printed, seconds, peak = run_and_sample(_command(harness, directory / "warehouse", settings))
            label = f"{workers} workers" if workers else "no cluster"
            print(f"round {number}, {label}: {seconds:.1f} s from process start; driver: {format_megabytes(peak)}")
            print(f"  seconds of {_describe_batches(printed)}", flush=True)


def _describe_batches(printed: str) -> str:
    """Return the seconds of the batches of each stream."""
    seconds: Counter[str] = Counter()
    for offsets, whole in _LINE.findall(printed):
        seconds["committed offsets" if offsets else "groups"] += float(whole)
    return ", ".join(f"{name} {each:.1f}" for name, each in seconds.most_common())


def _command(harness: Harness, warehouse: Path, settings: dict[str, str]) -> list[str]:
    where = ["--bootstrap-server", harness.broker.bootstrap_server, "--topic", _TOPIC, "--warehouse", str(warehouse)]
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [*STREAMS_GROUPS, "run", "--once", *where, *conf]
