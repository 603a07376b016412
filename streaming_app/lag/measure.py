"""Whether records wait for a group in a partition at one pass, how many, and how old they are.

Theory of operation
-------------------
A record waits if its offset is at or beyond the committed offset. Transaction markers and aborted records do not count;
if it is unknown what lies there, it is unknown whether a record waits. If nothing was ever committed, records wait that
were written after a member first had the task: whether the group is to read earlier ones is not in the log
(`auto.offset.reset`). Its own repartition topics a group reads from their start.

Consumers with `read_committed` read up to the last stable offset (LSO): the start of the oldest open transaction. So
at the LSO no record waits for a group, whatever lies behind it: it is *held*. This does not excuse a group without
members, or one that is NotReady: for it the end of the log counts. It also counts for a group that has committed an
offset beyond the LSO of the same pass, which proves that it reads uncommitted records (`reads_uncommitted`).
"""

from dataclasses import dataclass
from typing import NamedTuple

from streaming_app.lag.ends import Age, EndSamples, LogEnds
from streaming_app.lag.model import Commit, GroupPass, GroupTasks, LagRow
from streaming_app.lag.statuses import AHEAD, LOST, RECREATED, UNKNOWN

MARKER = 1  # offsets: the commit or abort marker of a transaction after the last record
NO_AGE = Age(0.0, is_lower_bound=False)
_BEGINS_SECONDS = 60.0


@dataclass(slots=True)
class Position:
    """What is known of a group in a partition."""

    row: LagRow
    waits: bool | None = False
    """Whether records wait; None: not known at this pass."""
    waits_since: float | None = None
    """Since when records wait. Passes that do not know whether records wait leave it as it is."""
    offset: int | None = None
    """The last committed offset, even if the commit has expired."""
    baseline: int | None = None
    """For a partition without a commit: the end of the log when a member first had its task."""
    begins_at_start: bool = False
    """Whether the group reads the partition from its start, if it has committed nothing: a repartition topic."""
    had_record: bool = False
    """Whether a record was seen beyond the offset."""
    empty_to: int = 0
    """There is no record between the offset and this offset."""


class Seen(NamedTuple):
    """What a pass has found in a partition."""

    commit: Commit
    ends: LogEnds
    samples: EndSamples | None
    rests: bool
    """Whether the end of the log has not moved since the pass before."""


class Measured(NamedTuple):
    """The lag at a pass; None for values that are not known."""

    lag: int | None = None
    """Up to the high watermark."""
    lost: int | None = None
    age: Age | None = None
    waits: bool | None = None
    status: str | None = UNKNOWN
    """The status, if the log does not have the committed offset, or too little is known; else None."""
    unread: int = 0
    """How many offsets the group may read now and has not committed."""
    is_held: bool = False
    """Whether the group is at the last stable offset, and the log goes on behind it."""
    has_record: bool = False
    """Whether a read has found a record beyond the offset."""
    empty_to: int = 0
    """A read has found no record between the offset and this one."""


def measure(at: Position, seen: Seen, one: GroupPass) -> Measured:
    """Return the lag at a pass."""
    (commit, ends, samples, _), committed = seen, seen.commit.offset
    end, start = ends.end, ends.start
    if committed is None:
        return _without_commit(at, seen, one)
    of_another, is_beyond = is_recreated(commit, ends), end is not None and committed > end
    was_beyond = at.row.log_end_offset is not None and (at.row.committed_offset or 0) > at.row.log_end_offset
    if of_another or (is_beyond and was_beyond):
        has_records = None if end is None else end > (start or 0)
        return Measured(waits=has_records, status=RECREATED if of_another else AHEAD)
    if is_beyond or end is None or samples is None or one.now - one.until.commits > one.late_seconds:
        return Measured()
    offset = max(committed, start or 0)
    lag = max(0, end - offset)  # the start may be newer than the end
    unread, has_record, is_empty = _unread(at, offset, seen, one)
    empty_to = offset + unread if has_record is False and committed == offset else at.empty_to
    lost = None if start is None else max(0, start - max(committed, empty_to))
    if lag == 0 and (lost or 0) > MARKER and not (has_record or at.had_record) and at.row.offset_status != LOST:
        # The log deleted the offsets before the job read whether they were records: this does not end the wait.
        is_over = at.waits_since is None
        return Measured(lag, None, NO_AGE, waits=False) if is_over else Measured(lag)
    if is_empty is None:
        return Measured(lag, lost, has_record=bool(has_record), empty_to=empty_to)
    age = NO_AGE if is_empty else samples.age(max(offset, empty_to), one.now)
    is_held = is_empty and lag > unread
    return Measured(lag, lost, age, not is_empty, None, unread, is_held, bool(has_record), empty_to)


def _without_commit(at: Position, seen: Seen, one: GroupPass) -> Measured:
    """Measure a partition whose commit has expired, or that never had one."""
    ends, samples, is_whole = seen.ends, seen.samples, at.begins_at_start
    begin = ends.start if is_whole else at.baseline
    if ends.end is not None and ends.start is not None and ends.end <= ends.start:  # the log is empty
        return Measured(0, age=NO_AGE, waits=False)
    has_expired = at.offset is not None and not is_whole
    if ends.end is None or has_expired or (begin is None and is_whole):
        return Measured()
    if begin is None:  # no member has had the task
        return Measured(waits=False)
    offset = max(begin, ends.start or 0)
    unread, _, is_empty = _unread(at, offset, seen, one)
    lag: int | None = max(0, ends.end - offset)
    is_held = bool(is_empty) and (lag or 0) > unread
    if not is_whole and (is_empty is not False):
        lag = None  # it is not known whether the group is to read what was there before
    if is_empty is None:
        return Measured(lag)
    age = NO_AGE if is_empty else samples.age(offset, one.now) if samples else None
    return Measured(lag, None, None if lag is None else age, not is_empty, unread=unread, is_held=is_held)


def _unread(at: Position, offset: int, seen: Seen, one: GroupPass) -> tuple[int, bool | None, bool | None]:
    """Return how many offsets from this one on the group may read now.

    Also return whether there is a record among them, None if no read has shown that; and whether they are nothing to
    process, None if it is not known.
    """
    ends, rests = seen.ends, seen.rests
    end, stable, tail = ends.end or 0, ends.stable, ends.tail
    if not one.reads_uncommitted and one.tasks.is_ready and one.tasks.has_members is not False:
        if stable is None and offset < end:  # no answer about the last stable offset
            return 0, None, None
        end = min(end, end if stable is None else stable)
        rests = rests if end == ends.end else end == at.row.last_stable_offset
    unread = max(0, end - offset)
    has_record = tail.has_record(offset) if tail and tail.end == end else None
    is_empty = unread == 0 or has_record is False or (has_record is None and unread == MARKER and rests)
    is_unreadable = not is_empty and rests and has_record is None and tail is not None and tail.is_denied
    return unread, has_record, None if is_unreadable else is_empty


def owned_from(tasks: GroupTasks, now: float) -> float:
    """Return a time from which on a member has had each task that it has: a minute after the group was Stable.

    A consumer that begins at the end of the log (`auto.offset.reset`) has asked for it by then.
    """
    return now if tasks.stable_since is None else min(now, tasks.stable_since + _BEGINS_SECONDS)


def is_recreated(commit: Commit, ends: LogEnds) -> bool:
    """Return whether the commit belongs to an older topic with this name, by topic ids or, without these, by offset."""
    if commit.topic_id is not None and ends.topic_id is not None:
        return commit.topic_id != ends.topic_id
    return ends.end is not None and commit.offset is not None and commit.offset > ends.end
