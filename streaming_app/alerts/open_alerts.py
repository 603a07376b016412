"""The alerts of one cluster: when they open, become worse and end, and which notifications are due then. Pure.

Theory of operation
-------------------
A condition holds (`Holds`), is over (`Over`), or is unknown. If it is unknown, the caller does not call `take`, and
the alert stays as it is. At most one alert with a key is open.

- An alert is pending until its condition has held for the rule's `for`. This counts from `since`, but not from before
  the end of the last alert with this key. If the condition is over before that, the alert is forgotten.
- When an alert opens, each sink gets one notification, and another one when it becomes worse, when its evidence has
  `NEWS`, or when another bad verdict replaces one that held for `LASTED` (Down, then Stalled): the step to take is
  another one. Its severity never falls. When it ends, each sink that may know it gets one. Nothing is sent before
  `publish`, which the caller calls after it has stored the alerts or found that it cannot.
- All verdicts on a group have one subject, so they open one alert, with the rule of the worst verdict so far. Its
  times are those of the verdicts, so they do not depend on how often `step` is called. A verdict may be as old as the
  record that proves it; an alert that it opens still begins after the end of the last one.
- A group that stops and recovers again and again would open an alert each time. So if an alert opens within `AGAIN`
  after the end of one with the same key, rule and cause, or without a cause, it ends only after the group has processed
  for `CALM`.

A restart changes nothing: all state is in the stored alerts. A time in the future counts as now.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from streaming_app.alerts.alert import (
    BY_EVIDENCE,
    FIRING,
    HEALTH,
    IGNORED,
    NEWS,
    NOT_ENABLED,
    PENDING,
    Alert,
    AlertKey,
    Delivery,
    Holds,
    Line,
    Over,
    end_of,
    is_old,
    severity_by,
    severity_rank,
    with_delivery,
)
from streaming_app.alerts.catalog import HEALTH_RULES, RULE_OF_VERDICT
from streaming_app.alerts.engine_facts import EngineSettings
from streaming_app.health.verdict import ENDS, OFF
from streaming_app.text import digest, rank, shorten, utc

AGAIN, CALM = timedelta(hours=1), timedelta(minutes=30)
LASTED = timedelta(minutes=5)
"""How long a verdict must have held for the next one to be a message: a group that flaps sends none for each change."""
REMEMBERED = timedelta(days=30)
"""How long the end of an alert is known: longer than any sensible `for`. Unsent notifications are obsolete then."""
_NEXT = timedelta(microseconds=1)
_LONGEST_SUMMARY = 2_000  # characters, because ids may have 32,000 and all open alerts are in memory
_LINES = 200
_ID_CHARACTERS = 12

_Kind = tuple[AlertKey, str, str | None]
"""Key, rule and cause of an alert."""


class OpenAlerts:
    """The alerts of one cluster. Not thread-safe."""

    def __init__(self, settings: EngineSettings, stored: Iterable[Alert] = ()) -> None:
        """Begin with the stored alerts (all open and recently ended ones), changed to the current settings."""
        self._settings = settings
        self.open: dict[AlertKey, Alert] = {}
        """The pending and open alerts."""
        self.ranks: Mapping[str, int] = {}
        """Newcomer -> its rank. Their notifications are sent after all others, in this order; see `groups.snapshot`."""
        self._unsaved: dict[str, Alert] = {}
        self._unsent: dict[str, Alert] = {}
        self._unpublished = set[str]()  # ids
        self._ended: OrderedDict[AlertKey | _Kind, datetime] = OrderedDict()  # last end; of a kind: by evidence
        self._causes = Counter[str | None]()  # causes of the pending and open alerts
        for one in sorted(stored, key=lambda one: one.opened_at or one.since):
            restored = self._by_settings(one)
            self._put(restored)
            if restored != one:
                self._unsaved[one.alert_id] = restored

    @property
    def unsaved(self) -> tuple[Alert, ...]:
        """The alerts that are not stored as they are now. Delete the rows of those that are `is_forgotten`."""
        return tuple(self._unsaved.values())

    def saved(self, stored: Iterable[Alert]) -> None:
        """Note that these are stored. An alert that has changed since then is still unsaved."""
        for one in stored:
            if self._unsaved.get(one.alert_id) is one:
                del self._unsaved[one.alert_id]

    def publish(self) -> None:
        """Allow due notifications to be sent. Call it after each step, when its rows are stored or cannot be stored."""
        self._unpublished.clear()

    def unsent(self) -> Iterator[Alert]:
        """Yield the alerts with a notification that is due and may be sent, for each key the oldest first."""
        return filter(self._may_be_sent, self._unsent.values())

    def firing(self) -> Iterator[Alert]:
        """Yield the open alerts that may be sent again."""
        return (one for one in self.open.values() if one.state == FIRING and self._may_be_sent(one))

    def place(self, one: Alert) -> int:
        """Return the order in which an alert is sent: 0, or the rank of a newcomer."""
        return self.ranks.get(one.group_id or "", 0)

    def note(self, results: Iterable[tuple[Alert, Delivery]], *, is_over: bool) -> None:
        """Note that attempts to send begin, or with `is_over` their results. Unknown alerts are ignored."""
        for sent, delivery in results:
            if known := self._unsent.get(sent.alert_id):
                one = with_delivery(known, delivery)
                self._put(one)
                if is_over:
                    self._unsaved[one.alert_id] = one

    def take(self, key: AlertKey, truth: Holds | Over, at: datetime) -> None:
        """Update an alert: its condition holds, or is over, at this time."""
        one = self.open.get(key)
        if one and (calm_at := calm_until(one)):
            if calm_at <= at:
                self._end(one, calm_at, BY_EVIDENCE)
            elif isinstance(truth, Over):
                return
        if isinstance(truth, Holds):
            self._found(key, truth, at)
        elif key in self.open:
            self._over(self.open[key], truth, at)

    def end_calm(self, now: datetime, is_known: Callable[[str], bool]) -> None:
        """End the alerts of groups that stopped again and again and have processed for `CALM` now.

        The alert of a group of which nothing is known stays (`is_known`).
        """
        for one in list(self.open.values()):
            if (at := calm_until(one)) and at <= now and is_known(one.group_id or ""):
                self._end(one, at, BY_EVIDENCE)

    def end(self, reasons: Mapping[str, str], at: datetime) -> list[tuple[str, str]]:
        """End alerts from verdicts that persons ended (id -> reason). Return pairs of group and reason."""
        known = [one for one in self.open.values() if one.alert_id in reasons] if reasons else []
        asked = [one for one in known if one.subject == HEALTH and one.state == FIRING]
        for one in asked:
            self._end(one, at, reasons[one.alert_id])
        return [(one.group_id or "", reasons[one.alert_id]) for one in asked]

    def leave_out(self, at: datetime) -> None:
        """End the alerts of groups that the configuration ignores, and of rules that it disables.

        Also removes pending alerts with the subject `HEALTH`, which only an earlier release has stored.
        """
        for one in list(self.open.values()):
            enabled = self._settings.rule_settings_of(one.group_id)
            if one.rule not in enabled or (one.subject == HEALTH and one.state == PENDING):
                self._end(one, at, NOT_ENABLED if enabled or one.group_id is None else IGNORED)

    def _found(self, key: AlertKey, finding: Holds, at: datetime) -> None:
        rule = RULE_OF_VERDICT[finding.verdict] if finding.verdict else key.subject
        settings = self._settings.rule_settings_of(key.group_id).get(rule)
        if settings is None:
            return
        before, last_ended_at = self.open.get(key), self._ended.get(key)
        if before is None:
            if key.subject == HEALTH and last_ended_at:
                at = max(at, last_ended_at + _NEXT)  # a later time also gives another id
            one_id = digest(repr((self._settings.cluster, *key, at.isoformat())), _ID_CHARACTERS)
            ids = one_id, self._settings.cluster, key.group_id, rule
            before = Alert(*ids, "", at, None, None, None, None, self._labels(key.group_id), "", {})
        one = replace(
            before,
            severity=severity_by(settings, finding.severity) or settings.severity,
            # prefer a cause that an open alert has, else the first one
            cause=before.cause or next(filter(self._causes.get, finding.causes), next(iter(finding.causes), None)),
            summary=shorten(finding.summary, _LONGEST_SUMMARY),
            evidence=finding.evidence,
        )
        if before.state == FIRING:
            worst = min(before.rule, rule, key=lambda one: rank(one, HEALTH_RULES))
            severity, since = min(before.severity, one.severity, key=severity_rank), finding.since or before.since
            one = replace(one, rule=worst, severity=severity, since=min(before.since, since))
        else:
            since = min(finding.since or before.since, at)
            patience = timedelta(seconds=0 if key.subject == HEALTH else settings.for_seconds)
            is_due = at - max(since, last_ended_at or since) >= patience
            one = replace(one, since=since, opened_at=at if is_due else None)
        if one.state == FIRING:
            line = Line(at, finding.verdict, one.rule, one.severity, one.summary)
            if not one.timeline or one.timeline[-1][1:4] != line[1:4]:
                one = replace(one, timeline=_add(one.timeline, line))
            last = before.timeline[-1] if before.timeline else None
            # another bad verdict replaced one that had lasted: then the step to take is another one, too
            is_other = last and last.verdict not in {None, *ENDS, line.verdict} and at - last.at >= LASTED
            has_news = {*one.evidence.get(NEWS, ())} - {*before.evidence.get(NEWS, ())}
            if before.state == PENDING or one.severity != before.severity or is_other or has_news:
                one = replace(one, deliveries=self._due(one.deliveries, is_worse=True))
        if one != before:
            self._change(one)

    def _over(self, one: Alert, over: Over, at: datetime) -> None:
        timeline = _add(one.timeline, Line(at, over.verdict, one.rule, one.severity, over.why))
        kinds = (_kind(one), _kind(replace(one, cause=None)))  # it may have got its cause after it opened
        before_at = max(filter(None, map(self._ended.get, kinds)), default=None)  # the end of the last one of its kind
        if one.opened_at is None:
            self._change(replace(one, ended_at=at))
        elif over.verdict in {None, OFF} or before_at is None or one.opened_at - before_at > AGAIN:
            self._end(replace(one, timeline=timeline), at, BY_EVIDENCE)
        else:
            summary = (
                f"{one.group_id} is {over.verdict} since {utc(at)}, and was worse again and again; it is over if that "
                f"lasts until {utc(at + CALM)}. {one.timeline[-1].why}"
            )
            self._change(replace(one, summary=shorten(summary, _LONGEST_SUMMARY), timeline=timeline))

    def _by_settings(self, one: Alert) -> Alert:
        """Return a stored alert changed to the settings and sinks of this run."""
        due = tuple(d for d in one.deliveries if d.sent_at or d.sink in self._settings.sinks)
        if one.ended_at is not None:
            return replace(one, deliveries=due)
        settings = self._settings.rule_settings_of(one.group_id).get(one.rule)
        # at most that of the settings: the most severe has the lowest rank
        severity = max(settings.severity, one.severity, key=severity_rank) if settings else one.severity
        due = self._due(due) if one.state == FIRING else due
        return replace(one, severity=severity, labels=self._labels(one.group_id), deliveries=due)

    def _labels(self, group_id: str | None) -> Mapping[str, str]:
        return {} if group_id is None else self._settings.labels_of(group_id)

    def _due(self, deliveries: Iterable[Delivery], *, is_worse: bool = False) -> tuple[Delivery, ...]:
        """Return the deliveries of an open alert, one for each sink.

        If it has become worse, each sink that may know the earlier notification gets another one.
        """
        sinks = self._settings.sinks
        kept = tuple(
            Delivery(d.sink, FIRING, repeat=d.repeat + 1) if is_worse and d.attempts and d.sink in sinks else d
            for d in deliveries
        )
        return (*kept, *(Delivery(sink, FIRING) for sink in sinks if sink not in {d.sink for d in kept}))

    def _end(self, one: Alert, at: datetime, by: str) -> None:
        first = self._settings.first_started_at  # what ends before the message about old alerts is not in it
        is_quiet = bool(self._settings.is_muted(one)) or (first is not None and is_old(one, first))
        self._change(end_of(one, at, by, self._settings.sinks, is_muted=is_quiet))

    def _change(self, one: Alert) -> None:
        """Replace an alert, which is then unsaved, and may be sent after `publish`."""
        self._put(one)
        self._unsaved[one.alert_id] = one
        self._unpublished.add(one.alert_id)

    def _put(self, one: Alert) -> None:
        """Replace an alert, and update everything that is derived from it."""
        before = self.open.get(one.key)
        if before and before.alert_id == one.alert_id:
            self._causes[before.cause] -= 1
            if not self._causes[before.cause]:
                del self._causes[before.cause]
            if one.ended_at:
                del self.open[one.key]
        if one.ended_at is None:
            self.open[one.key] = one
            self._causes[one.cause] += 1
        elif not one.is_forgotten:
            self._note_end(one.key, one.ended_at)
            if one.ended_by == BY_EVIDENCE:
                self._note_end(_kind(one), one.ended_at)
        if any(delivery.sent_at is None for delivery in one.deliveries):
            self._unsent[one.alert_id] = one
        else:
            self._unsent.pop(one.alert_id, None)

    def _note_end(self, what: AlertKey | _Kind, at: datetime) -> None:
        """Remember when the last alert with a key, or of a kind, ended, for `REMEMBERED`."""
        if what in self._ended and self._ended[what] > at:
            return
        self._ended[what] = at
        self._ended.move_to_end(what)
        while next(iter(self._ended.values())) < at - REMEMBERED:
            self._ended.popitem(last=False)

    def _may_be_sent(self, one: Alert) -> bool:
        return one.alert_id not in self._unpublished and not self._settings.is_muted(one)


def calm_until(one: Alert) -> datetime | None:
    """Return when an alert will end if its group continues to process; None if its group does not process now."""
    last = one.timeline[-1] if one.timeline and one.ended_at is None else None
    return last.at + CALM if last and last.verdict in ENDS else None


def _kind(one: Alert) -> _Kind:
    return one.key, one.rule, one.cause


def _add(timeline: tuple[Line, ...], line: Line) -> tuple[Line, ...]:
    """Return the timeline with one more line. A long timeline keeps its first lines and its newest ones."""
    lines = (*timeline, line)
    return lines if len(lines) <= _LINES else (*lines[: _LINES // 2], *lines[_LINES // 2 + 1 :])
