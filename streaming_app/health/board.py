"""The verdicts on all groups of a cluster, brought up to date at each step.

Theory of operation
-------------------
A group is judged again when its facts have changed, or at the time its last verdict names (`recheck_at`): first with
the facts before at that time, and then with the new ones. So verdicts and their times do not depend on how often
`step` is called, as long as it sees every change. A group to which nothing happened costs a few comparisons.

A group that was deleted is judged by what was known of it before, until that can change nothing any more. One whose
verdict is bad stays bad.

While the records are not read up to now, nothing is judged: every verdict stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.activity import DEAD, activity
from streaming_app.health.checks import CHECKS
from streaming_app.health.history import NO_HISTORY, GroupHistory
from streaming_app.health.verdict import BAD, OFF, UNKNOWN, Away, Facts, HealthSettings, Restores, Verdict, judge
from streaming_app.lag.group_lag import GroupLag
from streaming_app.lag.work import GroupWork

STREAMS = "streams"
_EPOCH = datetime.fromtimestamp(0, timezone.utc)
_RECHECKS = 1_000  # of one group in one step: a month of them

NONE: Mapping[str, GroupWork] = MappingProxyType({})
NO_RESTORES: Restores = MappingProxyType({})

SettingsLookup = Callable[[str], HealthSettings]


@dataclass(frozen=True)
class Known:
    """What is known of a cluster at one time."""

    groups: Mapping[str, GroupSnapshot]
    histories: Mapping[str, GroupHistory] = field(default_factory=dict)
    work: Mapping[str, GroupWork] | None = field(default_factory=dict)
    """None: not known now; a group that is missing has no work that is known."""
    lag: Mapping[str, GroupLag] | None = field(default_factory=dict)
    """The groups with whose lag something is wrong."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader by the broker that led them."""
    restores: Mapping[str, Restores] = field(default_factory=dict)
    """By group what is reported of tasks that are restored."""


class Change(NamedTuple):
    """A group got another verdict, or the same one for another reason."""

    group_id: str
    verdict: Verdict


class _Group(NamedTuple):
    snapshot: GroupSnapshot
    version: int
    work: GroupWork | None
    lag: GroupLag | None
    facts: Facts
    verdict: Verdict


class Board:
    """The verdicts of one cluster; for one thread."""

    def __init__(self, settings_of: SettingsLookup, stored: Mapping[str, Verdict] | None = None) -> None:
        """Begin with the verdicts that an earlier run stored."""
        self._settings_of = settings_of
        self._stored = dict(stored or {})
        self._groups: dict[str, _Group] = {}

    def verdicts(self) -> dict[str, Verdict]:
        """Return the newest verdict on each group."""
        return {**self._stored, **{group_id: one.verdict for group_id, one in self._groups.items()}}

    def knows(self, group_id: str) -> bool:
        """Tell whether there is a verdict on a group."""
        return group_id in self._groups or group_id in self._stored

    def step(self, known: Known, now: datetime, others: Mapping[str, GroupWork] = NONE) -> list[Change]:
        """Judge the groups of which something has changed; return the changes, in the order of their times.

        Of `others`, those that are no streams groups are judged by their lag alone.
        """
        changes: list[Change] = []
        for group_id, work in others.items():
            if group_id not in known.groups:
                one = self._groups.get(group_id)
                changes += self._judge(group_id, one.snapshot if one else _of_other_type(work), known, now)
        for group_id, snapshot in known.groups.items():
            if snapshot.group_type == STREAMS and snapshot.state != DEAD:
                changes += self._judge(group_id, snapshot, known, now)
        for group_id in [one for one in self._groups if _is_gone(known.groups.get(one)) and one not in others]:
            changes += self._judge_deleted(group_id, known.groups.get(group_id), now)
        for group_id in [one for one in self._stored if _is_gone(known.groups.get(one))]:
            if self._stored[group_id].verdict not in BAD:  # it was deleted while this job was away
                del self._stored[group_id]
                changes.append(Change(group_id, Verdict(OFF, now, now, "It was deleted when it had nothing to do.")))
        return sorted(changes, key=lambda change: change.verdict.at)

    def _judge(self, group_id: str, snapshot: GroupSnapshot, known: Known, now: datetime) -> Iterator[Change]:
        one = self._groups.get(group_id)
        history = known.histories.get(group_id, NO_HISTORY)
        work = one.work if known.work is None and one else (known.work or {}).get(group_id, one.work if one else None)
        lag = one.lag if known.lag is None and one else (known.lag or {}).get(group_id)
        restores = known.restores.get(group_id, NO_RESTORES)
        if one is not None:
            is_same = snapshot is one.snapshot and work is one.work and lag is one.lag
            is_same = is_same and (restores is one.facts.restores or restores == one.facts.restores)
            if is_same and history.version == one.version and not _is_due(one.verdict, now):
                return
            one = yield from self._recheck(group_id, one, now)
        facts = one.facts if one else None
        if facts is None or one is None or snapshot is not one.snapshot or history.version != one.version:
            facts = Facts(activity(snapshot, history, now))
        facts = replace(facts, work=work, lag=lag, retention=known.retention, away=known.away, restores=restores)
        facts = replace(facts, is_deleted=False) if facts.is_deleted else facts
        before = one.verdict if one else self._stored.pop(group_id, None)
        verdict = self._safely(group_id, facts, now, before)
        self._groups[group_id] = _Group(snapshot, history.version, work, lag, facts, verdict)
        yield from _change(group_id, before, verdict)

    def _recheck(self, group_id: str, one: _Group, now: datetime) -> Generator[Change, None, _Group]:
        """Judge by what was known, at the times at which that may give another verdict."""
        for _ in range(_RECHECKS):
            at = one.verdict.recheck_at
            if at is None or at > now:
                break
            verdict = self._safely(group_id, one.facts, at, one.verdict)
            yield from _change(group_id, one.verdict, verdict)
            one = one._replace(verdict=verdict)
        self._groups[group_id] = one
        return one

    def _safely(self, group_id: str, facts: Facts, now: datetime, before: Verdict | None) -> Verdict:
        """Judge a group. Whatever one group causes, the others have their verdicts, and a bad one stays."""
        try:
            return judge(facts, now, before, CHECKS, self._settings_of(group_id))
        except Exception as error:  # noqa: BLE001 - see above
            why = f"It cannot be judged: {type(error).__name__}: {error}"
            if before and before.verdict in BAD:
                return replace(before, evidence={**before.evidence, "not_over": why}, recheck_at=None)
            return Verdict(UNKNOWN, now, now, why)

    def _judge_deleted(self, group_id: str, snapshot: GroupSnapshot | None, now: datetime) -> Iterator[Change]:
        one = self._groups[group_id]
        if not one.facts.is_deleted:
            one = yield from self._recheck(group_id, one, now)
            facts = replace(one.facts, is_deleted=True)
            is_other = snapshot is not None and snapshot.group_type != STREAMS
            before = one.verdict
            verdict = self._safely(group_id, facts, now, before)
            if is_other:
                verdict = Verdict(OFF, now, now, "Its id belongs to a group of another type now.")
            yield from _change(group_id, before, verdict)
            one = one._replace(facts=facts, verdict=verdict)
            self._groups[group_id] = one
        elif _is_due(one.verdict, now):
            one = yield from self._recheck(group_id, one, now)
        if one.verdict.recheck_at is None and one.verdict.verdict not in BAD:
            del self._groups[group_id]


def _of_other_type(work: GroupWork) -> GroupSnapshot:
    """Return what stands for the records of a group of another type: it has members as long as it commits."""
    names = {field.name: None for field in fields(GroupSnapshot)}
    values = {"group_id": work.group_id, "group_type": "other", "state": "Unknown", "state_since": _EPOCH}
    values |= {"member_count": 1, "last_offset": 0}
    return GroupSnapshot(**{**names, "unsettled": (), "unsettled_count": 0, **values})  # type: ignore[arg-type]


def _is_gone(snapshot: GroupSnapshot | None) -> bool:
    return snapshot is None or snapshot.state == DEAD or snapshot.group_type != STREAMS


def _is_due(verdict: Verdict, now: datetime) -> bool:
    return verdict.recheck_at is not None and verdict.recheck_at <= now


def _change(group_id: str, before: Verdict | None, after: Verdict) -> Iterator[Change]:
    if before is None or (before.verdict, before.severity, before.why) != (after.verdict, after.severity, after.why):
        yield Change(group_id, after)
