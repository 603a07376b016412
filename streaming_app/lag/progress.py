"""The progress of one group in one partition, from pass to pass: the one thing that lag, work and verdicts are made of.

Theory of operation
-------------------
A pass sees the newest commit and the ends of the log, and makes the standing after it from the one before: the row of
the table `lag`, and what of commits, records and tasks a row does not have. A run of the job begins with the rows that
the one before stored. What happened meanwhile, and of a partition that nobody knew, is as old as the commit and the
samples of the log say: an outage in whose middle the job starts began at the later of the two.

A record waits if it lies beyond the committed offset. Markers of transactions and aborted records are none, and where
it is not known what lies there, it is not known whether something waits. Where nothing was ever committed, the records
beyond the end that the log had when a member first had the task wait: whether those before are to be read is not in the
log (`auto.offset.reset`). Neither a rebalance nor a pass that does not know changes `waits_since`: an outage is not
forgotten.

A consumer that works has some lag at most moments. So a lag is only judged once it is older than what the group's own
interval between commits explains (`patience`): until then it is OK, and as long as its age is not known, UNKNOWN. Of a
group that rebalances, the statuses that follow from behaviour are held as they were before: commits pause and tasks
have no owner then. While it is not known what a group has done lately, since the job reads late, every status is held.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import NamedTuple

from streaming_app.lag.ends import Age, EndSamples, LogEnds
from streaming_app.lag.model import NOBODY, Commit, GroupPass, LagRow
from streaming_app.lag.rhythm import CommitIntervals, LagTrend
from streaming_app.lag.status import (
    AHEAD,
    BEHIND,
    CATCHING_UP,
    LEFT_OVER,
    LOST,
    OK,
    RECREATED,
    REWOUND,
    STALLED,
    STOPPED,
    UNKNOWN,
    UNOWNED,
)

STALLED_SECONDS = 300.0
RESTORE_SECONDS = 1800.0
_COMMITS_SECONDS = 60.0  # a member that came to a task commits within a minute, unless it restores first
_STALLED_COMMITS, _STALLED_COMMIT_SECONDS = 3, 60.0
_MIN_PATIENCE = 60.0
_INTERVALS = 3  # without a commit, until it is missed
_REWOUND_SECONDS = 3600.0  # after that, who set the offsets back is processing what they wanted
_SLOW_CATCH_UP = 6 * 3600.0  # a lag that neither rises nor falls seems to fall so slowly every other time
_CATCHES_UP_SECONDS = 180.0  # in a row, until that is believed
_SLOW = frozenset({BEHIND, CATCHING_UP})
_MARKER = 1  # the commit or abort marker of a transaction, behind the last record
_ANOTHER_LOG = frozenset({RECREATED, AHEAD})  # it does not have the committed offset: what it has waits
_NO_AGE = Age(0.0, is_lower_bound=False)
_NOTHING_SAID = Age(0.0, is_lower_bound=True)  # "at least 0 s"


class _Lag(NamedTuple):
    """The lag at a pass; what is not known is None."""

    lag: int | None = None
    lost: int | None = None
    age: Age | None = None
    waits: bool | None = None
    status: str | None = UNKNOWN
    """The one that follows from the ends of the log alone; None: that depends on what the group does."""


@dataclass(slots=True)
class Standing:
    """Where a group stands in a partition after a pass. Later passes do not change it: each changes a copy."""

    row: LagRow
    waits: bool | None = False
    """Whether records wait; None: not known at this pass."""
    waits_since: float | None = None
    """Since when records have waited at every pass that knew it."""
    known_at: float | None = None
    """The newest pass of this run that knew it."""
    known_from: float | None = None
    """The first one."""
    offset: int | None = None
    """Committed, also if that commit has expired."""
    committed_at: float | None = None
    """The time of that commit; None if it is not known."""
    first: int | None = None
    """The first committed offset that is known: the group did not begin beyond it."""
    baseline: int | None = None
    """Of a partition without a commit: the end of the log when a member first had it."""
    arrived: bool = False
    """Records have come since the pass before."""
    seen_at: float = 0.0
    """When the job saw the newest commit: unlike the broker's time, it can be compared with the job's clock."""
    moved_at: float = 0.0
    """The same of the first commit of this offset."""
    commits: int = 0
    """Of this offset."""
    is_untimed: bool = False
    """The commit was there when this run began, and its time is not known yet."""
    rewound_from: int | None = None
    """The offset before a commit of a lower one, until it is reached again."""
    rewound_at: float = 0.0
    owner: str = ""
    """The newest member that had the task."""
    owner_since: float | None = None
    """When the first owner came since the offset last moved, else before that; None before the first pass of a run."""
    had_record: bool = False
    """A record was seen beyond the offset."""
    empty_to: int = 0
    """No record lies between the offset and this one."""
    slow_at: float | None = None
    """Since when it has not caught up fast enough; None unless it is BEHIND or CATCHING_UP, or was before its status
    became unknown."""
    catches_up_since: float | None = None
    intervals: CommitIntervals = field(default_factory=CommitIntervals)
    trend: LagTrend = field(default_factory=LagTrend)

    @property
    def waiting(self) -> int:
        """How many offsets wait, as far as is known."""
        if self.row.lag is not None:
            return self.row.lag
        return max(0, (self.row.log_end_offset or 0) - (self.baseline or 0)) if self.offset is None else 0

    @property
    def lost(self) -> int:
        """How many offsets the log deleted before they were read."""
        return self.row.lost_offsets or 0

    @property
    def status_since(self) -> float:
        """Since when it has its status."""
        return self.row.observed_at if self.row.status_since is None else self.row.status_since

    @property
    def unmoved_since(self) -> float:
        """Since when records have waited and the offset has not moved."""
        return max(self.waits_since or 0.0, self.moved_at)

    def is_older(self, since: float | None) -> bool:
        """Return whether what holds since a time may have held before: this run found it, or commits of one offset."""
        repeats = self.commits > 1 and since == self.moved_at <= (self.known_from or 0.0)
        return since is not None and (since == self.known_from or repeats)

    def is_stalled(self, patience: float) -> bool:
        """Return whether records have waited for so many seconds, and the offset has not moved."""
        return self.waits_since is not None and (self.known_at or 0.0) - self.unmoved_since >= patience

    def may_restore(self, stateful: Collection[str]) -> bool:
        """Return whether a task with state came to another member since the offset moved, a minute ago at least."""
        if self.row.subtopology_id not in stateful or not self.is_stalled(_COMMITS_SECONDS):
            return False
        since, known_at = self.owner_since or 0.0, self.known_at or 0.0
        return since >= self.moved_at and _COMMITS_SECONDS <= known_at - since < RESTORE_SECONDS

    @classmethod
    def restore(cls, row: LagRow) -> Standing:
        """Begin with the row of a commit that an earlier run stored."""
        one = cls(LagRow(*row[:3]))
        one._take_commit(Commit(row.committed_offset, committed_at=row.committed_at), row.observed_at)
        one.row = row._replace(status_since=row.observed_at if row.status_since is None else row.status_since)
        one.rewound_from, one.rewound_at = row.rewound_from, one.status_since
        one.waits_since = one.status_since if row.status in _ANOTHER_LOG else row.behind_since
        if row.status == STALLED:  # the same offset is committed again and again, and was for a minute before
            one.commits, one.moved_at = _STALLED_COMMITS, one.status_since - _STALLED_COMMIT_SECONDS
        if row.lag and row.lag_seconds == 0 and row.lag_seconds_is_lower_bound is False:
            one.empty_to = row.log_end_offset or 0
        one.had_record = (row.lag or 0) > _MARKER and bool(row.lag_seconds)
        if row.commit_interval_seconds is not None:
            one.intervals.restore(row.commit_interval_seconds)
        return one

    def copy(self) -> Standing:
        """Return a copy for the next pass to change. `dataclasses.replace` takes three times as long."""
        return Standing(*_values(self))

    def forget_log(self) -> None:
        """Forget what was seen of the log: the topic was created again."""
        self.waits_since = self.rewound_from = None
        self.had_record, self.empty_to = False, 0
        self.trend.clear()

    def take(self, commit: Commit, ends: LogEnds, samples: EndSamples | None, one: GroupPass, *, rests: bool) -> None:
        """Take in a pass; `rests`: the end of the log is that of the pass before."""
        tasks, now, is_new = one.tasks, one.now, self.owner_since is None
        group_id, topic, partition = self.row[:3]
        subtopology_id = (tasks.subtopology_of or {}).get(topic)
        owner = NOBODY if subtopology_id is None else tasks.owners.get((subtopology_id, partition), NOBODY)
        self._take_owner(owner.member_id, one)
        self._take_commit(commit, now, is_new=is_new)
        if commit.offset is None and owner is not NOBODY and self.baseline is None:
            self.baseline = ends.end
        found = self._measure(commit, ends, samples, one, rests=rests)
        self._take_lag(found, commit, ends, samples, one)
        self.arrived = not (is_new or rests) and samples is not None and len(samples) > 1
        row = LagRow(
            group_id,
            topic,
            partition,
            subtopology_id,
            None if subtopology_id is None else f"{subtopology_id}_{partition}",
            *owner,
            commit.offset,
            commit.leader_epoch,
            None if commit.offset is None else self.committed_at,
            commit.partition_time,
            ends.start,
            ends.end,
            ends.stable,
            found.lag,
            leader=ends.leader,
            observed_at=now if ends.at is None else ends.at,
            # until when both the commits and the end of the log are known
            known_until=min(one.until.commits, ends.answered_at) if one.until.commits and ends.answered_at else None,
        )
        if commit.offset is not None:
            lost = found.lost or 0 if min(now, *one.until) >= min(now, ends.start_at or now) else 0
            catch_up = self.trend.catch_up_seconds(self.intervals.usual) if found.waits else None
            status, is_held = self._judge(row, found, one, lost, falls=catch_up is not None)
            age = found.age if found.age != _NOTHING_SAID else None
            row = row._replace(
                lag_seconds=age and age.seconds,
                lag_seconds_is_lower_bound=age and age.is_lower_bound,
                lost_offsets=found.lost,
                status=status,
                status_since=self.row.status_since if status == self.row.status and self.row.status_since else now,
                held_since=(self.row.held_since or now) if is_held else None,
                behind_since=None if status in _ANOTHER_LOG else self.waits_since,
                catch_up_seconds=catch_up if status == CATCHING_UP else None,
                commit_interval_seconds=self.intervals.usual,
                rewound_from=self.rewound_from,
            )
        self.row = row
        self._take_speed(now)

    def _take_owner(self, owner: str | None, one: GroupPass) -> None:
        if self.owner_since is None:
            self.owner_since = min(one.now, one.tasks.stable_since or one.tasks.rebalancing_since or one.now)
        # One that restores, ends and is followed by others that restore again has the time of the first.
        elif owner and owner != self.owner and self.owner_since <= self.moved_at:
            self.owner_since = one.now
        self.owner = owner or self.owner

    def _take_commit(self, commit: Commit, now: float, *, is_new: bool = True) -> None:
        """Take in the newest commit; `is_new`: this run of the job has not seen another one."""
        offset, at, before, before_at = commit.offset, commit.committed_at, self.offset, self.committed_at
        if offset is None:
            self.moved_at = self.moved_at or now
            return
        is_same = offset == before and (at == before_at or None in {at, before_at})
        if before is None:
            self.first = offset
        elif not is_same:
            since = self.known_at if self.waits_since is None else self.waits_since
            gap = now - self.seen_at if at is None or before_at is None else at - before_at
            self.intervals.add(gap if since is None else min(gap, now - since))  # before, there was nothing to commit
            if offset < before and self.rewound_from is None:
                self.rewound_from, self.rewound_at = before, now
        if is_same and self.is_untimed and at is not None:
            self.seen_at, self.moved_at = min(self.seen_at, at), min(self.moved_at, at)
            self.waits_since = None if self.waits_since is None else max(self.waits_since, self.moved_at)
        self.is_untimed = at is None and (self.is_untimed if is_same else is_new)
        if not is_same:
            self.seen_at = min(now, at) if is_new and at is not None else now
            self.commits = self.commits + 1 if offset == before else 1
        if offset != before:
            self.moved_at, self.had_record, self.empty_to = self.seen_at, False, 0
        if offset >= (self.rewound_from or 0) or now - self.rewound_at > _REWOUND_SECONDS:
            self.rewound_from = None
        self.offset, self.committed_at = offset, before_at if is_same and at is None else at

    def _measure(
        self, commit: Commit, ends: LogEnds, samples: EndSamples | None, one: GroupPass, *, rests: bool
    ) -> _Lag:
        committed, end, start = commit.offset, ends.end, ends.start
        if committed is None:  # it has expired, or never was one
            ahead = 0 if end is None or self.baseline is None else end - self.baseline
            is_known = end is not None and self.offset is None
            return _Lag(waits=ahead > one.allowed and (ahead > _MARKER or not rests) if is_known else None)
        is_recreated, is_beyond = _is_recreated(commit, ends), end is not None and committed > end
        was_beyond = self.row.log_end_offset is not None and (self.row.committed_offset or 0) > self.row.log_end_offset
        if is_recreated or (is_beyond and was_beyond):
            has_records = None if end is None else end > (start or 0)
            return _Lag(waits=has_records, status=RECREATED if is_recreated else AHEAD)
        if is_beyond or end is None or samples is None or one.now - one.until.commits > one.late_seconds:
            return _Lag()
        offset = max(committed, start or 0)
        lag = max(0, end - offset)  # the start may be newer than the end
        has_record = ends.tail.has_record(offset) if ends.tail and ends.tail.end == end else None
        is_empty = lag == 0 or has_record is False or (has_record is None and lag == _MARKER and rests)
        if has_record:
            self.had_record = True
        elif has_record is False and committed == offset:
            self.empty_to = end
        lost = None if start is None else max(0, start - max(committed, self.empty_to))
        if lag == 0 and (lost or 0) > _MARKER and not self.had_record and self.row.status != LOST:
            # Deleted before it was read what it was: that ends no wait.
            return _Lag(lag, None, _NO_AGE, waits=False) if self.waits_since is None else _Lag(lag)
        if not is_empty and rests and has_record is None and ends.tail is not None and ends.tail.is_denied:
            return _Lag(lag, lost)
        age = _NO_AGE if is_empty else samples.age(offset, one.now)
        return _Lag(lag, lost, age, waits=not is_empty and lag > one.allowed, status=None)

    def _take_lag(self, found: _Lag, commit: Commit, ends: LogEnds, samples: EndSamples | None, one: GroupPass) -> None:
        self.waits = found.waits
        if found.waits is None:  # all stays as it was
            return
        if not found.waits:
            self.waits_since = None
            self.trend.clear()
        else:
            if self.waits_since is None or self.waits_since > one.now:
                self.waits_since = one.now
                if self.known_at is None and found.lag is not None and samples is not None:
                    # This run knew nothing yet: it is as the samples say.
                    offset = max(commit.offset or 0, ends.start or 0) + one.allowed
                    written_by = samples.written_by(offset) or one.now
                    self.waits_since = min(one.now, max(0.0 if self.is_untimed else self.moved_at, written_by))
            if found.lag is not None:
                self.trend.add(found.lag, one.now)
        self.known_at, self.known_from = one.now, self.known_from or one.now

    def _judge(self, row: LagRow, found: _Lag, one: GroupPass, lost: int, *, falls: bool) -> tuple[str, bool]:
        """Return the status of a commit, of which `lost` offsets are proven to be, and whether it is held as before."""
        before, tasks, known_until = self.row, one.tasks, min(one.now, *one.until)
        late, has_status = one.now - known_until, before.status_since is not None
        if late > one.late_seconds:
            return (before.status, True) if has_status else (UNKNOWN, False)
        patience = max(_MIN_PATIENCE, _INTERVALS * (self.intervals.usual or 0.0))
        lag, age = found.lag or 0, found.age or _NO_AGE
        is_new = age.seconds - late <= patience
        waits_for = 0.0 if self.waits_since is None else known_until - self.waits_since
        has_topology = tasks.subtopology_of is not None
        from_offsets = (
            (LEFT_OVER, has_topology and row.subtopology_id is None),
            (found.status or UNKNOWN, found.status is not None),
            # A log whose records were all deleted starts behind its last marker; nothing is lost then.
            (LOST, lost > (0 if lag else _MARKER)),
            (OK, lag <= one.allowed or (is_new and not age.is_lower_bound)),
        )
        repeats = self.commits >= _STALLED_COMMITS and known_until - self.moved_at >= _STALLED_COMMIT_SECONDS
        from_behaviour = (
            (UNOWNED, row.member_id is None if has_topology else tasks.has_members is False),
            (REWOUND, self.rewound_from is not None),
            (UNKNOWN, is_new),
            (STOPPED, known_until - self.seen_at > patience and waits_for >= patience),
            (STALLED, repeats),
            (CATCHING_UP, falls),
            (BEHIND, True),
        )
        if status := next((status for status, holds in from_offsets if holds), None):
            return status, False
        if tasks.rebalancing_since is not None and has_status:
            return before.status, True
        return next(status for status, holds in from_behaviour if holds), False

    def _take_speed(self, now: float) -> None:
        """Take in whether it catches up: so slowly as in six hours does not count, and less than three minutes."""
        if self.row.status not in _SLOW:
            if self.row.status != UNKNOWN:
                self.slow_at = self.catches_up_since = None
            return
        if self.slow_at is None:  # the job was restarted, or the partition has just become so
            self.slow_at = min(now, self.status_since)
        if self.row.status != CATCHING_UP or (self.row.catch_up_seconds or 0.0) > _SLOW_CATCH_UP:
            self.catches_up_since = None
            return
        self.catches_up_since = self.catches_up_since or now
        if now - self.catches_up_since >= _CATCHES_UP_SECONDS:
            self.slow_at = now


_values = attrgetter(*(one.name for one in fields(Standing)))


def _is_recreated(commit: Commit, ends: LogEnds) -> bool:
    """Tell whether the commit is of another topic of the same name; by the offset only where an id is unknown."""
    if commit.topic_id is not None and ends.topic_id is not None:
        return commit.topic_id != ends.topic_id
    return ends.end is not None and commit.offset is not None and commit.offset > ends.end
