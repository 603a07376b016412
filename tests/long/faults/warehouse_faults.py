"""Faults of what the job has stored, and readings of the topic from its beginning, which may be killed in turn."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress

from deltalake import DeltaTable
from kafka.errors import KafkaError

from streaming_app.kafka.protocol import GroupError
from streaming_app.tables.definitions import tables
from tests.long.faults.harness import CHECKPOINTS, FaultHarness, UnexpectedError
from tests.long.faults.job_faults import kill_running
from tests.long.faults.recreated_topic import RecreatedTopic

_TABLES = tuple(definition.name for definition in tables())
_CHECKPOINTS = tuple(f"_checkpoints/{name}" for name in CHECKPOINTS)
_CLEAN_SECONDS = 8.0  # of the cleaner, beyond the retention of tombstones


def full_disk(harness: FaultHarness) -> None:
    """Let the disk be full for a while, once or several times; the job may end."""
    for _ in range(harness.times()):
        harness.wait_before()
        harness.disk.fill(harness.job.pids())
        try:
            harness.expect(harness.disk.is_full)
            harness.operate(harness.seconds(2, 10))
        finally:
            harness.disk.free()


def lose_checkpoint(harness: FaultHarness) -> None:
    """Remove the checkpoint while the job does not run, with or without the record next to it."""
    harness.wait_before()
    harness.kill_job()
    lost = harness.random.choice(_CHECKPOINTS)
    removed = harness.remove(lost, *([f"{lost}.topic.json"] if harness.random.random() < 0.5 else []))
    harness.expect(removed)
    harness.start_job()


def lose_table(harness: FaultHarness) -> None:
    """Remove one table while the job does not run."""
    harness.wait_before()
    harness.kill_job()
    harness.expect(harness.remove(harness.random.choice(_TABLES)))
    harness.start_job()


def lose_tables(harness: FaultHarness) -> None:
    """Remove all tables, with or without the checkpoint."""
    harness.wait_before()
    harness.kill_job()
    harness.expect(harness.remove(*_TABLES, *(["_checkpoints"] if harness.random.random() < 0.5 else [])))
    harness.start_job()


def lose_while_running(harness: FaultHarness) -> None:
    """Remove one table, or the checkpoint, while the job runs, once or twice."""
    for _ in range(harness.times(2)):
        harness.wait_before()
        harness.expect(harness.remove(harness.random.choice((*_TABLES, *_CHECKPOINTS))))
        harness.operate(harness.seconds(2, 8))


def restore_table(harness: FaultHarness) -> None:
    """Restore one table to an earlier version, by Delta's RESTORE, or all tables but not the checkpoint."""
    harness.wait_before()
    harness.kill_job()
    names = _TABLES if harness.random.random() < 0.3 else (harness.random.choice(_TABLES),)
    restored = 0
    for name in names:
        with suppress(Exception):  # a table that a fault before this one has left unreadable or absent
            opened = DeltaTable(harness.warehouse / name)
            before = opened.version()
            opened.restore(harness.pick(range(before + 1)))
            restored += opened.version() > before
    harness.expect(restored > 0)
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
        names = [harness.pick(sorted(name for name in names if name in _TABLES) or names)]
    harness.expect(harness.remove(*names))
    for name in names:
        shutil.copytree(copied / name, harness.warehouse / name)
    harness.start_job()


def reset(harness: FaultHarness) -> None:
    """Start the job with `--reset`: it begins another checkpoint."""

    def checkpoint() -> bytes:
        file = harness.warehouse / _CHECKPOINTS[0] / "metadata"  # of Spark: the id of the query
        return file.read_bytes() if file.exists() else b""

    harness.wait_before()
    harness.kill_job()
    before = checkpoint()
    harness.start_job("--reset")
    harness.expect(lambda: checkpoint() not in {b"", before})


def kill_during_reset(harness: FaultHarness) -> None:
    """Kill the job during `--reset`, several times in a row."""
    harness.wait_before()
    harness.kill_job()
    for _ in range(harness.times(5)):
        harness.start_job("--reset")
        harness.operate_during_start()
        kill_running(harness)
    harness.start_job()


def kill_during_rereading(harness: FaultHarness) -> None:
    """Kill the job several times while it reads from the beginning, since something was lost."""
    harness.wait_before()
    harness.kill_job()
    harness.remove(harness.random.choice((*_CHECKPOINTS, "groups", "group_events", "offset_commits")))
    for _ in range(harness.times(5)):
        harness.start_job()
        harness.operate_during_start()
        kill_running(harness)
    harness.start_job()


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
    before = harness.cleaned_offsets()
    harness.operate(harness.retention_seconds + harness.seconds(0, _CLEAN_SECONDS))
    harness.expect(lambda: any(end > before.get(number, 0) for number, end in harness.cleaned_offsets().items()))
    harness.killed_at = time.monotonic()
    harness.start_job()


def recreate_topic(harness: FaultHarness) -> None:
    """Delete a topic and create it again, while its job runs or not; the job starts with `--reset`, and is killed."""
    other = RecreatedTopic(harness)
    try:
        other.create()
        other.start()
        if not other.is_caught_up():
            raise UnexpectedError(f"another topic: {other.job.output[-1000:]}")
        if harness.random.random() < 0.5:
            other.job.kill()
        before = other.topic_id
        harness.client.delete_topic(other.topic)
        other.create()
        harness.expect(other.topic_id != before)
        if not other.job.running:
            other.start()
        if not other.is_refused():
            raise UnexpectedError(f"a topic that was created again: {other.job.output[-1000:]}")
        for _ in range(harness.times()):
            other.start("--reset")
            harness.last(harness.seconds(0.3, 1.5) * harness.start_seconds)
            other.job.kill()
        other.start("--reset")
        if not other.is_caught_up():
            raise UnexpectedError(f"a topic that was created again, after --reset: {other.job.output[-1000:]}")
        if found := other.differences():
            raise UnexpectedError(f"a topic that was created again: {found}")
    finally:
        other.job.close()
