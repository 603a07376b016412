"""The problems of one cluster: when they open, become worse and end, and which notifications are due then. Pure.

Theory of operation
-------------------
A condition has three values. It holds (`found`), it is over (`over`), or it is unknown: then nobody calls, and the
problem stays as it is. At most one problem with a key is open.

- A problem is pending until its condition has held for the rule's `for`, counted from `since` and not from before the
  last problem with that key ended. One whose condition is over before that is forgotten.
- When it opens, each sink gets one notification, and one more when it becomes worse: its severity never falls. When it
  ends, each sink that has or may have a notification of it gets one. Nothing is sent before `publish`: the caller has
  stored it then, or found that it cannot.
- The health of a group is one subject, whatever its verdicts are: the problem has the rule of the worst one so far.
  Times are those of the verdicts, so they do not depend on how often somebody looks. A verdict may be as old as the
  record that proves it: a problem that it opens begins after the end of the last one all the same.
- A group that stands still again and again would be a problem each time. So one that opens within `AGAIN` after the
  last one of the group has ended by evidence ends only after the group has processed for `CALM`.

A restart changes nothing: the whole memory is in the stored problems. A time ahead of now counts as now.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

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
)
from streaming_app.alerts.rule import RuleSettings, RuleSettingsLookup
from streaming_app.health.verdict import GOOD, OFF
from streaming_app.text import rank, shorten, utc

AGAIN, CALM = timedelta(hours=1), timedelta(minutes=30)
REMEMBERED = timedelta(days=30)
"""For how long a problem that ended is known: longer than any sensible `for`. What is not sent by then is obsolete."""
_NEXT = timedelta(microseconds=1)
_LONGEST_SUMMARY = 2_000  # characters; ids, which may have 32,000, are in it, and all open problems are in memory
_LINES = 200


class Problems:
    """The problems of one cluster; for one thread at a time."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing it needs
        self,
        cluster: str,
        settings_of: RuleSettingsLookup,
        sinks: Sequence[str] = (),
        stored: Iterable[Problem] = (),
        labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {},
        is_muted: Callable[[Problem], bool] = lambda _one: False,
    ) -> None:
        """Go on from the stored problems, all that are open and those that ended lately, by the settings of now."""
        self._cluster, self._settings_of, self._sinks, self._labels_of = cluster, settings_of, tuple(sinks), labels_of
        self._is_muted = is_muted
        self.open: dict[ProblemKey, Problem] = {}
        """Those that are pending or open."""
        self.calm: dict[ProblemKey, datetime] = {}
        """When open problems end whose groups process again, if they go on to."""
        self.unpublished: dict[str, Problem] = {}
        """By id those that have changed since the last `publish`."""
        self.ranks: Mapping[str, int] = {}
        """What is about groups with a rank is sent after everything else, the lowest first; see `groups.snapshot`."""
        self._unsaved: dict[str, Problem] = {}
        self._unsent: dict[str, Problem] = {}
        self._ended: OrderedDict[ProblemKey, tuple[datetime, str | None]] = OrderedDict()
        self._causes = Counter[str | None]()  # of the open problems
        for one in sorted(stored, key=lambda one: one.opened_at or one.since):
            restored = self._by_settings(one)
            self._put(restored)
            if restored != one:
                self._unsaved[one.alert_id] = restored

    @property
    def unsaved(self) -> tuple[Problem, ...]:
        """Those that are not stored as they are now; the rows of those that are forgotten are to be deleted."""
        return tuple(self._unsaved.values())

    def saved(self, stored: Iterable[Problem]) -> None:
        """Note that these are stored; one that has changed since is still unsaved."""
        for one in stored:
            if self._unsaved.get(one.alert_id) is one:
                del self._unsaved[one.alert_id]

    def publish(self) -> None:
        """Let everything be sent that is due: call it after each step, once its rows are stored or cannot be."""
        self.unpublished.clear()

    def unsent(self) -> Iterator[Problem]:
        """Yield the problems with a notification that is not sent yet and may be, of each key the oldest first."""
        return filter(self._may_be_sent, self._unsent.values())

    def firing(self) -> Iterator[Problem]:
        """Yield the problems that fire and may be sent again."""
        return (one for one in self.open.values() if one.state == FIRING and self._may_be_sent(one))

    def place(self, one: Problem) -> int:
        """Return when a problem is sent: those of new groups after all others, the newest last."""
        return self.ranks.get(one.group_id or "", 0)

    def note(self, results: Iterable[tuple[Problem, Delivery]], *, is_over: bool) -> None:
        """Note that an attempt to send these begins, or what came of it; what is not known any more does not count."""
        for sent, delivery in results:
            if known := self._unsent.get(sent.alert_id):
                one = with_delivery(known, delivery)
                self._put(one)
                if is_over:
                    self._unsaved[one.alert_id] = one

    def found(self, key: ProblemKey, rule: str, finding: Finding, at: datetime) -> None:
        """Take in that a condition holds."""
        settings = self._settings_of(key.group_id).get(rule)
        if settings is None:
            return
        if key.subject == HEALTH and key not in self.open and key in self._ended:
            at = max(at, self._ended[key][0] + _NEXT)  # later, so that the id is another one, too
        before = self.open.get(key) or self._new(key, rule, at)
        was_open, opened_at, since = before.state == FIRING, before.opened_at, before.since
        severity, worst = _capped(finding.severity or settings.severity, settings), before.rule
        timeline, deliveries = before.timeline, before.deliveries
        if was_open:
            severity = min(before.severity, severity, key=severity_rank)
            worst = rule if rank(rule, HEALTH_RULES) < rank(worst, HEALTH_RULES) else worst
        else:
            since = min(finding.since or since, at)
            last_ended_at, _ = self._ended.get(key, (since, None))
            patience = timedelta(seconds=0 if key.subject == HEALTH else settings.for_seconds)
            opened_at = at if at - max(since, last_ended_at) >= patience else None
        summary = shorten(finding.summary, _LONGEST_SUMMARY)
        if opened_at is not None:
            if not timeline or timeline[-1][1:4] != (finding.verdict, worst, severity):
                timeline = _add(timeline, Line(at, finding.verdict, worst, severity, summary))
            if not was_open or severity != before.severity:
                deliveries = self._due_again(deliveries)
        changed = replace(
            before,
            rule=worst,
            severity=severity,
            since=since,
            opened_at=opened_at,
            cause=before.cause or (self._cause_of(finding.causes) if finding.causes else None),
            summary=summary,
            evidence=finding.evidence,
            timeline=timeline,
            deliveries=deliveries,
        )
        if changed != before:
            self._change(changed)

    def over(self, key: ProblemKey, at: datetime, verdict: str | None = None, why: str = "") -> None:
        """Take in that a condition is over; of the health of a group it is a good verdict that says so."""
        one = self.open.get(key)
        if one is None or key in self.calm:
            return
        line = Line(at, verdict, one.rule, one.severity, why)
        if one.state == PENDING:
            self._change(replace(one, ended_at=at))
        elif verdict not in {None, OFF} and self._is_again(one):
            ends_at = at + CALM
            summary = (
                f"{one.group_id} is {verdict} since {utc(at)}, and was worse again and again; it is over if that lasts "
                f"until {utc(ends_at)}. {one.timeline[-1].why if one.timeline else ''}"
            )
            timeline = _add(one.timeline, line)
            self._change(replace(one, summary=shorten(summary, _LONGEST_SUMMARY), timeline=timeline))
        else:
            self._end(replace(one, timeline=_add(one.timeline, line)), at, BY_EVIDENCE)

    def end_calm(self, now: datetime) -> None:
        """End the problems of groups that stood still again and again, and have processed for long enough."""
        for key in [key for key, at in self.calm.items() if at <= now]:
            self._end(self.open[key], self.calm[key], BY_EVIDENCE)

    def end(self, reasons: Mapping[str, str], at: datetime) -> list[tuple[str, str]]:
        """End problems with the health of groups as persons asked, by id and reason; return the groups and reasons."""
        asked = [
            one
            for one in (self.open.values() if reasons else ())
            if one.alert_id in reasons and one.subject == HEALTH and one.state == FIRING
        ]
        for one in asked:
            self._end(one, at, reasons[one.alert_id])
        return [(one.group_id or "", reasons[one.alert_id]) for one in asked]

    def leave_out(self, at: datetime) -> None:
        """End the problems of groups that the configuration ignores, and of rules that it disables.

        Those with the health of a group that an earlier release has left pending are forgotten: none waits any more.
        """
        for one in list(self.open.values()):
            enabled = self._settings_of(one.group_id)
            if one.rule not in enabled or (one.subject == HEALTH and one.state == PENDING):
                reason = NOT_ENABLED if enabled or one.group_id is None else IGNORED
                self._end(one, at, reason)

    def _by_settings(self, one: Problem) -> Problem:
        """Return a stored problem by the settings of this run, and with the sinks that it has."""
        due = tuple(d for d in one.deliveries if d.sent_at or d.sink in self._sinks)
        if one.ended_at is not None:
            return replace(one, deliveries=due)
        settings = self._settings_of(one.group_id).get(one.rule)
        severity = _capped(one.severity, settings) if settings else one.severity
        due = self._with_new_sinks(due) if one.state == FIRING else due
        return replace(one, severity=severity, labels=self._labels(one.group_id), deliveries=due)

    def _new(self, key: ProblemKey, rule: str, at: datetime) -> Problem:
        """Return a problem of which nothing is known yet."""
        one_id, cluster, labels = make_id(self._cluster, key, at), self._cluster, self._labels(key.group_id)
        return Problem(
            one_id, cluster, key.group_id, rule, "", at, None, None, None, None, labels, "", {}, subject=key.subject
        )

    def _cause_of(self, candidates: Sequence[str]) -> str:
        """Return the cause of a problem that opens: one that an open problem has, or else the first one."""
        return next((one for one in candidates if self._causes[one]), candidates[0])

    def _is_again(self, one: Problem) -> bool:
        """Tell whether the group had a problem shortly before this one, and may stand still once more."""
        at, by = self._ended.get(one.key, (None, None))
        return at is not None and by == BY_EVIDENCE and one.opened_at is not None and one.opened_at - at <= AGAIN

    def _due_again(self, deliveries: Iterable[Delivery]) -> tuple[Delivery, ...]:
        """Return the deliveries of a problem that opens or became worse: what may have arrived is due once more."""
        return self._with_new_sinks(
            Delivery(d.sink, FIRING, repeat=d.repeat + 1) if d.attempts and d.sink in self._sinks else d
            for d in deliveries
        )

    def _with_new_sinks(self, deliveries: Iterable[Delivery]) -> tuple[Delivery, ...]:
        """Return the deliveries of an open problem with one for each sink that has none."""
        kept = tuple(deliveries)
        known = {delivery.sink for delivery in kept}
        return (*kept, *(Delivery(sink, FIRING) for sink in self._sinks if sink not in known))

    def _end(self, one: Problem, at: datetime, by: str) -> None:
        self._change(end_of(one, at, by, self._sinks, is_muted=self._is_muted(one)))

    def _change(self, one: Problem) -> None:
        """Let a problem be as it is now, which is to be stored, and then to be sent."""
        self._put(one)
        self._unsaved[one.alert_id] = self.unpublished[one.alert_id] = one

    def _put(self, one: Problem) -> None:
        """Let a problem be as it is now: whatever is remembered of it follows from that."""
        key, before = one.key, self.open.get(one.key)
        if before and before.alert_id == one.alert_id:
            self._causes[before.cause] -= 1
            if not self._causes[before.cause]:
                del self._causes[before.cause]
            self.calm.pop(key, None)
            if one.ended_at:
                del self.open[key]
        if one.ended_at is None:
            self.open[key] = one
            self._causes[one.cause] += 1
            if one.timeline and one.timeline[-1].verdict in GOOD:
                self.calm[key] = one.timeline[-1].at + CALM
        elif not one.is_forgotten:
            self._note_end(key, one.ended_at, one.ended_by)
        if any(delivery.sent_at is None for delivery in one.deliveries):
            self._unsent[one.alert_id] = one
        else:
            self._unsent.pop(one.alert_id, None)

    def _note_end(self, key: ProblemKey, at: datetime, by: str | None) -> None:
        """Remember when the last problem with a key ended, for as long as that counts."""
        if key in self._ended and self._ended[key][0] > at:
            return
        self._ended[key] = at, by
        self._ended.move_to_end(key)
        while next(iter(self._ended.values()))[0] < at - REMEMBERED:
            self._ended.popitem(last=False)

    def _may_be_sent(self, one: Problem) -> bool:
        return one.alert_id not in self.unpublished and not self._is_muted(one)

    def _labels(self, group_id: str | None) -> Mapping[str, str]:
        return {} if group_id is None else self._labels_of(group_id)


def _capped(severity: str, settings: RuleSettings) -> str:
    """Return how severe it is: at most as the settings say."""
    return max(settings.severity, severity, key=severity_rank)


def _add(timeline: tuple[Line, ...], line: Line) -> tuple[Line, ...]:
    """Return the time line with one more line; of a long one the first lines say how it began."""
    lines = (*timeline, line)
    return lines if len(lines) <= _LINES else (*lines[: _LINES // 2], *lines[_LINES // 2 + 1 :])
