"""The cost of a job while nothing happens, or while commits keep coming: processor time, files and memory.

Streams groups have one member each, which only sends heartbeats; these leave no record. Other groups have committed
offsets of topics with records. The job runs with its defaults: lag passes, task copies, alerts and
heartbeat go on. The start-up does not count.
"""

import itertools
import time
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from bench.bench_harness import Harness, is_caught_up, process, repeating
from bench.memory import file_sizes, format_megabytes, processor_seconds_by_process, proportional_by_process
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from tests.support.waiting import wait_until

_PARTITIONS, _RECORDS = 10, 100
_SECONDS = 180.0  # to catch up, at most
_SETTLE_SECONDS = 120.0  # after the start, until only work remains that the job does in every hour
_HEARTBEAT_SECONDS, _HEARTBEATS_A_SECOND = 5.0, 25
_TRICKLE = 15  # commits a second, by the groups in turns


class Cluster(NamedTuple):
    """What there is beside the job; each topic has ten partitions."""

    streams_groups: int = 20
    """Each has one member, and reads one topic."""
    groups: int = 50
    """Each has committed offsets of all partitions."""
    topics: int = 10


FEW = Cluster()
SMALL = Cluster(500, 1, 500)
"""500 groups with 5,000 partitions."""


def run(harness: Harness, minutes: float, cluster: Cluster = FEW, *, trickle: bool = False) -> None:
    """Print the cost of these minutes, converted to an hour."""
    members = _prepare(harness, cluster)
    warehouse, log = harness.directory / "idle", harness.directory / "idle.log"
    numbers = itertools.count()

    def commit() -> None:
        number = next(numbers)
        place = f"idle-{number % cluster.topics}", number % _PARTITIONS
        harness.client.commit_offsets(f"idle-commits-{number % cluster.groups}", {place: number % _RECORDS})

    with (
        repeating(
            lambda: [one.step() for one in members], max(_HEARTBEAT_SECONDS, len(members) / _HEARTBEATS_A_SECOND)
        ),
        repeating(commit, 1 / _TRICKLE) if trickle else nullcontext(),
        process(harness.run_command(warehouse), log) as job,
    ):
        assert wait_until(lambda: is_caught_up(log), _SECONDS)
        time.sleep(_SETTLE_SECONDS)
        began, used_before, versions = time.monotonic(), processor_seconds_by_process(job), _versions(warehouse)
        sizes_before = file_sizes(warehouse)
        time.sleep(60 * minutes)
        hours, used = (time.monotonic() - began) / 3600, processor_seconds_by_process(job)
        written = {name: version - versions[name] for name, version in _versions(warehouse).items() if name in versions}
        sizes, memory = file_sizes(warehouse), proportional_by_process(job)
    what = f"minutes with {_TRICKLE} commits a second" if trickle else "idle minutes"
    print(*log.read_text("utf-8").splitlines()[-5:], sep="\n")
    partitions = cluster.topics * _PARTITIONS
    taken = {name: (seconds - used_before.get(name, 0.0)) / hours for name, seconds in used.items()}
    print(
        f"{60 * hours:.0f} {what}, {cluster.streams_groups} streams groups, "
        f"{cluster.groups * partitions:,} committed offsets of {partitions:,} partitions; an hour takes "
        + ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in taken.items())
        + f" of processor time, {sum(taken.values()) / 36:.1f} % of a core"
    )
    print("commits an hour:", ", ".join(f"{name} {count / hours:,.0f}" for name, count in written.items() if count))
    print("files at its begin and now:", *(f"{len(one):,}, {sum(one) / 1e6:.1f} MB" for one in (sizes_before, sizes)))
    print(f"memory (PSS): {format_megabytes(memory)}", flush=True)


def _prepare(harness: Harness, cluster: Cluster) -> list[SimulatedMember]:
    names = [f"idle-{number}" for number in range(cluster.topics)]
    for name in names:
        harness.client.create_topic(name, _PARTITIONS)
        for number in range(_RECORDS * _PARTITIONS):
            harness.producer.send(name, b"x", partition=number % _PARTITIONS)
    harness.producer.flush()
    commits = {(name, partition): _RECORDS for name in names for partition in range(_PARTITIONS)}
    for number in range(cluster.groups):
        harness.client.commit_offsets(f"idle-commits-{number}", commits)
    members = []
    for number in range(cluster.streams_groups):
        kind = topology(subtopology("0", source_topics=[names[number % len(names)]]))
        members.append(SimulatedMember(harness.client, f"idle-streams-{number}", kind))
        members[-1].join()
    settle(members)
    return members


def _versions(warehouse: Path) -> dict[str, int]:
    return {log.parent.name: DeltaTable(log.parent).version() for log in warehouse.glob("*/_delta_log")}
