"""What operators of Kafka Streams applications tell, post-mortems among it: written before the engine judged it.

Where one is modelled after what somebody reported, a comment names the thread.
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
    STALLED,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    UNSTABLE,
    Operations,
    blue_then_green,
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
    start,
    stop,
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
)

REPORTED_INCIDENTS = (
    # Full outages
    incident(
        "A record that cannot be deserialized ends every instance that gets its partition, again and again",
        DOWN,
        working(3),
        *(crash_loop(name, BEGINS + n * 30, 15, END) for n, name in enumerate(names(3))),
    ),
    # kedacore/keda#4098: while a broker was replaced the lag could not be read, and the application was scaled to zero
    incident(
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
    incident(
        "A certificate expires, and the instances of three applications end",
        DOWN,
        *(start([f"{app}-a", f"{app}-b"], group=app) for app in _APPS),
        *(do(TRAFFIC, "read", group=app) for app in _APPS),
        *(stop([f"{app}-a", f"{app}-b"], BEGINS, every=20, action="crash") for app in _APPS),
    ),
    incident(
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
    incident(
        "A release names a source topic that does not exist, and the old instances are gone",
        DOWN,
        working(2),
        stop(names(2), BEGINS),
        do(BEGINS + 20, "delete"),
        *(restarts(name, BEGINS + 40, END, up=12, sources=("typo",)) for name in names(2)),
    ),
    incident(
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
    incident(
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
    incident(
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
    incident(
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
    incident(
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
    incident(
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
    incident(
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
)
