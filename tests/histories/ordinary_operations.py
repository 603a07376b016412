"""What platforms and operators of Kafka Streams applications do, for which nobody wants to be paged."""

from tests.histories.history import (
    BEGINS,
    DAY,
    HOUR,
    MINUTE,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    Operations,
    chosen_ordinary,
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


def _restored(instance: str, at: float) -> Operations:
    """Let the standbys of an instance restore 2,000,000 offsets in 20 minutes, as the job sees it."""
    lags = {at + step: 2_000_000 * (1200 - step) // 1200 for step in range(0, 1200, 60)}
    return [one for time, left in lags.items() for one in do(time, "report_copies", lags={instance: left})]


ORDINARY_OPERATIONS = (
    # Restarts and deployments
    chosen_ordinary("Restart of the only instance", steady(1), roll(names(1), BEGINS, 60, 30)),
    chosen_ordinary(
        "A static member is away for longer than its session and comes back",
        steady(6, **STATIC),
        roll(names(1), BEGINS, 60, 120, **STATIC),
    ),
    chosen_ordinary(
        "Deployment with another topology: the group is deleted first",
        steady(2),
        stop(names(2), BEGINS),
        do(BEGINS + 60, "delete"),
        start(names(2), BEGINS + 90, sources=("in", "more")),
        topics={"in": 12, "more": 12},
    ),
    # Scaling
    chosen_ordinary(
        "A long pause of one member: it is removed, and joins again under its id",
        steady(5),
        do(BEGINS, "expire", name="i0"),
        do(BEGINS + 60, "rejoin", name="i0"),
    ),
    chosen_ordinary(
        "Members take four minutes to close their state",
        steady(3),
        *(do(BEGINS - 1, "hang", name=name) for name in names(3)),
        start(["i9"], BEGINS),
        *(do(BEGINS + 240, "hang", name=name, hung=False) for name in names(3)),
    ),
    # Brokers
    chosen_ordinary(
        "Rolling restart of 6 static members while the group moves between brokers whose clocks are an hour apart",
        steady(6, **STATIC),
        roll(names(6), BEGINS, 60, 40, **STATIC),
        *(do(BEGINS + n * 70, "fail_over", clock=-HOUR if n % 2 == 0 else 0.0) for n in range(6)),
    ),
    chosen_ordinary(
        "The brokers refine warm-ups every thirty seconds, which moves no task",
        steady(3),
        do(BEGINS - 1, "warm_up", partitions=[0, 1]),
        *(do(BEGINS + n * 30, "rebalance_without_cause") for n in range(60)),
    ),
    # Topics
    chosen_ordinary(
        "The topics of a new application are created two minutes after it",
        start(names(2), BEGINS, changelogs=("log",)),
        do(BEGINS + 120, "set_topic", topic="log", partitions=12),
        topics={"in": 12},
    ),
    # Descriptions
    chosen_ordinary(
        "The plugin is removed, and new applications start after that",
        do(0, "set_plugin", mode="stored"),
        steady(2),
        do(BEGINS, "set_plugin", mode=None),
        start(["n"], 2 * BEGINS, group="new"),
        hours=24 * 16,
    ),
    chosen_ordinary(
        "The plugin's store is away for ten minutes while an application starts",
        do(0, "set_plugin", mode="failing"),
        start(names(3), BEGINS),
        do(BEGINS + 600, "set_plugin", mode="stored"),
    ),
    # Applications that do not run all the time
    chosen_ordinary(
        "An application that runs in office hours",
        windows((day for day in range(15) if day % 7 < 5), (7 * HOUR,), 12 * HOUR, names(2)),  # it begins on a Monday
        hours=24 * 15,
        watched_from=8 * DAY,
        running_hours=hours_of(("07:00", "19:00"), weekdays=["monday:friday"]),
    ),
    chosen_ordinary(
        "An application is taken out of service, and its group deleted after eight minutes",
        steady(2),
        stop(names(2), BEGINS),
        do(BEGINS + 480, "delete"),
        hours=30,
    ),
    # Other group types
    chosen_ordinary(
        "Offline migration back to the classic protocol",
        steady(3),
        stop(names(3), BEGINS),
        do(BEGINS + 300, "to_classic"),
        hours=30,
    ),
    # Copies of tasks
    chosen_ordinary(
        "Rolling restart of 3 instances with standbys, which restore 2,000,000 offsets in 20 minutes each",
        steady(3),
        do(60, "configure", num_standby_replicas="1"),
        copies(BEGINS - 600, BEGINS),
        *(
            [*roll([name], BEGINS + n * 1500, 60, 30), *_restored(name, BEGINS + n * 1500 + 120)]
            for n, name in enumerate(names(3))
        ),
        copies(BEGINS + 3 * 1500, BEGINS + 2 * HOUR),
    ),
    # Records and offsets
    chosen_ordinary(
        "An application with exactly-once processing rests: its lag of 1 is the marker of a transaction",
        working(3, transactional=True),
        do(BEGINS, "change", rate=0.0),
        hours=8,
    ),
    chosen_ordinary(
        "Rolling restart of 6 instances that restore state for ten minutes",
        working(6, STATE, restore_seconds=600.0),
        roll(names(6), BEGINS, 15 * MINUTE, 60, **STATE),
        topics=TOPICS,
    ),
    chosen_ordinary(
        "A burst of fifteen minutes of twice what the application can process, every two hours",
        working(3),
        *(do(n * HOUR, "change", rate=100.0) + do(n * HOUR + 900, "change", rate=10.0) for n in (2, 4)),
    ),
    chosen_ordinary(
        "Offsets are reset to the beginning with Kafka's tools while the application is stopped",
        working(3),
        stop(names(3), BEGINS),
        do(BEGINS + 60, "go_back", by=1e9),
        start(names(3), BEGINS + 120),
    ),
    ordinary(
        "A topic that the application does not read any more is still written",
        working(3),
        do(BEGINS, "leave_over", topic="old"),
        topics={"in": 2},
    ),
    chosen_ordinary("Retention deletes what was processed", working(3), do(BEGINS, "delete_records")),
    chosen_ordinary(
        "Partitions are added to a topic with records",
        working(3),
        do(BEGINS, "set_topic", topic="in", partitions=24),
    ),
    chosen_ordinary(
        "A group that loads an archive, with an override",
        working(1, rate=60.0),
        settings={"overrides": [{"groups": "app", "rules": {"StreamsGroupBehind": {"enabled": False}}}]},
    ),
    # What operators report, written before the engine judged it: where somebody did, a comment names the thread
    # Autoscalers. kedacore/keda#776: 0 to 1 on lag; the defaults are 30 s between polls, and 5 minutes to cool down.
    chosen_ordinary("An autoscaler from zero, four bursts a day: 60 s to start", _from_zero(4, 1.5 * HOUR), hours=9),
    # Brokers
    chosen_ordinary(
        "Three brokers restart one after the other, each for two minutes, while records come",
        working(3),
        _brokers_roll(3, BEGINS, 5 * MINUTE, 120),
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
    # By the clock
    chosen_ordinary(
        "The topic gets a record every quarter of an hour",
        working(2, rate=0.0),
        *(do(n * 900, "change", rate=0.1) + do(n * 900 + 40, "change", rate=0.0) for n in range(1, 32)),
        hours=8,
    ),
)
