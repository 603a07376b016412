"""Histories that were written without knowledge of the engine, to measure it: by the runbook alone."""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    BEHIND,
    DAY,
    DOWN,
    END,
    FEW,
    HOUR,
    MINUTE,
    STALLED,
    STATE,
    STATIC,
    TRAFFIC,
    UNSTABLE,
    Operations,
    crash_loop,
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
)


def _windows(days: int, opens: tuple[float, ...], seconds: float) -> Operations:
    """Run an instance at the same times of each day."""
    times = [day * DAY + at for day in range(days) for at in opens]
    return [one for at in times for one in (*start(["job"], at), *stop(["job"], at + seconds))]


def _pauses(instance: str, at: float, every: float, seconds: float, times: int) -> Operations:
    """Let the threads of an instance stand still again and again, for less than its session."""
    return [one for n in range(times) for one in hang([instance], at + n * every, seconds)]


def _in_zone(apps: tuple[str, ...], zone: str) -> list[str]:
    return [f"{app}-{zone}{n}" for app in apps for n in range(2)]


HELD_BACK_ORDINARY = (
    ordinary(
        "One of three zones is out for forty minutes; six of nine instances go on",
        steady(9),
        do(TRAFFIC, "read"),
        stop(names(3), BEGINS, action="kill"),
        *(start([f"i{n}"], BEGINS + 40 * MINUTE + n, host=f"10.8.0.{n}") for n in range(3)),
    ),
    ordinary(
        "An autoscaler with a timetable runs the application three times a day, and records come all the time",
        _windows(3, (8 * HOUR, 12 * HOUR, 17 * HOUR), 70 * MINUTE),
        do(8 * HOUR + TRAFFIC, "read", rate=0.5),
        hours=72,
        topics=FEW,
        watched_from=1.5 * DAY,
        running_hours=hours_of(("08:00", "09:10"), ("12:00", "13:10"), ("17:00", "18:10")),
    ),
    ordinary(
        "Eight instances for four partitions, half of which have nothing to do, are released",
        steady(8),
        do(TRAFFIC, "read"),
        roll(names(8), BEGINS, 45, 20),
        topics={"in": 4},
    ),
    ordinary(
        "A new application is loaded with what was written in thirty hours, and needs five for it",
        steady(2),
        do(TRAFFIC, "read"),
        start(["l0", "l1"], 30 * HOUR, group="loader"),
        do(30 * HOUR + 10, "read", group="loader", log_of="app", capacity=70.0),
        hours=37,
        topics=FEW,
    ),
    ordinary(
        "The garbage collector lets each of four instances stand still for 40 s every three minutes",
        steady(4),
        do(TRAFFIC, "read"),
        *(_pauses(name, BEGINS + n * 25, 180, 40, 40) for n, name in enumerate(names(4))),
    ),
    ordinary(
        "One of six static instances gets a new version first, goes back to the old one, and all get it later",
        steady(6, **STATIC),
        do(TRAFFIC, "read"),
        roll(names(1), BEGINS, 0, 30, **STATIC),
        roll(names(1), BEGINS + HOUR, 0, 30, **STATIC),
        roll(names(6), BEGINS + 2 * HOUR, 60, 30, **STATIC),
    ),
    ordinary(
        "Maintenance: producers are stopped, the application is paused for two hours, and both go on",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "change", rate=0.0),
        *(do(BEGINS + 120, "hang_processing", name=name) for name in names(3)),
        *(do(BEGINS + 2 * HOUR, "hang_processing", name=name, hung=False) for name in names(3)),
        do(BEGINS + 2 * HOUR + 60, "change", rate=10.0),
    ),
    ordinary(
        "A batch writes the records of a day in ten minutes each night, and the application needs forty for them",
        steady(2),
        do(TRAFFIC, "read", rate=0.0),
        *(
            do(night * DAY + HOUR, "change", rate=200.0) + do(night * DAY + HOUR + 600, "change", rate=0.0)
            for night in range(3)
        ),
        hours=52,
        topics=FEW,
    ),
    ordinary(
        "A release while the coordinator moves between brokers whose clocks differ by up to three and a half minutes",
        steady(6),
        do(TRAFFIC, "read"),
        *(do(BEGINS - 30 + n * 100, "fail_over", clock=(90.0, -120.0, 0.0)[n % 3]) for n in range(6)),
        roll(names(6), BEGINS, 60, 30),
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
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "lose_leaders", partitions=range(12), seconds=720),
        do(BEGINS + 725, "fail_over"),
    ),
    ordinary(
        "Somebody runs the application on a laptop under its id for three minutes, and closes it, twice",
        steady(3),
        do(TRAFFIC, "read"),
        *(
            start(["laptop"], BEGINS + n * HOUR) + stop(["laptop"], BEGINS + n * HOUR + 180, action="kill")
            for n in range(2)
        ),
    ),
)

HELD_BACK_INCIDENTS = (
    incident(
        "A certificate expires on half of the hosts, and the other instances are too few for what comes",
        BEHIND,
        steady(6),
        do(TRAFFIC, "read"),
        stop(names(3), BEGINS, every=20, action="crash"),
        do(BEGINS + 60, "change", capacity=7.0),
        begins=BEGINS + 60,
    ),
    incident(
        "A rebalance storm: each rebalance lets the liveness probe of the next of five pods fail",
        f"{UNSTABLE} {DOWN}",
        steady(5),
        do(TRAFFIC, "read"),
        *(stop([f"i{n % 5}"], BEGINS + n * 100) + start([f"i{n % 5}"], BEGINS + n * 100 + 40) for n in range(50)),
    ),
    incident(
        "A database is so slow that every batch takes longer than max.poll.interval.ms, in all instances",
        f"{STALLED} {UNSTABLE} {DOWN}",
        steady(3),
        do(TRAFFIC, "read"),
        *(do(BEGINS, "hang_processing", name=name) for name in names(3)),
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
        steady(2, **STATIC),
        do(TRAFFIC, "read"),
        *(start(names(2), BEGINS + n * 60, 10, host=f"10.0.{3 + n % 2}.1", **STATIC) for n in range(80)),
    ),
    incident(
        "The retention of a topic is set to six hours, and the job that processes it runs once a day",
        "GroupLosing",
        _windows(2, (2 * HOUR,), 1800),
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
        "The disk of the state directory is full: both instances end after four minutes, and have processed nothing",
        f"{DOWN} {STALLED} {UNSTABLE}",
        steady(2),
        do(TRAFFIC, "read"),
        *(do(BEGINS, "hang_processing", name=name) for name in names(2)),
        *(crash_loop(name, BEGINS + n * 5, 240, END, pauses=(30.0,) * 50) for n, name in enumerate(names(2))),
    ),
    incident(
        "A database becomes a little slower than what comes, which shows after hours",
        BEHIND,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "change", capacity=9.0),
        hours=8,
    ),
    incident(
        "All instances are stopped by mistake, as the coordinator moves to a broker with a clock three minutes behind",
        DOWN,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS - 5, "fail_over", clock=-180.0),
        stop(names(3), BEGINS),
    ),
    incident(
        "A nightly job starts, and its threads hang before the first record",
        STALLED,
        _windows(3, (HOUR,), 1800),
        do(HOUR + TRAFFIC, "read", rate=1.0, capacity=100.0),
        do(3 * DAY + HOUR - 60, "hang_processing", name="job"),
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
        "The threads of a canary hang at its first record, next to four good instances",
        STALLED,
        steady(4),
        do(TRAFFIC, "read"),
        start(["canary"], BEGINS),
        do(BEGINS + 1, "hang_processing", name="canary"),
    ),
)
