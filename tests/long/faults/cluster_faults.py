"""Faults between brokers: each asserts what the brokers show of it, and some measure when the tables are right."""

from __future__ import annotations

import time
from collections.abc import Callable

from streaming_app.jvm.jars import KAFKA_VERSION
from tests.long.campaign.bed import PARTITIONS, TOPIC
from tests.long.faults.cluster_bed import INPUTS, ClusterBed
from tests.support.kafka_cluster import ClusterNode
from tests.support.waiting import wait_until

LAG, ROWS = "election to right lag", "unclean election to right rows"
_GONE = 69  # GROUP_ID_NOT_FOUND
_MOST_SECONDS = 300.0


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
