"""Times of brokers whose clocks are wrong, corrected by what the job knows of when their records were written. Pure.

Theory of operation
-------------------
The records of a group have the times of its coordinator's clock, and the next coordinator may have another one. With a
clock that is an hour behind, a restart of half a minute looks like one of an hour. The job knows better: what it reads
now was written before now, and after the last time that it had read everything. A time outside of these bounds is moved
to the nearer one. What was read from the tables after a start has no bounds; only times ahead of now are known to be
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.groups.snapshot import GroupSnapshot, UnsettledMember

_TOLERANCE = timedelta(minutes=2)  # for batches that take long, and clocks that are a little off: nobody notices

_TIMES = tuple(field.name for field in fields(GroupSnapshot) if "datetime" in str(field.type))


class WrittenBetween(NamedTuple):
    """When records were written, by the clock of the job; `earliest` is None where it is not known."""

    earliest: datetime | None
    latest: datetime

    def correct(self, time: datetime) -> datetime:
        """Return the time, or the nearer bound if the clock that wrote it is clearly wrong."""
        if time > self.latest + _TOLERANCE:
            return self.latest
        if self.earliest is not None and time < self.earliest - _TOLERANCE:
            return self.earliest
        return time


class CorrectedSnapshot(NamedTuple):
    """A snapshot as it was written, and with corrected times."""

    written: GroupSnapshot
    corrected: GroupSnapshot


def correct_snapshot(
    written: GroupSnapshot, before: CorrectedSnapshot | None, bounds: WrittenBetween
) -> CorrectedSnapshot:
    """Correct the times that are new since the snapshot before; those that are not keep their correction."""
    changes: dict[str, Any] = {}
    for name in _TIMES:
        time = getattr(written, name)
        if time is None:
            continue
        is_old = before is not None and getattr(before.written, name) == time
        corrected = getattr(before.corrected, name) if before and is_old else bounds.correct(time)
        if corrected != time:
            changes[name] = corrected
    members = _correct_members(written, before, bounds)
    if members != written.unsettled:
        changes["unsettled"] = members
    return CorrectedSnapshot(written, replace(written, **changes) if changes else written)


def _correct_members(
    written: GroupSnapshot, before: CorrectedSnapshot | None, bounds: WrittenBetween
) -> tuple[UnsettledMember, ...]:
    known = _by_id(before.written) if before else {}
    corrected = _by_id(before.corrected) if before else {}
    return tuple(
        member
        if member.updated_at is None
        else member._replace(
            updated_at=corrected[member.member_id].updated_at
            if member.member_id in known and known[member.member_id].updated_at == member.updated_at
            else bounds.correct(member.updated_at)
        )
        for member in written.unsettled
    )


def _by_id(snapshot: GroupSnapshot) -> Mapping[str, UnsettledMember]:
    return {member.member_id: member for member in snapshot.unsettled}
