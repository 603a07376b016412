"""Decides which alerts a sink gets in one notification, and when. Without threads and clock, so tests set the time.

An alert has deliveries, and a delivery without `sent_at` is due. There is no other queue: the outbox of a sink
searches the alerts whenever its sink is free.

- A sink for people gets the alerts with the same rule and event in one notification, as in Alertmanager with
  `group_by`: the first alert waits for others (`wait`), and the next notification waits for `interval`. Other sinks
  get each alert at once, because their receivers group them.
- After a failed attempt the outbox sends nothing during a pause, which doubles with each failure in a row.
- A sink may refuse a notification for good because of one alert in it. So after each such refusal half as many
  alerts are sent together, until the refused alert is alone. Then this alert waits, and the others are sent.
- A group may have a new alert before the sink knows that the last one has ended. A receiver may treat both as one
  alert, and people read them in order. So the older alert is sent first, also after failed attempts.
- Alerts that are older than the job are sent as one, which waits until all of them are known, and ends once all of them
  have ended. Their deliveries say whether a sink got them in this way, so a restart changes nothing. One that becomes
  worse is sent on its own from then on. So is one that a release before 0.3.1 has sent.
- A sink such as Alertmanager needs open alerts repeatedly, and ended ones for a quarter of an hour, as from
  Prometheus: a member of its cluster that was away would keep the alert. Such a notification has no deliveries.

Seconds are those of a monotonic clock. Not thread-safe: the caller holds a lock.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, AlertKey, Delivery, is_old
from streaming_app.alerts.open_alerts import OpenAlerts
from streaming_app.job_status import SinkStatus
from streaming_app.notify.message import OLD_ALERTS, as_one
from streaming_app.notify.sink import Sink, SinkError

_ENDED_AGAIN_SECONDS = 900.0
_REMEMBERED_SECONDS = 3600.0  # how long a refusal is remembered


class Notification(NamedTuple):
    """The content of one attempt: alerts with the same event."""

    event: str
    alerts: Sequence[Alert]
    deliveries: Sequence[Delivery]
    """One for each alert; empty if this repeats alerts that the sink has accepted before."""
    content: Sequence[Alert]
    """What the sink gets: `alerts`, or one in place of all old ones. Nothing if some of these are still open."""


class _Due(NamedTuple):
    alert: Alert
    delivery: Delivery
    kind: tuple[str, str]
    """Rule and event: people get the alerts of one kind together."""
    at: float


class Outbox:
    """The due notifications of one sink, which sends one at a time.

    `wait` and `interval` are like Alertmanager's `group_wait` and `group_interval`, but shorter than its 30 s and 5
    minutes. Alertmanager groups the alerts of an application. This outbox groups by rule, so a second application that
    fails four minutes later must not wait that long. If many groups fail for the same reason, such as a broker, they
    fail within seconds.
    """

    wait, interval = 10.0, 60.0
    old_wait = 300.0
    """How long old alerts wait for others: the first pass over a large cluster takes minutes."""
    first_pause, longest_pause = 1.0, 300.0
    """The first and the longest pause after failures, in seconds."""

    def __init__(self, sink: Sink, alerts: OpenAlerts, first_started_at: datetime | None = None) -> None:
        """Take the sink; `first_started_at` decides which alerts are old."""
        self.sink, self._alerts, self._resend = sink, alerts, sink.resend_seconds or math.inf
        self._first_started_at = first_started_at
        if not sink.is_read_by_people:
            self.wait = self.interval = 0.0
        # a sink that gets open alerts repeatedly is retried at least as often
        self.longest_pause = min(self.longest_pause, self._resend)
        self.wakes_at = 0.0
        """When `take` returns the next notification if no alert changes; infinity if none is due."""
        self._status = SinkStatus(sink.name)
        self._due_since: dict[tuple[str, str], float] = {}  # by rule and event
        self._sent_at: dict[tuple[str, str], float] = {}
        self._refused_until: dict[tuple[str, str], float] = {}  # by id and event
        self._resend_at = 0.0 if sink.resend_seconds else math.inf
        self._ended: dict[AlertKey, tuple[Alert, float]] = {}  # sent, until when they are repeated
        self._repeats_ended = False
        self._paused_until = 0.0
        self._failures = self._refusals = 0  # in a row; refusals of notifications with several alerts

    @property
    def status(self) -> SinkStatus:
        """The status of the sink."""
        name, unsent = self.sink.name, self._alerts.unsent()
        waiting = sum(d.sink == name and not d.sent_at for one in unsent for d in one.deliveries)
        return replace(self._status, waiting=waiting)

    def release(self) -> None:
        """Before the job ends: send due alerts at once, and repeat none."""
        self.wait = self.interval = self.old_wait = self.wakes_at = 0.0
        self._resend = self._resend_at = math.inf

    def take(self, seconds: float) -> Notification | None:
        """Return the notification to send now, and note that its attempt begins; None if nothing is due.

        A repetition of open alerts comes first.
        """
        if max(self._resend_at, self._paused_until) <= seconds:
            self._resend_at, self._repeats_ended = seconds + self._resend, True
            if again := [one for one in self._alerts.firing() if _is_known(one, self.sink.name)]:
                own = [one for one in again if not self._is_old(one)]
                old = [one for one in again if self._is_old(one)]
                return Notification(FIRING, again, (), [*own, *self._one(old, FIRING)])
        if self._repeats_ended:
            self._repeats_ended = False
            # none whose group has a new alert, which has the same labels
            kept = {key: one for key, one in self._ended.items() if seconds < one[1] and key not in self._alerts.open}
            self._ended = kept
            if ended := [one for one, _ in kept.values()]:
                return Notification(RESOLVED, ended, (), ended)
        due = self._due(seconds)
        self.wakes_at = max(self._paused_until, min([*(one.at for one in due), self._resend_at]))
        if self.wakes_at > seconds:
            return None
        ready = [one for one in due if one.at <= seconds]
        # alerts with failed attempts come last, so that they do not block the others
        ready.sort(key=lambda one: (self._alerts.place(one.alert), one.delivery.attempts))
        kind = ready[0].kind
        if self.sink.is_read_by_people or kind[0] == OLD_ALERTS:
            together = [one for one in ready if one.kind == kind]
        else:
            of_event = (one for one in ready if one.kind[1] == kind[1] and one.kind[0] != OLD_ALERTS)
            together = [*islice(of_event, self.sink.at_once)]
        together = together[: max(len(together) >> self._refusals, 1)]
        begun = [(one.alert, replace(one.delivery, attempts=one.delivery.attempts + 1)) for one in together]
        self._alerts.note(begun, is_over=False)
        alerts, deliveries = zip(*begun, strict=True)
        content = self._one(alerts, kind[1]) if kind[0] == OLD_ALERTS else alerts
        return Notification(kind[1], alerts, deliveries, content)

    def answered(self, sent: Notification, error: SinkError | None, at: datetime, seconds: float) -> str | None:
        """Note the result of a notification that `take` returned; `error` is None if the sink accepted it.

        Returns a line for the operator if the sink begins to fail, or works again.
        """
        known, was_failing, deliveries = self._status, self._is_failing, sent.deliveries
        sent_at, text = (None, str(error)) if error else (at, None)
        over = [replace(one, sent_at=sent_at, error=text) for one in deliveries]
        self._alerts.note(zip(sent.alerts, over, strict=bool(over)), is_over=True)
        ids = [(one.alert_id, sent.event) for one in sent.alerts[: len(deliveries)]]
        if error is None:
            if not self._refusals:  # after a refusal, the rest of that notification does not wait for the interval
                sent_ones = sent.alerts[: len(over)]
                self._sent_at |= {self._kind(one, sent.event): seconds for one in sent_ones}
            recent = seconds - _REMEMBERED_SECONDS  # a refused alert without a later attempt is not due any more
            refused = self._refused_until.items()
            self._refused_until = {of: until for of, until in refused if of not in ids and until > recent}
            if self._resend < math.inf and sent.event == RESOLVED and ids:
                until, single = seconds + _ENDED_AGAIN_SECONDS, (o for o in sent.content if o.rule != OLD_ALERTS)
                self._ended |= {one.key: (one, until) for one in single}
            self._refusals, self._failures, self._paused_until = 0 if ids else self._refusals, 0, 0.0
            self._status = replace(known, sent=known.sent + len(ids), failing_since=None, failure=None)
            return f"Alerts are sent to {known.name} again." if was_failing and not self._is_failing else None
        if not error.retry and len(ids) > 1:
            self._refusals += 1
        elif not error.retry:
            self._refused_until |= dict.fromkeys(ids, seconds + self.longest_pause)
        self._paused_until = seconds + min(self.first_pause * 2.0 ** min(self._failures, 60), self.longest_pause)
        self._failures += 1
        since, failure = known.failing_since or at, known.failure or str(error)
        self._status = replace(known, failed=known.failed + 1, failing_since=since, failure=failure)
        action = "Retrying." if error.retry else "Fix the cause; it is retried every few minutes."
        return None if was_failing else f"Alerts cannot be sent to {known.name}: {error}. {action}"

    @property
    def _is_failing(self) -> bool:
        return self._status.failing_since is not None or bool(self._refused_until)

    def _due(self, seconds: float) -> list[_Due]:
        """Return the due notification of the oldest alert of each key, and of refused alerts.

        For a sink that gets one alert at a time, stop at the first alert that can be sent now.
        """
        is_single = not self.sink.is_read_by_people and self.sink.at_once == 1
        due, due_since, known = list[_Due](), dict[tuple[str, str], float](), set[AlertKey]()
        for one in self._alerts.unsent():
            if (delivery := _next_delivery(one, self.sink.name)) is None:
                continue
            kind = self._kind(one, delivery.event)
            since = due_since.setdefault(kind, self._due_since.get(kind, seconds))
            if one.key in known:
                continue
            is_old = kind[0] == OLD_ALERTS
            wait, interval = (self.old_wait, self.old_wait) if is_old else (self.wait, self.interval)
            after_others = self._sent_at.get(kind, -math.inf) + interval
            refused_until = self._refused_until.get((one.alert_id, delivery.event), 0.0)
            due.append(_Due(one, delivery, kind, max(since + wait, after_others, refused_until)))
            if refused_until <= seconds:
                known.add(one.key)
                if is_single and not is_old and not delivery.attempts and not self._alerts.place(one):
                    self._due_since |= due_since
                    return due[-1:]
        self._due_since = due_since
        return due

    def _is_old(self, one: Alert) -> bool:
        """Return whether the sink gets, or got, the begin of this alert as a part of the one about all old alerts."""
        started_at = self._first_started_at
        if started_at is None or not is_old(one, started_at):
            return False
        firing = next((d for d in one.deliveries if (d.sink, d.event) == (self.sink.name, FIRING)), None)
        return firing is not None and not firing.repeat and not (firing.sent_at and firing.sent_at < started_at)

    def _kind(self, one: Alert, event: str) -> tuple[str, str]:
        return OLD_ALERTS if self._is_old(one) else one.rule, event

    def _one(self, alerts: Sequence[Alert], event: str) -> list[Alert]:
        """Return what the sink gets of these old alerts: one in their place, or nothing while others are open.

        A receiver that keeps alerts gets all that are open, people only those that are new.
        """
        own = {one.alert_id for one in alerts}

        def others(among: Iterable[Alert]) -> list[Alert]:
            old = (one for one in among if one.alert_id not in own and self._is_old(one))
            return [one for one in old if any(d.sink == self.sink.name and d.attempts for d in one.deliveries)]

        if event == RESOLVED:
            return [] if others(self._alerts.open.values()) else [as_one(alerts, event, self.sink.name)]
        named = [one for one in alerts if one.ended_at is None]
        if named and not self.sink.is_read_by_people:
            named += others(self._alerts.firing())
        return [as_one(named, event, self.sink.name)] if named else []


def _next_delivery(one: Alert, sink: str) -> Delivery | None:
    """Return the due delivery of an alert to a sink: `firing` before `resolved`."""
    due = [delivery for delivery in one.deliveries if delivery.sink == sink and delivery.sent_at is None]
    return min(due, key=lambda delivery: delivery.event != FIRING, default=None)


def _is_known(one: Alert, sink: str) -> bool:
    own = [delivery.sent_at for delivery in one.deliveries if delivery.sink == sink]
    return bool(own) and all(own)
