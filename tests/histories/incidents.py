"""What goes wrong, and which alerts are to say so."""

from __future__ import annotations

from tests.histories.held_back import HELD_BACK_INCIDENTS
from tests.histories.history import (
    BEGINS,
    DAY,
    DOWN,
    END,
    HOUR,
    STALLED,
    STATIC,
    UNSTABLE,
    copies,
    crash_loop,
    do,
    hours_of,
    incident,
    names,
    restarts,
    start,
    steady,
    stop,
    windows,
)
from tests.histories.lag_histories import LAG_INCIDENTS
from tests.histories.reported import REPORTED_INCIDENTS
from tests.histories.twins import TWIN_INCIDENTS
from tests.histories.widened import WIDENED_INCIDENTS

STEADY_LOOP = (300.0,) * 100

INCIDENTS = (
    *LAG_INCIDENTS,
    *WIDENED_INCIDENTS,
    *REPORTED_INCIDENTS,
    *HELD_BACK_INCIDENTS,
    *TWIN_INCIDENTS,
    # Applications that do not stay up
    incident(
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
    incident(
        "The only instance crashes after four minutes, and is back after 20 s",
        f"{DOWN} {UNSTABLE}",
        start(names(1)),
        crash_loop("i0", BEGINS, 240, END, pauses=(20.0,) * 99),
    ),
    incident(
        "A new application crashes from its first start",
        DOWN,
        crash_loop("i0", BEGINS + 20, 20, END),
        start(["i0"], BEGINS),
    ),
    incident(
        "An instance crashes while the job is restarted",
        DOWN,
        start(names(1)),
        crash_loop("i0", BEGINS, 20, END),
        do(BEGINS + 250, "job_down", seconds=120.0),
    ),
    incident(
        "The only instance crashes, and the clock of its broker is an hour behind",
        DOWN,
        start(names(1)),
        do(BEGINS - 60, "fail_over", clock=-HOUR),
        crash_loop("i0", BEGINS, 20, END),
    ),
    incident(
        "A source topic is missing: the client gives up, and is started again",
        DOWN,
        restarts("i0", BEGINS, END, up=12, sources=("gone",)),
    ),
    incident(
        "Joined topics have different numbers of partitions: the client gives up at once",
        DOWN,
        restarts("i0", BEGINS, END, up=6, sources=("in", "narrow")),
        topics={"in": 12, "narrow": 4},
    ),
    incident(
        "A source topic is deleted under three instances, which are started again",
        DOWN,
        start(names(3)),
        do(BEGINS, "set_topic", topic="in", partitions=None),
        *(restarts(name, BEGINS + 30, END, up=12) for name in names(3)),
    ),
    incident(
        "One of two joined topics gets more partitions under a running application",
        DOWN,
        start(names(2), sources=("in", "other")),
        do(BEGINS, "set_topic", topic="in", partitions=24),
        topics={"in": 12, "other": 12},
    ),
    # Applications that are not ready, or gone
    incident("The application may not create its internal topics", DOWN, start(names(2), BEGINS, changelogs=("log",))),
    incident(
        "A source topic is missing, the client gives up, and nothing starts it again",
        DOWN,
        start(names(2), BEGINS, sources=("gone",)),
    ),
    incident(
        "The only host with all four instances is lost",
        DOWN,
        start(names(4), host="10.0.0.1"),
        stop(names(4), BEGINS, action="kill"),
    ),
    incident("An application is scaled to zero by mistake", DOWN, start(names(3)), stop(names(3), BEGINS)),
    incident(
        "The second outage within a week",
        DOWN,
        start(names(2)),
        stop(names(2), BEGINS),
        start(names(2), BEGINS + 3 * HOUR),
        stop(names(2), 4 * DAY),
        hours=24 * 4 + 3,
    ),
    incident(
        "A nightly job does not run one night",
        DOWN,
        windows(range(4), (HOUR,), 1200),
        hours=24 * 6,
        begins=4 * DAY + HOUR,
        running_hours=hours_of(("01:00", "01:20")),
    ),
    incident(
        "All instances are lost while the job is down",
        DOWN,
        start(names(2)),
        do(BEGINS, "job_down", seconds=HOUR),
        stop(names(2), BEGINS + 60, action="kill"),
    ),
    # Members
    incident(
        "One bad pod in fifty crashes and is started again",
        UNSTABLE,
        start(names(50)),
        crash_loop("i0", BEGINS, 20, END),
        topics={"in": 100},
    ),
    incident(
        "One bad pod of six is killed for its memory",
        UNSTABLE,
        start(names(6)),
        crash_loop("i0", BEGINS, 120, END, action="kill"),
    ),
    incident(
        "One bad static pod of six", UNSTABLE, start(names(6), **STATIC), crash_loop("i0", BEGINS, 30, END, **STATIC)
    ),
    incident(
        "The only static instance crashes, and is back before its session ends",
        f"{UNSTABLE} {DOWN}",
        start(names(1), **STATIC),
        crash_loop("i0", BEGINS, 20, END, pauses=(30.0,) * 200, **STATIC),
    ),
    incident(
        "A member is stuck in revocation, with a poll interval of an hour",
        STALLED,
        start(names(3), rebalance_timeout=3600.0),
        do(BEGINS - 1, "hang", name="i0"),
        start(["i9"], BEGINS),
    ),
    incident(
        "All six members come and go with the network, every four minutes",
        f"{UNSTABLE} {DOWN}",
        start(names(6)),
        *(crash_loop(name, BEGINS, 180, END, pauses=(60.0,) * 40) for name in names(6)),
    ),
    incident(
        "Long pauses: one member is removed and joins again under its id, every three minutes",
        UNSTABLE,
        start(names(4)),
        *(do(BEGINS + n * 180, "expire", name="i0") for n in range(25)),
        *(do(BEGINS + n * 180 + 60, "rejoin", name="i0") for n in range(25)),
    ),
    incident(
        "An autoscaler that cannot decide starts and stops three pods every two minutes",
        UNSTABLE,
        start(names(3)),
        *(
            start(names(3, f"e{n}-"), BEGINS + n * 240) + stop(names(3, f"e{n}-"), BEGINS + n * 240 + 120)
            for n in range(20)
        ),
    ),
    # Assignments
    incident(
        "The broker takes a task away and gives it back every thirty seconds, and nothing explains it",
        UNSTABLE,
        start(names(3)),
        *(do(BEGINS + n * 30 - 1, "leave_out", partitions=[0][: n % 2]) for n in range(60)),
        *(do(BEGINS + n * 30, "rebalance_without_cause") for n in range(60)),
    ),
    incident(
        "A tool changes the number of partitions every thirty seconds",
        UNSTABLE,
        start(names(3)),
        *(do(BEGINS + n * 30, "set_topic", topic="in", partitions=12 + n) for n in range(60)),
    ),
    # Descriptions
    incident(
        "A poisoned description: the plugin rejects it for good",
        "GroupDescriptionFailed",
        do(0, "set_plugin", mode="rejected"),
        start(names(2), BEGINS),
    ),
    incident(
        "The plugin's store is down while one application starts",
        "GroupDescriptionFailed",
        do(0, "set_plugin", mode="failing"),
        start(names(2), BEGINS),
    ),
    incident(
        "The plugin's store is down while thirty applications start",
        "GroupDescriptionFailed",
        do(0, "set_plugin", mode="failing"),
        *(start([f"a{n}"], BEGINS + n * 20, group=f"app-{n}") for n in range(30)),
    ),
    incident(
        "The plugin rejects the descriptions of thirty applications",
        "GroupDescriptionFailed",
        do(0, "set_plugin", mode="rejected"),
        *(start([f"a{n}"], BEGINS + n * 0.05, group=f"app-{n}") for n in range(30)),
    ),
    incident(
        "A tool pushes descriptions that nobody asked for",
        "GroupUnsolicitedDescription",
        do(0, "set_plugin", mode="stored"),
        start(names(2)),
        *(do(BEGINS + n * 300, "push") for n in range(5)),
    ),
    incident(
        "A tool pushes a description of which the plugin has rejected the first one, and rejects all others",
        "GroupUnsolicitedDescription GroupDescriptionFailed",
        do(0, "set_plugin", mode="rejected"),
        start(names(2)),
        *(do(BEGINS + n * 300, "push", result="rejected") for n in range(5)),
        begins=0.0,
    ),
    incident(
        "A group whose description was cleaned up comes back with clients that do not send one",
        "GroupDescriptionMissing",
        do(0, "set_plugin", mode="stored"),
        start(names(2)),
        stop(names(2), BEGINS - 300),
        do(BEGINS - 200, "clean_up_description"),
        start(names(2), BEGINS, pushes=False),
    ),
    # Copies of tasks
    incident(
        "The disk of one of three hosts is too slow: its standbys fall behind",
        "GroupStandbyBehind",
        steady(3),
        do(60, "configure", num_standby_replicas="1"),
        copies(BEGINS - 600, BEGINS),
        *(do(BEGINS + n * 60, "report_copies", lags={"i1": 11_000 + n * 5_000}) for n in range(60)),
    ),
    incident(
        "Standby replicas are configured, and the assignor finds no place for them",
        "GroupStandbyBehind",
        steady(3),
        do(BEGINS, "configure", num_standby_replicas="1"),
        copies(BEGINS + 60, BEGINS + HOUR, has_standbys=False),
    ),
)
