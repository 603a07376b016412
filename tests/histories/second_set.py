"""A second set of histories that were written without knowledge of the engine: by reports, and docs/alerts.md."""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    BEHIND,
    DAY,
    DOWN,
    FEW,
    HOUR,
    MINUTE,
    STALLED,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    UNSTABLE,
    Operations,
    do,
    hang,
    incident,
    names,
    ordinary,
    roll,
    start,
    steady,
    stop,
)


def _records(at: float, seconds: float, rate: float) -> Operations:
    """Let records come for so long, to a topic that has none else."""
    return do(at, "change", rate=rate) + do(at + seconds, "change", rate=0.0)


SECOND_ORDINARY = (
    # linkedin/Burrow#38: consumers of slow topics are marked as errors
    ordinary(
        "A topic gets a record three times a day, and the application is released between them",
        steady(2),
        do(TRAFFIC, "read", rate=0.0),
        *(_records(hour * HOUR, 60, 1 / 30) for hour in (7, 13, 21, 31)),
        roll(names(2), 10 * HOUR, 60, 30),
        hours=36,
        topics=FEW,
    ),
    ordinary(
        "A load test sends fourteen times as much as usual for nine minutes",
        steady(4),
        do(TRAFFIC, "read"),
        do(BEGINS, "change", rate=140.0),
        do(BEGINS + 9 * MINUTE, "change", rate=10.0),
    ),
    ordinary(
        "An autoscaler by CPU goes from two instances to six and back each hour, and tasks that move restore for 90 s",
        steady(2, **STATE),
        do(TRAFFIC, "read", restore_seconds=90.0),
        *(
            start(names(4, "x"), BEGINS + n * HOUR, 20, **STATE) + stop(names(4, "x"), BEGINS + n * HOUR + 1500, 20)
            for n in range(4)
        ),
        hours=8,
        topics=TOPICS,
    ),
    ordinary(
        "A backup locks the database for three and a half minutes, every half hour",
        steady(3),
        do(TRAFFIC, "read"),
        *(hang(names(3), BEGINS + n * 1800, 210) for n in range(6)),
    ),
    ordinary(
        "The partitions of a topic are doubled in the middle of a release",
        steady(6),
        do(TRAFFIC, "read"),
        roll(names(6), BEGINS, 60, 30),
        do(BEGINS + 150, "set_topic", topic="in", partitions=24),
    ),
    ordinary(
        "At night three of four instances are stopped, and the last one has a fifth of the records to process",
        steady(4),
        do(TRAFFIC, "read"),
        *(
            stop(["i1", "i2", "i3"], day * DAY + 20 * HOUR, 30)
            + do(day * DAY + 20 * HOUR, "change", rate=2.0)
            + start(["i1", "i2", "i3"], day * DAY + 30 * HOUR, 30)
            + do(day * DAY + 30 * HOUR, "change", rate=10.0)
            for day in range(2)
        ),
        hours=60,
    ),
    ordinary(
        "Offsets are set back by 5,000 records with Kafka's tools, while two instances are stopped for four minutes",
        steady(2),
        do(TRAFFIC, "read"),
        stop(names(2), BEGINS),
        do(BEGINS + 60, "go_back"),
        start(names(2), BEGINS + 240),
    ),
    ordinary(
        "A new application is started an hour before the first record is written to its topics",
        steady(3),
        do(TRAFFIC, "read", rate=0.0),
        do(HOUR, "change", rate=10.0),
    ),
    ordinary(
        "Three instances with large state are released, 15 minutes apart, and each restores for eight minutes",
        steady(3, **STATE),
        do(TRAFFIC, "read", restore_seconds=480.0),
        roll(names(3), BEGINS, 900, 30, **STATE),
        topics=TOPICS,
    ),
    ordinary(
        "An exercise: brokers are stopped for twelve minutes, applications before that, and come back after them",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "lose_leaders", partitions=range(12), seconds=720),
        stop(names(3), BEGINS + 30),
        do(BEGINS + 710, "fail_over"),
        start(names(3), BEGINS + 730),
    ),
    ordinary(
        "Eight static pods are moved, 40 s each and overlapping, and two of them are removed for good later",
        steady(8, **STATIC),
        do(TRAFFIC, "read"),
        roll(names(8), BEGINS, 20, 40, **STATIC),
        do(BEGINS + HOUR, "remove", name="i6"),
        do(BEGINS + HOUR + 60, "remove", name="i7"),
    ),
    ordinary(
        "With exactly-once, a record comes every ten minutes, and the only instance is restarted six times in a day",
        steady(1),
        do(TRAFFIC, "read", rate=1 / 600, transactional=True),
        *(stop(["i0"], hour * HOUR + 77) + start(["i0"], hour * HOUR + 137) for hour in range(4, 24, 4)),
        hours=28,
        topics=FEW,
    ),
)

SECOND_INCIDENTS = (
    incident(
        "After a restart one of three instances waits for the lock of its state directory, and processes nothing",
        STALLED,
        steady(3, **STATE),
        do(TRAFFIC, "read"),
        stop(["i0"], BEGINS),
        do(BEGINS + 1, "hang_processing", name="i0"),
        start(["i0"], BEGINS + 30, **STATE),
        topics=TOPICS,
        begins=BEGINS + 30,
    ),
    incident(
        "A server with three queries is killed for its memory; records come to two of them",
        DOWN,
        *(start([f"server-{query}"], group=query, host="10.4.0.1", sources=(query,)) for query in ("q1", "q2", "q3")),
        do(TRAFFIC, "read", group="q1"),
        do(TRAFFIC, "read", group="q2"),
        do(TRAFFIC, "read", group="q3", rate=0.0),
        *(stop([f"server-{query}"], BEGINS, action="kill") for query in ("q1", "q2", "q3")),
        topics={"q1": 2, "q2": 2, "q3": 2},
    ),
    incident(
        "A tool that saves costs stops an application for good, to which a record comes every eight minutes",
        DOWN,
        steady(2),
        do(TRAFFIC, "read", rate=1 / 480),
        stop(names(2), BEGINS),
        topics={"in": 1},
    ),
    incident(
        "The garbage collector lets one of three instances stand still for seven of every ten minutes",
        f"{STALLED} {UNSTABLE} {BEHIND}",
        steady(3),
        do(TRAFFIC, "read"),
        *(hang(["i0"], BEGINS + n * 600, 420) for n in range(12)),
    ),
    incident(
        "Restores take ten minutes, and an instance is restarted every eight: hardly a task is ever restored",
        f"{STALLED} {UNSTABLE} {DOWN} {BEHIND}",
        steady(2, **STATE),
        do(TRAFFIC, "read", restore_seconds=600.0),
        *(
            stop([f"i{n % 2}"], BEGINS + n * 480) + start([f"i{n % 2}"], BEGINS + n * 480 + 20, **STATE)
            for n in range(16)
        ),
        topics=TOPICS,
    ),
    incident(
        "A release goes to another cluster by mistake: three instances are stopped in order, and none comes",
        DOWN,
        steady(3),
        do(TRAFFIC, "read"),
        stop(names(3), BEGINS, 20),
        begins=BEGINS + 40,
    ),
    incident(
        "An application had died two hours before the job that watches was installed",
        DOWN,
        steady(2),
        do(TRAFFIC, "read"),
        stop(names(2), BEGINS, action="kill"),
        watched_from=BEGINS + 2 * HOUR,
        begins=BEGINS + 2 * HOUR,
        hours=8,
    ),
    incident(
        "An autoscaler from zero stops its pod after 40 s, of which it needs 30 to start, every four minutes",
        f"{STALLED} {UNSTABLE} {DOWN} {BEHIND}",
        steady(1),
        do(TRAFFIC, "read"),
        *(
            stop(["i0"], BEGINS + n * 240)
            + do(BEGINS + n * 240 + 1, "hang_processing", name="i0")
            + start(["i0"], BEGINS + n * 240 + 200)
            + do(BEGINS + n * 240 + 230, "hang_processing", name="i0", hung=False)
            for n in range(30)
        ),
    ),
    incident(
        "A deadlock in a library lets six instances hang, one every ten minutes",
        STALLED,
        steady(6),
        do(TRAFFIC, "read"),
        *(do(BEGINS + n * 600, "hang_processing", name=f"i{n}") for n in range(6)),
    ),
    incident(
        "An application dies on Friday evening, its topic keeps records for a day, and somebody looks on Monday",
        f"{DOWN} GroupLosing",
        steady(2),
        do(TRAFFIC, "read", rate=1.0, keeps_seconds=DAY),
        stop(names(2), BEGINS, action="kill"),
        start(names(2), BEGINS + 60 * HOUR),
        hours=66,
        topics=FEW,
    ),
)
