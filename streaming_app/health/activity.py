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
    Deployment,
    GroupHistory,
    MemberChange,
    StateChange,
)
from streaming_app.health.rests import NO_RESTS, Rests, ran_for, rests_of

RUNS = frozenset({"Stable", "Reconciling", "Assigning", "Unknown"})
_CHANGES, _MEMBERS, _ASSIGNMENTS = 400, 600, 200
_DEPLOYMENTS = 3  # the newest ones say how long the next one may take
_PATIENCE = 1.25  # times the longest of them
_COMPLETE = timedelta(hours=1)  # of older changes of states, only those to and from Empty are known


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
    deployments: Sequence[Deployment] = ()
    rests: Rests = NO_RESTS
    ran_for: timedelta | None = None
    """How long it had members before it became Empty; None unless it is, or if it never had any."""
    gave_up: str | None = None
    """Why it was NotReady when its last members left."""
    reason: str | None = None
    """Why it was NotReady last, as far as that is known."""

    @property
    def runs(self) -> bool:
        """Whether it has members that may process."""
        return self.group.state in RUNS and self.group.member_count > 0

    @property
    def deployment_gap(self) -> timedelta:
        """How long it may have no members for a deployment; 0 if that is known of fewer than two."""
        gaps = [
            max((one.length for one in self.rests.past if of.since <= one.since and one.until <= of.at), default=None)
            for of in self.deployments
        ]
        known = [gap for gap in gaps if gap is not None]
        return max(known) * _PATIENCE if len(known) > 1 else timedelta(0)

    @property
    def deployment_length(self) -> timedelta:
        """How long a deployment may interrupt it; 0 if that is known of fewer than two."""
        known = [one.at - one.since for one in self.deployments]
        return max(known) * _PATIENCE if len(known) > 1 else timedelta(0)

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
    rests = rests_of(changes, since if is_empty else None, first_seen)
    ended = is_empty and first_seen is not None and since > first_seen
    reason = group.not_ready_reason or next((one.text for one in reversed(history.reasons) if one.at <= now), None)
    was_not_ready = any(one.at == since and one.old == NOT_READY for one in reversed(changes[-_CHANGES:]))
    return Activity(
        group,
        since,
        tuple(change for change in changes[-_CHANGES:] if change.at > now - _COMPLETE),
        tuple(history.members[-_MEMBERS:]),
        tuple(history.assignments[-_ASSIGNMENTS:]),
        tuple(history.deployments[-_DEPLOYMENTS:]),
        rests,
        ran_for(rests, since, first_seen) if ended and first_seen else None,
        (reason or "unknown reason") if is_empty and was_not_ready else None,
        reason,
    )
