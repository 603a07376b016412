"""What operators of Kafka Streams applications report, and operations of platforms.

They were written before the engine judged them. Where somebody reported one, a comment names the thread.
"""

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
    PROCESS,
    STALLED,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    UNSTABLE,
    Operations,
    blue_then_green,
    chosen_incident,
    chosen_ordinary,
    copies,
    crash_loop,
    do,
    hang,
    hours_of,
    incident,
    names,
    office_hours,
    ordinary,
    replace_pods,
    restarts,
    roll,
    start,
    steady,
    stop,
    windows,
    working,
)

_APPS = ("orders", "prices", "users")


def _commits_rarely() -> Operations:
    """Start an application that commits every ten minutes, and release it."""
    return [
        *working(2, commit_interval=600.0),
        *replace_pods(names(2), names(2, "new"), BEGINS, 60),
    ]


def _thread_replaced(instance: str, at: float, every: float, times: int) -> Operations:
    """Let the thread of an instance die and be replaced: the old member stays until its session ends."""
    return [
        one
        for n in range(times)
        for one in (*stop([instance], at + n * every, action="kill"), *start([instance], at + n * every + 0.2))
    ]


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


def _in_zone(apps: tuple[str, ...], zone: str) -> list[str]:
    return [f"{app}-{zone}{n}" for app in apps for n in range(2)]


REPORTED = (
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
    ordinary(
        "Nothing comes at the weekend, and records come again on Monday morning",
        working(2, rate=5.0),
        do(BEGINS, "change", rate=0.0),
        do(BEGINS + 60 * HOUR, "change", rate=5.0),
        hours=66,
        topics=FEW,
    ),
    ordinary(
        "With exactly-once, one batch of records comes every two hours, and a release is between two of them",
        working(2, rate=0.0, transactional=True),
        *(do(n * 7200.0, "change", rate=20.0) + do(n * 7200.0 + 60, "change", rate=0.0) for n in range(1, 6)),
        replace_pods(names(2), names(2, "new"), 5 * HOUR, 60),
        hours=12,
        topics=FEW,
    ),
    # KIP-441: while warm-up copies catch up, tasks are assigned anew every ten minutes
    ordinary(
        "After a scale-out tasks move to the new instances in steps, ten minutes apart, for an hour",
        working(2, STATE, restore_seconds=20.0),
        *(start([f"x{n}"], BEGINS + n, **STATE) for n in range(2)),
        *(do(BEGINS + n * 600, "rebalance_without_cause") for n in range(1, 7)),
        topics=TOPICS,
    ),
    ordinary(
        "An application that commits every ten minutes, as declared, is started, and released once a day",
        _commits_rarely(),
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
    chosen_ordinary(
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
    ordinary(
        "A thread dies of an exception and is replaced, three times in an hour",
        steady(3),
        start(["t"], 10, host="10.9.0.1"),
        do(TRAFFIC, "read"),
        *(roll(["t"], BEGINS + n * 1200, 0, 2, host="10.9.0.1") for n in range(3)),
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
    # Full outages
    incident(
        "A record that cannot be deserialized ends every instance that gets its partition, again and again",
        DOWN,
        working(3),
        *(crash_loop(name, BEGINS + n * 30, 15, END) for n, name in enumerate(names(3))),
    ),
    # kedacore/keda#4098: while a broker was replaced the lag could not be read, and the application was scaled to zero
    chosen_incident(
        "An autoscaler scales to zero while records wait, as it cannot read the lag",
        DOWN,
        working(4),
        do(BEGINS - 300, "change", rate=80.0),
        stop(names(4), BEGINS),
    ),
    incident(
        "Records come to an application that is scaled to zero, and nothing starts it",
        DOWN,
        working(2),
        do(HOUR, "change", rate=0.0),
        stop(names(2), HOUR + 600),
        do(BEGINS, "change", rate=10.0),
    ),
    incident(
        "The only instance ends with an exception, and nothing starts it again",
        DOWN,
        working(1),
        stop(names(1), BEGINS, action="crash"),
    ),
    incident(
        "A release has a migration of eight minutes, as the two before, of an application that may be away for five",
        DOWN,
        working(2, rate=0.2),
        *(stop(names(2), BEGINS + n * 4 * HOUR) + start(names(2), BEGINS + n * 4 * HOUR + 480) for n in range(3)),
        hours=12,
        begins=BEGINS + 8 * HOUR,
        watched_from=BEGINS + 7 * HOUR,
    ),
    chosen_incident(
        "A certificate expires, and the instances of three applications end",
        DOWN,
        *(start([f"{app}-a", f"{app}-b"], group=app) for app in _APPS),
        *(do(TRAFFIC, "read", group=app) for app in _APPS),
        *(stop([f"{app}-a", f"{app}-b"], BEGINS, every=20, action="crash") for app in _APPS),
    ),
    chosen_incident(
        "A broker is lost, and three applications that read its partitions end with it",
        DOWN,
        *(start([f"{app}-a", f"{app}-b"], group=app) for app in _APPS),
        *(do(TRAFFIC, "read", group=app) for app in _APPS),
        *(do(BEGINS, "lose_leaders", partitions=[0, 3, 6, 9], seconds=DAY, group=app) for app in _APPS),
        *(stop([f"{app}-a", f"{app}-b"], BEGINS + 60, every=15, action="crash") for app in _APPS),
        begins=BEGINS + 60,
    ),
    incident(
        "A StatefulSet is deleted: all static members go",
        DOWN,
        working(4, STATIC),
        stop(names(4), BEGINS),
    ),
    chosen_incident(
        "A release names a source topic that does not exist, and the old instances are gone",
        DOWN,
        working(2),
        stop(names(2), BEGINS),
        do(BEGINS + 20, "delete"),
        *(restarts(name, BEGINS + 40, END, up=12, sources=("typo",)) for name in names(2)),
    ),
    chosen_incident(
        "A tool that removes unused topics deletes a changelog",
        DOWN,
        working(3, STATE),
        do(BEGINS, "set_topic", topic="log", partitions=None),
        topics=TOPICS,
    ),
    incident(
        "A batch is killed in the middle of its night, with half of the day's records waiting",
        DOWN,
        start(["job"], HOUR),
        do(HOUR + TRAFFIC, "read", rate=30.0, capacity=40.0),
        stop(["job"], BEGINS, action="kill"),
    ),
    incident(
        "An application dies, and the clock of its broker is two hours ahead",
        DOWN,
        working(2),
        do(HOUR, "fail_over", clock=2 * HOUR),
        stop(names(2), BEGINS, action="kill"),
    ),
    incident(
        "An application dies and is deleted with Kafka's tools by somebody who tries to help",
        DOWN,
        working(2),
        stop(names(2), BEGINS),
        do(BEGINS + 20 * MINUTE, "delete"),
    ),
    # Offsets that do not move
    # softwaremill/klag-exporter#104: an open transaction pins the last stable offset, and nothing beyond it can be read
    chosen_incident(
        "A transaction that nobody ends holds all partitions of the topic",
        STALLED,
        working(3, transactional=True),
        do(BEGINS, "stick"),
    ),
    incident(
        "A record takes longer than max.poll.interval.ms: its member is removed every five minutes, and reads it again",
        f"{STALLED} {UNSTABLE}",
        working(3),
        hang(["i0"], BEGINS),
        *(
            do(BEGINS + n * 330 + 300, "expire", name="i0") + do(BEGINS + n * 330 + 330, "rejoin", name="i0")
            for n in range(20)
        ),
    ),
    incident(
        "The disks of the brokers are full: three applications cannot commit",
        STALLED,
        *(start([f"{app}-a", f"{app}-b"], group=app) for app in _APPS),
        *(do(TRAFFIC, "read", group=app) for app in _APPS),
        *(hang([f"{app}-a", f"{app}-b"], BEGINS, group=app) for app in _APPS),
        *(do(BEGINS + 120, "change", rate=0.0, group=app) for app in _APPS),
    ),
    incident(
        "Green joins and processes nothing, and blue is stopped",
        f"{DOWN} {STALLED}",
        blue_then_green(begins="committed"),
        hang("cd", BEGINS + 6, group="green"),
        stop(["a", "b"], BEGINS + 120),
        topics=TOPICS,
    ),
    # State
    incident(
        "An instance restores for half an hour, is killed for its memory, and begins again",
        f"{STALLED} {UNSTABLE} {DOWN}",
        working(1, STATE, restore_seconds=1800.0),
        *(
            stop([f"i{n}"], BEGINS + n * 1500, action="kill") + start([f"i{n + 1}"], BEGINS + n * 1500 + 30, **STATE)
            for n in range(6)
        ),
        topics=TOPICS,
    ),
    chosen_incident(
        "A restore takes three hours, and the topic keeps records for one",
        f"GroupLosing {STALLED} GroupLosing",
        working(2, STATE, restore_seconds=3 * HOUR, keeps_seconds=HOUR),
        start(["i2"], BEGINS, **STATE),
        *(
            do(BEGINS + 60 + n * 60, "report_copies", restores={"i2": 18_000_000 - n * 100_000}, has_standbys=False)
            for n in range(150)
        ),
        topics=TOPICS,
    ),
    chosen_incident(
        "A restore makes no progress, as reports of the instance show",
        f"{STALLED} GroupLosing",
        working(2, STATE, restore_seconds=DAY),
        start(["i2"], BEGINS, **STATE),
        *(
            do(BEGINS + 60 + n * 60, "report_copies", restores={"i2": 9_000_000}, has_standbys=False)
            for n in range(150)
        ),
        topics=TOPICS,
    ),
    # Too slow, and losses
    incident(
        "A slow application is overtaken by a retention of an hour",
        f"{BEHIND} GroupLosing",
        working(3, keeps_seconds=HOUR),
        do(BEGINS, "change", rate=200.0),
    ),
    incident(
        "A warehouse is down for three hours, and the topic keeps records for one",
        f"{STALLED} GroupLosing",
        working(2, keeps_seconds=HOUR),
        hang(names(2), BEGINS, 3 * HOUR),
        hours=8,
    ),
    incident(
        "Offsets are reset to the beginning by mistake, and the application needs a day for what it has done before",
        f"{BEHIND} GroupOffsetsRewound",
        working(3, capacity=11.0),
        stop(names(3), BEGINS),
        do(BEGINS + 30, "go_back", by=1e9),
        start(names(3), BEGINS + 60),
        begins=BEGINS + 60,
    ),
    # Interrupted again and again
    chosen_incident(
        "A canary with a defect crashes next to six good pods",
        UNSTABLE,
        working(6),
        start(["canary"], BEGINS),
        crash_loop("canary", BEGINS + 20, 20, END),
    ),
    incident(
        "A bad version is rolled out to all six pods, each of which crashes after a minute",
        f"{UNSTABLE} {DOWN}",
        working(6),
        *(crash_loop(name, BEGINS + n * 60, 60, END) for n, name in enumerate(names(6))),
    ),
    incident(
        "A node is out of order every half hour for eight minutes, and the only instance with it",
        f"{DOWN} {UNSTABLE}",
        working(1),
        *(
            stop(names(1), BEGINS + n * 1800, action="kill") + start(names(1), BEGINS + n * 1800 + 480)
            for n in range(4)
        ),
    ),
    # Tenants
    chosen_incident(
        "A client whose ids have five megabytes",
        "GroupSetAside",
        start(["x" * 2_500_000], BEGINS),
        hours=3,
    ),
    incident(
        "An application commits every ten minutes, which nobody declares",
        STALLED,
        _commits_rarely(),
        begins=TRAFFIC,
        topics=FEW,
    ),
    incident(
        "A staging application is stopped at night, while records come, as on each of ten days, and nobody declares it",
        DOWN,
        office_hours(11),
        do(7 * HOUR + 60, "read", rate=0.2),
        hours=24 * 10.5,
        topics=FEW,
        watched_from=9.5 * DAY,
        begins=9 * DAY + 19 * HOUR,
    ),
    # users@kafka.apache.org, "REPLACE_THREAD recovery in 4.x": the dead member stays for its session of 45 s
    incident(
        "A record that fails always: its thread is replaced again and again, each time after a session of 45 s",
        f"{STALLED} {UNSTABLE} {DOWN}",
        working(3),
        do(BEGINS, "stick", partitions=[0, 3]),
        _thread_replaced("i0", BEGINS + 5, 60, 90),
    ),
    # KIP-572: after task.timeout.ms, five minutes, the thread ends; Kubernetes starts the pod again
    incident(
        "A sink is away: each instance gives up after five minutes without progress, and is started again",
        f"{STALLED} {UNSTABLE} {DOWN}",
        working(3),
        do(BEGINS, "stick"),
        *(crash_loop(name, BEGINS + 310 + n * 5, 310, END, pauses=(10.0,) * 50) for n, name in enumerate(names(3))),
    ),
    chosen_incident(
        "A tool deletes the source topic and creates it again; the application ended, and nothing starts it",
        DOWN,
        working(2),
        do(BEGINS, "set_topic", topic="in", partitions=None),
        do(BEGINS + 60, "recreate_topics"),
        do(BEGINS + 60, "set_topic", topic="in", partitions=12),
    ),
    incident(
        "Threads hang over a weekend without records, and nothing is processed on Monday",
        STALLED,
        working(2),
        do(HOUR, "change", rate=0.0),
        hang(names(2), 1.5 * HOUR),
        do(60 * HOUR, "change", rate=10.0),
        hours=63,
        begins=60 * HOUR,
        topics=FEW,
    ),
    incident(
        "Each record waits half a minute for a service that times out",
        f"{BEHIND} {STALLED}",
        working(3),
        do(BEGINS, "change", capacity=0.034),
    ),
    incident(
        "Retention by size deletes records that came in a burst, in the three minutes of a deployment",
        "GroupLosing",
        working(2),
        stop(names(2), BEGINS),
        do(BEGINS + 5, "change", rate=500.0),
        do(BEGINS + 150, "delete_records"),
        do(BEGINS + 155, "change", rate=10.0),
        start(names(2), BEGINS + 180),
        begins=BEGINS + 150,
    ),
    # KAFKA-10134 and others: the instance believes that it runs, and each of its rejoins is fenced
    incident(
        "The only instance is removed, and joins every twenty minutes for ten seconds without processing anything",
        f"{DOWN} {UNSTABLE}",
        working(1),
        hang(["i0"], BEGINS),
        *(
            do(BEGINS + n * 1200, "expire", name="i0") + do(BEGINS + n * 1200 + 1190, "rejoin", name="i0")
            for n in range(7)
        ),
    ),
    incident(
        "The threads of an application end one after the other, one an hour, until none is left",
        f"{DOWN} {UNSTABLE}",
        working(4, STATIC),
        *(stop([f"i{n}"], BEGINS + n * HOUR, action="kill") for n in range(4)),
        hours=7,
        begins=BEGINS + 3 * HOUR,
    ),
    # KIP-834: `pause()` by an operator of blue, who stops green and forgets to resume
    incident(
        "Blue is paused for green, green is given up and stopped, and nobody resumes blue",
        f"{STALLED} {DOWN}",
        blue_then_green(begins="committed"),
        hang("ab", BEGINS + 60, group="blue"),
        stop(["c", "d"], BEGINS + 1800),
        begins=BEGINS + 60,
        topics=TOPICS,
    ),
    # Written without knowledge of the engine: by the runbook, docs/alerts.md and reports alone
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
