"""The verdicts on all groups of a cluster, brought up to date at each step.

Theory of operation
-------------------
A group is judged again when its facts have changed, or at the time its last verdict names (`recheck_at`): first with
the facts before at that time, and then with the new ones. So verdicts and their times do not depend on how often
`step` is called, as long as it sees every change. Of other groups only the time of `recheck_at` is looked at.

A group that was deleted is judged by what was known of it before, until that can change nothing any more. One whose
verdict is bad stays bad.

While the records are not read up to now, nothing is judged: every verdict stays as it was.

Newcomers are judged after all others, the oldest first (see `groups.snapshot`), until they have taken
`NEWCOMER_STEPS`. The rest of them is put off to the next step, where those come first that wait the longest. What was
known of them before counts until they were put off, and no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from itertools import chain
from operator import is_
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.groups.snapshot import GroupSnapshot, age, changed, is_newcomer
from streaming_app.groups.state_rules import DEAD
from streaming_app.health.activity import activity
from streaming_app.health.checks import CHECKS
from streaming_app.health.facts import Away, Facts, HealthSettings, Restores
from streaming_app.health.history import NO_HISTORY, GroupHistory
from streaming_app.health.judge import judge
from streaming_app.health.successors import Successors
from streaming_app.health.verdict import OFF, UNKNOWN, Verdict, ended_by_person, is_bad
from streaming_app.lag.work import GroupWork
from streaming_app.text import EPOCH

STREAMS = "streams"
_RECHECKS = 1_000  # of one group in one step: a month of them
NEWCOMER_STEPS = 5_000
"""So many judgments of a group to which nothing happened take less than a second."""
_EVENTS_PER_STEP = 10  # measured: 500 changes of its state make it take 50 times as long

NONE: Mapping[str, GroupWork] = MappingProxyType({})
NO_RESTORES: Restores = MappingProxyType({})
NOT_JUDGED = "It cannot be judged: "
_UNJUDGED = Verdict(UNKNOWN, EPOCH, EPOCH, "")

SettingsLookup = Callable[[str], HealthSettings]


@dataclass(frozen=True)
class Known:
    """What is known of a cluster at one time. But for `histories`, a mapping never changes: the next one is another."""

    groups: Mapping[str, GroupSnapshot]
    histories: Mapping[str, GroupHistory] = field(default_factory=dict)
    work: Mapping[str, GroupWork] | None = field(default_factory=dict)
    """None: not known now; a group that is missing has no work that is known."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader by the broker that led them."""
    restores: Mapping[str, Restores] = field(default_factory=dict)
    """By group what is reported of tasks that are restored."""
    others: Mapping[str, GroupWork] = field(default_factory=dict)
    """Of these, groups that are no streams groups are judged by their lag alone."""


_NOTHING_KNOWN = Known({})
_BY_GROUP = ("groups", "histories", "work", "restores", "others")


class Change(NamedTuple):
    """A group got another verdict, or the same one for another reason."""

    group_id: str
    verdict: Verdict
    at: datetime
    """When: no earlier change of the group has this time."""


class _Group(NamedTuple):
    """A group as it was judged last. Facts are made of it when they are needed: they would be most of the memory."""

    snapshot: GroupSnapshot
    history: GroupHistory
    work: GroupWork | None
    restores: Restores
    at: datetime
    """When its snapshot and history were first seen."""
    retention: Mapping[str, float]
    away: Away
    verdict: Verdict
    successor: str | None = None
    is_deleted: bool = False

    def is_as(self, one: _Group) -> bool:
        """Tell whether the same is known of it."""
        return all(map(is_, self[:3], one[:3])) and self.restores == one.restores

    def facts(self, now: datetime, settings: HealthSettings, watched_since: datetime | None) -> Facts:
        """Return what the next verdict is made of."""
        does = activity(self.snapshot, self.history, self.at)
        rest = (self.is_deleted, self.retention, self.away, self.restores, watched_since)
        previous = None if self.verdict is _UNJUDGED else self.verdict
        return Facts(does, now, settings, previous, self.work, *rest, self.successor)


class Board:
    """The verdicts of one cluster; for one thread."""

    def __init__(self, settings_of: SettingsLookup, stored: Mapping[str, Verdict] | None = None) -> None:
        """Begin with the verdicts that an earlier run stored."""
        self._settings_of = settings_of
        self._stored = dict(stored or {})
        self._successors = Successors({}, NONE)
        self._groups: dict[str, _Group] = {}
        self._began: datetime | None = None
        self._steps = 0  # that judgments took since the start
        self._before = _NOTHING_KNOWN  # at the step before: what is not the same object then has changed
        self.put_off: Mapping[str, datetime] = {}
        """The newcomers that wait for a verdict, and since when."""

    def verdicts(self) -> dict[str, Verdict]:
        """Return the newest verdict on each group."""
        return {**self._stored, **{group_id: one.verdict for group_id, one in self._groups.items()}}

    def knows(self, group_id: str) -> bool:
        """Tell whether there is a verdict on a group."""
        return group_id in self._groups or group_id in self._stored

    def end(self, groups: Iterable[str], reason: str, now: datetime) -> list[Change]:
        """Take in that a person ended the problems of these groups; return the changes."""
        changes = []
        for group_id in groups:
            one = self._groups.get(group_id)
            before = one.verdict if one else self._stored.get(group_id)
            if before is None:
                continue
            verdict = ended_by_person(before, one.snapshot if one else None, reason, now)
            if one:
                self._groups[group_id] = one._replace(verdict=verdict)
            else:
                self._stored[group_id] = verdict
            changes.append(Change(group_id, verdict, now))
        return changes

    def step(self, known: Known, now: datetime) -> list[Change]:
        """Judge the groups of which something has changed; return the changes, in the order of their times."""
        self._began = self._began or now
        before = self._before
        self._before = known = replace(
            known,
            histories=dict(known.histories),  # the caller goes on to change it
            work=before.work if known.work is None else known.work,
        )
        self._successors = Successors(known.groups, known.work or NONE)
        changes: list[Change] = []
        newcomers: list[GroupSnapshot] = []
        for group_id in self._candidates(before, known, now):
            snapshot = self._due(group_id, known, now)
            if snapshot is None:
                continue
            if is_newcomer(snapshot, now):
                newcomers.append(snapshot)
            else:
                changes += self._judgment(snapshot, known, now)
        changes += self._judge_newcomers(newcomers, known, now)
        for group_id in [one for one in self._stored if _is_gone(known.groups.get(one))]:
            if not is_bad(self._stored[group_id]):  # it was deleted while this job was away
                del self._stored[group_id]
                why = "It was deleted when it had nothing to do."
                changes.append(Change(group_id, Verdict(OFF, now, now, why), now))
        return sorted(changes, key=lambda change: change.at)

    def _candidates(self, before: Known, known: Known, now: datetime) -> Collection[str]:
        """Return the groups that may have to be judged: all others are as they were, and are not looked at."""
        new = (changed(getattr(before, name), getattr(known, name)) for name in _BY_GROUP)
        due = (group_id for group_id, one in self._groups.items() if _is_due(one.verdict, now))
        return dict.fromkeys(chain(*new, due, self.put_off))

    def _due(self, group_id: str, known: Known, now: datetime) -> GroupSnapshot | None:
        """Return the records by which a group is to be judged; None if its verdict is that of before."""
        one, newest = self._groups.get(group_id), known.groups.get(group_id)
        is_due = one is not None and _is_due(one.verdict, now)
        if newest is None and group_id in known.others:
            newest = one.snapshot if one else _of_other_type(known.others[group_id])
        elif newest is None or _is_gone(newest):
            is_new = one is not None and group_id not in known.others and (is_due or not one.is_deleted)
            return one.snapshot if one and is_new else None
        return newest if one is None or is_due or not _see(newest, known, one, now).is_as(one) else None

    def _judgment(self, snapshot: GroupSnapshot, known: Known, now: datetime) -> Iterator[Change]:
        """Return the judgment of a group that is due: it is made when it is read. Until then it would take memory."""
        group_id = snapshot.group_id
        newest, one = known.groups.get(group_id), self._groups.get(group_id)
        if group_id not in known.others and _is_gone(newest):
            return self._judge_deleted(group_id, newest, now)
        new = _see(snapshot, known, one, now)
        return self._judge(new, now, is_same=one is not None and new.is_as(one))

    def _judge_newcomers(self, newcomers: Iterable[GroupSnapshot], known: Known, now: datetime) -> Iterator[Change]:
        """Judge newcomers until they have taken their steps; put off the others."""
        most, late = self._steps + NEWCOMER_STEPS, {}
        for one in sorted(newcomers, key=lambda one: (self.put_off.get(one.group_id, now), age(one))):
            if self._steps < most:
                yield from self._judgment(one, known, now)
            else:
                late[one.group_id] = self.put_off.get(one.group_id, now)
        self.put_off = late

    def _judge(self, new: _Group, now: datetime, *, is_same: bool) -> Iterator[Change]:
        group_id = new.snapshot.group_id
        one = self._groups.get(group_id)
        if one is not None:
            one = yield from self._recheck(group_id, one, now if is_same else self.put_off.get(group_id, now))
        before = one.verdict if one else self._stored.pop(group_id, None)
        new = new._replace(verdict=before or _UNJUDGED)
        facts = new.facts(now, self._settings_of(group_id), self._began)
        successor = self._successors.of(facts)
        verdict = self._safely(replace(facts, successor=successor) if successor else facts)
        self._groups[group_id] = new._replace(successor=successor, verdict=verdict)
        yield from _change(group_id, before, verdict, now)

    def _recheck(self, group_id: str, one: _Group, now: datetime) -> Generator[Change, None, _Group]:
        """Judge by what was known, at the times at which that may give another verdict."""
        for _ in range(_RECHECKS):
            at = one.verdict.recheck_at
            if at is None or at > now:
                break
            verdict = self._safely(one.facts(at, self._settings_of(group_id), self._began))
            yield from _change(group_id, one.verdict, verdict, at)
            one = one._replace(verdict=verdict)
        self._groups[group_id] = one
        return one

    def _safely(self, facts: Facts) -> Verdict:
        """Judge a group. Whatever one group causes, the others have their verdicts, and a bad one stays."""
        activity, before = facts.activity, facts.previous
        events = len(activity.changes) + len(activity.members) + len(activity.assignments)
        self._steps += 1 + events // _EVENTS_PER_STEP
        try:
            return judge(facts, CHECKS)
        except Exception as error:  # noqa: BLE001 - see above
            why = f"{NOT_JUDGED}{type(error).__name__}: {error}"
            if before and is_bad(before):
                return replace(before, evidence={**before.evidence, "not_over": why}, recheck_at=None)
            return Verdict(UNKNOWN, facts.now, facts.now, why)

    def _judge_deleted(self, group_id: str, snapshot: GroupSnapshot | None, now: datetime) -> Iterator[Change]:
        one = self._groups[group_id]
        if not one.is_deleted:
            one = yield from self._recheck(group_id, one, self.put_off.get(group_id, now))
            one = one._replace(is_deleted=True)
            is_other = snapshot is not None and snapshot.group_type != STREAMS
            before = one.verdict
            verdict = self._safely(one.facts(now, self._settings_of(group_id), self._began))
            if is_other:
                verdict = Verdict(OFF, now, now, "Its id belongs to a group of another type now.")
            yield from _change(group_id, before, verdict, now)
            self._groups[group_id] = one = one._replace(verdict=verdict)
        elif _is_due(one.verdict, now):
            one = yield from self._recheck(group_id, one, now)
        if one.verdict.recheck_at is None and not is_bad(one.verdict):
            del self._groups[group_id]


def _see(snapshot: GroupSnapshot, known: Known, one: _Group | None, now: datetime) -> _Group:
    group_id = snapshot.group_id
    history = known.histories.get(group_id, NO_HISTORY)
    is_old = one is not None and snapshot is one.snapshot and history is one.history
    return _Group(
        snapshot,
        history,
        (known.work or NONE).get(group_id, one.work if one else None),
        known.restores.get(group_id, NO_RESTORES),
        one.at if one and is_old else now,
        known.retention,
        known.away,
        _UNJUDGED,
    )


def _of_other_type(work: GroupWork) -> GroupSnapshot:
    """Return what stands for the records of a group of another type: it has members as long as it commits."""
    names = {field.name: None for field in fields(GroupSnapshot)}
    values = {"group_id": work.group_id, "group_type": "other", "state": "Unknown", "state_since": EPOCH}
    values |= {"member_count": 1, "last_offset": 0}
    return GroupSnapshot(**{**names, "unsettled": (), "unsettled_count": 0, **values})  # type: ignore[arg-type]


def _is_gone(snapshot: GroupSnapshot | None) -> bool:
    return snapshot is None or snapshot.state == DEAD or snapshot.group_type != STREAMS


def _is_due(verdict: Verdict, now: datetime) -> bool:
    return verdict.recheck_at is not None and verdict.recheck_at <= now


def _change(group_id: str, before: Verdict | None, after: Verdict, now: datetime) -> Iterator[Change]:
    if before is None or (before.verdict, before.severity, before.why) != (after.verdict, after.severity, after.why):
        # The verdict is often as old as the record that proves it, also when it comes back; its reasons never are.
        yield Change(group_id, after, after.at if before is None or after.at > before.at else now)
