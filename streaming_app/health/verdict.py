"""The verdict on a group: whether it processes its input, and if not, since when, why, and what will be lost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

LOSING, DOWN, STALLED, RESTORING = "Losing", "Down", "Stalled", "Restoring"
BEHIND, UNSTABLE = "Behind", "Unstable"
OFF, IDLE, OK, UNKNOWN = "Off", "Idle", "Ok", "Unknown"
VERDICTS: Mapping[str, str] = {
    LOSING: "Records were deleted before the group read them.",
    DOWN: "Nothing is processed, and work waits, or it is not known whether it does.",
    STALLED: "Members have work that waits, but offsets do not move; or a rebalance does not end.",
    RESTORING: "As Stalled, but tasks moved to another member and restore their state.",
    BEHIND: "Offsets move, but the oldest record that waits is old, and the group does not catch up.",
    UNSTABLE: "It processes, but is interrupted again and again.",
    OFF: "It has no members, and is not Down: the verdict says why.",
    IDLE: "There is nothing to do.",
    OK: "Work comes or waits, and offsets advance.",
    UNKNOWN: "Not enough is known yet.",
}
"""Verdict -> its meaning, in the order in which they are decided."""
BAD = frozenset({LOSING, DOWN, STALLED, BEHIND, UNSTABLE})
GOOD = frozenset({OFF, IDLE, OK})
ENDS = GOOD | {UNKNOWN}
"""The verdicts with which an alert may end; with Unknown only by `OVER`."""
CRITICAL, WARNING, INFO = "critical", "warning", "info"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict with its evidence."""

    verdict: str
    since: datetime
    """Since when the condition holds, by the facts."""
    at: datetime
    """When it became the verdict."""
    why: str
    severity: str | None = None
    """By the configuration of the rule that it opens; None: it opens none."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Offsets, counts and times, as JSON values."""
    caught_up_at: datetime | None = None
    """When no record will wait if the rate stays the same."""
    losing_at: datetime | None = None
    """When retention deletes the oldest waiting record."""
    facts_at: datetime | None = None
    """The time of the facts about work."""
    recheck_at: datetime | None = None
    """When the verdict may change without new facts."""


def is_bad(verdict: Verdict) -> bool:
    """Return whether a verdict opens an alert."""
    return verdict.verdict in BAD or (verdict.verdict == RESTORING and verdict.severity is not None)


def is_over(verdict: Verdict) -> bool:
    """Return whether a verdict ends an alert."""
    return verdict.verdict in GOOD or OVER in verdict.evidence


WORST_FIRST = (LOSING, DOWN, STALLED, BEHIND, UNSTABLE, RESTORING, UNKNOWN, OK, IDLE, OFF)

SUCCESSOR, PLANNED, RETIRED = "successor", "planned", "retired"
"""Keys of evidence: the group that has taken over, and the reason with which a person ended the alert."""
EARLIER = "earlier"
"""Key of evidence: the bad verdicts of the same outage that this one replaced, with `verdict`, `since` and `why`."""
NOTHING_TO_DO = "nothing_to_do"
"""Key of evidence: nothing waits, and no records came recently, so that the case is milder."""
PROTOCOL = "protocol"
"""Key of evidence: `classic`, if the group has this protocol: its members and tasks are those of the last rebalance."""
OPEN_TRANSACTION = "open_transaction"
"""Key of evidence: the transactional ids of open transactions that hold back the group, as far as they are known."""
OVER = "over"
"""Key of evidence: the group is Unknown, but what was bad is proven to be over."""
SINKS, NO_TOPIC, HAS_NO_LEADER = "sinks", "does not exist", "has no leader"
"""Key of evidence: the topics to which the group writes and cannot now, and why not."""
BROKER_AWAY = "broker_away"
"""Key of evidence: the broker that led partitions of the group that have no leader now."""

PENDING, _PENDING_AT, _PENDING_SINCE, _PENDING_WHY = "pending_verdict", "pending_at", "pending_since", "pending_why"
PENDING_SEVERITY = "pending_severity"
"""Keys of evidence: what the verdict will be, when, since when that counts, and why if it will be so once the group is
deleted."""


def pending_evidence(pending: Verdict, *, outlives: bool) -> dict[str, Any]:
    """Return as evidence that this will be the verdict if no facts change; with `outlives` also if it is deleted."""
    found = {PENDING: pending.verdict, _PENDING_AT: pending.at.isoformat(), _PENDING_SINCE: pending.since.isoformat()}
    found[PENDING_SEVERITY] = pending.severity or ""
    return found | ({_PENDING_WHY: pending.why} if outlives else {})


def pending_of(verdict: Verdict) -> tuple[str, datetime] | None:
    """Return what the verdict will be if no facts change, and when; None if nothing is pending."""
    if PENDING not in verdict.evidence:
        return None
    return verdict.evidence[PENDING], datetime.fromisoformat(verdict.evidence[_PENDING_AT])


def pending_since(verdict: Verdict) -> datetime | None:
    """Return since when what the verdict will be counts; None if nothing is pending."""
    since = verdict.evidence.get(_PENDING_SINCE)
    return datetime.fromisoformat(since) if since else None


def is_same_pending(one: Verdict, other: Verdict) -> bool:
    """Return whether two verdicts are to become the same at the same time, also once the group is deleted."""
    names = (_PENDING_AT, PENDING_SEVERITY)
    first, second = ([*map(it.evidence.get, names), _PENDING_WHY in it.evidence] for it in (one, other))
    return first == second


def pending_of_deleted(verdict: Verdict) -> Verdict | None:
    """Return, from its evidence, what the verdict on a deleted group becomes; None: it stays."""
    evidence = verdict.evidence
    if _PENDING_WHY not in evidence:
        return None
    since, at = (datetime.fromisoformat(evidence[name]) for name in (_PENDING_SINCE, _PENDING_AT))
    kept = {name: evidence[name] for name in (PROTOCOL,) if name in evidence}
    found = {**kept, "not_over": "the group was deleted"}
    return Verdict(evidence[PENDING], since, at, evidence[_PENDING_WHY], CRITICAL, found)
