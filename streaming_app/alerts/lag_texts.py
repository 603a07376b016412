"""How findings about lag name partitions and tasks: in an order, and with numbers, that do not change by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import islice

from streaming_app.alerts.rule import round_down
from streaming_app.lag.group_lag import GroupLag, WrongPartitions
from streaming_app.lag.model import LagRow
from streaming_app.text import count, first_of

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
