"""The verdict on a group: whether it processes what it should, and if not, since when, why, and what will be lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streaming_app.text import rank

LOSING, DOWN, STALLED, RESTORING = "Losing", "Down", "Stalled", "Restoring"
BEHIND, UNSTABLE = "Behind", "Unstable"
OFF, IDLE, OK, UNKNOWN = "Off", "Idle", "Ok", "Unknown"
VERDICTS: Mapping[str, str] = {
    LOSING: "Records were deleted before the group read them.",
    DOWN: "Nothing is processed, and work waits, or it is not known whether it does.",
    STALLED: "Members have the tasks and work waits, but offsets do not move.",
    RESTORING: "As Stalled, but tasks came to another member and restore their state.",
    BEHIND: "Offsets move, but the oldest record that waits is old, and the group does not catch up.",
    UNSTABLE: "It processes, but is interrupted again and again.",
    OFF: "It has no members, and is not Down for the reason that is given.",
    IDLE: "There is nothing to do.",
    OK: "Work comes or waits, and offsets advance.",
    UNKNOWN: "Not enough is known yet.",
}
"""Every verdict, in the order in which they are decided, and what it means."""
BAD = frozenset({LOSING, DOWN, STALLED, BEHIND, UNSTABLE})
GOOD = frozenset({OFF, IDLE, OK})
CRITICAL, WARNING = "critical", "warning"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, and what proves it."""

    verdict: str
    since: datetime
    """Since when it is so, by the facts."""
    at: datetime
    """When it became the verdict."""
    why: str
    severity: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Offsets, counts, times: as JSON."""
    caught_up_at: datetime | None = None
    """When nothing will wait, if it goes on like that."""
    losing_at: datetime | None = None
    """When the retention deletes the oldest record that waits."""
    facts_at: datetime | None = None
    """What is known of work is true for this time."""
    recheck_at: datetime | None = None


def is_bad(verdict: Verdict) -> bool:
    """Tell whether a verdict opens a problem."""
    return verdict.verdict in BAD or (verdict.verdict == RESTORING and verdict.severity is not None)


WORST_FIRST = (LOSING, DOWN, STALLED, BEHIND, UNSTABLE, RESTORING, UNKNOWN, OK, IDLE, OFF)
_MOST_SEVERE_FIRST = (CRITICAL, WARNING)


def trouble(verdict: Verdict) -> tuple[int, int]:
    """Return a sort key: the most severe first, and of those as severe the worst verdict."""
    return rank(verdict.severity, _MOST_SEVERE_FIRST), rank(verdict.verdict, WORST_FIRST)


SUCCESSOR, PLANNED, RETIRED = "successor", "planned", "retired"
"""Keys of evidence: the group that has taken over, and what a person said of a group when they ended its problem."""
BROKER_AWAY = "broker_away"
"""Key of evidence: the broker that led partitions which the group reads."""
