"""Histories of applications that process records: ordinary operations, and incidents that show in their lag."""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    BEHIND,
    DAY,
    DOWN,
    HOUR,
    MINUTE,
    STALLED,
    STATE,
    TOPICS,
    TRAFFIC,
    Operations,
    do,
    hang,
    hours_of,
    incident,
    names,
    ordinary,
    roll,
    start,
    stop,
    windows,
    working,
)


def _burst(at: float, seconds: float, rate: float = 100.0) -> Operations:
    return do(at, "change", rate=rate) + do(at + seconds, "change", rate=10.0)


LAG_ORDINARY = (
    ordinary(
        "An application with exactly-once processing rests: its lag of 1 is the marker of a transaction",
        working(3, transactional=True),
        do(BEGINS, "change", rate=0.0),
        hours=8,
    ),
    ordinary("An idle group whose topic gets no records", working(3), do(HOUR, "change", rate=0.0)),
    ordinary(
        "A nightly job of half an hour that processes the records of the day",
        windows(range(2), (2 * HOUR,), 1800),
        do(2 * HOUR + TRAFFIC, "read", rate=1.0, capacity=100.0),
        hours=24 * 2,
        topics={"in": 2},
        running_hours=hours_of(("02:00", "02:30")),
    ),
    ordinary(
        "Rolling restart of 6 instances that restore state for ten minutes",
        working(6, STATE, restore_seconds=600.0),
        roll(names(6), BEGINS, 15 * MINUTE, 60, **STATE),
        topics=TOPICS,
    ),
    ordinary(
        "Scale-out from 2 to 4 instances that restore state for twenty minutes",
        working(2, STATE, restore_seconds=1200.0),
        start(["i2", "i3"], BEGINS, **STATE),
        topics=TOPICS,
    ),
    ordinary(
        "A burst of fifteen minutes of twice what the application can process, every two hours",
        working(3),
        *(_burst(n * 2 * HOUR, 900) for n in range(1, 3)),
    ),
    ordinary(
        "Deployment of the only instance, which catches up for four hours",
        working(1),
        stop(names(1), BEGINS),
        start(names(1), BEGINS + 600),
        do(BEGINS + 540, "change", capacity=10.42),
        hours=6.6,
        settings={"rules": {"StreamsGroupDown": {"for": "12m"}}},
    ),
    ordinary(
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
    ordinary("Retention deletes what was processed", working(3), do(BEGINS, "delete_records")),
    ordinary(
        "Partitions are added to a topic with records",
        working(3),
        do(BEGINS, "set_topic", topic="in", partitions=24),
    ),
    ordinary(
        "The coordinator moves to a broker whose clock is an hour behind, and back",
        working(3),
        do(BEGINS, "fail_over", clock=-HOUR),
        do(BEGINS + HOUR, "fail_over"),
    ),
    ordinary(
        "The job is down for an hour while records are processed",
        working(3),
        do(BEGINS, "job_down", seconds=HOUR),
    ),
    ordinary(
        "A group that loads an archive, with an override",
        working(1, rate=60.0),
        settings={"overrides": [{"groups": "app", "rules": {"StreamsGroupBehind": {"enabled": False}}}]},
    ),
)
LAG_INCIDENTS = (
    incident(
        "A nightly job without running_hours, as records come all day",
        DOWN,
        windows(range(2), (2 * HOUR,), 1800),
        do(2 * HOUR + TRAFFIC, "read", rate=1.0, capacity=100.0),
        hours=24 * 2,
        topics={"in": 2},
        begins=2.5 * HOUR,
    ),
    incident(
        "One partition has a record that is tried again and again",
        STALLED,
        working(3),
        do(BEGINS, "stick", partitions=[7]),
    ),
    incident(
        "The same offset of a partition is committed again and again",
        STALLED,
        working(3),
        do(BEGINS, "stick", partitions=[7], commits_again=True),
    ),
    incident(
        "The threads of one of three instances hang; its heartbeats go on",
        STALLED,
        working(3),
        hang(["i1"], BEGINS),
    ),
    incident(
        "All instances wait for a database that is down",
        STALLED,
        working(3, transactional=True),
        hang(names(3), BEGINS),
    ),
    incident(
        "One partition makes no progress, a rolling restart does not help, and the job is restarted",
        STALLED,
        working(3),
        do(BEGINS, "stick", partitions=[0]),
        roll(names(3), BEGINS + 300, 60, 30),
        do(BEGINS + HOUR, "job_down", seconds=120.0),
    ),
    incident(
        "The restore of an instance that took tasks over never ends",
        STALLED,
        working(2, STATE, restore_seconds=DAY),
        start(["i2"], BEGINS, **STATE),
        topics=TOPICS,
    ),
    incident(
        "More is produced than the application can process",
        BEHIND,
        working(3),
        do(BEGINS, "change", rate=80.0),
    ),
    incident(
        "After a burst the application is just as fast as the producers, and does not catch up",
        BEHIND,
        working(3, capacity=10.0),
        do(BEGINS, "change", rate=40.0),
        do(BEGINS + 1200, "change", rate=10.0),
    ),
    incident(
        "The application is behind for long, and the job is restarted meanwhile",
        BEHIND,
        working(3),
        do(BEGINS, "change", rate=80.0),
        do(BEGINS + HOUR, "job_down", seconds=60.0),
    ),
    incident(
        "A log is truncated, and the application goes back by hours of records while it runs",
        "GroupOffsetsRewound",
        working(3),
        do(BEGINS, "go_back", by=50_000.0),
    ),
    incident(
        "An assignor leaves out the tasks of two partitions, from a rolling restart on",
        STALLED,
        working(3),
        do(BEGINS, "leave_out", partitions=[3, 7]),
        roll(names(3), BEGINS, 60, 30),
    ),
    incident(
        "A topic is deleted and created again under an application that does not read the new one",
        STALLED,
        working(3),
        do(BEGINS, "recreate_topics"),
        do(BEGINS, "stick"),
    ),
    incident(
        "A topic is created again with few records, and the application waits behind their end at its old offset",
        STALLED,
        working(2),
        do(BEGINS, "change", rate=0.0),
        do(BEGINS + 600, "recreate_topics"),
        do(BEGINS + 600, "stick"),
        do(BEGINS + 700, "change", rate=0.01),
        begins=BEGINS + 700,
    ),
)
