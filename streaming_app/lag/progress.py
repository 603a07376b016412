"""The progress of one group in one partition, from pass to pass: the one thing that lag, work and verdicts are made of.

Theory of operation
-------------------
A pass sees the newest commit and the ends of the log. What of them lasts is here: when the offset moved, since when
records wait (`waits_since`), how often the group commits, how its lag moves, and who has had the task.

Where nothing was ever committed, the records
beyond the end that the log had when a member first had the task wait: whether those before are to be read is not in the
log (`auto.offset.reset`). Neither a rebalance nor a pass that does not know changes `waits_since`: an outage is not
forgotten. What has not moved for longer than its patience is stalled; if its task has state and came to another member
since it last moved, it may restore that state first.

A run begins with the row that the one before stored. What happened meanwhile, and of a partition that nobody knew, is
as old as the commit and the samples of the log say: an outage in whose middle the job starts began at the later of the
two.

A consumer that works has some lag at most moments. So a lag is only judged once it is older than what the group's own
interval between commits explains (`patience`): until then it is OK, and as long as its age is not known, UNKNOWN. Of a
group that rebalances, the statuses that follow from behaviour are held as they were before: commits pause and tasks
have no owner then. While it is not known what a group has done lately, since the job reads late, every status is held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from streaming_app.lag.ends import Age, EndSamples, LogEnds
from streaming_app.lag.gap import ANOTHER_LOG, MARKER, NO_AGE, Gap, Lag
from streaming_app.lag.model import NOBODY, Commit, CommitKey, GroupPass, GroupTasks, LagRow, Owner
from streaming_app.lag.rhythm import CommitIntervals, LagTrend
from streaming_app.lag.status import (
    AHEAD,
    BEHIND,
    CATCHING_UP,
    LEFT_OVER,
    LOST,
    OK,
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
_NOTHING_SAID = Age(0.0, is_lower_bound=True)  # "at least 0 s"


class Standing(NamedTuple):
    """What a pass says of a partition: the row, and what verdicts need besides. Later passes do not change it."""

    row: LagRow
    waits: bool | None = False
    """None: not known at this pass."""
    waits_since: float | None = None
    """Since when records have waited at every pass that knew it."""
    moved_at: float = 0.0
    """When the offset last moved; of the first one that is seen, when it was committed."""
    offset: int | None = None
    """Committed, also if that commit has expired."""
    first: int | None = None
    """The first committed offset that is known: the group did not begin beyond it."""
    baseline: int | None = None
    """Of a partition without a commit: the end of the log when a member first had it."""
    arrived: bool = False
    """Records have come since the pass before."""
    is_stalled: bool = False
    restores: bool = False
    """Its task may restore state: it came to another member since the offset last moved, a minute ago at least."""
    slow_at: float | None = None
    """Since when it has not caught up fast enough; None unless it is BEHIND or CATCHING_UP, or was before its status
    became unknown."""
    catches_up: bool = False
    """It does now."""

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


@dataclass(slots=True)
class Progress:
    """What of one partition lasts from pass to pass."""

    is_new: bool = True
    """This run has not seen it yet."""
    offset: int | None = None
    first: int | None = None
    baseline: int | None = None
    end: int | None = None
    committed_at: float | None = None
    """Time of the newest commit, by the broker's clock."""
    seen_at: float = 0.0
    """When the job saw it: unlike the broker's time, it can be compared with the job's clock."""
    moved_at: float = 0.0
    """The same of the first commit of this offset."""
    commits_at_offset: int = 0
    is_untimed: bool = False
    """The commit was there when this run began, and its time is not known yet."""
    rewound_from: int | None = None
    """The offset before a commit of a lower one, until it is reached again."""
    rewound_at: float = 0.0
    intervals: CommitIntervals = field(default_factory=CommitIntervals)
    trend: LagTrend = field(default_factory=LagTrend)
    owner: str = ""
    owner_since: float = 0.0
    """When the first owner came since the offset last moved; before that, if there was none since."""
    waits_since: float | None = None
    is_stalled: bool = False
    restores: bool = False
    lag_known_at: float | None = None
    gap: Gap = field(default_factory=Gap)
    status: str | None = None
    status_since: float = 0.0
    held_since: float | None = None
    slow_at: float | None = None
    catches_up_since: float | None = None

    def restore(self, row: LagRow) -> None:
        """Begin with the row of a commit that an earlier run stored."""
        since = row.observed_at if row.status_since is None else row.status_since
        self._take_commit(Commit(row.committed_offset, committed_at=row.committed_at), row.observed_at)
        self.waits_since = since if row.status in ANOTHER_LOG else row.behind_since
        self.rewound_from, self.rewound_at = row.rewound_from, since
        self.status, self.status_since, self.gap.is_beyond = row.status, since, row.status == AHEAD
        if row.status == STALLED:  # the same offset is committed again and again, and was for a minute before
            self.commits_at_offset, self.moved_at = _STALLED_COMMITS, since - _STALLED_COMMIT_SECONDS
        if row.lag and row.lag_seconds == 0 and row.lag_seconds_is_lower_bound is False:
            self.gap.empty_to = row.log_end_offset or 0
        self.gap.had_record = (row.lag or 0) > MARKER and bool(row.lag_seconds)  # the marker of a transaction is none
        if row.commit_interval_seconds is not None:
            self.intervals.restore(row.commit_interval_seconds)

    def forget_log(self) -> None:
        """Forget what was seen of the log: the topic was created again."""
        self.waits_since = self.rewound_from = None
        self.gap.forget()
        self.trend.clear()

    def observe(  # noqa: PLR0913 - what a pass sees of it
        self, key: CommitKey, commit: Commit, ends: LogEnds, samples: EndSamples | None, one: GroupPass, *, rests: bool
    ) -> Standing:
        """Take in a pass; `rests`: the end of the log is that of the pass before."""
        tasks, now = one.tasks, one.now
        subtopology_id = (tasks.subtopology_of or {}).get(key[1])
        owner = NOBODY if subtopology_id is None else tasks.owners.get((subtopology_id, key[2]), NOBODY)
        self._take_owner(owner.member_id, tasks, now)
        self._take_commit(commit, now)
        if commit.offset is None and owner is not NOBODY and self.baseline is None:
            self.baseline = ends.end
        if has_commit := commit.offset is not None:
            before = {"is_lost": self.status == LOST, "waited": self.waits_since is not None}
            found = self.gap.measure(commit, ends, samples, one, rests=rests, **before)
        else:
            found = self._without_commit(ends, one, rests=rests)
        since = self._waits_from(commit, ends, samples, one) if found.waits and found.lag is not None else now
        self._take_lag(found, since, one, is_stateful=subtopology_id in tasks.stateful)
        status, is_held, catch_up = UNKNOWN, False, None
        if has_commit:
            catch_up = self.trend.catch_up_seconds(self.intervals.usual) if found.waits else None
            lost = found.lost or 0 if min(now, *one.until) >= min(now, ends.start_at or now) else 0
            is_left_over = tasks.subtopology_of is not None and subtopology_id is None
            unowned = _is_unowned(tasks, owner)
            status, is_held = self._judge(
                found._replace(lost=lost),
                one,
                is_left_over=is_left_over,
                is_unowned=unowned,
                falls=catch_up is not None,
            )
            if status != self.status:
                self.status, self.status_since = status, now
            self.held_since = (self.held_since or now) if is_held else None
            self._take_speed(catch_up, now)
        arrived = None not in {ends.end, self.end} and ends.end != self.end
        self.end, self.is_new = self.end if ends.end is None else ends.end, False
        age = found.age if found.age != _NOTHING_SAID else None
        row = LagRow(
            *key,
            subtopology_id,
            None if subtopology_id is None else f"{subtopology_id}_{key[2]}",
            owner.member_id or None,
            owner.process_id,
            owner.client_host,
            commit.offset,
            commit.leader_epoch,
            commit.committed_at,
            commit.partition_time,
            ends.start,
            ends.end,
            ends.stable,
            found.lag,
            age.seconds if age else None,
            age.is_lower_bound if age else None,
            found.lost,
            status,
            self.status_since if has_commit else None,
            self.held_since if has_commit else None,
            self.waits_since if has_commit and status not in ANOTHER_LOG else None,
            catch_up if status == CATCHING_UP else None,
            self.intervals.usual if has_commit else None,
            self.rewound_from if has_commit else None,
            ends.leader,
            now if ends.at is None else ends.at,
            _known_until(one.until.commits, ends),
        )
        return Standing(
            row,
            found.waits,
            self.waits_since,
            self.moved_at,
            self.offset,
            self.first,
            self.baseline,
            arrived,
            self.is_stalled,
            self.restores,
            self.slow_at,
            self.catches_up_since is not None,
        )

    def _take_owner(self, owner: str, tasks: GroupTasks, now: float) -> None:
        if self.is_new:
            self.owner_since = min(now, tasks.stable_since or tasks.rebalancing_since or now)
        # One that restores, ends and is followed by others that restore again has the time of the first.
        elif owner and owner != self.owner and self.owner_since <= self.moved_at:
            self.owner_since = now
        self.owner = owner or self.owner

    def _take_commit(self, commit: Commit, now: float) -> None:
        offset, at, before = commit.offset, commit.committed_at, self.offset
        if offset is None:
            self.moved_at = self.moved_at or now
            return
        times = (at, self.committed_at)
        is_same = offset == before and (at == self.committed_at or None in times)
        if before is None:
            self.first = offset
        elif not is_same:
            since = self.lag_known_at if self.waits_since is None else self.waits_since
            gap = now - self.seen_at if at is None or self.committed_at is None else at - self.committed_at
            self.intervals.add(gap if since is None else min(gap, now - since))  # before, there was nothing to commit
            if offset < before and self.rewound_from is None:
                self.rewound_from, self.rewound_at = before, now
        if is_same and self.is_untimed and at is not None:
            self.seen_at, self.moved_at = min(self.seen_at, at), min(self.moved_at, at)
            self.waits_since = None if self.waits_since is None else max(self.waits_since, self.moved_at)
        self.is_untimed = at is None and (self.is_untimed if is_same else self.is_new)
        if not is_same:
            self.seen_at = min(now, at) if self.is_new and at is not None else now
            self.commits_at_offset = self.commits_at_offset + 1 if offset == before else 1
        if offset != before:
            self.moved_at = self.seen_at
            self.gap.forget()
        self.offset, self.committed_at = offset, self.committed_at if is_same and at is None else at
        is_over = offset >= (self.rewound_from or 0) or now - self.rewound_at > _REWOUND_SECONDS
        self.rewound_from = None if is_over else self.rewound_from

    def _without_commit(self, ends: LogEnds, one: GroupPass, *, rests: bool) -> Lag:
        """Return what waits where there is no commit: it has expired, or never was one."""
        if ends.end is None or self.offset is not None:
            return Lag()
        ahead = 0 if self.baseline is None else ends.end - self.baseline
        return Lag(waits=ahead > one.allowed and (ahead > MARKER or not rests))

    def _waits_from(self, commit: Commit, ends: LogEnds, samples: EndSamples | None, one: GroupPass) -> float:
        """Return since when records wait that did not before; where this run knew nothing yet, as the samples say."""
        if self.lag_known_at is not None or samples is None:
            return one.now
        written_by = samples.written_by(max(commit.offset or 0, ends.start or 0) + one.allowed)
        return min(one.now, max(0.0 if self.is_untimed else self.moved_at, written_by or one.now))

    def _take_lag(self, found: Lag, since: float, one: GroupPass, *, is_stateful: bool) -> None:
        now = one.now
        if found.waits is None:  # all stays as it was
            return
        self.lag_known_at = now
        if not found.waits:
            self.waits_since, self.is_stalled, self.restores = None, False, False
            self.trend.clear()
            return
        if self.waits_since is None or self.waits_since > now:
            self.waits_since = since
        unmoved = now - max(self.waits_since, self.moved_at)
        self.is_stalled = unmoved >= one.patience
        has_come = _COMMITS_SECONDS <= now - self.owner_since < RESTORE_SECONDS and self.owner_since >= self.moved_at
        self.restores = is_stateful and has_come and unmoved >= _COMMITS_SECONDS
        if found.lag is not None:
            self.trend.add(found.lag, now)

    def _judge(
        self, found: Lag, one: GroupPass, *, is_left_over: bool, is_unowned: bool, falls: bool
    ) -> tuple[str, bool]:
        """Return the status of a commit, and whether it is that of before and held."""
        known_until = min(one.now, *one.until)
        late = one.now - known_until
        if late > one.late_seconds:
            return (UNKNOWN, False) if self.status is None else (self.status, True)
        patience = max(_MIN_PATIENCE, _INTERVALS * (self.intervals.usual or 0.0))
        lag, age = found.lag or 0, found.age or NO_AGE
        is_new = age.seconds - late <= patience
        waits_for = 0.0 if self.waits_since is None else known_until - self.waits_since
        from_offsets = (
            (LEFT_OVER, is_left_over),
            (found.status or UNKNOWN, found.status is not None),
            # A log whose records were all deleted starts behind its last marker; nothing is lost then.
            (LOST, (found.lost or 0) > (0 if lag else MARKER)),
            (OK, lag <= one.allowed or (is_new and not age.is_lower_bound)),
        )
        from_behaviour = (
            (UNOWNED, is_unowned),
            (REWOUND, self.rewound_from is not None),
            (UNKNOWN, is_new),
            (STOPPED, known_until - self.seen_at > patience and waits_for >= patience),
            (
                STALLED,
                self.commits_at_offset >= _STALLED_COMMITS and known_until - self.moved_at >= _STALLED_COMMIT_SECONDS,
            ),
            (CATCHING_UP, falls),
            (BEHIND, True),
        )
        if status := next((status for status, holds in from_offsets if holds), None):
            return status, False
        if one.tasks.rebalancing_since is not None and self.status is not None:
            return self.status, True
        return next(status for status, holds in from_behaviour if holds), False

    def _take_speed(self, catch_up: float | None, now: float) -> None:
        """Take in whether it catches up: so slowly as in six hours does not count, and less than three minutes."""
        if self.status not in _SLOW:
            if self.status != UNKNOWN:
                self.slow_at = self.catches_up_since = None
            return
        if self.slow_at is None:  # the job was restarted, or the partition has just become so
            self.slow_at = min(now, self.status_since)
        if self.status != CATCHING_UP or (catch_up or 0.0) > _SLOW_CATCH_UP:
            self.catches_up_since = None
            return
        self.catches_up_since = now if self.catches_up_since is None else self.catches_up_since
        if now - self.catches_up_since >= _CATCHES_UP_SECONDS:
            self.slow_at = now


def _is_unowned(tasks: GroupTasks, owner: Owner) -> bool:
    return owner is NOBODY if tasks.subtopology_of is not None else tasks.has_members is False


def _known_until(commits: float, ends: LogEnds) -> float | None:
    """Return until when both the commits and the end of the log are known; None if one of them never was."""
    return min(commits, ends.answered_at) if commits and ends.answered_at is not None else None
