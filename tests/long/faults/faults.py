"""The faults of a job, its brokers and its warehouse, and how often each kind of fault is chosen."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from deltalake import DeltaTable
from kafka.errors import KafkaError

from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.definitions import tables
from tests.long.bed import CHECKPOINTS, PARTITIONS, TOPIC, UnexpectedError
from tests.long.faults.bed import INPUTS, STOPPED_SECONDS, ClusterBed, FaultBed
from tests.support.kafka_cluster import ClusterNode
from tests.support.processes import is_running, process_state, send_signal
from tests.support.waiting import wait_until

_EXIT_SECONDS = 300.0
_RETRY_SOON = "from tests.long.faults.injected import retry_soon; retry_soon(); "
_TABLES = tuple(definition.name for definition in tables())
_CHECKPOINTS = tuple(f"_checkpoints/{name}" for name in CHECKPOINTS)
_CLEAN_SECONDS = 8.0  # of the cleaner, beyond the retention of tombstones
LAG, ROWS = "election to right lag", "unclean election to right rows"
_GONE = 69  # GROUP_ID_NOT_FOUND
_MOST_SECONDS = 300.0
ONE, THREE = frozenset({1}), frozenset({3})
ANY = ONE | THREE


# --- Processes of the job, and what they write


def kill_job(bed: FaultBed) -> None:
    """Kill the process that a user started, at any moment, also while it starts."""
    _repeat(bed, lambda: kill_running(bed))


def kill_running(bed: FaultBed) -> None:
    """Kill the process that a user started, which runs."""
    pid = bed.job.pid
    bed.kill_job()
    bed.expect(pid is not None and not is_running(pid))


def kill_tree(bed: FaultBed) -> None:
    """Kill all processes of the job at once, as a machine that loses its power."""
    _repeat(bed, lambda: _kill(bed, bed.job.pids()))


def kill_jvm(bed: FaultBed) -> None:
    """Kill Spark's JVM, as the kernel does when memory runs out: the job says so in one line, and ends."""

    def kill() -> None:
        jvms, before = bed.job.jvms(), len(bed.job.output)
        code = _kill(bed, jvms)
        printed = bed.job.output[before:]
        if jvms and (code != 1 or "Traceback" in printed or "\nError: " not in f"\n{printed}"):
            raise UnexpectedError(f"the JVM was killed, and the job exited with {code} and printed {printed[-2000:]}")

    _repeat(bed, kill)


def _kill(bed: FaultBed, pids: list[int]) -> int:
    """Kill these processes, of which some ran, and return the exit code of the job."""
    code = bed.job.kill(*pids)
    bed.expect(bool(pids) and (lambda: not any(map(is_running, pids))))
    return code


def _repeat(bed: FaultBed, end: Callable[[], None]) -> None:
    """End the job once or several times, each time while it starts again."""
    bed.wait_before()
    for number in range(bed.times()):
        if number:
            bed.operate(bed.seconds(0, 1.2) * bed.start_seconds)
            bed.ensure_running()
        end()
        bed.start_job()


def kill_worker(bed: FaultBed) -> None:
    """Kill the Python workers of Spark, some times: the job goes on by itself."""
    bed.kill_job()
    retries_soon = bed.random.random() < 0.8  # else it gives up at the fourth failure, and is started again
    bed.start_job_for_workers(_RETRY_SOON if retries_soon else "")
    bed.wait_before()  # which ends at once where a job that has just been started has nothing to read
    until = time.monotonic() + _EXIT_SECONDS
    while not (bed.job.workers() or bed.job.unexpected_exit) and time.monotonic() < until:
        bed.operate(0.3)  # there is none before the first batch
    killed: list[int] = []
    for _ in range(bed.random.randrange(5, 16)):
        workers = bed.job.workers()
        send_signal(signal.SIGKILL, workers)
        killed += workers
        bed.operate(bed.seconds(0, 2))
    bed.expect(bool(killed) and (lambda: not any(map(is_running, killed))))


def stop_job(bed: FaultBed) -> None:
    """Stop all processes of the job, or one of them, for longer than sessions, and continue them."""
    bed.wait_before()
    pids = bed.job.pids()
    stopped = pids if bed.random.random() < 0.5 else [bed.pick(pids)]
    send_signal(signal.SIGSTOP, stopped)
    bed.expect(bool(stopped) and (lambda: all(process_state(pid) == "T" for pid in stopped)))
    bed.operate(STOPPED_SECONDS)
    send_signal(signal.SIGCONT, stopped)


def jvm_outlives_job(bed: FaultBed) -> None:
    """Stop the JVM, kill the job, start another one, and continue the old JVM in the middle of what it did."""
    bed.wait_before()
    jvms = bed.job.jvms()
    send_signal(signal.SIGSTOP, jvms)
    bed.kill_job(with_stopped_jvm=True)
    bed.expect(bool(jvms) and (lambda: all(process_state(pid) == "T" for pid in jvms)))
    bed.start_job()
    bed.operate_during_start()
    send_signal(signal.SIGCONT, jvms)
    if not wait_until(lambda: not any(map(is_running, jvms)), _EXIT_SECONDS):
        send_signal(signal.SIGKILL, jvms)
        raise UnexpectedError(f"the JVM of a job that was killed still runs after {_EXIT_SECONDS:.0f} s")


def kill_at_write(bed: FaultBed) -> None:
    """Start the job so that it kills itself before or after one of its first writes, some times in a row."""
    for _ in range(bed.times(5)):
        bed.kill_job()
        number, after = bed.random.randrange(1, 25), bed.random.random() < 0.5
        bed.start_job(setup=f"from tests.long.faults.injected import kill_at; kill_at({number}, after={after}); ")
        until = time.monotonic() + 2 * bed.start_seconds
        while not bed.job.unexpected_exit and time.monotonic() < until:
            bed.operate(0.3)
        bed.expect(f"exited with {128 + signal.SIGKILL}" in (bed.job.unexpected_exit or ""))
    bed.kill_job()
    bed.start_job()


def failing_store(bed: FaultBed) -> None:
    """Start the job so that one of n of its writes fails, or is done without an answer.

    The stream starts again after each. In most cases it does so at once, and goes on until there were some dozens.
    """
    bed.kill_job()
    share, seed = 1 / bed.random.randint(2, 12), bed.random.randrange(2**31)
    retries_soon = bed.random.random() < 0.8
    failures = bed.directory / "failures"
    failures.write_bytes(b"")
    call = f"from tests.long.faults.injected import fail_some; fail_some({share}, {seed}, {str(failures)!r}); "
    bed.start_job(setup=call + (_RETRY_SOON if retries_soon else ""))
    most, until = bed.random.randint(10, 120), time.monotonic() + bed.seconds(2, 5) * bed.start_seconds
    while failures.stat().st_size < most and time.monotonic() < until and not bed.job.unexpected_exit:
        bed.operate(0.5)
    bed.expect(failures.stat().st_size > 0)
    bed.kill_job()
    bed.start_job()


# --- The only broker


def kill_broker(bed: FaultBed, *, with_job: bool = False) -> None:
    """Kill the broker and start it again, once or twice."""
    for _ in range(1 if with_job else bed.times(2)):
        bed.wait_before()
        assert isinstance(bed.broker, LocalBroker)
        pid = bed.broker.pid
        bed.broker.kill()
        bed.expect(pid is not None and not is_running(pid))
        if with_job:
            kill_running(bed)
            bed.start_job()
        bed.last(bed.seconds(0, 12 if with_job else 6))
        bed.broker.start()


def kill_job_and_broker(bed: FaultBed) -> None:
    """Kill both; the job starts while no broker answers."""
    kill_broker(bed, with_job=True)


def stop_broker(bed: FaultBed) -> None:
    """Stop the broker's process for longer than its sessions, and continue it."""
    bed.wait_before()
    pid = bed.broker.pid
    assert pid is not None
    send_signal(signal.SIGSTOP, [pid])
    bed.expect(lambda: process_state(pid) == "T")
    bed.last(STOPPED_SECONDS)
    send_signal(signal.SIGCONT, [pid])


def poison(bed: FaultBed) -> None:
    """Write records that no release can decode, between those of groups: the job moves them to quarantine."""
    bed.ensure_running()
    for _ in range(bed.random.randint(1, 3)):
        partition, offset = bed.write_unknown_record(bed.random)
        query = f'SELECT 1 FROM quarantine WHERE "partition" = {partition} AND "offset" = {offset}'
        bed.expect(lambda: bool(bed.rows(query)))  # noqa: B023 - called at once
        bed.operate(bed.seconds(0, 1))


# --- What the job has stored


def full_disk(bed: FaultBed) -> None:
    """Let the disk be full for a while, once or several times; the job may end."""
    for _ in range(bed.times()):
        bed.wait_before()
        bed.disk.fill()
        try:
            bed.expect(bed.disk.is_full)
            bed.operate(bed.seconds(2, 10))
        finally:
            bed.disk.free()


def lose_checkpoint(bed: FaultBed) -> None:
    """Remove the checkpoint while the job does not run, with or without the record next to it."""
    lost = bed.random.choice(_CHECKPOINTS)
    _lose(bed, lost, *bed.random.sample([f"{lost}.state0.json", f"{lost}.state1.json"], bed.random.randrange(3)))


def lose_tables(bed: FaultBed) -> None:
    """Remove a table, or all tables with or without the checkpoint."""
    all_tables = (*_TABLES, *(["_checkpoints"] if bed.random.random() < 0.5 else []))
    _lose(bed, *(all_tables if bed.random.random() < 0.4 else [bed.random.choice(_TABLES)]))


def _lose(bed: FaultBed, *names: str) -> None:
    bed.wait_before()
    bed.kill_job()
    bed.expect(bed.remove(*names))
    bed.start_job()


def restore_table(bed: FaultBed) -> None:
    """Restore one table to an earlier version, by Delta's RESTORE, or all tables but not the checkpoint."""
    bed.wait_before()
    bed.kill_job()
    names = _TABLES if bed.random.random() < 0.3 else (bed.random.choice(_TABLES),)
    restored = 0
    for name in names:
        with suppress(Exception):  # a table that a fault before this one has left unreadable or absent
            opened = DeltaTable(bed.warehouse / name)
            before = opened.version()
            opened.restore(bed.pick(range(before + 1)))
            restored += opened.version() > before
    bed.expect(restored > 0)
    bed.start_job()


def kill_during_rereading(bed: FaultBed) -> None:
    """Kill the job several times while it reads from the beginning: by `--reset`, or since something was lost."""
    bed.wait_before()
    bed.kill_job()
    options = ["--reset"] if bed.random.random() < 0.6 else []
    if not options:
        bed.remove(bed.random.choice((*_CHECKPOINTS, "groups", "group_events", "offset_commits")))
    for _ in range(bed.times(5)):
        bed.start_job(*options)
        bed.operate_during_start()
        kill_running(bed)
    bed.start_job(*options)


def miss_tombstones(bed: FaultBed) -> None:
    """Keep the job away while groups and members go, and until their tombstones are compacted away."""
    bed.kill_job()
    for group_id in bed.random.sample(bed.operations.groups, 4):
        for member in [one for one in bed.operations.members if one.group_id == group_id]:
            bed.operations.members.remove(member)
            with suppress(GroupError, KafkaError):
                member.leave()
        if bed.random.random() < 0.7:
            with suppress(GroupError, KafkaError):
                bed.client.delete_group(group_id)
    before = bed.cleaned_offsets()
    bed.operate(bed.retention_seconds + bed.seconds(0, _CLEAN_SECONDS))
    bed.expect(lambda: any(end > before.get(number, 0) for number, end in bed.cleaned_offsets().items()))
    bed.start_job()


# --- Between brokers: what the brokers show of it, and of some how soon the tables are right


def kill_node(bed: ClusterBed) -> None:
    """Kill a broker: others lead its partitions, whose lag is soon known again. It comes back."""
    victim = bed.any_leader()
    node = bed.cluster.brokers[victim]
    _away(bed, victim, node.kill, node.start)


def pause_node(bed: ClusterBed) -> None:
    """The same with a broker that is stopped as it is, its connections open."""
    victim = bed.any_leader()
    _away(bed, victim, lambda: bed.cluster.pause(victim), lambda: bed.cluster.resume(victim))


def _away(bed: ClusterBed, victim: int, leave: Callable[[], None], come_back: Callable[[], None]) -> None:
    cluster = bed.cluster
    before = {topic: cluster.leaders(topic) for topic in (TOPIC, *INPUTS)}
    offsets = {(TOPIC, one) for one in range(PARTITIONS)}
    led = {(topic, one) for topic, of in before.items() for one, (leader, _) in of.items() if leader == victim}
    knows = {row[:2] for row in bed.lag_rows()} >= led - offsets and bed.is_caught_up()
    leave()
    bed.reconnect()
    try:

        def others_lead() -> bool:
            now = {topic: cluster.leaders(topic) for topic in before}
            return all(now[topic][one][0] not in {-1, victim} for topic, one in led)

        elected = wait_until(others_lead, interval=0.1)
        elected_at = time.monotonic()
        bed.expect(bool(led) and elected)
        ends = {key: end for key, end in bed.produce().items() if key in led and knows}

        def lag_is_right() -> bool:
            known = {row[:2]: row[3] for row in bed.lag_rows()}
            return all((known.get(key) or 0) >= end for key, end in ends.items())

        if ends:
            bed.measure(LAG, elected_at, lag_is_right, _MOST_SECONDS)
        bed.operate(bed.seconds(0, 2))
    finally:
        come_back()
    cluster.await_all_in_sync(TOPIC, *INPUTS)


def unclean_election(bed: ClusterBed) -> None:
    """Let the log of a partition of the offsets topic lose its newest records; other records come at their offsets."""
    cluster, partition = bed.cluster, bed.random.randrange(PARTITIONS)
    lost, kept = bed.new_group(partition), bed.new_group(partition)
    is_read, writes = bed.random.random() < 0.6, bed.random.random() < 0.7
    leader, epoch = cluster.leaders(TOPIC)[partition]
    paused, elected_at = bed.random.random() < 0.7, 0.0

    def lose() -> None:
        bed.join(lost)
        bed.operate(bed.seconds(0, 2))
        if is_read:
            wait_until(lambda: lost in _groups(bed), 3 * bed.start_seconds)

    def keep() -> None:
        nonlocal elected_at
        elected_at = time.monotonic()
        if writes:
            bed.join(kept)

    behind = cluster.cut(TOPIC, partition, lost=lose, kept=keep, paused=paused)
    cluster.await_all_in_sync(TOPIC, *INPUTS)
    bed.reconnect()
    (found,) = bed.retry(lambda: bed.client.describe([lost]))
    is_gone, now = found["error_code"] == _GONE, cluster.leaders(TOPIC)[partition]
    shown = f"({paused=} {is_read=} {writes=}, {behind} was behind, {(leader, epoch)} led, {now} leads: {found})"
    bed.expect(is_gone and now[1] > epoch, shown=shown)
    if is_gone:
        if not writes:
            bed.join(kept)
        bed.measure(ROWS, elected_at, lambda: kept in (found := _groups(bed)) and lost not in found, _MOST_SECONDS)


def _groups(bed: ClusterBed) -> set[str]:
    return {row["group_id"] for row in bed.rows("SELECT group_id FROM groups")}


def move_leader(bed: ClusterBed) -> None:
    """Let another replica lead a partition that the application reads, or one of the offsets topic and its groups."""
    topic = bed.random.choice((TOPIC, *INPUTS))
    leaders = bed.cluster.leaders(topic)
    partition = bed.pick(list(leaders))
    leader, epoch = leaders[partition]
    to = bed.pick([one for one in bed.cluster.brokers if one != leader])
    bed.cluster.move_leader(topic, partition, to)
    now = bed.cluster.leaders(topic)[partition]
    bed.expect(now[0] == to and now[1] > epoch)
    bed.operate(bed.seconds(0, 1.5))


def rolling_upgrade(bed: ClusterBed) -> None:
    """Replace the nodes of an older release by the newest, one by one, over the same data; then raise the features."""
    cluster = bed.cluster
    brokers = bed.random.sample(list(cluster.brokers.values()), len(cluster.brokers))
    old = {one.version for one in (cluster.controller, *brokers)} - {KAFKA_VERSION}
    for node in (cluster.controller, *brokers):
        _upgrade(node)
        bed.operate(bed.seconds(0, 1))
        cluster.await_all_in_sync(TOPIC, *INPUTS)
    before, after = cluster.finalize_features() if old else ({}, {})
    bed.expect(bool(old) and after["metadata.version"] > before["metadata.version"])
    bed.operate(bed.seconds(1, 2))


def _upgrade(node: ClusterNode) -> None:
    node.stop()
    node.version = KAFKA_VERSION
    node.start()


class Fault(NamedTuple):
    inject: Callable[[Any], None]
    """Gets the bed, which it tells each effect by `expect`."""
    weight: int
    needs_compaction: bool = False
    erases: bool = False
    """Whether it removes rows of the history, which what was wrong with earlier faults may be seen in."""
    brokers: frozenset[int] = ONE
    """How many brokers it may happen to."""

    @property
    def name(self) -> str:
        return self.inject.__name__


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(kill_job, 6, brokers=ANY),
        Fault(kill_tree, 4),
        Fault(kill_jvm, 4, brokers=ANY),
        Fault(kill_worker, 5),
        Fault(stop_job, 2),
        Fault(jvm_outlives_job, 2),
        Fault(kill_at_write, 6),
        Fault(failing_store, 7),
        Fault(kill_broker, 5),
        Fault(stop_broker, 2),
        Fault(kill_job_and_broker, 2),
        Fault(poison, 3, brokers=ANY),
        Fault(kill_node, 3, brokers=THREE),
        Fault(pause_node, 3, brokers=THREE),
        Fault(unclean_election, 4, brokers=THREE),
        Fault(move_leader, 6, brokers=THREE),
        Fault(rolling_upgrade, 1, brokers=THREE),
        Fault(full_disk, 3, brokers=ANY),
        Fault(lose_checkpoint, 3),
        Fault(lose_tables, 5, erases=True),
        Fault(restore_table, 3, erases=True),
        Fault(kill_during_rereading, 8),
        Fault(miss_tombstones, 4, needs_compaction=True),
    )
}
