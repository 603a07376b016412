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
    hours_of,
    names,
    ordinary,
    replace_pods,
    roll,
    start,
    steady,
    stop,
)


def _scaled_from_zero(at: float, seconds: float, starts_after: float, cooldown: float) -> Operations:
    """Records come for a while; an instance starts after some time, and stops when nothing has come for a while."""
    return [
        *do(at, "change", rate=10.0),
        *do(at + seconds, "change", rate=0.0),
        *start(["s0"], at + starts_after),
        *stop(["s0"], at + seconds + cooldown),
    ]


def _from_zero(bursts: int, every: float, starts_after: float, **times: float) -> Operations:
    begin = [*start(["s0"]), *do(TRAFFIC, "read"), *do(10 * MINUTE, "change", rate=0.0), *stop(["s0"], 20 * MINUTE)]
    return [
        *begin,
        *(
            one
            for n in range(bursts)
            for one in _scaled_from_zero(BEGINS + n * every, times.get("seconds", 900.0), starts_after, 300.0)
        ),
    ]


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


def _days(days: int, opens: float, closes: float, rate: float) -> Operations:
    return [
        one
        for day in range(days)
        for one in (
            *start(names(2), day * DAY + opens),
            *do(day * DAY + opens + 60, "change" if day else "read", rate=rate),
            *do(day * DAY + closes - 600, "change", rate=0.0),
            *stop(names(2), day * DAY + closes),
        )
    ]


OPERATED_ORDINARY = (
    # Autoscalers. kedacore/keda#776: 0 to 1 on lag; the defaults are 30 s between polls, and 5 minutes to cool down.
    ordinary("An autoscaler from zero, four bursts a day: 60 s to start", _from_zero(4, 1.5 * HOUR, 60), hours=9),
    ordinary(
        "An autoscaler from zero whose image takes four minutes to pull", _from_zero(2, 2 * HOUR, 240), topics=FEW
    ),
    ordinary(
        "An autoscaler from zero, on a broker whose clock is ten minutes ahead",
        do(TRAFFIC - 30, "fail_over", clock=600.0),
        _from_zero(2, 2 * HOUR, 60),
        topics=FEW,
    ),
    ordinary(
        "An autoscaler that adds four instances every hour and takes them away after twenty minutes",
        steady(2),
        do(TRAFFIC, "read"),
        *(start(names(4, f"x{n}-"), n * HOUR, 10) + stop(names(4, f"x{n}-"), n * HOUR + 1200, 10) for n in range(1, 6)),
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
        "Green begins where blue is, and blue ends ten minutes later",
        blue_then_green(begins="committed"),
        stop(["a", "b"], BEGINS + 600),
    ),
    ordinary(
        "Green is given up after half an hour, and blue goes on",
        blue_then_green(begins="committed"),
        stop(["c", "d"], BEGINS + 1800),
    ),
    ordinary(
        "A canary for fifteen minutes, four times a day",
        steady(4),
        do(TRAFFIC, "read"),
        *(start(["c"], n * 1.5 * HOUR) + stop(["c"], n * 1.5 * HOUR + 900) for n in range(1, 4)),
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
        "Five releases of three pods in an afternoon",
        steady(3),
        do(TRAFFIC, "read"),
        *(roll(names(3), BEGINS + n * 40 * MINUTE, 60, 25) for n in range(5)),
    ),
    ordinary(
        "A release of the only instance, which is away for four minutes, once a day",
        steady(1),
        do(TRAFFIC, "read", rate=1.0),
        *(roll(names(1), day * DAY + BEGINS, 0, 240) for day in range(2)),
        hours=30,
        topics=FEW,
    ),
    ordinary(
        "A release with a migration of eight minutes, of an application that may be away for ten",
        steady(2),
        do(TRAFFIC, "read", rate=0.2),
        *(stop(names(2), BEGINS + n * 4 * HOUR) + start(names(2), BEGINS + n * 4 * HOUR + 480) for n in range(3)),
        hours=12,
        topics=FEW,
        settings={"overrides": [{"groups": "app", "rules": {"StreamsGroupDown": {"for": "10m"}}}]},
    ),
    ordinary(
        "Pods are replaced one after the other while records come",
        start(names(5, "old")),
        do(TRAFFIC, "read"),
        replace_pods(names(5, "old"), names(5, "new"), BEGINS, 45),
    ),
    # Nodes
    ordinary(
        "A node pool is drained: six pods one after the other, each pending for three minutes",
        steady(6),
        do(TRAFFIC, "read"),
        roll(names(6), BEGINS, 200, 180),
    ),
    ordinary(
        "Three of eight spot instances are lost at once, and replaced after four minutes",
        steady(8),
        do(TRAFFIC, "read"),
        stop(names(3), BEGINS, action="kill"),
        start(names(3, "n"), BEGINS + 240),
    ),
    ordinary(
        "A host with two applications reboots in four minutes",
        start(["a"], group="orders", host="10.0.0.7"),
        start(["b"], group="prices", host="10.0.0.7"),
        do(TRAFFIC, "read", group="orders"),
        do(TRAFFIC, "read", group="prices"),
        stop(["a", "b"], BEGINS, action="kill"),
        start(["a"], BEGINS + 240, group="orders", host="10.0.0.7"),
        start(["b"], BEGINS + 240, group="prices", host="10.0.0.7"),
    ),
    ordinary(
        "Three pods of a StatefulSet with volumes move to other nodes, five minutes each",
        steady(3, **PROCESS),
        do(TRAFFIC, "read"),
        roll(names(3), BEGINS, 10 * MINUTE, 300, **PROCESS),
    ),
    # Brokers
    ordinary(
        "Three brokers restart one after the other, each for two minutes, while records come",
        steady(3),
        do(TRAFFIC, "read"),
        _brokers_roll(3, BEGINS, 5 * MINUTE, 120),
    ),
    ordinary(
        "Brokers are upgraded: each is away for ten minutes, and so are five applications' partitions on it",
        *(start([f"a{n}", f"b{n}"], group=f"app-{n}") for n in range(5)),
        *(do(TRAFFIC, "read", group=f"app-{n}") for n in range(5)),
        *(
            do(BEGINS + b * 15 * MINUTE, "lose_leaders", partitions=range(b, 12, 3), seconds=600, group=f"app-{n}")
            for n in range(5)
            for b in range(3)
        ),
        hours=4,
    ),
    ordinary(
        "Brokers restart while the application is deployed",
        steady(4),
        do(TRAFFIC, "read"),
        _brokers_roll(3, BEGINS, 4 * MINUTE, 90),
        roll(names(4), BEGINS + 60, 90, 30),
    ),
    ordinary(
        "One partition has no leader for twenty minutes, and nothing can be written there",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "lose_leaders", partitions=[5], seconds=1200),
    ),
    ordinary(
        "All members lose the brokers for a minute, and join again under their ids",
        steady(4, threads=2),
        do(TRAFFIC, "read"),
        *(do(BEGINS, "expire", name=name) + do(BEGINS + 60, "rejoin", name=name) for name in names(4)),
    ),
    ordinary(
        "Producers are down for three hours, and send in twenty minutes what has waited",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "change", rate=0.0),
        do(BEGINS + 3 * HOUR, "change", rate=40.0),
        do(BEGINS + 3 * HOUR + 1200, "change", rate=10.0),
    ),
    # Short trouble that ends by itself
    ordinary(
        "A database fails over in four minutes, and all instances wait for it",
        steady(3),
        do(TRAFFIC, "read"),
        *(do(BEGINS, "hang_processing", name=name) for name in names(3)),
        *(do(BEGINS + 240, "hang_processing", name=name, hung=False) for name in names(3)),
    ),
    ordinary(
        "A pause of one of five instances of two minutes, every half hour",
        steady(5),
        do(TRAFFIC, "read"),
        *(do(BEGINS + n * 1800, "hang_processing", name="i1") for n in range(6)),
        *(do(BEGINS + n * 1800 + 120, "hang_processing", name="i1", hung=False) for n in range(6)),
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
        steady(2, **STATE),
        do(TRAFFIC, "read", restore_seconds=90 * MINUTE),
        start(["i2"], BEGINS, **STATE),
        *(
            do(BEGINS + 60 + n * 60, "report_copies", restores={"i2": 9_000_000 - n * 100_000}, has_standbys=False)
            for n in range(90)
        ),
        copies(BEGINS + 92 * MINUTE, BEGINS + 3 * HOUR, has_standbys=False),
        topics=TOPICS,
    ),
    ordinary(
        "A release whose instances restore for twenty-five minutes each",
        steady(3, **STATE),
        do(TRAFFIC, "read", restore_seconds=25 * MINUTE),
        roll(names(3), BEGINS, 35 * MINUTE, 40, **STATE),
        topics=TOPICS,
    ),
    ordinary(
        "A new application reads what was written in two hours, and catches up in half an hour",
        steady(2),
        do(TRAFFIC, "read"),
        start(["l0", "l1"], BEGINS, group="loader"),
        do(BEGINS + 10, "read", group="loader", log_of="app"),
    ),
    ordinary(
        "The retention of a topic is shortened to ten minutes, and all was processed",
        steady(2),
        do(TRAFFIC, "read", keeps_seconds=DAY),
        do(BEGINS, "change", keeps_seconds=600.0),
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
        steady(2),
        do(TRAFFIC, "read", rate=2.0),
        stop(names(2), BEGINS),
        do(BEGINS + 30, "delete"),
        start(names(2), BEGINS + 120),
    ),
    # By the clock
    ordinary(
        "An application from 7 to 19 h, to which records come only then",
        _days(3, 7 * HOUR, 19 * HOUR, 2.0),
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
        "Ten developers try an application for three minutes each, under an id of their own",
        steady(2),
        do(TRAFFIC, "read"),
        *(
            [
                *start([f"t{n}"], BEGINS + n * 240, group=f"test-{n}"),
                *do(BEGINS + n * 240 + 5, "read", group=f"test-{n}", log_of="app", begins="latest"),
                *stop([f"t{n}"], BEGINS + n * 240 + 180),
            ]
            for n in range(10)
        ),
        hours=4,
        topics=FEW,
    ),
    ordinary(
        "The topic gets a record every quarter of an hour",
        steady(2),
        do(TRAFFIC, "read", rate=0.0),
        *(do(n * 900, "change", rate=0.1) + do(n * 900 + 40, "change", rate=0.0) for n in range(1, 32)),
        hours=8,
    ),
    # The job
    ordinary(
        "The job that watches is started again six times in an hour",
        steady(3),
        do(TRAFFIC, "read"),
        *(do(BEGINS + n * 600, "job_down", seconds=60.0) for n in range(6)),
    ),
)
