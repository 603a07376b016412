"""Histories that were written without knowledge of the engine: by the runbook, docs/alerts.md and reports alone."""

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
    do,
    hang,
    hours_of,
    incident,
    names,
    ordinary,
    roll,
    start,
    steady,
    stop,
    windows,
    working,
)


def _in_zone(apps: tuple[str, ...], zone: str) -> list[str]:
    return [f"{app}-{zone}{n}" for app in apps for n in range(2)]


HELD_BACK_ORDINARY = (
    ordinary(
        "An autoscaler with a timetable runs the application three times a day, and records come all the time",
        windows(range(3), (8 * HOUR, 12 * HOUR, 17 * HOUR), 70 * MINUTE),
        do(8 * HOUR + TRAFFIC, "read", rate=0.5),
        hours=72,
        topics=FEW,
        watched_from=1.5 * DAY,
        running_hours=hours_of(("08:00", "09:10"), ("12:00", "13:10"), ("17:00", "18:10")),
    ),
    ordinary(
        "Eight instances for four partitions, half of which have nothing to do, are released",
        working(8),
        roll(names(8), BEGINS, 45, 20),
        topics={"in": 4},
    ),
    ordinary(
        "A new application is loaded with what was written in thirty hours, and needs five for it",
        working(2),
        start(["l0", "l1"], 30 * HOUR, group="loader"),
        do(30 * HOUR + 10, "read", group="loader", log_of="app", capacity=70.0),
        hours=37,
        topics=FEW,
    ),
    ordinary(
        "The garbage collector lets each of four instances stand still for 40 s every three minutes",
        working(4),
        *(hang([f"i{n}"], BEGINS + n * 25 + time, 40) for n in range(4) for time in range(0, 7200, 180)),
    ),
    ordinary(
        "Maintenance: producers are stopped, the application is paused for two hours, and both go on",
        working(3),
        do(BEGINS, "change", rate=0.0),
        hang(names(3), BEGINS + 120, 2 * HOUR - 120),
        do(BEGINS + 2 * HOUR + 60, "change", rate=10.0),
    ),
    ordinary(
        "A batch writes the records of a day in ten minutes each night, and the application needs forty for them",
        working(2, rate=0.0),
        *(
            do(night * DAY + HOUR, "change", rate=200.0) + do(night * DAY + HOUR + 600, "change", rate=0.0)
            for night in range(3)
        ),
        hours=52,
        topics=FEW,
    ),
    ordinary(
        "Three threads are added to each of three running instances, and removed two hours later",
        *(start([f"i{n}"], n, host=f"10.0.2.{n}") for n in range(3)),
        do(TRAFFIC, "read"),
        *(start([f"i{n}-t{k}" for k in range(3)], BEGINS + n * 60, 5, host=f"10.0.2.{n}") for n in range(3)),
        *(stop([f"i{n}-t{k}" for k in range(3)], BEGINS + 2 * HOUR + n * 60, 5) for n in range(3)),
    ),
    ordinary(
        "The cluster has no leader for any partition for twelve minutes",
        working(3),
        do(BEGINS, "lose_leaders", partitions=range(12), seconds=720),
        do(BEGINS + 725, "fail_over"),
    ),
    ordinary(
        "Somebody runs the application on a laptop under its id for three minutes, and closes it, twice",
        working(3),
        *(
            start(["laptop"], BEGINS + n * HOUR) + stop(["laptop"], BEGINS + n * HOUR + 180, action="kill")
            for n in range(2)
        ),
    ),
    # linkedin/Burrow#38: consumers of slow topics are marked as errors
    ordinary(
        "A topic gets a record three times a day, and the application is released between them",
        working(2, rate=0.0),
        *(
            do(hour * HOUR, "change", rate=1 / 30) + do(hour * HOUR + 60, "change", rate=0.0)
            for hour in (7, 13, 21, 31)
        ),
        roll(names(2), 10 * HOUR, 60, 30),
        hours=36,
        topics=FEW,
    ),
    ordinary(
        "An autoscaler by CPU goes from two instances to six and back each hour, and tasks that move restore for 90 s",
        working(2, STATE, restore_seconds=90.0),
        *(
            start(names(4, "x"), BEGINS + n * HOUR, 20, **STATE) + stop(names(4, "x"), BEGINS + n * HOUR + 1500, 20)
            for n in range(4)
        ),
        hours=8,
        topics=TOPICS,
    ),
    ordinary(
        "The partitions of a topic are doubled in the middle of a release",
        working(6),
        roll(names(6), BEGINS, 60, 30),
        do(BEGINS + 150, "set_topic", topic="in", partitions=24),
    ),
    ordinary(
        "A new application is started an hour before the first record is written to its topics",
        working(3, rate=0.0),
        do(HOUR, "change", rate=10.0),
    ),
    ordinary(
        "Eight static pods are moved, 40 s each and overlapping, and two of them are removed for good later",
        working(8, STATIC),
        roll(names(8), BEGINS, 20, 40, **STATIC),
        do(BEGINS + HOUR, "remove", name="i6"),
        do(BEGINS + HOUR + 60, "remove", name="i7"),
    ),
)

HELD_BACK_INCIDENTS = (
    incident(
        "A certificate expires on half of the hosts, and the other instances are too few for what comes",
        BEHIND,
        working(6),
        stop(names(3), BEGINS, every=20, action="crash"),
        do(BEGINS + 60, "change", capacity=7.0),
        begins=BEGINS + 60,
    ),
    incident(
        "A rebalance storm: each rebalance lets the liveness probe of the next of five pods fail",
        f"{UNSTABLE} {DOWN}",
        working(5),
        *(stop([f"i{n % 5}"], BEGINS + n * 100) + start([f"i{n % 5}"], BEGINS + n * 100 + 40) for n in range(50)),
    ),
    incident(
        "A database is so slow that every batch takes longer than max.poll.interval.ms, in all instances",
        f"{STALLED} {UNSTABLE} {DOWN}",
        working(3),
        hang(names(3), BEGINS),
        *(
            do(BEGINS + n * 330 + 300 + k * 10, "expire", name=name)
            + do(BEGINS + n * 330 + 320 + k * 10, "rejoin", name=name)
            for n in range(20)
            for k, name in enumerate(names(3))
        ),
    ),
    incident(
        "The application runs twice with the same static ids, and the two fence each other once a minute",
        f"{UNSTABLE} {DOWN} {STALLED}",
        working(2, STATIC),
        *(start(names(2), BEGINS + n * 60, 10, host=f"10.0.{3 + n % 2}.1", **STATIC) for n in range(80)),
    ),
    incident(
        "The retention of a topic is set to six hours, and the job that processes it runs once a day",
        "GroupLosing",
        windows(range(2), (2 * HOUR,), 1800),
        do(2 * HOUR + TRAFFIC, "read", rate=1.0, capacity=100.0, keeps_seconds=3 * DAY),
        do(DAY + 3 * HOUR, "change", keeps_seconds=6 * HOUR),
        hours=40,
        begins=DAY + 8.5 * HOUR,
        topics=FEW,
        running_hours=hours_of(("02:00", "02:30")),
    ),
    incident(
        "A zone is out, with all instances of two applications and half of those of a third",
        DOWN,
        *(start(_in_zone((app,), "a"), group=app) for app in ("orders", "prices")),
        start([*_in_zone(("users",), "a"), *_in_zone(("users",), "b")], group="users", **STATE),
        *(do(TRAFFIC, "read", group=app) for app in ("orders", "prices", "users")),
        stop(_in_zone(("orders", "prices", "users"), "a"), BEGINS, action="kill"),
        topics={"in": 12, "log": 12},
    ),
    incident(
        "A database becomes a little slower than what comes, which shows after hours",
        BEHIND,
        working(3),
        do(BEGINS, "change", capacity=9.0),
        hours=8,
    ),
    incident(
        "All instances are stopped by mistake, as the coordinator moves to a broker with a clock three minutes behind",
        DOWN,
        working(3),
        do(BEGINS - 5, "fail_over", clock=-180.0),
        stop(names(3), BEGINS),
    ),
    incident(
        "A nightly job starts, and its threads hang before the first record",
        STALLED,
        windows(range(3), (HOUR,), 1800),
        do(HOUR + TRAFFIC, "read", rate=1.0, capacity=100.0),
        hang(["job"], 3 * DAY + HOUR - 60),
        start(["job"], 3 * DAY + HOUR),
        hours=24 * 3 + 4,
        begins=3 * DAY + HOUR,
        topics=FEW,
        running_hours=hours_of(("01:00", "01:30")),
    ),
    incident(
        "A new rule of a firewall cuts all instances off, which go on and try to connect",
        DOWN,
        steady(4, threads=2),
        do(TRAFFIC, "read"),
        *(do(BEGINS + 40 + n, "expire", name=name) for n, name in enumerate(names(4))),
    ),
    incident(
        "After a restart one of three instances waits for the lock of its state directory, and processes nothing",
        STALLED,
        working(3, STATE),
        stop(["i0"], BEGINS),
        hang(["i0"], BEGINS + 1),
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
        working(2, rate=1 / 480),
        stop(names(2), BEGINS),
        topics={"in": 1},
    ),
    incident(
        "The garbage collector lets one of three instances stand still for seven of every ten minutes",
        f"{STALLED} {UNSTABLE} {BEHIND}",
        working(3),
        *(hang(["i0"], BEGINS + n * 600, 420) for n in range(12)),
    ),
    incident(
        "An application had died two hours before the job that watches was installed",
        DOWN,
        working(2),
        stop(names(2), BEGINS, action="kill"),
        watched_from=BEGINS + 2 * HOUR,
        hours=8,
    ),
    incident(
        "An autoscaler from zero stops its pod after 40 s, of which it needs 30 to start, every four minutes",
        f"{STALLED} {UNSTABLE} {DOWN} {BEHIND}",
        working(1),
        *(
            stop(["i0"], BEGINS + n * 240)
            + hang(["i0"], BEGINS + n * 240 + 1)
            + start(["i0"], BEGINS + n * 240 + 200)
            + do(BEGINS + n * 240 + 230, "hang_processing", name="i0", hung=False)
            for n in range(30)
        ),
    ),
    incident(
        "An application dies on Friday evening, its topic keeps records for a day, and somebody looks on Monday",
        f"{DOWN} GroupLosing",
        working(2, rate=1.0, keeps_seconds=DAY),
        stop(names(2), BEGINS, action="kill"),
        start(names(2), BEGINS + 60 * HOUR),
        hours=66,
        topics=FEW,
    ),
)
