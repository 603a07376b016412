"""Months in minutes: whether memory and files stay within bounds over many commits.

A "day" here is so many rebalances of random groups, one batch each or few; versions are kept for half a minute instead
of three hours, and maintenance runs as often in proportion. Each day has two faults: Spark's Python workers are killed,
and the broker is stopped for longer than its sessions. The figures of each day should not grow from the second or third
on; until then the JVM fills its heap.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from streaming_app.sandbox.broker import LocalBroker
from tests.bench.bench_harness import PARTITIONS, Harness, group_records
from tests.bench.freshness import await_groups
from tests.bench.memory import resident_by_process, worker_pids

DAYS, REBALANCES, GROUPS = 7, 250, 500
_PAUSE_SECONDS = 0.4
_STOPPED_SECONDS = 12.0
_QUICKER = """
from streaming_app.alerts import evaluator
from streaming_app.tables import delta_writer, maintenance
kept = dict.fromkeys(("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"), "interval 30 seconds")
delta_writer._PROPERTIES.update(kept)
maintenance.COMMITS_PER_COMPACTION = 40
maintenance._VACUUM_SECONDS = 30
evaluator._MAINTENANCE_EVERY = 20
from streaming_app.cli.main import main
main(prog_name="streams-groups")
"""


def run(harness: Harness) -> None:
    """Print a line for each day: megabytes resident, files of the tables and of the checkpoint."""
    topic = "week"
    harness.client.create_topic(topic, PARTITIONS)
    harness.write_groups(topic, GROUPS)
    warehouse = harness.directory / topic
    where = ["--bootstrap-server", harness.broker.bootstrap_server, "--warehouse", str(warehouse)]
    chance = random.Random(GROUPS)  # noqa: S311 - no secret
    command = [sys.executable, "-c", _QUICKER, "run", "--topic", topic, *where]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
        try:
            await_groups(warehouse, GROUPS)
            for day in range(1, DAYS + 1):
                for rebalance in range(REBALANCES):
                    number = chance.randrange(GROUPS)
                    for key, value in group_records(number, 3 + day * REBALANCES + rebalance):
                        harness.producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
                    harness.producer.flush()
                    time.sleep(_PAUSE_SECONDS)
                    if rebalance == REBALANCES // 3:
                        _send(signal.SIGKILL, worker_pids(job.pid))
                    elif rebalance == 2 * REBALANCES // 3 and isinstance(harness.broker, LocalBroker):
                        _stop_broker(harness.broker)
                print(f"day {day}: {_summary(job.pid, warehouse)}", flush=True)
        finally:
            job.terminate()


def _stop_broker(broker: LocalBroker) -> None:
    pids = [pid for pid in [broker.pid] if pid]
    _send(signal.SIGSTOP, pids)
    time.sleep(_STOPPED_SECONDS)
    _send(signal.SIGCONT, pids)


def _send(signal_number: int, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def _summary(pid: int, warehouse: Path) -> str:
    memory = [f"{name} {size / 1e6:,.0f} MB" for name, size in resident_by_process(pid).items()]
    files = [f"{name} {_files(warehouse / name):,}" for name in ("groups", "group_events", "alerts", "_checkpoints")]
    newest = max(int(commit.stem) for commit in (warehouse / "groups" / "_delta_log").glob("*.json"))
    return f"version {newest:,} of groups; {', '.join(memory)}; files: {', '.join(files)}"


def _files(path: Path) -> int:
    return sum(1 for entry in path.rglob("*") if entry.is_file())
