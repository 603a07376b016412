"""What goes wrong with Kafka Streams applications, by post-mortems and issue trackers; written before it was judged.

Where one is modelled after what somebody reported, a comment names the thread.
"""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    BEHIND,
    DAY,
    DOWN,
    END,
    HOUR,
    MINUTE,
    STALLED,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    UNSTABLE,
    blue_then_green,
    crash_loop,
    do,
    hang,
    incident,
    names,
    restarts,
    start,
    stop,
    working,
)

_APPS = ("orders", "prices", "users")

POSTMORTEM_INCIDENTS = (
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
)
