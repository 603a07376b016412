"""Months in minutes: whether memory and files stay within bounds over many commits.

A "day" is so many commits to `groups`, each of a rebalance and a few offset commits of random groups. Versions are kept
for half a minute instead of three hours, and maintenance runs as often in proportion. Each day has faults: a batch that
workers process, and they are killed in it; the broker is stopped for longer than its sessions, or is killed and started
again. The figures should not grow from the second or third day on; until then the JVM fills its heap. What of the heap
is in use after a full collection shows a leak sooner than the size of the process.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from offsets_decoder import encode
from streaming_app.sandbox.broker import LocalBroker
from tests.bench.bench_harness import PARTITIONS, Harness, group_id
from tests.bench.file_sizes import file_sizes
from tests.bench.freshness import await_groups
from tests.bench.memory import jvm_pid, proportional_by_process
from tests.groups.encoded import group_records
from tests.processes import send_signal, spark_workers

GROUPS = 500
_COMMITS_PER_DAY = 20
_BURST = 60  # groups that change at once: enough for workers
_COMMIT_SECONDS = 60.0  # until it is given up that a rebalance is in the tables
_STOPPED_SECONDS = 12.0
_QUICKER = """
import os
os.environ["STREAMS_GROUPS_OFFSETS__TRIGGER"] = "1"
from streaming_app.stream import commits_batch
from streaming_app.tables import maintenance, rust_table, table_creation, which_writer
seconds = "interval 30 seconds"
kept = dict.fromkeys(("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"), seconds)
table_creation._PROPERTIES.update(kept, **{"delta.checkpointInterval": "10"})
table_creation._REPLACED.update(kept)
maintenance.COMMITS_PER_COMPACTION = 10
maintenance._VACUUM_SECONDS = 30
commits_batch._TAIL_ROWS = 2_000
rust_table._MAINTAINED_AFTER = 20
which_writer.MOST["groups"] = which_writer.MOST["groups"]._replace(records=400)
from streaming_app.cli.main import main
main(prog_name="streams-groups")
"""


class Figures(NamedTuple):
    """What must not grow."""

    python_mb: float
    jvm_mb: float
    heap_mb: float
    """In use after a full collection."""
    workers_mb: float
    files: int
    """Of the warehouse."""
    files_mb: float
    checkpoint_files: int

    def __str__(self) -> str:
        """Return the figures in a line."""
        return (
            f"PSS: Python {self.python_mb:,.0f} MB, JVM {self.jvm_mb:,.0f} MB (live heap {self.heap_mb:,.0f} MB), "
            f"workers {self.workers_mb:,.0f} MB; files: {self.files:,}, {self.files_mb:,.1f} MB, "
            f"of them in checkpoints {self.checkpoint_files:,}"
        )


def run(harness: Harness, minutes: float = 20) -> None:
    """Print the figures after each day, and the first and last of them, for so many minutes."""
    topic = "week"
    harness.client.create_topic(topic, PARTITIONS)
    harness.client.create_topic("in", 4)
    harness.write_groups(topic, GROUPS)
    warehouse = harness.directory / topic
    where = ["--bootstrap-server", harness.broker.bootstrap_server, "--warehouse", str(warehouse)]
    command = [sys.executable, "-c", _QUICKER, "run", "--topic", topic, *where]
    printed = harness.directory / "week.log"
    with printed.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as job:
        try:
            await_groups(warehouse, GROUPS)
            ends = time.monotonic() + 60 * minutes
            figures = []
            for day in _days(harness, topic, warehouse, job):
                figures.append(_figures(job.pid, warehouse))
                print(f"day {day}: version {_version(warehouse):,} of groups; {figures[-1]}", flush=True)
                if time.monotonic() > ends:
                    break
            print(f"first: {figures[0]}\nthird: {figures[min(2, len(figures) - 1)]}\nlast:  {figures[-1]}", flush=True)
        finally:
            job.terminate()
            job.wait()
            lines = printed.read_text("utf-8", "replace").splitlines()
            print(*(line for line in lines if "fail" in line or "rror" in line), sep="\n", flush=True)


def _days(harness: Harness, topic: str, warehouse: Path, job: subprocess.Popen[bytes]) -> Iterator[int]:
    """Let a day pass, yield its number, and go on."""
    chance = random.Random(GROUPS)  # noqa: S311 - no secret
    day, epoch = 0, 2
    while True:
        day += 1
        for number in range(_COMMITS_PER_DAY):
            epoch += 1
            before = _version(warehouse)
            is_burst = number == _COMMITS_PER_DAY // 3
            for one in chance.sample(range(GROUPS), _BURST if is_burst else 1):
                _write(harness, topic, one, epoch)
            harness.producer.flush()
            if is_burst:
                _kill_workers(job.pid)
            _await_commit(warehouse, before, job)
            if number == 2 * _COMMITS_PER_DAY // 3 and isinstance(harness.broker, LocalBroker):
                _disturb(harness.broker, kill=day % 2 == 0)
        yield day


def _write(harness: Harness, topic: str, number: int, epoch: int) -> None:
    partition = number % PARTITIONS
    for key, value in group_records(group_id(number), epoch):
        harness.producer.send(topic, key=key, value=value, partition=partition)
    for one in range(4):
        of = {"group": group_id(number), "topic": "in", "partition": one}
        key, value = encode(1, of, {"offset": epoch, "commit_timestamp": int(1000 * time.time())})
        harness.producer.send(topic, key=key, value=value, partition=partition)


def _await_commit(warehouse: Path, before: int, job: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _COMMIT_SECONDS
    while _version(warehouse) <= before and time.monotonic() < until:
        if job.poll() is not None:
            raise RuntimeError(f"the job exited with {job.returncode}")
        time.sleep(0.05)


def _kill_workers(pid: int) -> None:
    """Kill the workers that the batch starts."""
    until = time.monotonic() + _COMMIT_SECONDS / 4
    while not (pids := spark_workers(pid)) and time.monotonic() < until:
        time.sleep(0.05)
    send_signal(signal.SIGKILL, pids)


def _disturb(broker: LocalBroker, *, kill: bool) -> None:
    if kill:
        broker.kill()
        broker.start()
        return
    pids = [pid for pid in [broker.pid] if pid]
    send_signal(signal.SIGSTOP, pids)
    time.sleep(_STOPPED_SECONDS)
    send_signal(signal.SIGCONT, pids)


def _figures(pid: int, warehouse: Path) -> Figures:
    heap = _live_heap(jvm_pid(pid))
    memory = {name: size / 1e6 for name, size in proportional_by_process(pid).items()}
    sizes = file_sizes(warehouse)
    return Figures(
        python_mb=memory.get("the job's own Python", 0),
        jvm_mb=memory.get("Spark's JVM", 0),
        heap_mb=heap,
        workers_mb=memory.get("Spark's Python workers", 0),
        files=len(sizes),
        files_mb=sum(sizes) / 1e6,
        checkpoint_files=sum(1 for file in (warehouse / "_checkpoints").rglob("*") if file.is_file()),
    )


def _live_heap(pid: int | None) -> float:
    """Return the megabytes of the heap that are in use after a full collection; NaN without a `jcmd`."""
    jcmd = shutil.which("jcmd")
    if not jcmd or pid is None:
        return float("nan")
    # After GC.run the heap already has new garbage when GC.heap_info answers: up to twice as much.
    done = subprocess.run([jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, check=False)
    used = re.findall(r"^Total +\d+ +(\d+)$", done.stdout, re.MULTILINE)
    return int(used[0]) / 1e6 if used else float("nan")


def _version(warehouse: Path) -> int:
    """Return the newest version of `groups`."""
    return max((int(commit.stem) for commit in (warehouse / "groups" / "_delta_log").glob("*.json")), default=-1)
