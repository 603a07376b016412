"""The verdicts on all groups of a cluster, updated at each step.

Theory of operation
-------------------
A group gets a new verdict when its facts have changed, or at the time that its last verdict names (`recheck_at`). If
both happen between two steps, it first gets a verdict with the old facts at `recheck_at`, and then one with the new
facts. So verdicts and their times do not depend on how often `step` is called, as long as it sees every change. A step
does nothing for all other groups.

After a group is deleted, its verdict comes from the last facts before, until these can change nothing any more. A bad
verdict on it stays.

A step that fails as a whole, as memory is short, loses nothing: the next one judges again whatever was new for it, and
returns the changes of both.

While the job has not read the records up to now, every verdict stays as it was: the caller does not call `step`.

Newcomers get their verdicts after all other groups, the oldest first (see `groups.snapshot`), for at most
`NEWCOMER_STEPS` of work. The others are postponed to the next step, which begins with those that wait longest, and
looks at no other of them. For a postponed newcomer, the old facts count only up to the time when it was postponed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, islice
from operator import is_
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.groups.snapshot import COLUMNS, GroupSnapshot, Versions, age, changed, group_snapshot, is_newcomer
from streaming_app.groups.state_rules import DEAD, EMPTY
from streaming_app.groups.task_copies import GroupCopies
from streaming_app.health.facts import MOMENT, Away, Facts, HealthSettings
from streaming_app.health.group_history import NO_HISTORY, GroupHistory
from streaming_app.health.judge import continued, judge
from streaming_app.health.successors import Successors
from streaming_app.health.verdict import (
    OFF,
    PENDING,
    PLANNED,
    RETIRED,
    UNKNOWN,
    Verdict,
    is_bad,
    is_over,
    is_same_pending,
    pending_of_deleted,
)
from streaming_app.lag.open_transactions import NO_TRANSACTIONS, Transactions
from streaming_app.lag.work import NO_WORK, GroupWork
from streaming_app.text import EPOCH

STREAMS = "streams"
NEWCOMER_STEPS = 5_000
"""The work for newcomers in one step, in verdicts on groups without events. It takes less than a second."""
_EVENTS_PER_STEP = 10  # measured: a verdict on a group with 500 changes of state takes 50 times as long

_MOVES = timedelta(minutes=1)
NONE: Mapping[str, GroupWork] = MappingProxyType({})
_NO_COPIES = GroupCopies()
_OF_OTHER_TYPE = "Its id belongs to a group of another type now."
NOT_JUDGED = "The verdict cannot be decided: "


@dataclass(frozen=True)
class Known:
    """The facts about a cluster at one time. Except for `histories`, a new mapping replaces a changed one."""

    groups: Mapping[str, GroupSnapshot]
    histories: Mapping[str, GroupHistory] = field(default_factory=dict)
    work: Mapping[str, GroupWork] | None = field(default_factory=dict)
    """Group -> its work; None: not known now. The work of a group that is missing here is not known."""
    retention: Mapping[str, float] = field(default_factory=dict)
    away: Away = field(default_factory=dict)
    """Broker -> partitions without a leader that it led before."""
    copies: Mapping[str, GroupCopies] | None = field(default_factory=dict)
    """Group -> the copies of its tasks; None: not known now."""
    transactions: Transactions | None = NO_TRANSACTIONS
    """The open transactions; None: the brokers have not been asked yet."""
    sinks: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """Group -> the topics to which it writes and cannot now, and why not. A group that is missing: none is known."""


_BY_GROUP = ("groups", "histories", "work", "copies", "sinks")


class Change(NamedTuple):
    """A group got another verdict, or the same verdict with another severity or reason."""

    group_id: str
    verdict: Verdict
    at: datetime
    """The time of the change, later than every earlier change of the group."""


class Board:
    """The verdicts on the groups of one cluster. Not thread-safe."""

    def __init__(
        self,
        settings_of: Callable[[str], HealthSettings],
        stored: Mapping[str, Verdict] | None = None,
        *,
        severity_of: Callable[[str, Verdict], str | None] = lambda _group_id, verdict: verdict.severity,
        of_all_types: bool = False,
    ) -> None:
        """Begin with the verdicts that an earlier run stored.

        `severity_of`: group and verdict -> its severity by the configuration. `of_all_types`: groups of other types get
        verdicts, too, from their lag alone.
        """
        self._settings_of, self._severity_of, self._of_all_types = settings_of, severity_of, of_all_types
        self._verdicts = dict[str, Verdict]()
        self._wakes: dict[str, datetime] = {}  # group -> `recheck_at`, for those that have one
        for group_id, verdict in (stored or {}).items():
            self._put(group_id, verdict)
        self._unseen = set(self._verdicts)  # groups with a verdict about which no facts were seen
        self._seen: dict[str, Facts] = {}  # group -> the facts of its verdict, without settings and previous verdict
        self._began: datetime | None = None
        self._known = self._judged = Known({}, work=None)
        self._successors = Successors({}, NONE)
        self.moved: set[str] = set()
        """Groups whose bad verdict got other times without a change of verdict, severity or reason: when it began, or
        when records will be lost. The caller stores these verdicts, and removes the groups."""
        self._times = {group_id: one for group_id, one in self._verdicts.items() if is_bad(one)}
        self.put_off: dict[str, datetime] = {}
        """Newcomer without a verdict on its facts -> since when it waits; the one that waits longest first."""
        self._changes: list[Change] = []  # those that no step has returned yet
        self.failed: dict[str, str] = {}
        """Group whose verdict could not be decided at its newest facts -> the error."""

    def verdicts(self) -> dict[str, Verdict]:
        """Return the newest verdict on each group."""
        return dict(self._verdicts)

    def verdict_on(self, group_id: str) -> Verdict | None:
        """Return the newest verdict on a group, or None."""
        return self._verdicts.get(group_id)

    def knows(self, group_id: str) -> bool:
        """Return whether there is a verdict on a group."""
        return group_id in self._verdicts

    def is_known(self, group_id: str) -> bool:
        """Return whether a group is not Unknown; one that is Unknown because its alert is over counts as known."""
        verdict = self._verdicts.get(group_id)
        return verdict is None or verdict.verdict != UNKNOWN or is_over(verdict)

    def end(self, groups: Iterable[str], reason: str, now: datetime) -> list[Change]:
        """Note that a person ended the alerts of these groups, and return the changes of their verdicts.

        A retired group is Off until it runs again. For a planned stop the verdict stays without a severity; the next
        other bad verdict opens an alert again.
        """
        changes = []
        for group_id in filter(self.knows, groups):
            before, seen = self._verdicts[group_id], self._seen.get(group_id)
            if reason == RETIRED and (seen is None or seen.group.state == EMPTY):
                verdict = Verdict(OFF, now, now, "A person ended its alert as retired.", evidence={RETIRED: True})
                verdict = replace(verdict, recheck_at=now + MOMENT)  # then a deleted group is forgotten
            else:
                verdict = replace(before, severity=None, evidence={**before.evidence, PLANNED: True})
            self._put(group_id, verdict)
            changes.append(Change(group_id, verdict, now))
        return changes

    def _put(self, group_id: str, verdict: Verdict) -> None:
        self._verdicts[group_id] = verdict
        if verdict.recheck_at is not None:
            self._wakes[group_id] = verdict.recheck_at
        else:
            self._wakes.pop(group_id, None)

    def _remove(self, group_id: str) -> None:
        del self._verdicts[group_id]
        self._seen.pop(group_id, None)
        self._wakes.pop(group_id, None)
        self._unseen.discard(group_id)

    def step(self, known: Known, now: datetime) -> list[Change]:
        """Update the verdicts, and return their changes in the order of time. Raises MemoryError."""
        self._began = self._began or now
        if known.work is None:  # not known now: the last known work counts
            known = replace(known, work=self._known.work)
        histories = known.histories if isinstance(known.histories, Versions) else dict(known.histories)
        self._known = replace(known, histories=histories)  # another mapping is changed later by the caller
        self._update(self._judged, now)
        self._judged = self._known  # not after an error, so that the next step sees once more what is new
        changes, self._changes = self._changes, []
        return sorted(changes, key=lambda change: change.at)

    def _update(self, before: Known, now: datetime) -> None:
        self._successors = Successors(self._known.groups, self._known.work or NONE)
        new = (changed(getattr(before, name) or NONE, getattr(self._known, name) or NONE) for name in _BY_GROUP)
        due = [group_id for group_id, at in self._wakes.items() if at <= now]
        newcomers: list[GroupSnapshot] = []  # snapshots, because all facts of a flood of groups would take much memory
        for group_id in dict.fromkeys(chain(*new, due, sorted(self._unseen))):
            if group_id not in self.put_off and (facts := self._look(group_id, now)):
                if is_newcomer(facts.group, now):
                    newcomers.append(facts.group)
                else:
                    self._judge(facts, now)
        self.put_off |= {one.group_id: now for one in sorted(newcomers, key=age)}
        self._judge_newcomers(now)

    def _look(self, group_id: str, now: datetime) -> Facts | None:
        """Return the facts about a group if they need a verdict."""
        facts = self._see(group_id, now)
        if facts is not None:
            self._unseen.discard(group_id)
            is_as_before = facts is self._seen.get(group_id) and not _is_due(self._verdicts[group_id], now)
            return None if is_as_before else facts
        if group_id in self._verdicts:
            self._unseen.add(group_id)  # also if it was seen, and deleted before its turn came
            self._forget_unseen(group_id, now)
        return None

    def _see(self, group_id: str, now: datetime) -> Facts | None:
        """Return the facts about a group: the same object as before if nothing changed. None: this run never saw it.

        For a deleted group, these are the last facts before.
        """
        known, before = self._known, self._seen.get(group_id)
        snapshot = known.groups.get(group_id)
        if snapshot is None or snapshot.state == DEAD or snapshot.is_of_other_type:
            if not self._of_all_types or group_id not in (known.work or NONE):
                is_as_before = before and before.is_deleted and not self._is_of_other_type(group_id)
                return before if before is None or is_as_before else replace(before, is_deleted=True)
            is_as_before = snapshot is None or snapshot.state == DEAD or (before and before.group.is_of_other_type)
            snapshot = before.group if before and is_as_before else _of_other_type(group_id)
        history = known.histories.get(group_id, NO_HISTORY)
        work = (known.work or NONE).get(group_id, before.work if before else NO_WORK)
        restores = (known.copies or {}).get(group_id, _NO_COPIES).restoring
        sinks = known.sinks.get(group_id, ())
        if before and not before.is_deleted and (before.restores, before.sinks) == (restores, sinks):
            known_before = (before.group, before.history, before.work)
            if all(map(is_, known_before, (snapshot, history, work))):
                return before
        found = Facts(
            snapshot, now, history, work, restores, known.retention, known.away, known.transactions, self._began
        )
        return replace(found, sinks=sinks) if sinks else found

    def _judge_newcomers(self, now: datetime) -> None:
        """Update the verdicts on newcomers, up to `NEWCOMER_STEPS`, those first that wait longest."""
        steps = 0
        for group_id in [*islice(self.put_off, NEWCOMER_STEPS)]:
            if steps >= NEWCOMER_STEPS:
                break
            if facts := self._look(group_id, now):
                steps += 1 + sum(map(len, facts.history)) // _EVENTS_PER_STEP
                self._judge(facts, now)
            del self.put_off[group_id]

    def _judge(self, facts: Facts, now: datetime) -> None:
        """Update the verdict on a group: with the old facts at each `recheck_at` until now, then with the new facts."""
        group_id, before = facts.group.group_id, self._seen.get(facts.group.group_id)
        if before:
            until = now if facts is before else self.put_off.get(group_id, now)
            while (at := self._verdicts[group_id].recheck_at) and at <= until:
                self._set(before, at)
        if facts is before or facts.is_deleted:  # else `_see` has just made these facts
            known = self._known
            facts = replace(
                facts, retention=known.retention, away=known.away, transactions=known.transactions, successor=None
            )
        returned = len(self._changes)
        self._seen[group_id] = self._set(facts, now, is_new=True)
        verdict = self._verdicts[group_id]
        if facts.is_deleted and verdict.recheck_at is None and not is_bad(verdict):
            self._remove(group_id)
            self.failed.pop(group_id, None)
            if len(self._changes) == returned:
                self._changes.append(Change(group_id, verdict, now))  # so that the stored verdict is removed

    def _forget_unseen(self, group_id: str, now: datetime) -> None:
        """Remove the verdict on a group that was deleted before this run saw it. A bad verdict stays.

        One of a group without members becomes what was pending, unless members came back before the deletion. While
        work is not known, nothing is removed: the group may be one of another type.
        """
        verdict, states = self._verdicts[group_id], self._known.histories.get(group_id, NO_HISTORY).states
        pending = pending_of_deleted(verdict)
        if self._is_of_other_type(group_id):
            if verdict.verdict != OFF:
                self._put(group_id, other := Verdict(OFF, now, now, _OF_OTHER_TYPE))
                self._changes.append(Change(group_id, other, now))
        elif pending and not any(one.at > pending.since and one.new not in {EMPTY, DEAD} for one in states):
            if pending.at <= now:
                self._put(group_id, pending := self._configured(group_id, continued(pending, verdict)))
                self._changes.append(Change(group_id, pending, max(pending.at, verdict.at + MOMENT)))
        elif not is_bad(verdict) and self._known.work is not None:
            self._remove(group_id)
            gone = Verdict(OFF, now, now, "It was deleted while no job ran.")
            self._changes.append(Change(group_id, gone, now))

    def _configured(self, group_id: str, verdict: Verdict) -> Verdict:
        severity = self._severity_of(group_id, verdict)
        return verdict if severity == verdict.severity else replace(verdict, severity=severity)

    def _is_of_other_type(self, group_id: str) -> bool:
        newest = self._known.groups.get(group_id)
        return newest is not None and newest.is_of_other_type

    def _at(self, facts: Facts, at: datetime) -> Facts:
        """Return these facts with a time, the settings of the group and its previous verdict."""
        group_id = facts.group.group_id
        return replace(facts, now=at, settings=self._settings_of(group_id), previous=self._verdicts.get(group_id))

    def _set(self, facts: Facts, at: datetime, *, is_new: bool = False) -> Facts:
        """Set the verdict on a group, and return its facts: new ones with the successor of an Empty group.

        An error affects only this group, and does not end a bad verdict. Raises MemoryError, which is of no group.
        """
        group_id = facts.group.group_id
        before = self._verdicts.get(group_id)
        try:
            if is_new and facts.group.state == EMPTY:
                facts = replace(facts, successor=self._successors.of(self._at(facts, at)))
            after = judge(self._at(facts, at))
            self.failed.pop(group_id, None)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            self.failed[group_id] = why = f"{NOT_JUDGED}{type(error).__name__}: {error}"
            after = Verdict(UNKNOWN, at, at, why)
            if before and is_bad(before):
                after = replace(before, evidence={**before.evidence, "not_over": why}, recheck_at=None)
        if facts.is_deleted and self._is_of_other_type(group_id):
            after = Verdict(OFF, at, at, _OF_OTHER_TYPE)
        after = self._configured(group_id, after)
        self._put(group_id, after)
        shown = (after.verdict, after.severity, after.why)
        if before is None or (before.verdict, before.severity, before.why) != shown:
            # A verdict may be as old as the record that proves it: then the change gets a later time than the last one.
            self._changes.append(Change(group_id, after, after.at if before is None or after.at > before.at else at))
            self._times.pop(group_id, None)
        elif (is_bad(after) or PENDING in after.evidence) and _has_moved(
            self._times.setdefault(group_id, before), after, at
        ):
            self._times[group_id] = after
            self.moved.add(group_id)
        return facts


def _has_moved(before: Verdict, after: Verdict, now: datetime) -> bool:
    """Return whether the times of a verdict differ. An estimate may move by a tenth of the time that is left."""
    if not is_same_pending(before, after):
        return True
    first, last = before.losing_at, after.losing_at
    if first is None or last is None:
        return before.since != after.since or first is not last
    return before.since != after.since or abs(last - first) > max(_MOVES, abs(last - now) / 10)


def _is_due(verdict: Verdict, now: datetime) -> bool:
    return verdict.recheck_at is not None and verdict.recheck_at <= now


def _of_other_type(group_id: str) -> GroupSnapshot:
    """Return a snapshot for a group of another type, whose records are not read: it counts as one with a member."""
    values = {"group_id": group_id, "group_type": "other", "state": "Unknown", "state_since": EPOCH, "member_count": 1}
    return group_snapshot({**dict.fromkeys(COLUMNS), **values, "last_offset": 0})
