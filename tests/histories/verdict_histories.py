"""Histories that were judged wrongly while alerts were made of a group's state: what waits, and who proves what."""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    DOWN,
    HOUR,
    MINUTE,
    STALLED,
    STATE,
    TOPICS,
    TRAFFIC,
    Operations,
    blue_then_green,
    do,
    hang,
    incident,
    names,
    ordinary,
    start,
    steady,
    stop,
    working,
)

_OTHER = {"group": "audit", "sources": ("in",), "changelogs": ("log",)}


def _killed_for_memory(every: float, times: int) -> Operations:
    """Kill the only instance again and again; the next one starts on another host."""
    return [
        one
        for n in range(times)
        for one in (
            *stop([f"i{n}"], BEGINS + n * every, action="kill"),
            *start([f"i{n + 1}"], BEGINS + n * every + 30, host=f"10.0.1.{n}"),
        )
    ]


VERDICT_ORDINARY = (
    ordinary(
        "An autoscaler scales to zero when nothing waits, and nothing comes for hours",
        working(3),
        do(BEGINS - 600, "change", rate=0.0),
        stop(names(3), BEGINS),
        start(names(3), BEGINS + 3 * HOUR),
        do(BEGINS + 3 * HOUR - 120, "change", rate=10.0),
    ),
    ordinary(
        "Blue is replaced by green, which reads the topics from the beginning before blue is stopped",
        blue_then_green(0.0),
        stop(["a", "b"], BEGINS + HOUR),
        hours=20,
        topics=TOPICS,
    ),
)

VERDICT_INCIDENTS = (
    incident(
        "All instances are lost while another application reads the same topics",
        DOWN,
        steady(3, changelogs=("sums",)),
        do(TRAFFIC, "read"),
        start(["o0"], HOUR, **_OTHER),
        do(HOUR + 30, "read", group="audit", log_of="app"),
        stop(names(3), BEGINS, action="kill"),
        topics={**TOPICS, "sums": 12},
    ),
    incident(
        "All instances are lost, and the same application starts under another id at the end of the topics",
        DOWN,
        working(3, STATE),
        stop(names(3), BEGINS),
        start(names(3, "n"), BEGINS + 20 * MINUTE, group="app-2", **STATE),
        do(BEGINS + 20 * MINUTE, "read", group="app-2", log_of="app", begins="latest"),
        topics=TOPICS,
    ),
    incident(
        "A source topic is deleted under an application that never committed; brokers clean its group up",
        DOWN,
        start(names(2), BEGINS - 90),
        do(BEGINS - 60, "read", rate=0.0),
        do(BEGINS, "set_topic", topic="in", partitions=None),
        hours=3,
    ),
    incident(
        "An application fails at its first record, and never commits",
        STALLED,
        start(names(2), BEGINS),
        do(BEGINS + 30, "read", capacity=0.0),
        hours=3,
    ),
    incident(
        "Retention of half an hour overtakes an application whose threads hang",
        f"{STALLED} GroupLosing",
        working(2, keeps_seconds=1800.0),
        hang(names(2), BEGINS),
    ),
    incident(
        "An application is scaled to zero, and records come",
        DOWN,
        working(2),
        stop(names(2), BEGINS),
    ),
    incident(
        "An application is retired on purpose while records come, which somebody says once they are paged",
        DOWN,
        working(2, rate=1.0),
        stop(names(2), BEGINS),
        do(BEGINS + 20 * MINUTE, "end_incidents", reason="retired"),
        hours=12,
    ),
    incident(
        "An application that ran for ten minutes is stopped with nothing left, records come, and nothing starts it",
        DOWN,
        start(names(2), BEGINS - 600),
        do(BEGINS - 590, "read"),
        stop(names(2), BEGINS),
    ),
    incident(
        "The only instance is killed for its memory every twelve minutes, on another host each time",
        "GroupUnstable",
        start(["i0"]),
        do(TRAFFIC, "read"),
        _killed_for_memory(12 * MINUTE, 8),
    ),
    incident(
        "All instances are lost, the job dies meanwhile, and the application comes back after two hours",
        DOWN,
        working(2),
        stop(names(2), BEGINS, action="kill"),
        do(BEGINS + 30 * MINUTE, "job_down", seconds=1200.0),
        start(names(2), BEGINS + 2 * HOUR),
        hours=7,
    ),
)
