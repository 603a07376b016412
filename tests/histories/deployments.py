"""Ordinary operations of those who run an application: restarts, deployments and scaling."""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    HOUR,
    PROCESS,
    STATE,
    STATIC,
    TOPICS,
    Operations,
    crash_loop,
    do,
    names,
    ordinary,
    replace_pods,
    roll,
    start,
    steady,
    stop,
)


def autoscaler(days: int) -> Operations:
    extra = names(3, "extra")
    times = [n * 4 * HOUR + HOUR for n in range(days * 6)]
    return [one for n, at in enumerate(times) for one in (start(extra, at, 30) if n % 2 == 0 else stop(extra, at, 30))]


DEPLOYMENTS = (
    # Restarts and deployments
    ordinary("Restart of the only instance", steady(1), roll(names(1), BEGINS, 60, 30)),
    ordinary("Rolling restart of 6 instances", steady(6), roll(names(6), BEGINS, 60, 30)),
    ordinary("Rolling restart of 6 instances, two at a time", steady(6), roll(names(6), BEGINS, 20, 35)),
    ordinary(
        "Rolling restart of 3 pods with 4 threads", steady(3, threads=4), roll(names(3), BEGINS, 90, 20, threads=4)
    ),
    ordinary("Rolling restart of 200 instances", steady(200), roll(names(200), BEGINS, 9, 8), topics={"in": 200}),
    ordinary(
        "Rolling restart of a group of 5,000 members, pod by pod",
        start(names(50), threads=100, every=0.02),
        roll(names(3), BEGINS, 120, 30, threads=100),
        hours=2.4,
        topics={"in": 5000},
    ),
    ordinary(
        "Rolling restart of 20 static members, each away for 35 s, overlapping",
        steady(20, **PROCESS),
        roll(names(20), BEGINS, 25, 35, **PROCESS),
        topics={"in": 40},
    ),
    ordinary(
        "Rolling restart of 20 static members with new process ids",
        steady(20, **STATIC),
        roll(names(20), BEGINS, 25, 35, **STATIC),
        topics={"in": 40},
    ),
    ordinary(
        "A static member is away for longer than its session and comes back",
        steady(6, **STATIC),
        roll(names(1), BEGINS, 60, 120, **STATIC),
    ),
    ordinary(
        "Deployment that replaces 3 pods with 4 threads by new ones",
        start(names(3, "old"), threads=4),
        replace_pods(names(3, "old"), names(3, "new"), BEGINS, 40, threads=4),
    ),
    ordinary(
        "All instances stop, and start again after a migration of twelve minutes",
        steady(4),
        stop(names(4), BEGINS),
        start(names(4), BEGINS + 720),
    ),
    ordinary(
        "Deployment that is rolled back after five minutes",
        steady(6),
        roll(names(6), BEGINS, 20, 10),
        roll(names(6), BEGINS + 420, 20, 10),
    ),
    ordinary(
        "Three deployments of the only instance within half an hour",
        steady(1),
        *(roll(names(1), BEGINS + n * 600, 60, 40) for n in range(3)),
    ),
    ordinary(
        "Canary for twenty minutes, then the deployment",
        steady(4),
        start(["canary"], BEGINS),
        roll(names(4), BEGINS + 1200, 60, 20),
        stop(["canary"], BEGINS + 1600),
    ),
    ordinary(
        "Deployment whose first pod needs three attempts to start",
        steady(3),
        crash_loop("i0", BEGINS, 5, BEGINS + 60),
        roll(names(3)[1:], BEGINS + 300, 60, 20),
    ),
    ordinary(
        "Deployment under a new version of the application id",
        start(["a", "b"], group="pay-v1", **STATE),
        do(60, "read", group="pay-v1"),
        start(["c", "d"], BEGINS, group="pay-v2", **STATE),
        do(BEGINS + 5, "read", group="pay-v2", log_of="pay-v1"),
        stop(["a", "b"], BEGINS + 2 * HOUR),
        hours=40,
        topics=TOPICS,
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
    ordinary(
        "Deployment with another topology: the group is deleted first",
        steady(2),
        stop(names(2), BEGINS),
        do(BEGINS + 60, "delete"),
        start(names(2), BEGINS + 90, sources=("in", "more")),
        topics={"in": 12, "more": 12},
    ),
    # Scaling
    ordinary("Scale out from 3 to 9 instances, one after the other", steady(3), start(names(6, "extra"), BEGINS, 30)),
    ordinary("Scale in from 9 to 3 instances, one after the other", steady(9), stop(names(9)[3:], BEGINS, 30)),
    ordinary(
        "A long pause of one member: it is removed, and joins again under its id",
        steady(5),
        do(BEGINS, "expire", name="i0"),
        do(BEGINS + 60, "rejoin", name="i0"),
    ),
    ordinary(
        "Members take four minutes to close their state",
        steady(3),
        *(do(BEGINS - 1, "hang", name=name) for name in names(3)),
        start(["i9"], BEGINS),
        *(do(BEGINS + 240, "hang", name=name, hung=False) for name in names(3)),
    ),
)
