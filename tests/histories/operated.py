"""Operations of platforms: autoscalers, releases, batches, nodes, brokers. Written before the engine judged them.

Where one is modelled after what somebody reported, a comment names the thread.
"""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    DAY,
    FEW,
    HOUR,
    MINUTE,
    PROCESS,
    STATE,
    TOPICS,
    TRAFFIC,
    Operations,
    blue_then_green,
    copies,
    do,
    hang,
    hours_of,
    names,
    ordinary,
    roll,
    start,
    steady,
    stop,
    windows,
    working,
)


def _from_zero(bursts: int, every: float) -> Operations:
    """Let records come for a quarter of an hour at a time: an instance starts a minute later, and stops after them."""
    operations = [*start(["s0"]), *do(TRAFFIC, "read"), *do(600, "change", rate=0.0), *stop(["s0"], 1200)]
    for at in (BEGINS + n * every for n in range(bursts)):
        operations += do(at, "change", rate=10.0) + start(["s0"], at + 60)
        operations += do(at + 900, "change", rate=0.0) + stop(["s0"], at + 1200)
    return operations


def _brokers_roll(brokers: int, at: float, every: float, away: float) -> Operations:
    """Restart brokers one after the other: each leads every third partition, and may be the coordinator."""
    return [
        one
        for n in range(brokers)
        for one in (
            *do(at + n * every, "lose_leaders", partitions=range(n, 12, brokers), seconds=away),
            *do(at + n * every + 1, "fail_over"),
        )
    ]


TEN_TRIALS = (
    working(2),
    *(
        [
            *start([f"t{n}"], BEGINS + n * 240, group=f"test-{n}"),
            *do(BEGINS + n * 240 + 5, "read", group=f"test-{n}", log_of="app", begins="latest"),
            *stop([f"t{n}"], BEGINS + n * 240 + 180),
        ]
        for n in range(10)
    ),
)
"""Ten developers try an application for three minutes each, under an id of their own; work comes after that, too."""

OPERATED_ORDINARY = (
    # Autoscalers. kedacore/keda#776: 0 to 1 on lag; the defaults are 30 s between polls, and 5 minutes to cool down.
    ordinary("An autoscaler from zero, four bursts a day: 60 s to start", _from_zero(4, 1.5 * HOUR), hours=9),
    ordinary(
        "An autoscaler from zero, on a broker whose clock is ten minutes ahead",
        do(TRAFFIC - 30, "fail_over", clock=600.0),
        _from_zero(2, 2 * HOUR),
        topics=FEW,
    ),
    # Releases
    ordinary(
        "Blue and green under one id: all new instances join, then all old ones leave",
        start(names(4, "blue")),
        do(TRAFFIC, "read"),
        start(names(4, "green"), BEGINS),
        stop(names(4, "blue"), BEGINS + 180),
    ),
    ordinary(
        "Green is given up after half an hour, and blue goes on",
        blue_then_green(begins="committed"),
        stop(["c", "d"], BEGINS + 1800),
        topics=TOPICS,
    ),
    ordinary(
        "A release that starts six new pods at once and then ends the old ones, which restores for two minutes",
        start(names(6, "old"), **STATE),
        do(TRAFFIC, "read", restore_seconds=120.0),
        start(names(6, "new"), BEGINS, **STATE),
        stop(names(6, "old"), BEGINS + 40),
        topics=TOPICS,
    ),
    ordinary(
        "A release of the only instance, which is away for four minutes, once a day",
        working(1, rate=1.0),
        *(roll(names(1), day * DAY + BEGINS, 0, 240) for day in range(2)),
        hours=30,
        topics=FEW,
    ),
    ordinary(
        "A release with a migration of eight minutes, of an application that may be away for ten",
        working(2, rate=0.2),
        *(stop(names(2), BEGINS + n * 4 * HOUR) + start(names(2), BEGINS + n * 4 * HOUR + 480) for n in range(3)),
        hours=12,
        topics=FEW,
        settings={"overrides": [{"groups": "app", "rules": {"StreamsGroupDown": {"for": "10m"}}}]},
    ),
    # Nodes
    ordinary(
        "Three of eight spot instances are lost at once, and replaced after four minutes",
        working(8),
        stop(names(3), BEGINS, action="kill"),
        start(names(3, "n"), BEGINS + 240),
    ),
    ordinary(
        "Three pods of a StatefulSet with volumes move to other nodes, five minutes each",
        working(3, PROCESS),
        roll(names(3), BEGINS, 10 * MINUTE, 300, **PROCESS),
    ),
    # Brokers
    ordinary(
        "Three brokers restart one after the other, each for two minutes, while records come",
        working(3),
        _brokers_roll(3, BEGINS, 5 * MINUTE, 120),
    ),
    ordinary(
        "Brokers restart while the application is deployed",
        working(4),
        _brokers_roll(3, BEGINS, 4 * MINUTE, 90),
        roll(names(4), BEGINS + 60, 90, 30),
    ),
    ordinary(
        "All members lose the brokers for a minute, and join again under their ids",
        steady(4, threads=2),
        do(TRAFFIC, "read"),
        *(do(BEGINS, "expire", name=name) + do(BEGINS + 60, "rejoin", name=name) for name in names(4)),
    ),
    ordinary(
        "Producers are down for three hours, and send in twenty minutes what has waited",
        working(3),
        do(BEGINS, "change", rate=0.0),
        do(BEGINS + 3 * HOUR, "change", rate=40.0),
        do(BEGINS + 3 * HOUR + 1200, "change", rate=10.0),
    ),
    # Short trouble that ends by itself
    ordinary(
        "A database fails over in four minutes, and all instances wait for it",
        working(3),
        hang(names(3), BEGINS, 240),
    ),
    ordinary(
        "A thread dies of an exception and is replaced, three times in an hour",
        steady(3),
        start(["t"], 10, host="10.9.0.1"),
        do(TRAFFIC, "read"),
        *(roll(["t"], BEGINS + n * 1200, 0, 2, host="10.9.0.1") for n in range(3)),
    ),
    # State
    ordinary(
        "A new instance restores for an hour and a half, and reports how far it is",
        working(2, STATE, restore_seconds=90 * MINUTE),
        start(["i2"], BEGINS, **STATE),
        *(
            do(BEGINS + 60 + n * 60, "report_copies", restores={"i2": 9_000_000 - n * 100_000}, has_standbys=False)
            for n in range(90)
        ),
        copies(BEGINS + 92 * MINUTE, BEGINS + 3 * HOUR, has_standbys=False),
        topics=TOPICS,
    ),
    ordinary(
        "Two joined topics get more partitions, one twenty seconds after the other",
        start(names(2), sources=("in", "other")),
        do(TRAFFIC, "read"),
        stop(names(2), BEGINS - 60),
        do(BEGINS, "set_topic", topic="in", partitions=24),
        do(BEGINS + 20, "set_topic", topic="other", partitions=24),
        start(names(2), BEGINS + 60, sources=("in", "other")),
        topics={"in": 12, "other": 12},
    ),
    ordinary(
        "The application is reset: stopped, its group deleted, and it reads from the beginning",
        working(2, rate=2.0),
        stop(names(2), BEGINS),
        do(BEGINS + 30, "delete"),
        start(names(2), BEGINS + 120),
    ),
    # By the clock
    ordinary(
        "An application from 7 to 19 h, to which records come only then",
        windows(range(3), (7 * HOUR,), 12 * HOUR, names(2)),
        do(7 * HOUR + 60, "read", rate=2.0),
        *(do(day * DAY + 7 * HOUR + 60, "change", rate=2.0) for day in (1, 2)),
        *(do(day * DAY + 19 * HOUR - 600, "change", rate=0.0) for day in range(3)),
        hours=72,
        topics=FEW,
    ),
    ordinary(
        "A batch in the night that takes 20, 60, 35 and 50 minutes, and begins a little earlier or later",
        *(
            start(["job"], day * DAY + HOUR + late) + stop(["job"], day * DAY + HOUR + late + minutes * MINUTE)
            for day, (late, minutes) in enumerate(((0, 20), (600, 60), (-900, 35), (300, 50)))
        ),
        hours=24 * 4,
        running_hours=hours_of(("01:00", "01:20")),
    ),
    ordinary(
        "A batch on Sundays that the job has seen twice",
        *(
            start(["job"], week * 7 * DAY + 6 * DAY) + stop(["job"], week * 7 * DAY + 6 * DAY + 3 * HOUR)
            for week in range(3)
        ),
        hours=24 * 23,
        watched_from=14 * DAY,
        running_hours=hours_of(("00:00", "03:00"), weekdays=["sunday"]),
    ),
    ordinary(
        "Ten developers try an application for three minutes each, under ids that the configuration ignores",
        *TEN_TRIALS,
        hours=4,
        topics=FEW,
        settings={"ignore_groups": ["test-.*"]},
    ),
    ordinary(
        "The topic gets a record every quarter of an hour",
        working(2, rate=0.0),
        *(do(n * 900, "change", rate=0.1) + do(n * 900 + 40, "change", rate=0.0) for n in range(1, 32)),
        hours=8,
    ),
    # The job
    ordinary(
        "The job that watches is started again six times in an hour",
        working(3),
        *(do(BEGINS + n * 600, "job_down", seconds=60.0) for n in range(6)),
    ),
)
