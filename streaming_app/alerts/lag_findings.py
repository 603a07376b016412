"""When offsets went back, and how findings about partitions are worded.

Whether a group processes, and loses records, is the verdict on it: see `streaming_app.health`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from streaming_app.alerts.problem import Finding
from streaming_app.alerts.rule import (
    EvaluationContext,
    format_time,
)
from streaming_app.groups.state_rules import EMPTY
from streaming_app.health.history import NO_HISTORY, GroupHistory
from streaming_app.health.verdict import to_time
from streaming_app.lag.work import GroupWork, Partitions
from streaming_app.text import count, round_down

IN_SUMMARY = 3
"""How many partitions or tasks a summary names."""


def format_partitions(wrong: Partitions) -> str:
    """Return how many partitions it is about: `3 partitions`."""
    return count(wrong.count, "partition")


def to_details(wrong: Partitions) -> dict[str, object]:
    """Return the details of a finding, without numbers that change at every pass."""
    return {
        "partition_count": wrong.count,
        "lag_at_least": round_down(wrong.offsets),
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


_RESET_MINUTES = timedelta(minutes=10)  # from when a group has members again until its first commit


def find_rewound(group: GroupWork, context: EvaluationContext) -> Finding | None:
    """Offsets went back while the group had members."""
    wrong = group.rewound
    if wrong is None or wrong.tasks <= {None}:
        return None  # whether a group of another type was reset is not known
    if _was_reset(context.histories.get(group.group_id, NO_HISTORY), to_time(wrong.since)):
        return None
    since = to_time(wrong.since)
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
    if changes and changes[-1].state == EMPTY:
        return True
    return any(change.old == EMPTY and at - change.at <= _RESET_MINUTES for change in changes)
