"""Incidents: one object for each cause, from the first bad verdict until every group that it concerns processes again.

Theory of operation
-------------------
A bad verdict opens an incident, unless one is open for the group. A cause that concerns several groups, a topic that is
missing or a broker that is away, is one incident with these groups. The host of their clients is no such cause: behind
a NAT or on one node all groups have the same. `by_group` is what an incident is to the owner of one of its groups.

Each change of a verdict becomes a line of its time line, and may raise its severity, which never falls: what was
critical is worth a look also after it became better.

It ends when each of its groups has a good verdict, which is only given by evidence, or when a person ends it. A group
that is deleted, a restart of the job or facts that are too old end nothing. All times are those of the verdicts.

A group that stands still again and again would be an incident each time. So one that begins within `AGAIN` after the
last one of its group ends only after it has processed for `CALM`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, NamedTuple

from streaming_app.groups.not_ready import missing_sources
from streaming_app.health.board import Change
from streaming_app.health.verdict import (
    BAD,
    BROKER_AWAY,
    GOOD,
    OFF,
    PLANNED,
    RESTORING,
    VERDICTS,
    Verdict,
)
from streaming_app.text import digest

GROUP, MISSING_TOPIC, BROKER = "group", "missing_topic", "broker_away"
CAUSES: Mapping[str, str] = {
    GROUP: "One group does not process what it should; the scope is the group.",
    MISSING_TOPIC: "A topic that groups read is missing; the scope is the topic.",
    BROKER: "A broker is away, and groups do not process that read partitions which it led, or whose partition of the "
    "offsets topic it led; the scope is the broker.",
}
"""Every cause, and what its scope is."""
BY_EVIDENCE, IGNORED = "evidence", "ignored"
_SEVERITIES = ("critical", "warning", "info")
_ORDER = list(VERDICTS)  # the worst first
_SEPARATOR = ", "  # of topics in a scope
_LINES = 200
AGAIN, CALM = timedelta(hours=1), timedelta(minutes=30)
REMEMBERED = timedelta(days=1)
"""For how long an incident that ended has to be known."""
_ID_CHARACTERS = 12
_Key = tuple[str, str]  # a cause and a scope


class Line(NamedTuple):
    """A line of the time line."""

    at: datetime
    group_id: str
    verdict: str
    severity: str | None
    why: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Incident:
    """A row of `incidents`."""

    incident_id: str
    cluster: str
    cause: str
    scope: str
    severity: str
    opened_at: datetime
    ended_at: datetime | None = None
    ended_by: str | None = None
    """`evidence`; `retired` or `planned` by a person; `ignored` by the configuration."""
    verdict: str = ""
    """The worst one so far."""
    groups: Sequence[str] = ()
    open_groups: Sequence[str] = ()
    """Those that do not process yet."""
    timeline: Sequence[Line] = field(default_factory=tuple)

    @property
    def ends_at(self) -> datetime | None:
        """When it ends if every group that it concerns goes on as now; None while one does not process."""
        if self.open_groups or self.ended_at:
            return None
        calm: list[Line] = list(takewhile(lambda one: one.verdict in GOOD, reversed(self.timeline)))
        return calm[-1].at + CALM if calm else None

    @property
    def newest(self) -> Line:
        """The newest line about a group that does not process yet; of an incident that ended, the newest one.

        A row may have no time line: then it is what the rest of the row says.
        """
        about = [line for line in self.timeline if line.group_id in self.open_groups] or list(self.timeline)
        if about:
            return about[-1]
        return Line(self.opened_at, next(iter(self.groups), ""), self.verdict, self.severity, "", {})

    @property
    def worst(self) -> Line:
        """The newest line with the worst verdict: of an incident that is over, or almost, what was wrong."""
        return next((line for line in reversed(self.timeline) if line.verdict == self.verdict), self.newest)

    def by_group(self, verdict_of: Callable[[str], Verdict | None]) -> Iterator[Incident]:
        """Yield what it is to each group that does not process yet, or to each one if all do: with its own lines only.

        `verdict_of` returns the newest verdict on a group: the time line of an incident about many groups lacks lines
        of some. A group of which it has only good ones has a good verdict here, too.
        """
        if len(self.groups) <= 1:
            yield from [self] if self.groups else []
            return
        lines = defaultdict[str, list[Line]](list)
        for line in self.timeline:
            lines[line.group_id].append(line)
        still_open = frozenset(self.open_groups)
        for group_id in self.open_groups or self.groups:
            own, verdict = lines[group_id], verdict_of(group_id)
            if verdict and (not own or (own[-1].verdict, own[-1].severity) != (verdict.verdict, verdict.severity)):
                own.append(_line(group_id, verdict))
            if not own:
                own.append(Line(self.opened_at, group_id, self.verdict, self.severity, "", {}))
            cause, scope = self._cause_for(group_id, own)
            yield replace(
                self,
                cause=cause,
                scope=scope,
                severity=min((one.severity or "info" for one in own), key=_SEVERITIES.index),
                opened_at=own[0].at,
                verdict=min((one.verdict for one in own), key=_ORDER.index),
                groups=(group_id,),
                open_groups=(group_id,) if group_id in still_open else (),
                timeline=tuple(own),
            )

    def _cause_for(self, group_id: str, own: Iterable[Line]) -> tuple[str, str]:
        """Return the cause and the scope as they are true for one of several groups."""
        if self.cause not in CAUSES:  # releases up to 0.2 also merged groups whose clients were on one host
            return GROUP, group_id
        if self.cause != MISSING_TOPIC:
            return self.cause, self.scope
        missing = {topic for line in own for topic in missing_sources(str(line.evidence.get("reason", "")))}
        shared = [topic for topic in self.scope.split(_SEPARATOR) if topic in missing]
        return self.cause, _SEPARATOR.join(shared) or self.scope


class _Groups(NamedTuple):
    """The groups of an incident while changes are taken in, of which there may be thousands: each in constant time."""

    every: dict[str, None]
    open: dict[str, None]

    @classmethod
    def of(cls, incident: Incident) -> _Groups:
        return cls(dict.fromkeys(incident.groups), dict.fromkeys(incident.open_groups))

    def put_into(self, incident: Incident) -> Incident:
        return replace(incident, groups=tuple(self.every), open_groups=tuple(self.open))


class Incidents:
    """The incidents of one cluster; for one thread."""

    def __init__(self, cluster: str, stored: Iterable[Incident] = ()) -> None:
        """Begin with the incidents that an earlier run stored: those that are open, and that ended lately."""
        self._cluster = cluster
        self._open: dict[str, Incident] = {}
        self._by_key: defaultdict[_Key, dict[str, None]] = defaultdict(dict)
        self._ended: dict[str, datetime] = {}  # by group its last incident that ended by evidence
        for one in stored:
            self._keep(one)
            self._note_end(one)
        self._calm = {one.incident_id: one.ends_at for one in self._open.values() if one.ends_at}
        self._of_group = {
            group_id: one.incident_id for one in self._open.values() for group_id in one.open_groups or one.groups
        }

    def open(self) -> list[Incident]:
        """Return the open incidents."""
        return list(self._open.values())

    def of_group(self, group_id: str) -> Incident | None:
        """Return the open incident of a group."""
        return self._open.get(self._of_group.get(group_id, ""))

    def step(self, changes: Iterable[Change], now: datetime) -> list[Incident]:
        """Take in the changes of verdicts up to now; return the incidents that changed, as they are now."""
        found: dict[str, Incident] = {}
        open_groups: dict[str, _Groups] = {}
        for group_id, verdict, _ in changes:
            found |= self._end_calm(verdict.at)
            incident = self._incident(group_id, verdict)
            if incident is None:
                continue
            name = incident.incident_id
            groups = open_groups.get(name) or _Groups.of(incident)
            groups.every[group_id] = None
            incident = _with_line(incident, group_id, verdict)
            if verdict.verdict in GOOD:
                self._of_group.pop(group_id, None)
                groups.open.pop(group_id, None)
            else:
                self._of_group[group_id] = name
                groups.open[group_id] = None
            if not groups.open:
                incident = groups.put_into(incident)
                if self._is_again(incident, verdict):
                    self._of_group |= dict.fromkeys(incident.groups, name)
                    self._calm[name] = incident.ends_at or now
                else:
                    incident = self._end(incident, max(verdict.at, incident.opened_at))
            else:
                self._calm.pop(name, None)
            self._keep(incident)
            found[name], open_groups[name] = incident, groups
        for name, groups in open_groups.items():
            if found[name].ended_at is None:
                found[name] = groups.put_into(found[name])
                self._keep(found[name])
        return list((found | self._end_calm(now)).values())

    def _is_again(self, incident: Incident, verdict: Verdict) -> bool:
        """Tell whether a group had an incident shortly before this one, and may stand still once more."""
        ended = [self._ended[group_id] for group_id in incident.groups if group_id in self._ended]
        return verdict.verdict != OFF and any(incident.opened_at - at <= AGAIN for at in ended)

    def _end_calm(self, now: datetime) -> dict[str, Incident]:
        """End the incidents whose groups have all processed for long enough."""
        due = {name: at for name, at in self._calm.items() if at <= now and name in self._open}
        self._calm = {name: at for name, at in self._calm.items() if at > now}
        return {name: self._end(self._open[name], at) for name, at in due.items()}

    def _end(self, incident: Incident, at: datetime) -> Incident:
        ended = replace(incident, ended_at=at, ended_by=BY_EVIDENCE)
        self._keep(ended)
        self._note_end(ended)
        for group_id in ended.groups:
            if self._of_group.get(group_id) == ended.incident_id:
                del self._of_group[group_id]
        return ended

    def _note_end(self, incident: Incident) -> None:
        if incident.ended_at and incident.ended_by == BY_EVIDENCE:
            self._ended |= dict.fromkeys(incident.groups, incident.ended_at)

    def groups_of(self, incident_id: str) -> Sequence[str]:
        """Return the groups of an open incident that do not process yet."""
        return self._open[incident_id].open_groups if incident_id in self._open else ()

    def end(self, incident_id: str, reason: str, at: datetime) -> Incident | None:
        """End an incident as a person asked; return it as it is then, None if it is not open."""
        incident = self._open.get(incident_id)
        if incident is None:
            return None
        self._forget(incident_id)
        for group_id in incident.open_groups or incident.groups:
            self._of_group.pop(group_id, None)
        return replace(incident, ended_at=at, ended_by=reason, open_groups=())

    def leave_out(self, is_ignored: Callable[[str], bool], at: datetime) -> list[Incident]:
        """Leave out groups that are ignored from now on; return the incidents that changed. One without others ends."""
        changed = []
        for incident in self.open():
            concerned = incident.open_groups or incident.groups
            watched = tuple(group_id for group_id in concerned if not is_ignored(group_id))
            if len(watched) == len(concerned):
                continue
            for group_id in concerned:
                if is_ignored(group_id):
                    self._of_group.pop(group_id, None)
            left = replace(incident, open_groups=watched if incident.open_groups else ())
            left = left if watched else replace(left, ended_at=at, ended_by=IGNORED)
            self._keep(left)
            changed.append(left)
        return changed

    def _keep(self, incident: Incident) -> None:
        before = self._open.get(incident.incident_id)
        if before is None or incident.ended_at is not None or _keys(before) != _keys(incident):
            self._forget(incident.incident_id)
        if incident.ended_at is None:
            self._open[incident.incident_id] = incident
            for key in _keys(incident):
                self._by_key[key][incident.incident_id] = None

    def _forget(self, incident_id: str) -> None:
        if one := self._open.pop(incident_id, None):
            for key in _keys(one):
                self._by_key[key].pop(incident_id)

    def _incident(self, group_id: str, verdict: Verdict) -> Incident | None:
        """Return the incident that a verdict belongs to: the one of the group, one with its cause, or a new one."""
        known = self.of_group(group_id)
        if known is not None or not is_bad(verdict) or verdict.evidence.get(PLANNED):
            return known
        cause, scopes = _cause(group_id, verdict)
        for scope in scopes:
            for one in self._by_key.get((cause, scope), ()):
                return self._open[one]
        scope = _SEPARATOR.join(scopes)
        key = repr((self._cluster, cause, scope, verdict.at.isoformat()))
        incident_id = digest(key, _ID_CHARACTERS)
        return Incident(incident_id, self._cluster, cause, scope, verdict.severity or "warning", verdict.at)


def _keys(incident: Incident) -> list[_Key]:
    """Return what other groups find an incident by."""
    scopes = incident.scope.split(_SEPARATOR) if incident.cause == MISSING_TOPIC else [incident.scope]
    return [(incident.cause, scope) for scope in scopes] if incident.cause in {MISSING_TOPIC, BROKER} else []


def is_bad(verdict: Verdict) -> bool:
    """Tell whether a verdict opens an incident."""
    return verdict.verdict in BAD or (verdict.verdict == RESTORING and verdict.severity is not None)


def _cause(group_id: str, verdict: Verdict) -> tuple[str, Sequence[str]]:
    """Return the cause of a bad verdict, and what others would have to share for it to be the same one."""
    if missing := missing_sources(str(verdict.evidence.get("reason", ""))):
        return MISSING_TOPIC, missing
    if broker := verdict.evidence.get(BROKER_AWAY):
        return BROKER, [str(broker)]
    return GROUP, [group_id]


def _line(group_id: str, verdict: Verdict) -> Line:
    return Line(verdict.at, group_id, verdict.verdict, verdict.severity, verdict.why, verdict.evidence)


def _with_line(incident: Incident, group_id: str, verdict: Verdict) -> Incident:
    line = _line(group_id, verdict)
    newest = [one for one in incident.timeline if one.group_id == group_id][-1:]
    lines = list(incident.timeline)
    if newest and newest[0].verdict == line.verdict and newest[0].severity == line.severity:
        lines[lines.index(newest[0])] = line._replace(at=newest[0].at)  # the same, with newer numbers
    else:
        lines.append(line)
    if len(lines) > _LINES:  # the first ones say how it began
        del lines[_LINES // 2]
    severity = min((incident.severity, verdict.severity or incident.severity), key=_SEVERITIES.index)
    worst = min((incident.verdict or verdict.verdict, verdict.verdict), key=_ORDER.index)
    return replace(incident, severity=severity, verdict=worst, timeline=tuple(lines))
