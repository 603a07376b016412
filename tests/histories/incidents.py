"""Outages, losses and lag of Kafka Streams applications: each needs a person."""

from tests.histories.history import (
    BEGINS,
    BEHIND,
    DAY,
    DOWN,
    END,
    FEW,
    HOUR,
    STALLED,
    STATE,
    STATIC,
    TOPICS,
    TRAFFIC,
    UNSTABLE,
    chosen_incident,
    copies,
    crash_loop,
    do,
    hang,
    hours_of,
    incident,
    names,
    restarts,
    start,
    steady,
    stop,
    windows,
    working,
)

STEADY_LOOP = (300.0,) * 100

_APPS = ("orders", "prices", "users")

OUTAGES = (
    # Records and offsets
    chosen_incident(
        "One partition has a record that is tried again and again",
        STALLED,
        working(3),
        do(BEGINS, "stick", partitions=[7]),
    ),
    chosen_incident(
        "The threads of one of three instances hang; its heartbeats go on",
        STALLED,
        working(3),
        hang(["i1"], BEGINS),
    ),
    chosen_incident(
        "More is produced than the application can process",
        BEHIND,
        working(3),
        do(BEGINS, "change", rate=80.0),
    ),
    chosen_incident(
        "A log is truncated, and the application goes back by hours of records while it runs",
        "GroupOffsetsRewound",
        working(3),
        do(BEGINS, "go_back", by=50_000.0),
    ),
    chosen_incident(
        "A topic is deleted and created again under an application that does not read the new one",
        STALLED,
        working(3),
        do(BEGINS, "recreate_topics"),
        do(BEGINS, "stick"),
    ),
    # Applications that do not stay up
    chosen_incident(
        "The only instance is up for 20 s in every 320 s",
        DOWN,
        start(names(1)),
        crash_loop("i0", BEGINS, 20, END, pauses=STEADY_LOOP),
    ),
    incident(
        "The only instance is killed for its memory after a minute each time",
        f"{DOWN} {UNSTABLE}",
        start(names(1)),
        crash_loop("i0", BEGINS, 60, END, action="kill"),
    ),
    chosen_incident(
        "The only instance crashes, and the clock of its broker is an hour behind",
        DOWN,
        start(names(1)),
        do(BEGINS - 60, "fail_over", clock=-HOUR),
        crash_loop("i0", BEGINS, 20, END),
    ),
    chosen_incident(
        "A source topic is missing: the client gives up, and is started again",
        DOWN,
        restarts("i0", BEGINS, END, up=12, sources=("gone",)),
    ),
    chosen_incident(
        "Joined topics have different numbers of partitions: the client gives up at once",
        DOWN,
        restarts("i0", BEGINS, END, up=6, sources=("in", "narrow")),
        topics={"in": 12, "narrow": 4},
    ),
    chosen_incident(
        "A source topic is deleted under three instances, which are started again",
        DOWN,
        start(names(3)),
        do(BEGINS, "set_topic", topic="in", partitions=None),
        *(restarts(name, BEGINS + 30, END, up=12) for name in names(3)),
    ),
    chosen_incident(
        "One of two joined topics gets more partitions under a running application",
        DOWN,
        start(names(2), sources=("in", "other")),
        do(BEGINS, "set_topic", topic="in", partitions=24),
        topics={"in": 12, "other": 12},
    ),
    # Applications that are not ready, or gone
    chosen_incident(
        "The application may not create its internal topics", DOWN, start(names(2), BEGINS, changelogs=("log",))
    ),
    chosen_incident(
        "A nightly job does not run one night",
        DOWN,
        windows(range(4), (HOUR,), 1200),
        hours=24 * 6,
        begins=4 * DAY + HOUR,
        running_hours=hours_of(("01:00", "01:20")),
    ),
    # Members
    chosen_incident(
        "A member is stuck in revocation, with a poll interval of an hour",
        STALLED,
        start(names(3), rebalance_timeout=3600.0),
        do(BEGINS - 1, "hang", name="i0"),
        start(["i9"], BEGINS),
    ),
    chosen_incident(
        "All six members come and go with the network, every four minutes",
        f"{UNSTABLE} {DOWN}",
        start(names(6)),
        *(crash_loop(name, BEGINS, 180, END, pauses=(60.0,) * 40) for name in names(6)),
    ),
    # Assignments
    chosen_incident(
        "The broker takes a task away and gives it back every thirty seconds, and nothing explains it",
        UNSTABLE,
        start(names(3)),
        *(do(BEGINS + n * 30 - 1, "leave_out", partitions=[0][: n % 2]) for n in range(60)),
        *(do(BEGINS + n * 30, "rebalance_without_cause") for n in range(60)),
    ),
    # Descriptions
    chosen_incident(
        "The plugin's store is down while thirty applications start",
        "GroupDescriptionFailed",
        do(0, "set_plugin", mode="failing"),
        *(start([f"a{n}"], BEGINS + n * 20, group=f"app-{n}") for n in range(30)),
    ),
    chosen_incident(
        "The plugin rejects the descriptions of thirty applications",
        "GroupDescriptionFailed",
        do(0, "set_plugin", mode="rejected"),
        *(start([f"a{n}"], BEGINS + n * 0.05, group=f"app-{n}") for n in range(30)),
    ),
    chosen_incident(
        "A tool pushes descriptions that nobody asked for",
        "GroupUnsolicitedDescription",
        do(0, "set_plugin", mode="stored"),
        start(names(2)),
        *(do(BEGINS + n * 300, "push") for n in range(5)),
    ),
    chosen_incident(
        "A tool pushes a description of which the plugin has rejected the first one, and rejects all others",
        "GroupUnsolicitedDescription GroupDescriptionFailed",
        do(0, "set_plugin", mode="rejected"),
        start(names(2)),
        *(do(BEGINS + n * 300, "push", result="rejected") for n in range(5)),
        begins=0.0,
    ),
    chosen_incident(
        "A group whose description was cleaned up comes back with clients that do not send one",
        "GroupDescriptionMissing",
        do(0, "set_plugin", mode="stored"),
        start(names(2)),
        stop(names(2), BEGINS - 300),
        do(BEGINS - 200, "clean_up_description"),
        start(names(2), BEGINS, pushes=False),
    ),
    # Copies of tasks
    chosen_incident(
        "The disk of one of three hosts is too slow: its standbys fall behind",
        "GroupStandbyBehind",
        steady(3),
        do(60, "configure", num_standby_replicas="1"),
        copies(BEGINS - 600, BEGINS),
        *(do(BEGINS + n * 60, "report_copies", lags={"i1": 11_000 + n * 5_000}) for n in range(60)),
    ),
    chosen_incident(
        "Standby replicas are configured, and the assignor finds no place for them",
        "GroupStandbyBehind",
        steady(3),
        do(BEGINS, "configure", num_standby_replicas="1"),
        copies(BEGINS + 60, BEGINS + HOUR, has_standbys=False),
    ),
    # What operators report, written before the engine judged it: where somebody did, a comment names the thread
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
        "A record takes longer than max.poll.interval.ms: its member is removed every five minutes, and reads it again",
        f"{STALLED} {UNSTABLE}",
        working(3),
        hang(["i0"], BEGINS),
        *(
            do(BEGINS + n * 330 + 300, "expire", name="i0") + do(BEGINS + n * 330 + 330, "rejoin", name="i0")
            for n in range(20)
        ),
    ),
    # State
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
    # Interrupted again and again
    chosen_incident(
        "A canary with a defect crashes next to six good pods",
        UNSTABLE,
        working(6),
        start(["canary"], BEGINS),
        crash_loop("canary", BEGINS + 20, 20, END),
    ),
    # Tenants
    chosen_incident(
        "A client whose ids have five megabytes",
        "GroupSetAside",
        start(["x" * 2_500_000], BEGINS),
        hours=3,
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
    # Written without knowledge of the engine: by the runbook, docs/alerts.md and reports alone
    incident(
        "The application runs twice with the same static ids, and the two fence each other once a minute",
        f"{UNSTABLE} {DOWN} {STALLED}",
        working(2, STATIC),
        *(start(names(2), BEGINS + n * 60, 10, host=f"10.0.{3 + n % 2}.1", **STATIC) for n in range(80)),
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
        "An application dies on Friday evening, its topic keeps records for a day, and somebody looks on Monday",
        f"{DOWN} GroupLosing",
        working(2, rate=1.0, keeps_seconds=DAY),
        stop(names(2), BEGINS, action="kill"),
        start(names(2), BEGINS + 60 * HOUR),
        hours=66,
        topics=FEW,
    ),
)
