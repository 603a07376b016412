"""What lies between a commit and the end of its log: how much, how old, and whether records wait there.

A record waits if it lies beyond the committed offset. Markers of transactions and aborted records are none, and where
it is not known what lies there, it is not known whether something waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streaming_app.lag.ends import Age, EndSamples, LogEnds
from streaming_app.lag.model import Commit, GroupPass
from streaming_app.lag.status import AHEAD, RECREATED, UNKNOWN

MARKER = 1
"""The commit or abort marker of a transaction, behind the last record."""
ANOTHER_LOG = frozenset({RECREATED, AHEAD})
"""The log does not have the committed offset: what it has waits."""
NO_AGE = Age(0.0, is_lower_bound=False)
"""No record waits; at most the marker of a transaction is left."""


class Lag(NamedTuple):
    """The lag at a pass; what is not known is None."""

    lag: int | None = None
    lost: int | None = None
    age: Age | None = None
    waits: bool | None = None
    status: str | None = UNKNOWN
    """The one that follows from the ends of the log alone; None: that depends on what the group does."""


@dataclass(slots=True)
class Gap:
    """What of it lasts from pass to pass, until the offset moves."""

    had_record: bool = False
    """A record was seen beyond the offset."""
    empty_to: int = 0
    """No record lies between the offset and this one."""
    is_beyond: bool = False
    """The commit was beyond the end of the log at the pass before."""

    def forget(self) -> None:
        """Forget what was seen beyond an offset: it is another one, or of another log."""
        self.had_record, self.empty_to = False, 0

    def measure(  # noqa: PLR0913 - what a pass sees of it
        self,
        commit: Commit,
        ends: LogEnds,
        samples: EndSamples | None,
        one: GroupPass,
        *,
        rests: bool,
        is_lost: bool,
        waited: bool,
    ) -> Lag:
        """Return the lag; `rests`: the end did not move since the pass before. Records were lost then, or waited."""
        committed, end, start = commit.offset or 0, ends.end, ends.start
        was_beyond, self.is_beyond = self.is_beyond, False
        has_records = None if end is None else end > (start or 0)
        if _is_recreated(commit, ends):
            return Lag(waits=has_records, status=RECREATED)
        if end is not None and committed > end:
            self.is_beyond = True
            return Lag(waits=has_records, status=AHEAD) if was_beyond else Lag()
        if end is None or samples is None or one.now - one.until.commits > one.late_seconds:
            return Lag()
        offset = max(committed, start or 0)
        lag, has_record = max(0, end - offset), ends.has_record(offset)  # the start may be newer than the end
        is_empty = lag == 0 or has_record is False or (has_record is None and lag == MARKER and rests)
        if has_record:
            self.had_record = True
        elif has_record is False and committed == offset:
            self.empty_to = end
        lost = None if start is None else max(0, start - max(committed, self.empty_to))
        if lag == 0 and (lost or 0) > MARKER and not self.had_record and not is_lost:
            # Deleted before it was read what it was: that ends no wait.
            return Lag(lag) if waited else Lag(lag, None, NO_AGE, waits=False)
        if not is_empty and rests and has_record is None and ends.tail is not None and ends.tail.is_denied:
            return Lag(lag, lost)
        age = NO_AGE if is_empty else samples.age(offset, one.now)
        return Lag(lag, lost, age, waits=not is_empty and lag > one.allowed, status=None)


def _is_recreated(commit: Commit, ends: LogEnds) -> bool:
    """Tell whether the commit is of another topic of the same name; by the offset only where an id is unknown."""
    if commit.topic_id is not None and ends.topic_id is not None:
        return commit.topic_id != ends.topic_id
    return ends.end is not None and commit.offset is not None and commit.offset > ends.end
