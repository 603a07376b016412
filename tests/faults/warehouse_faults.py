"""Faults of what the job has stored, and readings of the topic from its beginning, which may be killed in turn."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress

from deltalake import DeltaTable
from kafka.errors import KafkaError

from streaming_app.kafka.protocol import GroupError
from streaming_app.tables.definitions import tables
from tests.faults.harness import CHECKPOINTS, FaultHarness, UnexpectedError
from tests.faults.recreated_topic import RecreatedTopic

_TABLES = tuple(definition.name for definition in tables())
_CHECKPOINTS = tuple(f"_checkpoints/{name}" for name in CHECKPOINTS)
_CLEAN_SECONDS = 8.0  # of the cleaner, beyond the retention of tombstones


def full_disk(harness: FaultHarness) -> int:
    """Let the disk be full for a while, once or several times; the job may end. Return how often."""
    times = harness.random.randint(1, 3)
    for _ in range(times):
        harness.wait_before()
        harness.disk.fill(harness.job.pids())
        try:
            harness.operate(harness.seconds(2, 10))
        finally:
            harness.disk.free()
    return times


def lose_checkpoint(harness: FaultHarness) -> None:
    """Remove the checkpoint while the job does not run, with or without the record next to it."""
    harness.wait_before()
    harness.kill_job()
    lost = harness.random.choice(_CHECKPOINTS)
    harness.remove(lost, *([f"{lost}.topic.json"] if harness.random.random() < 0.5 else []))
    harness.start_job()


def lose_table(harness: FaultHarness) -> None:
    """Remove one table while the job does not run."""
    harness.wait_before()
    harness.kill_job()
    harness.remove(harness.random.choice(_TABLES))
    harness.start_job()


def lose_tables(harness: FaultHarness) -> None:
    """Remove all tables, with or without the checkpoint."""
    harness.wait_before()
    harness.kill_job()
    harness.remove(*_TABLES, *(["_checkpoints"] if harness.random.random() < 0.5 else []))
    harness.start_job()


def lose_while_running(harness: FaultHarness) -> int:
    """Remove one table, or the checkpoint, while the job runs, once or twice. Return how often."""
    times = harness.random.randint(1, 2)
    for _ in range(times):
        harness.wait_before()
        harness.remove(harness.random.choice((*_TABLES, *_CHECKPOINTS)))
        harness.operate(harness.seconds(2, 8))
    return times


def restore_table(harness: FaultHarness) -> None:
    """Restore one table to an earlier version, by Delta's RESTORE, or all tables but not the checkpoint."""
    harness.wait_before()
    harness.kill_job()
    names = _TABLES if harness.random.random() < 0.3 else (harness.random.choice(_TABLES),)
    for name in names:
        with suppress(Exception):  # a table that a fault before this one has left unreadable or absent
            opened = DeltaTable(harness.warehouse / name)
            opened.restore(harness.random.randrange(opened.version() + 1))
    harness.start_job()


def restore_copy(harness: FaultHarness) -> None:
    """Copy the warehouse while the job runs, as documented, and later replace all of it, or one table, by the copy."""
    harness.wait_before()
    copied = harness.directory / "copy"
    shutil.rmtree(copied, ignore_errors=True)
    harness.copy_warehouse(copied)
    harness.operate(harness.seconds(2, 10))
    harness.kill_job()
    names = [one.name for one in copied.iterdir()]
    if harness.random.random() < 0.5:
        names = [harness.random.choice([name for name in names if name in _TABLES] or names)]
    harness.remove(*names)
    for name in names:
        shutil.copytree(copied / name, harness.warehouse / name)
    harness.start_job()


def reset(harness: FaultHarness) -> None:
    """Start the job with `--reset`."""
    harness.wait_before()
    harness.kill_job()
    harness.start_job("--reset")


def kill_during_reset(harness: FaultHarness) -> int:
    """Kill the job during `--reset`, several times in a row. Return how often."""
    harness.wait_before()
    harness.kill_job()
    kills = harness.random.randint(1, 5)
    for _ in range(kills):
        harness.start_job("--reset")
        harness.operate_during_start()
        harness.kill_job()
    harness.start_job()
    return kills


def kill_during_rereading(harness: FaultHarness) -> int:
    """Kill the job several times while it reads from the beginning, since something was lost. Return how often."""
    harness.wait_before()
    harness.kill_job()
    harness.remove(harness.random.choice((*_CHECKPOINTS, "groups", "group_events", "offset_commits")))
    kills = harness.random.randint(1, 5)
    for _ in range(kills):
        harness.start_job()
        harness.operate_during_start()
        harness.kill_job()
    harness.start_job()
    return kills


def miss_tombstones(harness: FaultHarness) -> None:
    """Keep the job away while groups and members go, and until their tombstones are compacted away."""
    harness.kill_job()
    for group_id in harness.random.sample(harness.operations.groups, 4):
        for member in [one for one in harness.operations.members if one.group_id == group_id]:
            harness.operations.members.remove(member)
            with suppress(GroupError, KafkaError):
                member.leave()
        if harness.random.random() < 0.7:
            with suppress(GroupError, KafkaError):
                harness.client.delete_group(group_id)
    harness.operate(harness.retention_seconds + harness.seconds(0, _CLEAN_SECONDS))
    harness.killed_at = time.monotonic()
    harness.start_job()


def recreate_topic(harness: FaultHarness) -> int:
    """Delete a topic and create it again, while its job runs or not; the job starts with `--reset`, and is killed.

    Return how many faults this were: one, and each time that it was killed.
    """
    kills = harness.random.randrange(4)
    other = RecreatedTopic(harness)
    try:
        other.create()
        other.start()
        if not other.is_caught_up():
            raise UnexpectedError(f"another topic: {other.job.output[-1000:]}")
        if harness.random.random() < 0.5:
            other.job.kill()
        harness.client.delete_topic(other.topic)
        other.create()
        if not other.job.running:
            other.start()
        if not other.is_refused():
            raise UnexpectedError(f"a topic that was created again: {other.job.output[-1000:]}")
        for _ in range(kills):
            other.start("--reset")
            time.sleep(harness.seconds(0.3, 1.5) * harness.start_seconds)
            other.job.kill()
        other.start("--reset")
        if not other.is_caught_up():
            raise UnexpectedError(f"a topic that was created again, after --reset: {other.job.output[-1000:]}")
        if found := other.differences():
            raise UnexpectedError(f"a topic that was created again: {found}")
    finally:
        other.job.close()
    return 1 + kills
