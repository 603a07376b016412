"""What the records of a group say of whether it runs: made when they change, and never changed after that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import EMPTY, NOT_READY
from streaming_app.health.history import (
    NO_HISTORY,
    Assignment,
    GroupHistory,
    MemberChange,
    StateChange,
)

RUNS = frozenset({"Stable", "Reconciling", "Assigning", "Unknown"})
_CHANGES, _MEMBERS, _ASSIGNMENTS = 400, 600, 200
_COMPLETE = timedelta(hours=1)  # of older changes of states, only those by which members gave up are kept for certain


@dataclass(frozen=True, slots=True)
class Activity:
    """What a group does, by its records."""

    group: GroupSnapshot
    state_since: datetime
    """Since when it has had its state; if the log does not say, since when it is known to exist."""
    changes: Sequence[StateChange] = ()
    """The newest changes of its state."""
    members: Sequence[MemberChange] = ()
    """The newest members that joined and left."""
    assignments: Sequence[Assignment] = ()
    ended: bool = False
    """It is Empty, and had members before."""
    gave_up: str | None = None
    """Why it was NotReady when its last members left."""
    reason: str | None = None
    """Why it was NotReady last, as far as that is known."""

    @property
    def runs(self) -> bool:
        """Whether it has members that may process."""
        return self.group.state in RUNS and self.group.member_count > 0

    @property
    def runs_since(self) -> datetime:
        """Since when it has had members and was ready, or if that is not known, members."""
        since = self.group.members_since or self.state_since
        ready = [change.at for change in self.changes if change.old == NOT_READY and change.state in RUNS]
        return max((since, *ready[-1:]))

    def ran_between(self, since: datetime, until: datetime) -> timedelta:
        """Return for how long it had members and was ready in this time, by the changes that are known."""
        ran, at = timedelta(0), since
        for change in self.changes:
            if change.old in RUNS:
                ran += max(timedelta(0), min(change.at, until) - at)
            at = max(at, change.at)
        return ran


def activity(group: GroupSnapshot, history: GroupHistory | None, now: datetime) -> Activity:
    """Return what a group does; `history` is what happened lately."""
    history = history or NO_HISTORY
    changes, first_seen = history.states, group.first_seen_at
    since = group.state_since or group.updated_at or first_seen or now
    is_empty = group.state == EMPTY
    ended = is_empty and first_seen is not None and since > first_seen
    reason = group.not_ready_reason or next((one.text for one in reversed(history.reasons) if one.at <= now), None)
    was_not_ready = any(one.at == since and one.old == NOT_READY for one in reversed(changes[-_CHANGES:]))
    return Activity(
        group,
        since,
        tuple(change for change in changes[-_CHANGES:] if change.at > now - _COMPLETE),
        tuple(history.members[-_MEMBERS:]),
        tuple(history.assignments[-_ASSIGNMENTS:]),
        ended,
        (reason or "unknown reason") if is_empty and was_not_ready else None,
        reason,
    )
