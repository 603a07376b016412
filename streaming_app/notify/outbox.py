"""What a sink is to get, together with what, and when. No thread and no clock, so that a test moves the time.

A problem has its deliveries, and one without `sent_at` is due: nothing else is remembered of what has to be sent. So an
outbox, which is of one sink, looks through the problems whenever its sink is free.

- A sink for people gets the problems of one rule with the same event in one notification, as Alertmanager does with
  `group_by`: the first of them waits for others, and the next notification for an interval. Other sinks get each
  problem at once, because their receivers group.
- A failed attempt is repeated after a pause that doubles with each failure in a row, and meanwhile nothing is sent.
- A sink may refuse a notification for good because of one problem in it. So after such a refusal half as many are sent
  together, until the one to blame is alone; it then waits, and the others are sent.
- A group may have another problem before it is sent that the one before it is over. A receiver may know both as one
  alert, so of what may be sent now the older problem comes first, also after attempts that failed.
- A sink such as Alertmanager needs what fires again and again. That is a notification without deliveries.

Seconds are those of a monotonic clock. Not safe in several threads: the caller has a lock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from streaming_app.alerts.problem import FIRING, Delivery, Problem, ProblemKey
from streaming_app.alerts.problems import Problems
from streaming_app.job_status import FailingSink
from streaming_app.notify.sink import Sink, SinkError

_MAX_RETRY_AFTER_SECONDS = 3600.0  # for a receiver that asks for a longer pause


class Grouping(NamedTuple):
    """How problems are put together for sinks that people read; the names are Alertmanager's, the defaults are not.

    There the groups are of an application, and wait for 30 s, then 5 minutes. Here a group is of a rule: a second
    application that breaks four minutes after a first one must not wait that long. What many groups lose at the same
    time, such as a broker, they lose within seconds.
    """

    group_wait: float = 10.0
    """Seconds that the first problem of a rule waits for others."""
    group_interval: float = 60.0
    """Seconds between two notifications of one rule and event."""


class Backoff(NamedTuple):
    """The pauses after failures, in seconds."""

    first: float = 1.0
    most: float = 300.0
    jitter: Callable[[], float] = lambda: random.uniform(0.5, 1)  # noqa: S311 - spreads the attempts of many jobs
    """Returns the part of a pause to wait."""

    def pause(self, failures: float) -> float:
        """Return how long to wait after this many failures in a row."""
        return min(self.first * math.pow(2.0, min(failures - 1, 60)), self.most) * self.jitter()


@dataclass(frozen=True)
class SinkStatus:
    """The status of a sink; totals are since the start. Each problem counts, also where several are sent together."""

    name: str
    sent: int = 0
    """Notifications that it accepted."""
    failed: int = 0
    """Attempts that failed, including those to resend."""
    waiting: int = 0
    """Notifications that are not sent yet."""
    error: str | None = None
    """Why the last attempt failed; None if it succeeded."""
    failing: FailingSink | None = None
    """Since when no attempt has succeeded; None after one that has, and before the first one."""
    last_success_at: datetime | None = None


class Notification(NamedTuple):
    """What one attempt sends: problems with the same event."""

    event: str
    problems: Sequence[Problem]
    deliveries: Sequence[Delivery] = ()
    """One for each problem; empty if the sink had them before, and needs them again."""


class Outbox:
    """What is due to one sink, which does one thing at a time."""

    def __init__(
        self, sink: Sink, problems: Problems, grouping: Grouping | None = None, backoff: Backoff | None = None
    ) -> None:
        self.sink, self._problems, self._resend = sink, problems, sink.resend_seconds or math.inf
        self._wait, self._interval = (grouping or Grouping()) if sink.is_read_by_people else (0.0, 0.0)
        backoff = backoff or Backoff()
        # a sink that gets firing problems again anyway is retried at least as often
        self._backoff = backoff._replace(most=min(backoff.most, self._resend))
        self.wakes_at = 0.0
        """When `take` next has something if no problem changes, as of its last call; infinity if nothing is due."""
        self._status = SinkStatus(sink.name)
        self._opens_at: dict[tuple[str, str], float] = {}  # by rule and event, of what waits for others
        self._sent_at: dict[tuple[str, str], float] = {}
        self._refused_until: dict[tuple[str, str], float] = {}  # by id and event
        self._most_together: int | None = None
        self._resend_at = 0.0 if sink.resend_seconds else math.inf
        self._paused_until = 0.0
        self._failures = 0

    @property
    def status(self) -> SinkStatus:
        """The status of the sink."""
        name, unsent = self.sink.name, self._problems.unsent()
        return replace(
            self._status, waiting=sum(d.sink == name and not d.sent_at for one in unsent for d in one.deliveries)
        )

    def release(self) -> None:
        """Let nothing wait for others any longer, and send nothing again: it ends soon."""
        self._wait = self._interval = 0.0
        self._opens_at, self._resend = {}, math.inf
        self._resend_at = math.inf

    def take(self, seconds: float) -> Notification | None:
        """Return what is to be sent now, noted as begun; None if nothing is. What fires again comes first."""
        if max(self._resend_at, self._paused_until) <= seconds:
            self._resend_at = seconds + self._resend
            if again := [one for one in self._problems.firing() if _is_known(one, self.sink.name)]:
                return Notification(FIRING, again)
        due = list(self._due())
        self._opens_at = {key: self._opens_at.get(key, self._opening(key, seconds)) for key in map(_key, due)}
        times = [max(self._opens_at[_key(one)], self._refused_until.get(_id(one), 0.0)) for one in due]
        self.wakes_at = max(self._paused_until, min([*times, self._resend_at]))
        if self.wakes_at > seconds:
            return None
        ready = _oldest(one for one, at in zip(due, times, strict=True) if at <= seconds)
        ready.sort(key=lambda one: (self._problems.place(one[0]), one[1].attempts))
        is_one = _key if self.sink.is_read_by_people else _event
        most = self._most_together or (None if self.sink.is_read_by_people else self.sink.at_once)
        together = [one for one in ready if is_one(one) == is_one(ready[0])][:most]
        begun = [(one, replace(delivery, attempts=delivery.attempts + 1)) for one, delivery in together]
        self._problems.note(begun, is_over=False)
        return Notification(together[0][1].event, *zip(*begun, strict=True))

    def answered(self, sent: Notification, error: SinkError | None, at: datetime, seconds: float) -> str | None:
        """Note what came of what `take` returned, at this time; `error` is None if the sink accepted it.

        Returns a line for the operator if the sink starts to fail, or works again.
        """
        was_failing, line, name = self._is_failing, None, self.sink.name
        if error:
            self._refused(sent, error, at, seconds)
            action = "Retrying." if error.retry else "Fix the cause; it is retried every few minutes."
            line = None if was_failing else f"Alerts cannot be sent to {name}: {error}. {action}"
        else:
            self._accepted(sent, at, seconds)
            line = f"Alerts are sent to {name} again." if was_failing and not self._is_failing else None
        sent_at, text = (None, str(error)) if error else (at, None)
        over = [replace(one, sent_at=sent_at, error=text) for one in sent.deliveries]
        self._problems.note(zip(sent.problems, over, strict=bool(over)), is_over=True)
        return line

    @property
    def _is_failing(self) -> bool:
        return self._status.failing is not None or bool(self._refused_until)

    def _accepted(self, sent: Notification, at: datetime, seconds: float) -> None:
        for one in zip(sent.problems, sent.deliveries, strict=False):
            self._sent_at[_key(one)] = seconds
            self._refused_until.pop(_id(one), None)
            if self._most_together is None:
                self._opens_at.pop(_key(one), None)
        if sent.deliveries:
            self._most_together = None
        since = seconds - _MAX_RETRY_AFTER_SECONDS  # those that were not tried again are due no more
        self._refused_until = {of: until for of, until in self._refused_until.items() if until > since}
        self._failures, self._paused_until, known = 0, 0.0, self._status
        count = known.sent + len(sent.deliveries)
        self._status = replace(known, sent=count, error=None, failing=None, last_success_at=at)

    def _refused(self, sent: Notification, error: SinkError, at: datetime, seconds: float) -> None:
        """Pause, and note which problem may be to blame."""
        together = len(sent.deliveries)
        if together > 1 and not error.retry:
            self._most_together = (together + 1) // 2
        elif together and not error.retry:
            until = seconds + self._backoff.pause(math.inf)
            self._refused_until[sent.problems[0].alert_id, sent.event] = until
        self._failures += 1
        pause = max(self._backoff.pause(self._failures), min(error.after_seconds or 0, _MAX_RETRY_AFTER_SECONDS))
        self._paused_until, known = seconds + pause, self._status
        failing = known.failing or FailingSink(known.name, at, str(error))
        self._status = replace(known, failed=known.failed + 1, error=str(error), failing=failing)

    def _due(self) -> Iterator[_Due]:
        """Yield what is due; to a sink that takes one at a time, nothing beyond the first that nothing comes before."""
        is_single = not self.sink.is_read_by_people and self.sink.at_once == 1
        before = set[ProblemKey]()
        for one in self._problems.unsent():
            if (delivery := _next_delivery(one, self.sink.name)) is not None:
                yield one, delivery
                if is_single and not delivery.attempts and not self._problems.place(one) and one.key not in before:
                    return
                before.add(one.key)

    def _opening(self, key: tuple[str, str], seconds: float) -> float:
        """Return when what begins to wait for others may be sent."""
        return max(seconds + self._wait, self._sent_at.get(key, -math.inf) + self._interval)


_Due = tuple[Problem, Delivery]


def _oldest(due: Iterable[_Due]) -> list[_Due]:
    """Return of each group and subject only what is due of the oldest problem."""
    oldest: dict[ProblemKey, _Due] = {}
    for one in due:
        oldest.setdefault(one[0].key, one)
    return list(oldest.values())


def _key(due: _Due) -> tuple[str, str]:
    return due[0].rule, due[1].event


def _event(due: _Due) -> str:
    return due[1].event


def _id(due: _Due) -> tuple[str, str]:
    return due[0].alert_id, due[1].event


def _next_delivery(one: Problem, sink: str) -> Delivery | None:
    """Return what is due of a problem to a sink: that it fires comes before that it is over."""
    due = [delivery for delivery in one.deliveries if delivery.sink == sink and delivery.sent_at is None]
    return min(due, key=lambda delivery: delivery.event != FIRING, default=None)


def _is_known(one: Problem, sink: str) -> bool:
    """Tell whether a sink has had everything of a problem."""
    own = [delivery.sent_at for delivery in one.deliveries if delivery.sink == sink]
    return bool(own) and all(own)
