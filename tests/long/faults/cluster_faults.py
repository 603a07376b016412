"""Faults between brokers: each asserts what the brokers show of it, and some measure when the tables are right."""

from __future__ import annotations

import time
from collections.abc import Callable

from streaming_app.jvm.jars import KAFKA_VERSION
from tests.long.faults.application import INPUTS
from tests.long.faults.cluster_harness import ClusterHarness
from tests.long.faults.harness import PARTITIONS, TOPIC
from tests.support.kafka_cluster import ClusterNode
from tests.support.waiting import MINUTES, wait_until

LAG, ROWS = "election to right lag", "unclean election to right rows"
_GONE = 69  # GROUP_ID_NOT_FOUND
_MOST_SECONDS = 300.0
_BYTES_PER_SECOND = 6_000
_SLOWER = 5


def kill_node(harness: ClusterHarness) -> None:
    """Kill a broker: others lead its partitions, whose lag is soon known again. It comes back."""
    victim = harness.any_leader()
    node = harness.cluster.brokers[victim]
    _away(harness, victim, node.kill, node.start)


def pause_node(harness: ClusterHarness) -> None:
    """The same with a broker that is stopped as it is, its connections open."""
    victim = harness.any_leader()
    _away(harness, victim, lambda: harness.cluster.pause(victim), lambda: harness.cluster.resume(victim))


def _away(harness: ClusterHarness, victim: int, leave: Callable[[], None], come_back: Callable[[], None]) -> None:
    cluster = harness.cluster
    before = {topic: cluster.leaders(topic) for topic in (TOPIC, *INPUTS)}
    offsets = {(TOPIC, one) for one in range(PARTITIONS)}
    led = {(topic, one) for topic, of in before.items() for one, (leader, _) in of.items() if leader == victim}
    knows = {row[:2] for row in harness.lag_rows()} >= led - offsets and harness.is_caught_up()
    leave()
    harness.reconnect()
    try:

        def others_lead() -> bool:
            now = {topic: cluster.leaders(topic) for topic in before}
            return all(now[topic][one][0] not in {-1, victim} for topic, one in led)

        elected = wait_until(others_lead, interval=0.1)
        elected_at = time.monotonic()
        harness.expect(bool(led) and elected)
        ends = {key: end for key, end in harness.produce().items() if key in led and knows}

        def lag_is_right() -> bool:
            known = {row[:2]: row[3] for row in harness.lag_rows()}
            return all((known.get(key) or 0) >= end for key, end in ends.items())

        if ends:
            harness.measure(LAG, elected_at, lag_is_right, _MOST_SECONDS)
        harness.operate(harness.seconds(0, 2))
    finally:
        come_back()
    cluster.await_all_in_sync(TOPIC, *INPUTS)


def unclean_election(harness: ClusterHarness) -> None:
    """Let the log of a partition of the offsets topic lose its newest records; other records come at their offsets."""
    cluster, partition = harness.cluster, harness.random.randrange(PARTITIONS)
    lost, kept = harness.new_group(partition), harness.new_group(partition)
    is_read, writes = harness.random.random() < 0.6, harness.random.random() < 0.7
    leader, epoch = cluster.leaders(TOPIC)[partition]
    paused, elected_at = harness.random.random() < 0.7, 0.0

    def lose() -> None:
        harness.join(lost)
        harness.operate(harness.seconds(0, 2))
        if is_read:
            wait_until(lambda: lost in _groups(harness), 3 * harness.start_seconds)

    def keep() -> None:
        nonlocal elected_at
        elected_at = time.monotonic()
        if writes:
            harness.join(kept)

    behind = cluster.cut(TOPIC, partition, lost=lose, kept=keep, paused=paused)
    cluster.await_all_in_sync(TOPIC, *INPUTS)
    harness.reconnect()
    (found,) = harness.retry(lambda: harness.client.describe([lost]))
    is_gone, now = found["error_code"] == _GONE, cluster.leaders(TOPIC)[partition]
    shown = f"({paused=} {is_read=} {writes=}, {behind} was behind, {(leader, epoch)} led, {now} leads: {found})"
    harness.expect(is_gone and now[1] > epoch, shown=shown)
    if is_gone:
        if not writes:
            harness.join(kept)
        harness.measure(
            ROWS, elected_at, lambda: kept in (found := _groups(harness)) and lost not in found, _MOST_SECONDS
        )


def _groups(harness: ClusterHarness) -> set[str]:
    return {row["group_id"] for row in harness.rows("SELECT group_id FROM groups")}


def full_disk_of_broker(harness: ClusterHarness) -> None:
    """Let the disk of a broker be full until the broker ends, as Kafka's do; it comes back when there is space."""
    victim = harness.any_leader()
    node, disk = harness.cluster.brokers[victim], harness.disks[victim]
    disk.fill([node.pid] if node.pid else [])
    harness.reconnect()
    try:
        is_full, until = disk.is_full, time.monotonic() + MINUTES
        while node.pid is not None and time.monotonic() < until:
            harness.operate(0.5)
        harness.expect(is_full and node.pid is None)
    finally:
        disk.free()
        node.kill()  # where it goes on without its directory
        node.start()
    harness.cluster.await_all_in_sync(TOPIC, *INPUTS)


def slow_disk(harness: ClusterHarness) -> None:
    """Let a broker write a few thousand bytes a second: commits to it take several times as long as before."""
    victim, partition = harness.any_leader(), harness.random.randrange(PARTITIONS)
    if harness.cluster.leader(TOPIC, partition) != victim:
        harness.cluster.move_leader(TOPIC, partition, victim)
    node, group_id = harness.cluster.brokers[victim], harness.new_group(partition)

    def commit() -> float:
        started = time.monotonic()
        harness.retry(lambda: harness.client.commit_offsets(group_id, {(INPUTS[0], 0): 0}))
        return time.monotonic() - started

    commit()  # which finds the coordinator
    before = min(commit() for _ in range(3))
    with harness.disks[victim].throttled([node.pid] if node.pid else [], _BYTES_PER_SECOND):
        harness.operate(1)
        during = min(commit() for _ in range(2))
        harness.expect(during > _SLOWER * before and during > 0.2)
        harness.operate(harness.seconds(1, 3))


def move_leader(harness: ClusterHarness) -> None:
    """Let another replica lead a partition that the application reads."""
    _move(harness, harness.random.choice(INPUTS))


def move_offsets_leader(harness: ClusterHarness) -> None:
    """Let another replica lead a partition of the offsets topic, and coordinate its groups."""
    _move(harness, TOPIC)


def _move(harness: ClusterHarness, topic: str) -> None:
    leaders = harness.cluster.leaders(topic)
    partition = harness.pick(list(leaders))
    leader, epoch = leaders[partition]
    to = harness.pick([one for one in harness.cluster.brokers if one != leader])
    harness.cluster.move_leader(topic, partition, to)
    now = harness.cluster.leaders(topic)[partition]
    harness.expect(now[0] == to and now[1] > epoch)
    harness.operate(harness.seconds(0, 1.5))


def rolling_upgrade(harness: ClusterHarness) -> None:
    """Replace the nodes of an older release by the newest, one by one, over the same data; then raise the features."""
    cluster = harness.cluster
    brokers = harness.random.sample(list(cluster.brokers.values()), len(cluster.brokers))
    old = {one.version for one in (cluster.controller, *brokers)} - {KAFKA_VERSION}
    for node in (cluster.controller, *brokers):
        _upgrade(node)
        harness.operate(harness.seconds(0, 1))
        cluster.await_all_in_sync(TOPIC, *INPUTS)
    before, after = cluster.finalize_features() if old else ({}, {})
    harness.expect(bool(old) and after["metadata.version"] > before["metadata.version"])
    harness.operate(harness.seconds(1, 2))


def _upgrade(node: ClusterNode) -> None:
    node.stop()
    node.version = KAFKA_VERSION
    node.start()
