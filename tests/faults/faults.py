"""The faults: what each does to the job, its broker or its warehouse, and how often it is chosen."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from deltalake import DeltaTable
from kafka.errors import KafkaError

from schemas.table_definitions import tables
from streaming_app.kafka.errors import GroupError
from tests.faults.harness import CHECKPOINTS, STOPPED_SECONDS, FaultHarness
from tests.faults.job import is_running
from tests.faults.recreated_topic import RecreatedTopic
from tests.waiting import wait_until

_TABLES = tuple(definition.name for definition in tables())
_CHECKPOINTS = tuple(f"_checkpoints/{name}" for name in CHECKPOINTS)
_EXIT_SECONDS = 300.0
_CLEAN_SECONDS = 8.0  # of the cleaner, beyond the retention of tombstones


class UnexpectedError(Exception):
    """The job did not do what it has to do at once; the text says what it did."""


# The job's processes


def kill_job(harness: FaultHarness) -> None:
    """Kill the process that a user started, at any moment: also while it starts."""
    harness.wait_before()
    harness.kill_job()
    harness.start_job()


def kill_tree(harness: FaultHarness) -> None:
    """Kill all processes of the job at once."""
    harness.wait_before()
    harness.killed_at = time.monotonic()
    harness.job.kill_tree()
    harness.start_job()


def kill_jvm(harness: FaultHarness) -> None:
    """Kill Spark's JVM: the job says so and ends."""
    harness.wait_before()
    harness.killed_at = time.monotonic()
    if error := harness.job.kill_jvm():
        raise UnexpectedError(error)
    harness.start_job()


def kill_worker(harness: FaultHarness) -> int:
    """Kill the Python workers of Spark, some times: the job goes on by itself. Return how often there were any."""
    harness.kill_job()
    harness.start_job_for_workers()
    harness.wait_before()
    kills = 0
    for _ in range(harness.random.randrange(3, 9)):
        harness.killed_at = time.monotonic()
        if workers := harness.job.workers():
            kills += 1
            harness.job.send(signal.SIGKILL, workers)
        harness.operate(harness.seconds(0, 2))
    return kills


def terminate(harness: FaultHarness) -> None:
    """Stop the job as a service manager does, at any moment."""
    harness.wait_before()
    if error := harness.job.terminate():
        raise UnexpectedError(error)
    harness.start_job()


def stop_job(harness: FaultHarness) -> None:
    """Stop all processes of the job, or one of them, for longer than sessions, and continue them."""
    harness.wait_before()
    pids = harness.job.pids()
    stopped = pids if harness.random.random() < 0.5 else [harness.random.choice(pids)]
    harness.job.send(signal.SIGSTOP, stopped)
    harness.operate(STOPPED_SECONDS)
    harness.job.send(signal.SIGCONT, stopped)


def jvm_outlives_job(harness: FaultHarness) -> None:
    """Stop the JVM, kill the job, start another one, and continue the old JVM in the middle of what it did."""
    harness.wait_before()
    jvms = harness.job.jvms()
    harness.job.send(signal.SIGSTOP, jvms)
    harness.kill_job_only()
    harness.start_job()
    harness.operate_during_start()
    harness.job.send(signal.SIGCONT, jvms)
    if not wait_until(lambda: not any(map(is_running, jvms)), _EXIT_SECONDS):
        harness.job.send(signal.SIGKILL, jvms)
        raise UnexpectedError(f"the JVM of a job that was killed still runs after {_EXIT_SECONDS:.0f} s")


def two_starts(harness: FaultHarness) -> None:
    """Start a second job, or two at once where none runs: one of them ends, and says which other one runs."""
    if harness.random.random() < 0.5:
        harness.kill_job()
        harness.start_job()
    second = harness.new_job()
    second.start()
    try:
        ended = wait_until(lambda: bool(second.unexpected_exit or harness.job.unexpected_exit), _EXIT_SECONDS)
        if harness.job.unexpected_exit:
            harness.job, second = second, harness.job
        if not ended or "Another job already writes" not in second.output:
            raise UnexpectedError(f"two jobs: {second.output[-500:]}")
    finally:
        second.close()


def kill_at_write(harness: FaultHarness) -> int:
    """Start the job so that it kills itself before or after one of its first writes, some times in a row."""
    kills = harness.random.randrange(1, 4)
    for _ in range(kills):
        harness.kill_job()
        number, after = harness.random.randrange(1, 25), harness.random.random() < 0.5
        harness.start_job(setup=f"from tests.faults.injected import kill_at; kill_at({number}, after={after}); ")
        until = time.monotonic() + 2 * harness.start_seconds
        while not harness.job.unexpected_exit and time.monotonic() < until:
            harness.operate(0.3)
    harness.kill_job()
    harness.start_job()
    return kills


def failing_store(harness: FaultHarness) -> int:
    """Start the job so that every n-th of its writes fails, or is done without an answer; return how many did."""
    harness.kill_job()
    number, after = harness.random.randrange(2, 12), harness.random.random() < 0.5
    failures = harness.directory / "failures"
    failures.write_bytes(b"")
    call = f"fail_every({number}, after={after}, log={str(failures)!r})"
    harness.start_job(setup=f"from tests.faults.injected import fail_every; {call}; ")
    harness.operate(harness.seconds(1, 3) * harness.start_seconds)
    harness.kill_job()
    harness.start_job()
    return failures.stat().st_size


# The broker


def kill_broker(harness: FaultHarness) -> None:
    """Kill the broker and start it again."""
    harness.wait_before()
    harness.broker.kill()
    time.sleep(harness.seconds(0, 8))
    harness.broker.start()


def restart_broker(harness: FaultHarness) -> None:
    """Shut the broker down and start it again."""
    harness.wait_before()
    harness.broker.stop()
    time.sleep(harness.seconds(0, 8))
    harness.broker.start()


def stop_broker(harness: FaultHarness) -> None:
    """Stop the broker's process for longer than its sessions, and continue it."""
    harness.wait_before()
    pid = harness.broker.pid
    assert pid is not None
    harness.job.send(signal.SIGSTOP, [pid])
    time.sleep(STOPPED_SECONDS)
    harness.job.send(signal.SIGCONT, [pid])


def kill_job_and_broker(harness: FaultHarness) -> None:
    """Kill both; the job starts while no broker answers."""
    harness.wait_before()
    harness.broker.kill()
    harness.kill_job()
    harness.start_job()
    time.sleep(harness.seconds(0, 20))
    harness.broker.start()


# The warehouse


def full_disk(harness: FaultHarness) -> None:
    """Let the disk be full for a while; the job may end."""
    harness.wait_before()
    harness.disk.fill(harness.job.pids())
    try:
        harness.operate(harness.seconds(3, 20))
    finally:
        harness.disk.free()


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


def lose_while_running(harness: FaultHarness) -> None:
    """Remove one table, or the checkpoint, while the job runs."""
    harness.wait_before()
    harness.remove(harness.random.choice((*_TABLES, *_CHECKPOINTS)))
    harness.operate(harness.seconds(3, 10))


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


# Reading again


def reset(harness: FaultHarness) -> None:
    """Start the job with `--reset`."""
    harness.wait_before()
    harness.kill_job()
    harness.start_job("--reset")


def kill_during_reset(harness: FaultHarness) -> int:
    """Kill the job during `--reset`, several times in a row. Return how often."""
    harness.wait_before()
    harness.kill_job()
    kills = harness.random.randrange(1, 5)
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
    kills = harness.random.randrange(1, 5)
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
        harness.client.delete_topic(other.topic)
        other.create()
        if not other.job.running:
            other.start()
        if not other.is_refused():
            raise UnexpectedError(f"a topic that was created again: {other.job.output[-1000:]}")
        for _ in range(harness.random.randrange(3)):
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


class Fault(NamedTuple):
    """A kind of fault."""

    inject: Callable[[FaultHarness], int | None]
    """Returns how many faults there were; None for one."""
    weight: int
    needs_compaction: bool = False

    @property
    def name(self) -> str:
        return self.inject.__name__


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(kill_job, 6),
        Fault(kill_tree, 4),
        Fault(kill_jvm, 4),
        Fault(kill_worker, 3),
        Fault(terminate, 3),
        Fault(stop_job, 2),
        Fault(jvm_outlives_job, 2),
        Fault(two_starts, 2),
        Fault(kill_at_write, 6),
        Fault(failing_store, 3),
        Fault(kill_broker, 3),
        Fault(restart_broker, 2),
        Fault(stop_broker, 2),
        Fault(kill_job_and_broker, 2),
        Fault(full_disk, 3),
        Fault(lose_checkpoint, 3),
        Fault(lose_table, 3),
        Fault(lose_tables, 2),
        Fault(lose_while_running, 2),
        Fault(restore_table, 3),
        Fault(restore_copy, 2),
        Fault(reset, 2),
        Fault(kill_during_reset, 3),
        Fault(kill_during_rereading, 3),
        Fault(miss_tombstones, 5, needs_compaction=True),
        Fault(recreate_topic, 1),
    )
}
