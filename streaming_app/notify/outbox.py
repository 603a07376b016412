"""What a sink is to get, together with what, and when. No thread and no clock, so that a test moves the time.

A problem has its deliveries, and one without `sent_at` is due: nothing else is remembered of what has to be sent. So an
outbox, which is of one sink, looks through the problems whenever its sink is free.

- A sink for people gets the problems of one rule with the same event in one notification, as Alertmanager does with
  `group_by`: the first of them waits for others, and the next notification for an interval. Other sinks get each
  problem at once, because their receivers group.
- A failed attempt is repeated after a pause that doubles with each failure in a row, and meanwhile nothing is sent.
- A sink may refuse a notification for good because of one problem in it. So after each such refusal half as many are
  sent together, until the one to blame is alone; it then waits, and the others are sent.
- A group may have another problem before it is sent that the one before it is over. A receiver may know both as one
  alert, and people read one after the other, so the older problem comes first, also after attempts that failed.
- A sink such as Alertmanager needs what fires again and again. That is a notification without deliveries.

Seconds are those of a monotonic clock. Not safe in several threads: the caller has a lock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from streaming_app.alerts.problem import FIRING, Delivery, Problem, ProblemKey
from streaming_app.alerts.problems import Problems
from streaming_app.job_status import SinkStatus
from streaming_app.notify.sink import Sink, SinkError

_REMEMBERED_SECONDS = 3600.0  # a refusal


class Notification(NamedTuple):
    """What one attempt sends: problems with the same event."""

    event: str
    problems: Sequence[Problem]
    deliveries: Sequence[Delivery] = ()
    """One for each problem; empty if the sink had them before, and needs them again."""


class _Due(NamedTuple):
    """A problem with a notification that is to be sent."""

    problem: Problem
    delivery: Delivery
    kind: tuple[str, str]
    """Rule and event: what people get together."""
    at: float


class Outbox:
    """What is due to one sink, which does one thing at a time.

    `wait` and `interval` are Alertmanager's `group_wait` and `group_interval`. There the groups are of an application,
    and wait for 30 s, then 5 minutes. Here a group is of a rule: a second application that breaks four minutes after a
    first one must not wait that long. What many groups lose at the same time, such as a broker, they lose within
    seconds.
    """

    wait, interval = 10.0, 60.0
    first_pause, longest_pause = 1.0, 300.0
    """After failures, in seconds: the pauses double."""

    def __init__(self, sink: Sink, problems: Problems) -> None:
        self.sink, self._problems, self._resend = sink, problems, sink.resend_seconds or math.inf
        if not sink.is_read_by_people:
            self.wait = self.interval = 0.0
        # a sink that gets firing problems again anyway is retried at least as often
        self.longest_pause = min(self.longest_pause, self._resend)
        self.wakes_at = 0.0
        """When `take` next has something if no problem changes, as of its last call; infinity if nothing is due."""
        self._status = SinkStatus(sink.name)
        self._due_since: dict[tuple[str, str], float] = {}  # by rule and event
        self._sent_at: dict[tuple[str, str], float] = {}
        self._refused_until: dict[tuple[str, str], float] = {}  # by id and event
        self._resend_at = 0.0 if sink.resend_seconds else math.inf
        self._paused_until = 0.0
        self._failures = self._refusals = 0  # in a row; the refusals are of several together

    @property
    def status(self) -> SinkStatus:
        """The status of the sink."""
        name, unsent = self.sink.name, self._problems.unsent()
        waiting = sum(d.sink == name and not d.sent_at for one in unsent for d in one.deliveries)
        return replace(self._status, waiting=waiting)

    def release(self) -> None:
        """Let nothing wait for others any longer, and send nothing again: it ends soon."""
        self.wait = self.interval = self.wakes_at = 0.0
        self._resend = self._resend_at = math.inf

    def take(self, seconds: float) -> Notification | None:
        """Return what is to be sent now, noted as begun; None if nothing is. What fires again comes first."""
        if max(self._resend_at, self._paused_until) <= seconds:
            self._resend_at = seconds + self._resend
            if again := [one for one in self._problems.firing() if _is_known(one, self.sink.name)]:
                return Notification(FIRING, again)
        due = self._due(seconds)
        self.wakes_at = max(self._paused_until, min([*(one.at for one in due), self._resend_at]))
        if self.wakes_at > seconds:
            return None
        ready = [one for one in due if one.at <= seconds]
        # a problem that a sink fails at does not keep the others from being sent
        ready.sort(key=lambda one: (self._problems.place(one.problem), one.delivery.attempts))
        kind = ready[0].kind
        if self.sink.is_read_by_people:
            together = [one for one in ready if one.kind == kind]
        else:
            together = [one for one in ready if one.kind[1] == kind[1]][: self.sink.at_once]
        together = together[: max(len(together) >> self._refusals, 1)]
        begun = [(one.problem, replace(one.delivery, attempts=one.delivery.attempts + 1)) for one in together]
        self._problems.note(begun, is_over=False)
        return Notification(kind[1], *zip(*begun, strict=True))

    def answered(self, sent: Notification, error: SinkError | None, at: datetime, seconds: float) -> str | None:
        """Note what came of what `take` returned, at this time; `error` is None if the sink accepted it.

        Returns a line for the operator if the sink starts to fail, or works again.
        """
        known, was_failing, deliveries = self._status, self._is_failing, sent.deliveries
        sent_at, text = (None, str(error)) if error else (at, None)
        over = [replace(one, sent_at=sent_at, error=text) for one in deliveries]
        self._problems.note(zip(sent.problems, over, strict=bool(over)), is_over=True)
        ids = [(one.alert_id, sent.event) for one in sent.problems[: len(deliveries)]]
        if error is None:
            if not self._refusals:  # else the rest of what was refused waits no longer
                self._sent_at |= {(one.rule, sent.event): seconds for one, _ in zip(sent.problems, over, strict=False)}
            recent = seconds - _REMEMBERED_SECONDS  # what was not tried again since is due no more
            refused = self._refused_until.items()
            self._refused_until = {of: until for of, until in refused if of not in ids and until > recent}
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
        """Return of each group and subject what is due of its oldest problem, and what a sink has refused.

        If one is sent at a time, that is nothing beyond the first that nothing comes before.
        """
        is_single = not self.sink.is_read_by_people and self.sink.at_once == 1
        due, due_since, known = list[_Due](), dict[tuple[str, str], float](), set[ProblemKey]()
        for one in self._problems.unsent():
            if (delivery := _next_delivery(one, self.sink.name)) is None:
                continue
            kind = one.rule, delivery.event
            since = due_since.setdefault(kind, self._due_since.get(kind, seconds))
            if one.key in known:
                continue
            after_others = self._sent_at.get(kind, -math.inf) + self.interval
            refused_until = self._refused_until.get((one.alert_id, delivery.event), 0.0)
            due.append(_Due(one, delivery, kind, max(since + self.wait, after_others, refused_until)))
            if refused_until <= seconds:
                known.add(one.key)
                if is_single and not delivery.attempts and not self._problems.place(one):
                    break
        self._due_since = due_since
        return due


def _next_delivery(one: Problem, sink: str) -> Delivery | None:
    """Return what is due of a problem to a sink: that it fires comes before that it is over."""
    due = [delivery for delivery in one.deliveries if delivery.sink == sink and delivery.sent_at is None]
    return min(due, key=lambda delivery: delivery.event != FIRING, default=None)


def _is_known(one: Problem, sink: str) -> bool:
    """Tell whether a sink has had everything of a problem."""
    own = [delivery.sent_at for delivery in one.deliveries if delivery.sink == sink]
    return bool(own) and all(own)
