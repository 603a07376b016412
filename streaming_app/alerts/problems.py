"""The problems of one cluster: when they open, become worse and end, and which notifications are due then. Pure.

Theory of operation
-------------------
A condition has three values. It holds (`found`), it is over (`over`), or it is unknown: then nobody calls, and the
problem stays as it is. At most one problem with a key is open.

- A problem is pending until its condition has held for the rule's `for`, counted from `since` and not from before the
  last problem with that key ended. One whose condition is over before that is forgotten.
- When it opens, each sink gets one notification, and one more when it becomes worse: its severity never falls. When it
  ends, each sink that has or may have a notification of it gets one.
- The health of a group is one subject, whatever its verdicts are: the problem has the rule of the worst one so far.
  Times are those of the verdicts, so they do not depend on how often somebody looks.
- A group that stands still again and again would be a problem each time. So one that opens within `AGAIN` after the
  last one of the group has ended by evidence ends only after the group has processed for `CALM`.

A restart changes nothing: the whole memory is in the stored problems. A time ahead of now counts as now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile

from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.alerts.problem import (
    BY_EVIDENCE,
    FIRING,
    HEALTH,
    IGNORED,
    NOT_ENABLED,
    PENDING,
    Delivery,
    Finding,
    Line,
    Problem,
    ProblemKey,
    end_of,
    make_id,
    severity_rank,
    with_delivery,
    without_unknown,
)
from streaming_app.alerts.rule import RuleSettings, RuleSettingsLookup
from streaming_app.health.verdict import GOOD, OFF
from streaming_app.text import rank, shorten, utc

AGAIN, CALM = timedelta(hours=1), timedelta(minutes=30)
REMEMBERED = timedelta(days=30)
"""For how long a problem that ended is known: longer than any sensible `for`. What is not sent by then is obsolete."""
_LONGEST_SUMMARY = 2_000  # characters; ids, which may have 32,000, are in it, and all open problems are in memory
_LINES = 200
_FEW_ENDED = 200


class Problems:
    """The problems of one cluster; for one thread at a time."""

    def __init__(
        self,
        cluster: str,
        settings_of: RuleSettingsLookup,
        sinks: Sequence[str] = (),
        stored: Iterable[Problem] = (),
        labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {},
    ) -> None:
        """Go on from the stored problems: all that are open, and those that ended lately. What differs is `changed`."""
        self._cluster, self._settings_of, self._sinks, self._labels_of = cluster, settings_of, tuple(sinks), labels_of
        self.is_muted: Callable[[Problem], bool] | None = None
        """Tells whether a problem is muted now; None: no mute is active."""
        self._open: dict[ProblemKey, Problem] = {}
        self._ended: dict[ProblemKey, datetime] = {}
        self._ended_by_evidence: dict[ProblemKey, datetime] = {}
        self._most_ended = _FEW_ENDED
        self._calm: dict[ProblemKey, datetime] = {}
        self._causes = Counter[str]()  # of the open problems
        self._unsent: dict[str, Problem] = {}
        self._changed: dict[str, Problem] = {}
        self._removed: dict[str, Problem] = {}
        for one in stored:
            kept = tuple(d for d in one.deliveries if d.sent_at or d.sink in self._sinks)
            restored = one if kept == one.deliveries else replace(one, deliveries=kept)
            if one.ended_at is None:
                restored = self._restore(restored)
            else:
                self._note_end(restored)
                self._note_due(restored)
            if restored != one:
                self._changed[one.alert_id] = restored

    @property
    def open(self) -> Mapping[ProblemKey, Problem]:
        """The problems that are pending or open."""
        return self._open

    @property
    def unsent(self) -> Mapping[str, Problem]:
        """The problems by id that have a notification that is not sent yet."""
        return self._unsent

    @property
    def calm_ends(self) -> tuple[datetime, ...]:
        """When problems end if their groups go on to process."""
        return tuple(self._calm.values())

    def take_changes(self) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
        """Return the problems that changed since the last call, as they are now, and the pending ones that are gone."""
        changed, removed = tuple(self._changed.values()), tuple(self._removed.values())
        self._changed, self._removed = {}, {}
        return changed, removed

    def found(self, key: ProblemKey, rule: str, finding: Finding, at: datetime) -> None:
        """Take in that a condition holds."""
        settings = self._settings_of(key.group_id).get(rule)
        if settings is None:
            return
        before = self._open.get(key)
        self._calm.pop(key, None)
        one = self._with_finding(before, key, rule, finding, settings, at)
        if before is not None and before.state == FIRING:
            is_worse = severity_rank(one.severity) < severity_rank(before.severity)
            self._keep(self._due_again(one) if is_worse else one)
        elif at - self._counts_from(one) >= timedelta(seconds=0 if key.subject == HEALTH else settings.for_seconds):
            line = Line(at, finding.verdict, one.rule, one.severity, one.summary)
            self._keep(replace(one, opened_at=at, timeline=(line,), deliveries=self._with_new_sinks(())))
        else:
            self._keep(one)

    def over(self, key: ProblemKey, at: datetime, verdict: str | None = None, why: str = "") -> None:
        """Take in that a condition is over; of the health of a group it is a good verdict that says so."""
        one = self._open.get(key)
        if one is None or key in self._calm:
            return
        if one.state == PENDING:
            self._forget(one)
        elif verdict not in {None, OFF} and self._is_again(one):
            ends_at = at + CALM
            summary = (
                f"{one.group_id} is {verdict} since {utc(at)}, and was worse again and again; it is over if that lasts "
                f"until {utc(ends_at)}. {one.timeline[-1].why if one.timeline else ''}"
            )
            line = Line(at, verdict, one.rule, one.severity, why)
            self._keep(replace(one, summary=shorten(summary, _LONGEST_SUMMARY), timeline=_add(one.timeline, line)))
            self._calm[key] = ends_at
        else:
            self._end(one, at, BY_EVIDENCE, Line(at, verdict, one.rule, one.severity, why))

    def end_calm(self, now: datetime) -> None:
        """End the problems of groups that stood still again and again, and have processed for long enough."""
        for key in [key for key, at in self._calm.items() if at <= now]:
            self._end(self._open[key], self._calm[key], BY_EVIDENCE)

    def end(self, reasons: Mapping[str, str], at: datetime) -> list[tuple[str, str]]:
        """End problems with the health of groups as persons asked, by id and reason; return the groups and reasons."""
        asked = [
            one
            for one in (self._open.values() if reasons else ())
            if one.alert_id in reasons and one.subject == HEALTH and one.state == FIRING
        ]
        for one in asked:
            self._end(one, at, reasons[one.alert_id])
        return [(one.group_id or "", reasons[one.alert_id]) for one in asked]

    def leave_out(self, at: datetime) -> None:
        """End the problems of groups that the configuration ignores, and of rules that it disables."""
        for one in list(self._open.values()):
            enabled = self._settings_of(one.group_id)
            if one.rule not in enabled:
                reason = NOT_ENABLED if enabled or one.group_id is None else IGNORED
                self._forget(one) if one.state == PENDING else self._end(one, at, reason)

    def delivered(self, alert_id: str, delivery: Delivery) -> Problem | None:
        """Note what came of an attempt to send a problem; return the problem, None if it is not known any more."""
        known = self._unsent.get(alert_id)
        if known is None:
            return None
        one = with_delivery(known, delivery)
        if one.ended_at is None:
            self._open[one.key] = one
        self._note_due(one)
        return one

    def cause_of(self, candidates: Sequence[str]) -> str | None:
        """Return the cause of a problem that opens: one that an open problem has, or else the first one."""
        return next((one for one in candidates if one in self._causes), next(iter(candidates), None))

    def _restore(self, one: Problem) -> Problem:
        """Go on with an open problem, and return it: by the settings of this run, and with the sinks that it has."""
        settings = self._settings_of(one.group_id).get(one.rule)
        severity = _capped(one.severity, settings) if settings else one.severity
        deliveries = self._with_new_sinks(one.deliveries) if one.state == FIRING else one.deliveries
        restored = replace(one, severity=severity, labels=self._labels(one.group_id), deliveries=deliveries)
        self._put(restored)
        calm: list[Line] = list(takewhile(lambda line: line.verdict in GOOD, reversed(one.timeline)))
        if calm:
            self._calm[one.key] = calm[-1].at + CALM
        return restored

    def _with_finding(  # noqa: PLR0913, PLR0917 - each is one thing it needs
        self,
        before: Problem | None,
        key: ProblemKey,
        rule: str,
        finding: Finding,
        settings: RuleSettings,
        at: datetime,
    ) -> Problem:
        """Return the problem with what is found: of a worse verdict the rule, and the worst severity so far."""
        since = min(finding.since, at) if finding.since else None
        severity = _capped(finding.severity or settings.severity, settings)
        summary = shorten(finding.summary, _LONGEST_SUMMARY)
        evidence = finding.evidence
        if before is None:
            labels = self._labels(key.group_id)
            one_id = make_id(self._cluster, key, at)
            return Problem(
                *(one_id, self._cluster, key.group_id, rule, severity, since or at, None, None, None, finding.cause),
                *(labels, summary, evidence),
                subject=key.subject,
            )
        if before.state == PENDING:
            since = since or min(before.since, at)
            return replace(before, severity=severity, since=since, summary=summary, evidence=evidence)
        is_worse = rank(rule, HEALTH_RULES) < rank(before.rule, HEALTH_RULES)
        one = replace(
            before,
            rule=rule if is_worse else before.rule,
            severity=min(before.severity, severity, key=severity_rank),
            summary=summary,
            evidence=evidence,
            cause=before.cause or finding.cause,
        )
        last = before.timeline[-1] if before.timeline else None
        if last is None or (last.verdict, last.rule, last.severity) != (finding.verdict, one.rule, one.severity):
            line = Line(at, finding.verdict, one.rule, one.severity, summary)
            return replace(one, timeline=_add(before.timeline, line))
        return one

    def _counts_from(self, one: Problem) -> datetime:
        """Return from when on a condition counts: not from before the last problem with the key ended."""
        last = self._ended.get(one.key)
        return max(one.since, last) if last else one.since

    def _is_again(self, one: Problem) -> bool:
        """Tell whether the group had a problem shortly before this one, and may stand still once more."""
        last = self._ended_by_evidence.get(one.key)
        return last is not None and one.opened_at is not None and one.opened_at - last <= AGAIN

    def _due_again(self, one: Problem) -> Problem:
        """Return a problem that became worse, with its notification to each sink."""
        again = tuple(
            Delivery(d.sink, FIRING, repeat=d.repeat + 1) if d.sent_at and d.sink in self._sinks else d
            for d in one.deliveries
        )
        return replace(one, deliveries=self._with_new_sinks(again))

    def _with_new_sinks(self, deliveries: tuple[Delivery, ...]) -> tuple[Delivery, ...]:
        """Return the deliveries of an open problem with one for each sink that has none."""
        known = {delivery.sink for delivery in deliveries}
        return (*deliveries, *(Delivery(sink, FIRING) for sink in self._sinks if sink not in known))

    def _end(self, one: Problem, at: datetime, by: str, line: Line | None = None) -> None:
        timeline = _add(one.timeline, line) if line else one.timeline
        ended = end_of(replace(one, timeline=timeline), at, by, self._sinks)
        if self.is_muted is not None and self.is_muted(one):
            ended = without_unknown(ended)
        self._forget(one)
        self._removed.pop(one.alert_id, None)
        self._changed[ended.alert_id] = ended
        self._note_end(ended)
        self._note_due(ended)

    def _note_end(self, one: Problem) -> None:
        if one.ended_at is None:
            return
        self._ended[one.key] = max(one.ended_at, self._ended.get(one.key, one.ended_at))
        if one.ended_by == BY_EVIDENCE:
            known = self._ended_by_evidence.get(one.key, one.ended_at)
            self._ended_by_evidence[one.key] = max(one.ended_at, known)
        if len(self._ended) > self._most_ended:  # a year of groups that came and went
            oldest = one.ended_at - REMEMBERED
            self._ended = {key: at for key, at in self._ended.items() if at > oldest}
            self._ended_by_evidence = {key: at for key, at in self._ended_by_evidence.items() if at > oldest}
            self._most_ended = 2 * len(self._ended) + _FEW_ENDED  # so that each end takes few steps on average

    def _keep(self, one: Problem) -> None:
        before = self._open.get(one.key)
        if before != one:
            self._put(one)
            self._changed[one.alert_id] = one

    def _put(self, one: Problem) -> None:
        """Let a problem be the open one with its key."""
        before = self._open.get(one.key)
        self._open[one.key] = one
        self._note_due(one)
        if one.cause and (before is None or not before.cause):
            self._causes[one.cause] += 1

    def _note_due(self, one: Problem) -> None:
        if any(delivery.sent_at is None for delivery in one.deliveries):
            self._unsent[one.alert_id] = one
        else:
            self._unsent.pop(one.alert_id, None)

    def _forget(self, one: Problem) -> None:
        self._open.pop(one.key, None)
        self._calm.pop(one.key, None)
        self._changed.pop(one.alert_id, None)
        self._removed[one.alert_id] = one
        if one.cause:
            self._causes[one.cause] -= 1
            if not self._causes[one.cause]:
                del self._causes[one.cause]

    def _labels(self, group_id: str | None) -> Mapping[str, str]:
        return {} if group_id is None else self._labels_of(group_id)


def _capped(severity: str, settings: RuleSettings) -> str:
    """Return how severe it is: at most as the settings say."""
    return max(settings.severity, severity, key=severity_rank)


def _add(timeline: tuple[Line, ...], line: Line) -> tuple[Line, ...]:
    """Return the time line with one more line; of a long one the first lines say how it began."""
    lines = (*timeline, line)
    return lines if len(lines) <= _LINES else (*lines[: _LINES // 2], *lines[_LINES // 2 + 1 :])
