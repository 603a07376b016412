"""What platforms do every day, for which nobody wants to be paged."""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    DAY,
    HOUR,
    MINUTE,
    PROCESS,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    Operations,
    chosen_ordinary,
    copies,
    crash_loop,
    do,
    hours_of,
    names,
    office_hours,
    ordinary,
    replace_pods,
    restored,
    roll,
    start,
    steady,
    stop,
    windows,
    working,
)


def _upgrades(groups: int) -> Operations:
    """Old clients on brokers with a plugin; every other day another application gets clients of 4.4."""
    operations = do(0, "set_plugin", mode="stored")
    for n in range(groups):
        group = f"app-{n}"
        operations += start([f"{group}-a", f"{group}-b"], 60.0 + n, group=group, pushes=False)
        operations += roll([f"{group}-a", f"{group}-b"], (n + 1) * 2 * DAY, 60, 20, group=group, pushes=True)
    return operations


def _burst(at: float, seconds: float) -> Operations:
    return do(at, "change", rate=100.0) + do(at + seconds, "change", rate=10.0)


EVERYDAY_ORDINARY = (
    # Restarts and deployments
    chosen_ordinary("Restart of the only instance", steady(1), roll(names(1), BEGINS, 60, 30)),
    ordinary("Rolling restart of 200 instances", steady(200), roll(names(200), BEGINS, 9, 8), topics={"in": 200}),
    ordinary(
        "Rolling restart of a group of 5,000 members, pod by pod",
        start(names(50), threads=100, every=0.02),
        roll(names(3), BEGINS, 120, 30, threads=100),
        hours=2.4,
        topics={"in": 5000},
    ),
    chosen_ordinary(
        "Rolling restart of 20 static members, each away for 35 s, overlapping",
        steady(20, **PROCESS),
        roll(names(20), BEGINS, 25, 35, **PROCESS),
        topics={"in": 40},
    ),
    chosen_ordinary(
        "A static member is away for longer than its session and comes back",
        steady(6, **STATIC),
        roll(names(1), BEGINS, 60, 120, **STATIC),
    ),
    ordinary(
        "Deployment that replaces 3 pods with 4 threads by new ones",
        start(names(3, "old"), threads=4),
        replace_pods(names(3, "old"), names(3, "new"), BEGINS, 40, threads=4),
    ),
    chosen_ordinary(
        "All instances stop, and start again after a migration of twelve minutes",
        steady(4),
        stop(names(4), BEGINS),
        start(names(4), BEGINS + 720),
    ),
    ordinary(
        "Deployment whose first pod needs three attempts to start",
        steady(3),
        crash_loop("i0", BEGINS, 5, BEGINS + 60),
        roll(names(3)[1:], BEGINS + 300, 60, 20),
    ),
    ordinary(
        "Deployment under another application id",
        start(["a", "b"], group="billing", **STATE),
        stop(["a", "b"], BEGINS),
        do(60, "read", group="billing"),
        start(["c", "d"], BEGINS + 90, group="invoices", **STATE),
        do(BEGINS + 95, "read", group="invoices", log_of="billing", begins="committed"),
        hours=40,
        topics=TOPICS,
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
        "Scale out from 3 to 9 instances, one after the other", steady(3), start(names(6, "extra"), BEGINS, 30)
    ),
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
    ordinary(
        "Two deployments of the only instance by way of brokers whose clocks are an hour apart",
        steady(1),
        do(BEGINS - 60, "fail_over", clock=-HOUR),
        roll(names(1), BEGINS, 60, 60),
        do(BEGINS + 300, "fail_over", clock=HOUR),
        roll(names(1), BEGINS + 900, 60, 60),
    ),
    ordinary("A new number of standby replicas", steady(3), do(BEGINS, "configure", num_standby_replicas="1")),
    chosen_ordinary(
        "Three rebalances for reasons that are not in the log",
        steady(3),
        *(do(BEGINS + n * 120, "rebalance_without_cause") for n in range(3)),
    ),
    chosen_ordinary(
        "The brokers refine warm-ups every thirty seconds, which moves no task",
        steady(3),
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
    ordinary(
        "Brokers are upgraded before clients, and ten applications follow one after the other",
        _upgrades(10),
        hours=24 * 24,
    ),
    chosen_ordinary(
        "The plugin is removed, and new applications start after that",
        do(0, "set_plugin", mode="stored"),
        steady(2),
        do(BEGINS, "set_plugin", mode=None),
        start(["n"], 2 * BEGINS, group="new"),
        hours=24 * 16,
    ),
    ordinary(
        "The plugin is removed, the job may not read the configuration, and new applications start",
        do(0, "set_plugin", mode="stored", in_config=False),
        steady(2),
        do(BEGINS, "set_plugin", mode=None, in_config=False),
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
    ordinary(
        "A job of five minutes every hour, which may be away for so long",
        [one for n in range(48) for one in (*start(["job"], n * HOUR + 60), *stop(["job"], n * HOUR + 360))],
        hours=48,
        settings={"overrides": [{"groups": "app", "rules": {"StreamsGroupDown": {"for": "70m"}}}]},
    ),
    chosen_ordinary(
        "An application that runs in office hours",
        office_hours(15),
        hours=24 * 15,
        watched_from=8 * DAY,
        running_hours=hours_of(("07:00", "19:00"), weekdays=["monday:friday"]),
    ),
    ordinary("An idle group: it runs for a month, and nothing happens", steady(3), hours=24 * 30),
    chosen_ordinary(
        "An application is taken out of service, and its group deleted after eight minutes",
        steady(2),
        stop(names(2), BEGINS),
        do(BEGINS + 480, "delete"),
        hours=30,
    ),
    # Other group types
    ordinary(
        "Offline migration from the classic protocol",
        do(BEGINS, "from_classic", group="app"),
        start(names(3), BEGINS + 1),
    ),
    chosen_ordinary(
        "Offline migration back to the classic protocol",
        steady(3),
        stop(names(3), BEGINS),
        do(BEGINS + 300, "to_classic"),
        hours=30,
    ),
    # The job itself
    chosen_ordinary(
        "The job is down for two hours, with a deployment meanwhile",
        steady(6),
        do(BEGINS, "job_down", seconds=2 * HOUR),
        roll(names(6), BEGINS + 600, 60, 30),
    ),
    chosen_ordinary(
        "An override that matches every group, during a rolling restart",
        steady(6),
        roll(names(6), BEGINS, 60, 30),
        settings={"overrides": [{"groups": ".*", "rules": {"StreamsGroupDown": {"for": "4m"}}}]},
    ),
    # Copies of tasks
    chosen_ordinary(
        "Rolling restart of 3 instances with standbys, which restore 2,000,000 offsets in 20 minutes each",
        steady(3),
        do(60, "configure", num_standby_replicas="1"),
        copies(BEGINS - 600, BEGINS),
        *(
            [*roll([name], BEGINS + n * 1500, 60, 30), *restored(name, BEGINS + n * 1500 + 120, 1200, 2_000_000)]
            for n, name in enumerate(names(3))
        ),
        copies(BEGINS + 3 * 1500, BEGINS + 2 * HOUR),
    ),
    ordinary(
        "Scaled out from 2 to 3 instances: warm-ups restore for 40 minutes, then the tasks move",
        steady(2),
        copies(BEGINS - 600, BEGINS, has_standbys=False),
        start(["i2"], BEGINS),
        *(
            do(
                BEGINS + n * 60,
                "report_copies",
                role="warmup",
                lags={f"i{i}": 4_000_000 - n * 100_000 for i in range(3)},
            )
            for n in range(1, 40)
        ),
        copies(BEGINS + 2_400, BEGINS + 2 * HOUR, has_standbys=False),
    ),
    ordinary(
        "An application with standbys is scaled in to one instance over night",
        steady(3),
        do(60, "configure", num_standby_replicas="1"),
        copies(BEGINS - 600, BEGINS),
        stop(names(3)[1:], BEGINS),
        copies(BEGINS + 60, BEGINS + 3 * HOUR),
    ),
    # Records and offsets
    chosen_ordinary(
        "An application with exactly-once processing rests: its lag of 1 is the marker of a transaction",
        working(3, transactional=True),
        do(BEGINS, "change", rate=0.0),
        hours=8,
    ),
    ordinary(
        "A nightly job of half an hour that processes the records of the day",
        windows(range(2), (2 * HOUR,), 1800),
        do(2 * HOUR + TRAFFIC, "read", rate=1.0, capacity=100.0),
        hours=24 * 2,
        topics={"in": 2},
        running_hours=hours_of(("02:00", "02:30")),
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
        *(_burst(n * 2 * HOUR, 900) for n in range(1, 3)),
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
    ordinary(
        "The topic of a stopped application is deleted and created again",
        working(3),
        stop(names(3), BEGINS),
        do(BEGINS + 60, "recreate_topics"),
        start(names(3), BEGINS + 120),
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
)
