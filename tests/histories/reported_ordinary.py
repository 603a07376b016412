"""What operators of Kafka Streams applications do, and what platforms do to them: nothing of it needs a person.

These histories were written before the engine judged them. Where somebody reported one, a comment names the thread.
"""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    DAY,
    FEW,
    HOUR,
    MINUTE,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    Operations,
    blue_then_green,
    chosen_ordinary,
    commits_rarely,
    copies,
    do,
    hang,
    hours_of,
    names,
    office_hours,
    ordinary,
    replace_pods,
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

REPORTED_ORDINARY = (
    # kube-downscaler: what is not production is stopped at night and at the weekend, and its records wait
    ordinary(
        "A staging application is stopped at night and at weekends, while records come",
        office_hours(15),
        do(7 * HOUR + 60, "read", rate=0.2),
        hours=24 * 14.5,
        topics=FEW,
        watched_from=8 * DAY,
        running_hours=hours_of(("08:00", "20:00"), weekdays=["monday:friday"], location="Europe/Berlin"),
    ),
    # chaoskube, on purpose and in working hours
    ordinary(
        "A tool that tests resilience kills one of six pods every hour, which is back after 30 s",
        working(6),
        *(
            stop([f"i{n}"], BEGINS + n * HOUR, action="kill") + start([f"i{n}"], BEGINS + n * HOUR + 30)
            for n in range(4)
        ),
    ),
    # argo-rollouts: steps of 10, 30, 60 and 100 % with pauses between them
    ordinary(
        "A release in four steps, ten minutes apart, that replaces ten pods",
        start(names(10, "old")),
        do(TRAFFIC, "read"),
        *(
            replace_pods(names(10, "old")[a:b], names(10, "new")[a:b], BEGINS + n * 600, 20)
            for n, (a, b) in enumerate(((0, 1), (1, 3), (3, 6), (6, 10)))
        ),
        topics={"in": 20},
    ),
    ordinary(
        "Producers pause, blue is drained and stopped, green begins at the end of the topics, and producers go on",
        start(["a", "b"], group="blue", **STATE),
        do(TRAFFIC, "read", group="blue"),
        do(BEGINS, "change", group="blue", rate=0.0),
        stop(["a", "b"], BEGINS + 120),
        start(["c", "d"], BEGINS + 180, group="green", **STATE),
        do(BEGINS + 190, "read", group="green", log_of="blue", begins="latest"),
        do(BEGINS + 300, "change", group="blue", rate=10.0),
        hours=20,
        topics=TOPICS,
    ),
    # KIP-441: while warm-up copies catch up, the coordinator assigns the tasks again every ten minutes
    ordinary(
        "After a scale-out tasks move to the new instances in steps, ten minutes apart, for an hour",
        working(2, STATE, restore_seconds=20.0),
        *(start([f"x{n}"], BEGINS + n, **STATE) for n in range(2)),
        *(do(BEGINS + n * 600, "rebalance_without_cause") for n in range(1, 7)),
        topics=TOPICS,
    ),
    ordinary(
        "An application that commits every ten minutes, as declared, is started, and released once a day",
        commits_rarely(),
        hours=10,
        topics=FEW,
        settings={"overrides": [{"groups": "app", "rules": {"StreamsGroupStalled": {"for": "20m"}}}]},
    ),
    ordinary(
        "An application moves to another cluster: producers first, then it is drained and stopped for good",
        working(3),
        do(BEGINS, "change", rate=0.0),
        stop(names(3), BEGINS + 10 * MINUTE, every=30),
        hours=24 * 9,
        topics=FEW,
    ),
    # Operations of platforms: autoscalers, releases, batches, nodes, brokers
    # Autoscalers. kedacore/keda#776: 0 to 1 on lag; the defaults are 30 s between polls, and 5 minutes to cool down.
    chosen_ordinary("An autoscaler from zero, four bursts a day: 60 s to start", _from_zero(4, 1.5 * HOUR), hours=9),
    ordinary(
        "An autoscaler from zero, on a broker whose clock is ten minutes ahead",
        do(TRAFFIC - 30, "fail_over", clock=600.0),
        _from_zero(2, 2 * HOUR),
        topics=FEW,
    ),
    # Releases
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
    # Nodes
    chosen_ordinary(
        "Three of eight spot instances are lost at once, and replaced after four minutes",
        working(8),
        stop(names(3), BEGINS, action="kill"),
        start(names(3, "n"), BEGINS + 240),
    ),
    # Brokers
    chosen_ordinary(
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
    chosen_ordinary(
        "A database fails over in four minutes, and all instances wait for it",
        working(3),
        hang(names(3), BEGINS, 240),
    ),
    # State
    chosen_ordinary(
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
    chosen_ordinary(
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
        "Ten developers try an application for three minutes each, under ids that the configuration ignores",
        *TEN_TRIALS,
        hours=4,
        topics=FEW,
        settings={"ignore_groups": ["test-.*"]},
    ),
    chosen_ordinary(
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
    # Written without knowledge of the engine: by the runbook, docs/alerts.md and reports alone
    ordinary(
        "A new application is loaded with what was written in thirty hours, and needs five for it",
        working(2),
        start(["l0", "l1"], 30 * HOUR, group="loader"),
        do(30 * HOUR + 10, "read", group="loader", log_of="app", capacity=70.0),
        hours=37,
        topics=FEW,
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
        "Eight static pods are moved, 40 s each and overlapping, and two of them are removed for good later",
        working(8, STATIC),
        roll(names(8), BEGINS, 20, 40, **STATIC),
        do(BEGINS + HOUR, "remove", name="i6"),
        do(BEGINS + HOUR + 60, "remove", name="i7"),
    ),
)
