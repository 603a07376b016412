"""What proves a verdict, as text and as JSON: how many offsets wait, and where; no text changes with each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

from streaming_app.health.facts import Facts
from streaming_app.lag.model import LagRow
from streaming_app.lag.status import AHEAD
from streaming_app.lag.work import GroupWork, Partitions
from streaming_app.text import count, first_of, round_down

IN_TEXT = 3
AFTER_LAST_COMMIT = timedelta(seconds=60)
"""A commit so shortly after something stopped is still of the time before."""
AGES = tuple(60.0 * one for one in (1, 10, 30, 60, 120, 360, 720, 1440, 10_080))
_FEW = 10
_SHOWN = ("topic", "partition", "committed_offset", "log_start_offset", "log_end_offset", "task_id", "client_host")
_KEYS = {"task_id": "task", "client_host": "host"}


def at_least(offsets: int) -> str:
    """Return how many offsets there are, in a text that does not change with every record."""
    return count(offsets, "offset") if offsets < _FEW else f"more than {round_down(offsets):,} offsets"


def work_of(one: Partitions) -> str:
    """Return how much waits in partitions, in words; of a log that was created again it is not known."""
    return f"{at_least(one.offsets)} wait" if one.offsets else "records wait"


def waits(work: GroupWork) -> str:
    """Return how much waits, in words."""
    if not work.waiting:
        return "nothing waits"
    least = "at least " if work.unknown and work.offsets < _FEW else ""
    return f"{least}{at_least(work.offsets)} wait in {count(work.waiting, 'partition')}"


def work_numbers(facts: Facts) -> dict[str, Any]:
    """Return how much waits, as evidence; nothing where nothing does."""
    work = facts.work
    return {"waiting_partitions": work.waiting, **offsets_of(work)} if work and work.waiting else {}


def offsets_of(work: GroupWork) -> dict[str, int]:
    """Return how many offsets wait, and of how many partitions that is not known."""
    unknown = {"unknown_partitions": work.unknown} if work.unknown else {}
    return {"offsets": work.offsets, **unknown}


def places(rows: Sequence[LagRow], total: int) -> str:
    """Return the first of `total` partitions in words: how far each is, and where its task is."""
    return first_of([_place(row) for row in islice(rows, IN_TEXT)], IN_TEXT, total, separator="; ")


def _place(row: LagRow) -> str:
    at = "nothing committed" if row.committed_offset is None else f"at {row.committed_offset}"
    if row.status == AHEAD:
        at += f", beyond the end of the log at {row.log_end_offset}"
    host = f" on {row.client_host or 'unknown host'}" if row.member_id else ""
    return f"{row.topic}-{row.partition} {at}{host}"


def rows_of(rows: Sequence[LagRow]) -> list[Mapping[str, Any]]:
    """Return partitions as evidence."""
    return [
        {_KEYS.get(name, name): value for name in _SHOWN if (value := getattr(row, name)) is not None} for row in rows
    ]
