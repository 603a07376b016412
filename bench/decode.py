"""How fast records are decoded: interpreted Construct, compiled Construct, and what the job uses, in one run.

Each record is decoded whole, key and value. The rivals are Constructs from the same definitions as the job's path;
compiled, nothing of them is left interpreted (a test sees to that). Seconds are those of the processor, not of the
clock, and every figure is the best of several short rounds that take turns: a busy machine changes little.
"""

from __future__ import annotations

import argparse
import time
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from offsets_decoder import decode, encode, reference_decode
from offsets_decoder.reference import key_construct, value_construct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TASKS = (1, 20, 200)
GROUP = "payments-enrichment"
MEMBER = "7b0c5c1e-3f5a-4f0e-9a57-2d8c1f6f3b11"
UUID = "9QzJcRrXS2uSnzlC6FqG3w"


class Sample(NamedTuple):
    label: str
    record_type: int
    key: dict[str, Any]
    value: dict[str, Any]


class Rates(NamedTuple):
    """Records per second of one core's time."""

    interpreted: float
    compiled: float
    job: float


def samples() -> list[Sample]:
    """Records as a broker of 4.4 writes them: each of the streams types, those with tasks in three sizes."""
    group, member = {"group_id": GROUP}, {"group_id": GROUP, "member_id": MEMBER}
    offset = {"group": GROUP, "topic": "payments", "partition": 7}
    sized = [sample for tasks in TASKS for sample in _with_tasks(member, tasks)]
    return [
        Sample(
            "1 OffsetCommit", 1, offset, {"offset": 1 << 40, "commit_timestamp": 1_764_000_000_000, "topic_id": UUID}
        ),
        Sample("17 Metadata", 17, group, _metadata()),
        Sample("19 MemberMetadata", 19, member, _member_metadata()),
        Sample("20 TargetMetadata", 20, group, {"assignment_epoch": 7, "assignment_timestamp": 1_764_000_000_000}),
        *sized,
        Sample("23 Topology, 4 subtopologies", 23, group, _topology()),
    ]


def _with_tasks(member: dict[str, Any], tasks: int) -> list[Sample]:
    active = _tasks(tasks)
    target = {"active_tasks": active, "standby_tasks": _tasks(tasks)}
    with_epochs = [task | {"assignment_epochs": [7] * len(task["partitions"])} for task in active]
    current = {"member_epoch": 7, "previous_member_epoch": 6, "state": 1, "active_tasks": with_epochs}
    return [
        Sample(f"21 TargetMember, {tasks} tasks", 21, member, target),
        Sample(f"22 CurrentAssignment, {tasks} tasks", 22, member, current),
    ]


def _tasks(count: int) -> list[dict[str, Any]]:
    """Spread tasks over up to four subtopologies, as a topology of that size has them."""
    width = min(4, count)
    return [{"subtopology_id": str(i), "partitions": list(range(count // width))} for i in range(width)]


def _metadata() -> dict[str, Any]:
    configs = [{"key": "num.standby.replicas", "value": "1"}]
    return {
        "epoch": 7,
        "metadata_hash": 0x2152202A89C42935,
        "validated_topology_epoch": 0,
        "last_assignment_configs": configs,
        "stored_description_topology_epoch": 0,
    }


def _member_metadata() -> dict[str, Any]:
    return {
        "instance_id": None,
        "rack_id": "eu-west-1a",
        "client_id": "payments-enrichment-1-StreamThread-1-consumer",
        "client_host": "/10.12.3.45",
        "rebalance_timeout_ms": 300_000,
        "process_id": MEMBER,
        "user_endpoint": {"host": "payments-1.internal", "port": 8080},
        "client_tags": [{"key": "zone", "value": "eu-west-1a"}],
    }


def _topology() -> dict[str, Any]:
    configs = [{"key": "cleanup.policy", "value": "compact"}, {"key": "message.timestamp.type", "value": "CreateTime"}]
    changelog = {"name": "payments-enrichment-store-changelog", "replication_factor": 3, "topic_configs": configs}
    subtopology = {"source_topics": ["payments", "customers"], "state_changelog_topics": [changelog]}
    copartitioned = {"copartition_groups": [{"source_topics": [0, 1]}]}
    return {"subtopologies": [subtopology | copartitioned | {"subtopology_id": str(i)} for i in range(4)]}


def measure(sample: Sample, seconds: float) -> Rates:
    """Decode one sample over and over in each of the three ways, for about `seconds` in all."""
    key, value = encode(sample.record_type, sample.key, sample.value)
    assert value is not None
    version = int.from_bytes(value[:2], "big")
    key_parser = key_construct(sample.record_type).compile()
    value_parser = value_construct(sample.record_type, version).compile()

    def compiled() -> tuple[Any, Any]:
        return (
            key_parser.parse_stream(BytesIO(key[2:])),
            value_parser.parse_stream(BytesIO(value[2:]), unknown=[]),
        )

    expected = reference_decode(key, value)
    assert decode(key, value) == expected
    assert compiled() == (expected.key, expected.value)
    ways = [lambda: reference_decode(key, value), compiled, lambda: decode(key, value)]
    rounds = 5
    budget = seconds / (rounds * len(ways))
    best = [0.0] * len(ways)
    for _ in range(rounds):
        for way, function in enumerate(ways):
            best[way] = max(best[way], _rate(function, budget))
    return Rates(*best)


def _rate(function: Callable[[], object], seconds: float) -> float:
    count, calls = 0, 16
    start = now = time.process_time()
    while now - start < seconds:
        for _ in range(calls):
            function()
        count += calls
        now = time.process_time()
    return count / (now - start)


def run(seconds: float = 1.5) -> None:
    """Print one line for each sample; `seconds` is the time given to each."""
    table = Table(title="Decoding, records/s on one core (key and value)")
    table.add_column("record")
    for column in ("bytes", "interpreted", "compiled", "job", "job / interpreted", "job / compiled"):
        table.add_column(column, justify="right")
    for sample in samples():
        key, value = encode(sample.record_type, sample.key, sample.value)
        rates = measure(sample, seconds)
        table.add_row(
            sample.label,
            f"{len(key) + len(value or b'')}",
            *(f"{rate:,.0f}" for rate in rates),
            f"{rates.job / rates.interpreted:.1f}",
            f"{rates.job / rates.compiled:.1f}",
        )
    Console(width=120).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read `--seconds` and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each record")
    run(parser.parse_args(arguments).seconds)


if __name__ == "__main__":
    main()
