"""The rules about lag: partitions that are not processed, too far behind, or not where they were. Data and conditions.

Lag as such is no finding: every application has some at most moments. What counts is its status, which is judged by the
group's own interval between commits, see `streaming_app.lag.status`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice

from streaming_app.alerts.alert import CRITICAL, AlertKey, Finding
from streaming_app.alerts.rule import (
    HOUR,
    MINUTE,
    EvaluationContext,
    LagRule,
    Threshold,
    Thresholds,
    format_time,
    is_recent,
    round_down,
)
from streaming_app.health.history import NO_HISTORY, GroupHistory, empty_spells
from streaming_app.lag.group_lag import NO_PROGRESS, SLOW, GroupLag, WrongPartitions
from streaming_app.lag.model import LagRow
from streaming_app.lag.status import LOST, RECREATED, REWOUND, UNOWNED
from streaming_app.text import count, first_of, format_duration

IN_SUMMARY = 3
"""How many partitions or tasks a summary names."""


def wrong_since(group: GroupLag, wrong: WrongPartitions) -> datetime:
    """Return since when it has been so without a rebalance."""
    return to_datetime(max(wrong.since, group.settled_at))


def to_datetime(seconds: float) -> datetime:
    """Return a time in seconds as the rules have times."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def format_partitions(wrong: WrongPartitions) -> str:
    """Return how many partitions it is about: `3 partitions`."""
    return count(wrong.count, "partition")


def format_places(wrong: WrongPartitions) -> str:
    """Return the first partitions with their tasks, hosts and processes, and how many more there are."""
    places = [_place(row) for row in islice(wrong.named, IN_SUMMARY)]
    return first_of(places, IN_SUMMARY, wrong.count, separator="; ")


def _place(row: LagRow) -> str:
    text = f"{row.topic}-{row.partition}"
    if row.task_id is not None:
        text += f", task {row.task_id}"
    if row.member_id is not None:
        text += f" at {row.client_host or 'unknown host'}, process {row.process_id}"
    return text


def format_names(names: Sequence[str], noun: str) -> str:
    """Return names with their noun: `tasks 0_1, 0_2 and 3 more`."""
    plural = "" if len(names) == 1 else "s"
    return f"{noun}{plural} {first_of(names, IN_SUMMARY)}"


def to_details(wrong: WrongPartitions) -> dict[str, object]:
    """Return the details of a finding, without numbers that change at every pass."""
    return {
        "partition_count": wrong.count,
        "lag_at_least": round_down(wrong.lag),
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "status": row.status,
                "task": row.task_id or "",
                "member_id": row.member_id or "",
                "process_id": row.process_id or "",
                "host": row.client_host or "",
                **({} if row.committed_offset is None else {"committed_offset": row.committed_offset}),
            }
            for row in wrong.named
        ],
    }


_LAG_HIGH = "StreamsGroupLagHigh"
_RESET_MINUTES = timedelta(minutes=10)  # from when a group has members again until its first commit
_AGES = (MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 7 * 24 * HOUR)


def _no_progress(group: GroupLag, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    wrong, restores_since = group.wrong.get(NO_PROGRESS), group.may_restore_since
    if wrong is None:
        return None
    if restores_since is not None and is_recent(to_datetime(restores_since), thresholds["restore"], context.now):
        return None
    since = wrong_since(group, wrong)
    return Finding(
        since,
        f"{group.group_id} has lag and makes no progress in {format_partitions(wrong)} since {format_time(since)}: "
        f"{format_places(wrong)}",
        to_details(wrong),
    )


def _lag_high(group: GroupLag, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    wrong = group.wrong.get(SLOW)
    if wrong is None or wrong.lag_seconds is None or wrong.lag_seconds < thresholds["age"]:
        return None
    if group.catches_up and AlertKey(_LAG_HIGH, group.group_id) not in context.open_alerts:
        return None
    since = wrong_since(group, wrong)
    oldest = max(age for age in _AGES if age <= max(wrong.lag_seconds, MINUTE))
    return Finding(
        since,
        f"{group.group_id} does not catch up since {format_time(since)}: {format_partitions(wrong)}, the oldest record "
        f"is more than {format_duration(oldest)} old; {format_places(wrong)}",
        {**to_details(wrong), "seconds_at_least": round(oldest)},
    )


def _unowned(group: GroupLag, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    wrong = group.wrong.get(UNOWNED)
    if wrong is None or not group.has_owners:
        return None  # no task at all has an owner: other rules are about groups that are Empty or NotReady
    tasks = sorted({row.task_id for row in wrong.named if row.task_id})
    since = wrong_since(group, wrong)
    return Finding(
        since,
        f"{group.group_id} has members, but none has {format_names(tasks, 'task')}, with lag, since "
        f"{format_time(since)}",
        {**to_details(wrong), "tasks": tasks},
    )


def _lost(group: GroupLag, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    wrong = group.wrong.get(LOST)
    if wrong is None:
        return None
    since = to_datetime(wrong.since)
    at_least = round_down(wrong.lost_offsets)
    return Finding(
        since,
        f"{group.group_id} lost records: at least {count(at_least, 'offset')} of {format_partitions(wrong)} "
        f"were deleted before the group read them, seen at {format_time(since)}",
        {**to_details(wrong), "lost_offsets_at_least": at_least},
    )


def _rewound(group: GroupLag, _thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    wrong = group.wrong.get(REWOUND)
    if wrong is None or not group.has_tasks:
        return None  # whether a group of another type was reset is not known
    if _was_reset(context.histories.get(group.group_id, NO_HISTORY), to_datetime(wrong.since)):
        return None
    since = to_datetime(wrong.since)
    offsets = "; ".join(
        f"{row.topic}-{row.partition} from {row.rewound_from}" for row in islice(wrong.named, IN_SUMMARY)
    )
    return Finding(
        since,
        f"{group.group_id} went back in {format_partitions(wrong)} while it had members, at {format_time(since)}: "
        f"{offsets}",
        to_details(wrong),
    )


def _was_reset(history: GroupHistory, at: datetime) -> bool:
    """Tell whether the group had no members shortly before: only then Kafka's tools let somebody reset offsets."""
    changes = history.states
    if changes and changes[-1].state == "Empty":
        return True
    return any(at - filled <= _RESET_MINUTES for _, filled in empty_spells(changes))


def _recreated(group: GroupLag, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    wrong = group.wrong.get(RECREATED)
    if wrong is None:
        return None
    rows = [row for row in wrong.named if (row.log_end_offset or 0) > (row.log_start_offset or 0)]
    if not rows:
        return None  # there is nothing to read yet
    topics = sorted({row.topic for row in rows})
    since = to_datetime(wrong.since)
    return Finding(
        since,
        f"{group.group_id} has not committed since {format_names(topics, 'topic')} was deleted and created again, seen "
        f"at {format_time(since)}",
        {**to_details(wrong), "topics": topics},
    )


_LAG = (
    'SELECT topic, "partition", status, lag, lag_seconds, committed_offset, committed_at, task_id, client_host,\n'
    "  process_id\n"
    "FROM lag WHERE group_id = 'GROUP_ID' AND status NOT IN ('OK', 'LEFT_OVER')\n"
    'ORDER BY lag DESC NULLS LAST, topic, "partition" LIMIT 50'
)
_HISTORY = (
    "SELECT observed_at, sum(lag) AS lag, max(lag_seconds) AS seconds FROM lag_history\n"
    "WHERE group_id = 'GROUP_ID' AND observed_at > now() - INTERVAL '6 hours'\n"
    "GROUP BY observed_at ORDER BY observed_at"
)

LAG_RULES = (
    LagRule(
        name="StreamsGroupNoProgress",
        find=_no_progress,
        severity=CRITICAL,
        for_seconds=10 * MINUTE,
        thresholds={"restore": Threshold(30 * MINUTE, "how long tasks may restore after a rebalance", seconds=True)},
        meaning=(
            "Partitions have lag, and for ten minutes in which the group did not rebalance their committed offsets "
            "have not moved, although a member has their task: nothing was committed for three of the group's commit "
            "intervals (STOPPED), or the same offset again and again (STALLED). Kafka Streams commits a task only when "
            "it has made progress. A task that restores its state commits nothing, either: if all tasks without "
            "progress are stateful and have committed nothing since the last rebalance, it fires after half an hour."
        ),
        queries={"Which partitions, whose tasks, since which commit?": _LAG},
        steps=(
            "All partitions of one process: its threads hang or wait for something outside. Take a thread dump of it, "
            "and restart it; `streams-groups copies` says whether another process can take over without a restore.",
            "One partition: the record at the committed offset cannot be processed and is tried again and again. Read "
            "it with `kafka-console-consumer.sh --partition P --offset COMMITTED --max-messages 1`.",
            "With exactly-once processing, `last_stable_offset` in `lag` does not move: an open transaction of a "
            "producer holds it. `kafka-transactions.sh find-hanging` finds it.",
            "The task restores: the application's log says so. Wait, and configure standbys.",
        ),
    ),
    LagRule(
        name=_LAG_HIGH,
        find=_lag_high,
        for_seconds=15 * MINUTE,
        thresholds={"age": Threshold(10 * MINUTE, "how old the oldest record is at least", seconds=True)},
        meaning=(
            "The group commits, but for 15 minutes in which it did not rebalance the lag of partitions has not fallen, "
            "or so slowly that there is lag for six more hours, and the oldest record that is not processed is more "
            "than ten minutes old. A group that catches up faster fires nothing. Lag is judged by its age: an offset "
            "is a millisecond of work for one application and a second for another."
        ),
        queries={"Which partitions, and where are they?": _LAG, "Does it grow?": _HISTORY},
        steps=(
            "All processes: more is produced than the application can process. Start more instances, as long as there "
            "are tasks for them: `streams-groups lag --group GROUP --by process`.",
            "One process: its host is slower, or has more tasks than others.",
            "One partition of a topic: a key with most of the records, or a partition with other records than others.",
            "The group is meant to be behind, such as one that loads an archive: raise `age` for it under `overrides`.",
        ),
    ),
    LagRule(
        name="StreamsGroupTaskUnowned",
        find=_unowned,
        for_seconds=10 * MINUTE,
        meaning=(
            "Tasks with lag are active at no member for ten minutes, although the group has members with tasks and "
            "does not rebalance. Nothing processes them. A group without members is StreamsGroupEmpty, one that is not "
            "ready StreamsGroupNotReady."
        ),
        queries={
            "Which tasks are active at no member?": (
                'SELECT task_id, topic, "partition", lag, lag_seconds, status FROM lag\n'
                "WHERE group_id = 'GROUP_ID' AND task_id IS NOT NULL AND member_id IS NULL ORDER BY lag DESC NULLS LAST"
            ),
        },
        steps=(
            "Compare with the broker: `streams-groups verify` and `kafka-streams-groups.sh --describe --members`.",
            "If the broker says the same, restart one instance: the group gets a new assignment.",
            "Search the log of the group coordinator for warnings of the assignor.",
        ),
    ),
    LagRule(
        name="StreamsGroupOffsetsLost",
        find=_lost,
        severity=CRITICAL,
        for_seconds=2 * MINUTE,
        is_held=False,
        meaning=(
            "The log of partitions begins after the offset that the group has committed: records were deleted, by "
            "retention or by somebody, before the group read them. They are gone. The group goes on as "
            "`auto.offset.reset` says. The starts of logs are asked for every five minutes, so a loss is not seen if "
            "the group commits again before that."
        ),
        queries={
            "How much, and where?": (
                'SELECT topic, "partition", committed_offset, log_start_offset, lost_offsets, committed_at FROM lag\n'
                "WHERE group_id = 'GROUP_ID' AND lost_offsets > 0 ORDER BY lost_offsets DESC LIMIT 50"
            ),
        },
        steps=(
            "Raise `retention.ms` or `retention.bytes` of the topic now, before more is deleted.",
            "Find out why the group is so far behind, or how long it was away.",
            "If the records exist elsewhere, load them again.",
        ),
    ),
    LagRule(
        name="StreamsGroupOffsetsRewound",
        find=_rewound,
        for_seconds=2 * MINUTE,
        meaning=(
            "The group committed a lower offset than before while it had members, and has not come to the old one "
            "again: records are processed twice. Offsets that somebody resets with Kafka's tools are no finding, since "
            "a group must have no members for that. The alert resolves when the old one is reached, or after an hour."
        ),
        queries={
            "From where, and to where?": (
                'SELECT topic, "partition", rewound_from, committed_offset, committed_at, task_id, client_host\n'
                "FROM lag WHERE group_id = 'GROUP_ID' AND rewound_from IS NOT NULL"
            ),
        },
        steps=(
            "`auto.offset.reset` is `earliest`, and the offset was out of range: the log was truncated by an unclean "
            "election of a leader (`unclean.leader.election.enable`), or the topic was emptied.",
            "The application itself seeks, or a second application uses the same group id.",
        ),
    ),
    LagRule(
        name="StreamsGroupTopicRecreated",
        find=_recreated,
        for_seconds=10 * MINUTE,
        is_held=False,
        meaning=(
            "A topic was deleted and created again, has records, and the group has committed nothing of the new one "
            "for ten minutes. Its committed offsets mean nothing there: a consumer would skip as many records, or "
            "begin where `auto.offset.reset` says."
        ),
        queries={
            "Which partitions?": (
                'SELECT topic, "partition", committed_offset, committed_at, log_end_offset FROM lag\n'
                "WHERE group_id = 'GROUP_ID' AND status = 'RECREATED'"
            ),
        },
        steps=(
            "Restart the application: clients that run keep the id of the old topic for a while.",
            "It runs, and still commits nothing: stop it, and reset the offsets of the topic to the earliest.",
        ),
    ),
)
"""In the order of the runbook."""
