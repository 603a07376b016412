"""Histories of applications that process records: ordinary operations, and incidents that show in their lag."""

from __future__ import annotations

from tests.histories.history import (
    BEGINS,
    DAY,
    HOUR,
    MINUTE,
    STATIC,
    TRAFFIC,
    Operations,
    do,
    incident,
    names,
    ordinary,
    roll,
    start,
    steady,
    stop,
)

_STATE = {"changelogs": ("log",)}
_TOPICS = {"in": 12, "log": 12}
_STALLED, _BEHIND = "GroupStalled", "GroupBehind"


def _nightly(nights: int, minutes: float, **instance: object) -> Operations:
    runs = [(night * DAY + 2 * HOUR, night * DAY + 2 * HOUR + minutes * MINUTE) for night in range(nights)]
    return [one for begin, end in runs for one in (*start(["job"], begin, **instance), *stop(["job"], end))]


def _burst(at: float, seconds: float, rate: float = 100.0) -> Operations:
    return do(at, "change", rate=rate) + do(at + seconds, "change", rate=10.0)


LAG_ORDINARY = (
    ordinary(
        "An application with exactly-once processing rests: its lag of 1 is the marker of a transaction",
        steady(3),
        do(TRAFFIC, "read", transactional=True),
        do(BEGINS, "change", rate=0.0),
        hours=8,
    ),
    ordinary("An idle group whose topic gets no records", steady(3), do(TRAFFIC, "read"), do(HOUR, "change", rate=0.0)),
    ordinary(
        "A nightly job of half an hour that processes the records of the day",
        _nightly(2, 30),
        do(2 * HOUR + TRAFFIC, "read", rate=1.0, capacity=100.0),
        hours=24 * 2,
        topics={"in": 2},
    ),
    ordinary(
        "A nightly job that needs three hours for the records of the day",
        _nightly(3, 200),
        do(2 * HOUR + TRAFFIC, "read", rate=1.0, capacity=9.0),
        hours=24 * 3,
        watched_from=1.5 * DAY,
        topics={"in": 2},
    ),
    ordinary(
        "Rolling restart of 6 instances that process records",
        steady(6),
        do(TRAFFIC, "read"),
        roll(names(6), BEGINS, 60, 30),
    ),
    ordinary(
        "Rolling restart of 6 instances that restore state for ten minutes",
        steady(6, **_STATE),
        do(TRAFFIC, "read", restore_seconds=600.0),
        roll(names(6), BEGINS, 15 * MINUTE, 60, **_STATE),
        topics=_TOPICS,
    ),
    ordinary(
        "Scale-out from 2 to 4 instances that restore state for twenty minutes",
        steady(2, **_STATE),
        do(TRAFFIC, "read", restore_seconds=1200.0),
        start(["i2", "i3"], BEGINS, **_STATE),
        topics=_TOPICS,
    ),
    ordinary("Scale-in from 6 to 2 instances", steady(6), do(TRAFFIC, "read"), stop(names(6)[2:], BEGINS, every=30)),
    ordinary(
        "A burst of fifteen minutes of twice what the application can process, every two hours",
        steady(3),
        do(TRAFFIC, "read"),
        *(_burst(n * 2 * HOUR, 900) for n in range(1, 3)),
    ),
    ordinary(
        "The brokers are down for half an hour, and the producers send what has waited",
        steady(3, **STATIC),
        do(TRAFFIC, "read"),
        do(BEGINS, "change", rate=0.0),
        _burst(BEGINS + 1800, 300),
    ),
    ordinary(
        "Deployment of the only instance, which catches up for four hours",
        steady(1),
        do(TRAFFIC, "read"),
        stop(names(1), BEGINS),
        start(names(1), BEGINS + 600),
        do(BEGINS + 540, "change", capacity=10.42),
        hours=6.6,
    ),
    ordinary("An application that commits every five minutes", steady(3), do(TRAFFIC, "read", commit_interval=300.0)),
    ordinary(
        "Offsets are reset to the beginning with Kafka's tools while the application is stopped",
        steady(3),
        do(TRAFFIC, "read"),
        stop(names(3), BEGINS),
        do(BEGINS + 60, "go_back", by=1e9),
        start(names(3), BEGINS + 120),
    ),
    ordinary(
        "A topic that the application does not read any more is still written",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "leave_over", topic="old"),
        topics={"in": 2},
    ),
    ordinary(
        "The topic of a stopped application is deleted and created again",
        steady(3),
        do(TRAFFIC, "read"),
        stop(names(3), BEGINS),
        do(BEGINS + 60, "recreate_topics"),
        start(names(3), BEGINS + 120),
    ),
    ordinary("Retention deletes what was processed", steady(3), do(TRAFFIC, "read"), do(BEGINS, "delete_records")),
    ordinary(
        "Partitions are added to a topic with records",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "set_topic", topic="in", partitions=24),
    ),
    ordinary(
        "The coordinator moves to a broker whose clock is an hour behind, and back",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "fail_over", clock=-HOUR),
        do(BEGINS + HOUR, "fail_over"),
    ),
    ordinary(
        "The coordinator moves to a broker whose clock is an hour ahead, and back",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "fail_over", clock=HOUR),
        do(BEGINS + HOUR, "fail_over"),
    ),
    ordinary(
        "The job is down for an hour while records are processed",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "job_down", seconds=HOUR),
    ),
    ordinary(
        "A group that loads an archive, with an override",
        steady(1),
        do(TRAFFIC, "read", rate=60.0),
        settings={"overrides": [{"groups": "app", "rules": {"StreamsGroupBehind": {"age": "7d"}}}]},
    ),
)
LAG_INCIDENTS = (
    incident(
        "One partition has a record that is tried again and again",
        _STALLED,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "stick", partitions=[7]),
    ),
    incident(
        "The same offset of a partition is committed again and again",
        _STALLED,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "stick", partitions=[7], commits_again=True),
    ),
    incident(
        "The threads of one of three instances hang; its heartbeats go on",
        _STALLED,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "hang_processing", name="i1"),
    ),
    incident(
        "All instances wait for a database that is down",
        _STALLED,
        steady(3),
        do(TRAFFIC, "read", transactional=True),
        *(do(BEGINS, "hang_processing", name=name) for name in names(3)),
    ),
    incident(
        "One partition makes no progress, a rolling restart does not help, and the job is restarted",
        _STALLED,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "stick", partitions=[0]),
        roll(names(3), BEGINS + 300, 60, 30),
        do(BEGINS + HOUR, "job_down", seconds=120.0),
    ),
    incident(
        "The restore of an instance that took tasks over never ends",
        _STALLED,
        steady(2, **_STATE),
        do(TRAFFIC, "read", restore_seconds=DAY),
        start(["i2"], BEGINS, **_STATE),
        topics=_TOPICS,
    ),
    incident(
        "More is produced than the application can process",
        _BEHIND,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "change", rate=80.0),
    ),
    incident(
        "After a burst the application is just as fast as the producers, and does not catch up",
        _BEHIND,
        steady(3),
        do(TRAFFIC, "read", capacity=10.0),
        do(BEGINS, "change", rate=40.0),
        do(BEGINS + 1200, "change", rate=10.0),
    ),
    incident(
        "The application is behind for long, and the job is restarted meanwhile",
        _BEHIND,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "change", rate=80.0),
        do(BEGINS + HOUR, "job_down", seconds=60.0),
    ),
    incident(
        "Retention deletes records that an application which hangs has not processed",
        f"{_STALLED} GroupLosing",
        steady(3),
        do(TRAFFIC, "read"),
        *(do(BEGINS, "hang_processing", name=name) for name in names(3)),
        do(BEGINS + HOUR, "delete_records"),
    ),
    incident(
        "A log is truncated, and the application goes back by hours of records while it runs",
        "GroupOffsetsRewound",
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "go_back", by=50_000.0),
    ),
    incident(
        "An assignor leaves out the tasks of two partitions, from a rolling restart on",
        _STALLED,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "leave_out", partitions=[3, 7]),
        roll(names(3), BEGINS, 60, 30),
    ),
    incident(
        "A topic is deleted and created again under an application that does not read the new one",
        _STALLED,
        steady(3),
        do(TRAFFIC, "read"),
        do(BEGINS, "recreate_topics"),
        do(BEGINS, "stick"),
    ),
)
