"""The progress of one group in one partition, from pass to pass. Lag, work and verdicts are all derived from it.

Theory of operation
-------------------
A pass sees the newest commit and the ends of the log. From these and the `Standing` after the pass before, it makes the
next `Standing`: the row of the table `lag`, and state that the row does not have. A run of the job begins with the rows
that an earlier run stored. If the job starts during an outage, the outage began at the later of two times: that of the
commit, and that of the first sample of the log beyond the commit.

Whether records wait is measured (`lag.measure`). A rebalance, or a pass without knowledge, does not change
`waits_since`, so an outage continues.

Its oldest waiting record is *late* once it is ten minutes old. Then the group has to catch up: the number of waiting
offsets, or the age of the oldest record, has to fall so fast that nothing waits within six hours.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from math import inf
from operator import attrgetter

from streaming_app.lag.ends import Age
from streaming_app.lag.measure import MARKER, Measured, Position, Seen, measure, owned_from
from streaming_app.lag.model import NOBODY, Commit, GroupPass, GroupTasks, LagRow
from streaming_app.lag.statuses import HELD, LEFT_OVER, LOST, OK, REWOUND, UNKNOWN, UNOWNED, WAITS
from streaming_app.lag.trend import Trend

STALLED_SECONDS = 300.0
RESTORE_SECONDS = 1800.0
_COMMITS_SECONDS = 60.0  # a new owner of a task commits within a minute, unless it restores state first
_LATE_SECONDS = 120.0  # passes are half a minute apart
_REWOUND_SECONDS = 3600.0  # after so long, a reset of offsets is no news
_LATE_AGE = 600.0
_SPAN_SECONDS = 300.0  # a group that commits less often than that declares it as its patience
_SLOW_CATCH_UP = 6 * 3600.0  # a constant lag varies, and often seems to fall at such a slow rate
_NOTHING_SAID = Age(0.0, is_lower_bound=True)  # "at least 0 s"


@dataclass(slots=True)
class Standing(Position):
    """The position of a group in a partition after a pass. It never changes afterwards: each pass changes a copy."""

    known_at: float | None = None
    """The newest pass of this run that knew whether records wait."""
    known_from: float | None = None
    """The first pass of this run that knew it."""
    committed_at: float | None = None
    """The time of the last commit; None if it is not known."""
    first: int | None = None
    """The first known committed offset: the group began at or before it."""
    held_since: float | None = None
    """Since when the group is held at the last stable offset: when the record there was written. None: it is not."""
    unread: int = 0
    """How many offsets the group may read now and has not committed, at least."""
    calm_at: float = 0.0
    """The newest pass, also of an earlier run, that knew that no record waits."""
    noticed_at: float = 0.0
    """The pass that first found that records wait. The next one has to confirm it: a transaction may just have ended,
    and its records are as old as its commit is new."""
    arrived_at: float | None = None
    """When the newest records were written, as far as passes have seen it."""
    seen_at: float = 0.0
    """When the newest commit came, by the broker's clock; but not before the pass before, nor after that which saw it.
    So it is comparable with the job's clock."""
    moved_at: float = 0.0
    """When the first commit of this offset came, likewise."""
    is_repeated: bool = False
    """Whether this offset was committed again."""
    rested: float = 0.0
    """How long the offset before did not move while records waited, in seconds."""
    is_untimed: bool = False
    """Whether the commit existed when this run began, and its time is not known yet."""
    rewound_from: int | None = None
    """The offset before a commit of a lower one, until the group reaches it again."""
    rewound_at: float = 0.0
    owner: str | None = ""
    """The newest member that had the task; empty if none had it, None if an earlier run did not know it."""
    owner_since: float | None = None
    """When the first new owner since the last move of the offset got the task; without one, when an earlier owner got
    it. None before the first pass."""
    is_new: bool = True
    """Whether this run has not seen the partition yet."""
    late_since: float | None = None
    """Since when the oldest waiting record is ten minutes old. Passes that do not know its age leave it as it is."""
    slow_since: float | None = None
    """Since when, while it is late, its offset has moved and the group has not caught up fast enough."""
    trends: tuple[Trend, Trend] | None = None
    """Of the number of waiting offsets, and of the age of the oldest waiting record. None while none waits."""

    @property
    def position(self) -> int | None:
        """The offset from which on records wait: the committed one, or where the group begins; None: not known."""
        begins = self.row.log_start_offset if self.begins_at_start else self.baseline
        return begins if self.row.committed_offset is None else self.row.committed_offset

    @property
    def lost(self) -> int:
        """How many offsets were deleted before the group read them."""
        return self.row.lost_offsets or 0

    @property
    def status_since(self) -> float:
        """Since when the partition has its status."""
        return self.row.observed_at if self.row.offset_status_since is None else self.row.offset_status_since

    @property
    def unmoved_since(self) -> float:
        """Since when records wait and the offset does not move."""
        return max(self.waits_since or 0.0, self.moved_at)

    @property
    def is_late(self) -> bool:
        """Whether records that are more than ten minutes old wait, and the offset has moved since they are so old."""
        return self.waits is True and self.late_since is not None and self.moved_at > self.late_since

    @property
    def slow_from(self) -> float:
        """Since when it is late and does not catch up, if it is late."""
        return max(self.late_since or 0.0, self.slow_since or 0.0)

    @property
    def _is_calm(self) -> bool:
        """Whether nothing but times changes at a pass that finds what the pass before has found."""
        begins = self.offset is not None or self.baseline is not None
        may_end = self.row.lost_offsets or self.held_since is not None or self.rewound_from is not None
        return self.waits is False and begins and not may_end and self.row.offset_status in {OK, UNKNOWN}

    def is_older(self, since: float | None) -> bool:
        """Return whether a condition that is known since this time may have begun earlier.

        It may if it held at the first pass of this run, if only repeated commits of one offset are known, or if the
        oldest waiting record is probably older: the end of the log was not known for long before `since`.
        """
        if since is None:
            return False
        repeats = self.is_repeated and since == self.moved_at <= (self.known_from or 0.0)
        written = since if self.row.lag_seconds is None else self.row.observed_at - self.row.lag_seconds
        if self.row.lag_seconds_is_lower_bound and self.offset is not None:
            written = 0.0
        is_late = since - max(written, self.committed_at or 0.0, self.calm_at) > _LATE_SECONDS
        return since == self.known_from or repeats or is_late

    def is_stalled(self, patience: float) -> bool:
        """Return whether records have waited for `patience` seconds while the offset did not move."""
        known_at = self.known_at or 0.0
        is_confirmed = self.waits_since is not None and known_at > self.noticed_at
        return is_confirmed and known_at - self.unmoved_since >= patience

    def is_doubtful(self, commit: Commit, now: float) -> bool:
        """Return whether a commit that may have been aborted would end a wait, or has stayed as it is."""
        if commit.offset == self.offset:
            return self.known_at is not None
        return self.waits_since is not None and now - self.unmoved_since >= _COMMITS_SECONDS

    def may_restore(self, stateful: Collection[str]) -> bool:
        """Return whether the task may restore state: it is stateful, and got a new owner after the offset last moved.

        The new owner has had it for at least a minute without a commit, and for less than `RESTORE_SECONDS`.
        """
        if self.row.subtopology_id not in stateful or not self.is_stalled(_COMMITS_SECONDS):
            return False
        since, known_at = self.owner_since or 0.0, self.known_at or 0.0
        is_new = self.offset is None or since >= self.moved_at
        return is_new and _COMMITS_SECONDS <= known_at - since < RESTORE_SECONDS

    def is_of_former_members(self, commit: Commit, tasks: GroupTasks) -> bool:
        """Return whether the offset is gone, and all members came after it: it was that of a group that was deleted."""
        is_gone = commit.is_known and commit.offset is None and self.offset is not None
        return is_gone and tasks.members_since is not None and tasks.members_since > (self.committed_at or self.seen_at)

    @classmethod
    def restore(cls, row: LagRow) -> Standing:
        """Return the standing for a row that an earlier run stored."""
        one = cls(LagRow(*row[:3]))
        one._take_commit(Commit(row.committed_offset, committed_at=row.committed_at), row.observed_at)
        is_known = row.lag is not None or row.waits_since is None
        if row.committed_offset is None and row.log_end_offset is not None and is_known:
            one.baseline = row.log_end_offset - (row.lag or 0)
        if row.waits_since is None and row.lag_seconds is not None:
            one.calm_at = row.observed_at
        one.row, one.waits_since = row, row.waits_since
        one.rewound_from, one.rewound_at = row.rewound_from, one.moved_at
        if row.offset_status == REWOUND:  # the group may have committed since
            one.rewound_at = min(one.moved_at, one.status_since)
        if row.unmoved_since is not None:
            one.moved_at = row.unmoved_since
        if row.lag and row.lag_seconds == 0 and row.lag_seconds_is_lower_bound is False:
            one.empty_to = min(row.log_end_offset or 0, row.last_stable_offset or row.log_end_offset or 0)
        one.had_record = (row.lag or 0) > MARKER and bool(row.lag_seconds)
        one.owner, one.owner_since = row.member_id, row.owner_since
        one.late_since, one.slow_since = row.late_since, row.slow_since
        if row.late_since is not None and row.lag is not None and row.lag_seconds is not None:
            one.trends = Trend((row.observed_at, row.lag)), Trend((row.observed_at, row.lag_seconds))
        return one

    def copy(self) -> Standing:
        """Return a copy for the next pass to change. `dataclasses.replace` takes three times as long."""
        return Standing(*_values(self))

    def forget_log(self) -> None:
        """Forget the old log, because the topic was created again."""
        self.waits_since = self.rewound_from = self.late_since = self.slow_since = None
        self.had_record, self.empty_to = False, 0
        self.trends = None

    def update(self, seen: Seen, one: GroupPass, *, is_same: bool) -> None:
        """Update from a pass. `is_same`: but for times it has found what the pass before has found."""
        (commit, ends, samples, _), tasks, now, is_new = seen, one.tasks, one.now, self.is_new
        self.arrived_at = samples.moved_at() if samples else None
        # Up to the second time both the commits and the end of the log are known.
        until = min(one.until.commits, ends.answered_at) if one.until.commits and ends.answered_at else None
        times = now if ends.at is None else ends.at, until
        if is_same and self._is_calm:
            self.known_at = self.calm_at = now
            self.row = LagRow(*self.row[:-2], *times)
            return
        _, topic, partition = self.row[:3]
        subtopology_id = (tasks.subtopology_of or {}).get(topic)
        owner = tasks.owner_of(topic, ends.topic_id, partition)
        self._take_owner(owner.member_id, commit, one)
        if commit.is_known:
            self._take_commit(commit, now, is_new=is_new)
        elif self.offset is not None:
            commit = commit._replace(offset=self.offset, committed_at=self.committed_at)
        self.begins_at_start = topic in tasks.repartition
        if commit.offset is None and owner is not NOBODY and self.baseline is None and samples and ends.end is not None:
            self.baseline = samples.end_by(owned_from(tasks, now))
        seen = seen._replace(commit=commit)
        found = measure(self, seen, one) if commit.is_known else Measured()
        self.had_record, self.empty_to = found.has_record or self.had_record, found.empty_to or self.empty_to
        self._take_lag(found, seen, one)
        age = found.age if found.age != _NOTHING_SAID or commit.offset is None else None
        is_whole = commit.offset is not None or self.begins_at_start or found.lag == 0
        is_least = age.is_lower_bound or not is_whole if age else None
        self._take_speed(found, age, one)
        status = self._status(subtopology_id, owner.member_id, found, seen, one)
        since = self.row.offset_status_since if status == self.row.offset_status else None
        self.row = LagRow(
            *self.row[:3],
            subtopology_id,
            None if subtopology_id is None else f"{subtopology_id}_{partition}",
            *owner,
            commit.offset,
            commit.leader_epoch,
            None if commit.offset is None else self.committed_at if commit.is_known else commit.committed_at,
            commit.partition_time,
            ends.start,
            ends.end,
            ends.stable,
            found.lag,
            age and age.seconds,
            is_least,
            None if commit.offset is None else found.lost,
            status,
            now if since is None else since,
            waits_since=self.waits_since,
            unmoved_since=None if self.is_untimed else self.moved_at,
            late_since=self.late_since,
            slow_since=self.slow_since,
            catch_up_seconds=None if self.late_since is None else self._catch_up_seconds(),
            rewound_from=self.rewound_from,
            owner_since=self.owner_since,
            leader=ends.leader,
            observed_at=times[0],
            known_until=times[1],
        )
        self.is_new = False

    def _take_owner(self, owner: str | None, commit: Commit, one: GroupPass) -> None:
        tasks, since = one.tasks, self.owner_since
        # Both times are by the coordinator's clock: a commit after the owner came stays so if this clock is ahead.
        ahead = max(0.0, (commit.committed_at or 0.0) - one.now)
        began = min(one.now, (tasks.stable_since or tasks.rebalancing_since or one.now) - ahead)
        has_moved = since is None or (self.is_new and commit.offset != self.offset)
        moved_at = (commit.committed_at if has_moved else None) or self.moved_at
        is_other = bool(owner) and owner != self.owner and self.owner is not None
        # If an owner dies while it restores and the next one restores again, the time of the first owner counts.
        if since is None or (is_other and since <= moved_at):
            known_at = 0.0 if since is None else self.row.observed_at  # it had another owner then
            # If members have come since then and since the offset last moved, the first one may have the task.
            joined = (at - ahead for at in tasks.joined if self.is_new and at > max(moved_at, known_at))
            self.owner_since = max(known_at, min([began, *joined]))
        self.owner = owner or self.owner

    def _take_commit(self, commit: Commit, now: float, *, is_new: bool = True) -> None:
        """Update from the newest commit. `is_new`: it is the first one that this run of the job sees."""
        offset, at, before, before_at = commit.offset, commit.committed_at, self.offset, self.committed_at
        if offset is None:
            self.moved_at = self.moved_at or self.owner_since or now
            return
        is_same = offset == before and (at == before_at or None in {at, before_at})
        if before is None:
            self.first = offset
        if is_same and self.is_untimed and at is not None:
            self.seen_at, self.moved_at = min(self.seen_at, at), min(self.moved_at, at)
            self.waits_since = None if self.waits_since is None else max(self.waits_since, self.moved_at)
        self.is_untimed = at is None and (self.is_untimed if is_same else is_new)
        if not is_same:  # it came after the pass before; of a time that is not between the two, the nearer one counts
            self.seen_at = now if at is None else min(now, max(at, self.row.observed_at))
            self.is_repeated = offset == before
        if before is not None and offset < before and self.rewound_from is None:
            self.rewound_from, self.rewound_at = before, self.seen_at
        if offset != before:
            self.rested = 0.0 if self.waits_since is None else self.seen_at - self.unmoved_since
            self.moved_at, self.had_record, self.empty_to = self.seen_at, False, 0
        if offset >= (self.rewound_from or 0) or now - self.rewound_at > _REWOUND_SECONDS:
            self.rewound_from = None
        self.offset, self.committed_at = offset, before_at if is_same and at is None else at

    def _take_lag(self, found: Measured, seen: Seen, one: GroupPass) -> None:
        commit, ends, samples, _ = seen
        self.waits, self.unread = found.waits, found.unread
        if found.waits is None:  # nothing is known, so nothing changes
            return
        if not found.is_held:
            self.held_since = None
        elif self.held_since is None or self.row.last_stable_offset != ends.stable:
            written_by = samples.written_by(ends.stable or 0) if samples else None
            self.held_since = min(one.now, written_by or one.now)
        if not found.waits:
            self.waits_since, self.calm_at = None, one.now
        elif self.waits_since is None or self.waits_since > one.now:
            self.waits_since = self.noticed_at = one.now
            if self.known_at is None and found.lag is not None and samples is not None:
                # The first pass of this run: the samples show when the oldest waiting record was written.
                begin = (self.baseline if commit.offset is None else commit.offset) or 0
                written_by = samples.written_by(max(begin, self.empty_to, ends.start or 0)) or one.now
                moved_at = 0.0 if self.is_untimed else self.moved_at
                self.waits_since = min(one.now, max(moved_at, written_by, self.calm_at))
        self.known_at, self.known_from = one.now, self.known_from or one.now

    def _status(
        self, subtopology_id: str | None, owner: str | None, found: Measured, seen: Seen, one: GroupPass
    ) -> str:
        """Return what the offsets prove. A new owner that the job has not read yet may have the task."""
        tasks, is_committed = one.tasks, seen.commit.offset is not None
        has_topology, is_late = tasks.subtopology_of is not None, one.now - one.until.members > one.late_seconds
        is_asked = min(one.now, *one.until) >= min(one.now, seen.ends.start_at or one.now)
        lost = found.lost or 0 if is_asked and is_committed else 0
        has_nobody = owner is None and tasks.knows_owners if has_topology else tasks.has_members is False
        in_order = (
            (LEFT_OVER, has_topology and tasks.is_whole and subtopology_id is None),
            (found.status or UNKNOWN, found.status is not None and is_committed),
            # If all records are deleted, the log starts after its last marker, and this marker is no loss.
            (LOST, lost > (0 if found.lag else MARKER)),
            (UNKNOWN, found.waits is None or (found.lag is None and not found.waits)),
            (HELD, found.is_held),
            (OK, not found.waits),
            (REWOUND, self.rewound_from is not None),
            (UNOWNED, has_nobody and not is_late),
        )
        for status, holds in in_order:  # it is asked for each partition: a generator takes twice as long
            if holds:
                return status
        return WAITS

    def _take_speed(self, found: Measured, age: Age | None, one: GroupPass) -> None:
        """Update since when the oldest record is late, and since when the group does not catch up."""
        now = one.now
        if found.waits is False or (age is not None and age.seconds < _LATE_AGE and not age.is_lower_bound):
            self.late_since = self.slow_since = None
        elif found.waits and age is not None and age.seconds >= _LATE_AGE and self.late_since is None:
            self.late_since = max(now - age.seconds + _LATE_AGE, self.calm_at)
        if not found.waits:
            self.trends = None if found.waits is False else self.trends
            return
        self.trends = offsets, ages = self.trends or (Trend(), Trend())
        span = max(_SPAN_SECONDS, one.patience)
        offsets.add(float(found.unread), now, span)
        if age is not None and not age.is_lower_bound:
            ages.add(age.seconds, now, span)
        if self.late_since is not None:
            falls = (self._catch_up_seconds() or inf) <= _SLOW_CATCH_UP
            if self.slow_since is None or falls or self.is_stalled(one.patience):
                self.slow_since = now
            elif not offsets.is_known:  # as after a start: a time that shows nothing does not count
                self.slow_since = min(now, self.slow_since + now - self.row.observed_at)

    def _catch_up_seconds(self) -> float | None:
        """Return in how many seconds nothing waits at the rate of the last minutes; None if that is not known."""
        if self.trends is None or not self.trends[0].is_known:  # as at the first passes of a run
            return self.row.catch_up_seconds
        left = (one.seconds_left() for one in self.trends)
        return min((one for one in left if one is not None), default=None)


_values = attrgetter(*(one.name for one in fields(Standing)))
