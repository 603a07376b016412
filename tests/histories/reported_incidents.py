"""Outages, losses and lag that operators of Kafka Streams applications report: each needs a person.

These histories were written before the engine judged them. Where somebody reported one, a comment names the thread.
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
    chosen_incident,
    commits_rarely,
    crash_loop,
    do,
    hang,
    hours_of,
    incident,
    names,
    office_hours,
    restarts,
    start,
    steady,
    stop,
    windows,
    working,
)

_APPS = ("orders", "prices", "users")


def _thread_replaced(instance: str, at: float, every: float, times: int) -> Operations:
    """Let the thread of an instance die and be replaced: the old member stays until its session ends."""
    return [
        one
        for n in range(times)
        for one in (*stop([instance], at + n * every, action="kill"), *start([instance], at + n * every + 0.2))
    ]


def _in_zone(apps: tuple[str, ...], zone: str) -> list[str]:
    return [f"{app}-{zone}{n}" for app in apps for n in range(2)]


REPORTED_INCIDENTS = (
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
        commits_rarely(),
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
