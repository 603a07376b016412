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

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

from streaming_app.groups.snapshot import GroupSnapshot

_TOLERANCE = timedelta(minutes=2)  # for batches that take long, and clocks that are a little off: nobody notices

_NAMES = tuple(field.name for field in fields(GroupSnapshot) if str(field.type).startswith("datetime"))
_TIMES = attrgetter(*_NAMES)


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


def correct_snapshot(written: GroupSnapshot, before: GroupSnapshot | None, bounds: WrittenBetween) -> GroupSnapshot:
    """Correct the times that are new since the corrected snapshot before; the others keep their correction."""
    known = {**{time: time for time in _times(before)}, **dict(before.moved_times)} if before else {}
    moved = {time: new for time in _times(written) if (new := known.get(time) or bounds.correct(time)) != time}
    if not moved:
        return written
    changes: dict[str, Any] = {
        name: moved[time] for name, time in zip(_NAMES, _TIMES(written), strict=True) if time in moved
    }
    members = (
        one._replace(updated_at=one.updated_at and moved.get(one.updated_at, one.updated_at))
        for one in written.unsettled
    )
    return replace(written, **changes, unsettled=tuple(members), moved_times=tuple(moved.items()))


def _times(snapshot: GroupSnapshot) -> Iterator[datetime]:
    return filter(None, (*_TIMES(snapshot), *(member.updated_at for member in snapshot.unsettled)))
