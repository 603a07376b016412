"""What is due to each sink, and when: order, grouping, retries. No thread, no clock, no random number.

Theory of operation
-------------------
A problem has its deliveries, and one without `sent_at` is due: nothing else is remembered of what has to be sent. So
an `Outbox`, which is of one sink, looks through the problems whenever its sink is free. `take` gives what is to be
sent now, and `answered` returns the deliveries as they are after the attempt, for the caller to put into the problems.

A sink for people gets the problems of one rule with the same event in one notification, as Alertmanager does with
`group_by`: the first of them waits for others, and those that come after a notification wait for an interval after it.
Other sinks get each problem by itself and at once, because their receivers group.

A failed attempt is repeated after a pause that doubles with each failure in a row, and meanwhile nothing is sent. A
sink may refuse a notification for good because of one problem in it. So after such a refusal half as many problems are
sent together, until the one to blame is alone; it then waits, and the others are sent.

A sink that needs what fires again and again, such as Alertmanager, gets that as a notification without deliveries.

Seconds are those of a monotonic clock, which the caller reads. Not safe in several threads: the caller has a lock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from streaming_app.alerts.problem import FIRING, Delivery, Problem
from streaming_app.job_status import FailingSink

_MANY_FAILURES = 1_000  # enough for the longest pause
_MAX_RETRY_AFTER_SECONDS = 3600.0  # for a receiver that asks for a longer pause

IsMuted = Callable[[Problem], bool]
"""Tells whether a problem is muted now."""
Source = Callable[[], Iterable[Problem]]
_Key = tuple[str, str]
"""What is sent together: a rule, for people, and an event."""


class Grouping(NamedTuple):
    """How problems are put together for sinks that people read; the names are Alertmanager's, the defaults are not.

    There `group_wait` is 30 s and `group_interval` 5 minutes, for groups of alerts that its users choose by label,
    usually those of one application. Here all problems of a rule are one group, whatever the application: a second
    application that breaks four minutes after a first one must not wait for the first one's interval. So the interval
    is as long as an on-call person may be left without news. What many groups lose at the same time, such as a broker,
    they lose within seconds, which `group_wait` covers.
    """

    group_wait: float = 10.0
    """Seconds that the first problem of a rule waits for others."""
    group_interval: float = 60.0
    """Seconds between two notifications of one rule and event."""


class SinkTraits(NamedTuple):
    """What an outbox has to know of its sink."""

    name: str
    grouping: Grouping | None = None
    """People read it: several problems are one notification."""
    at_once: int = 1
    """How many problems it takes at once, each of which it handles by itself."""
    resend_seconds: float | None = None
    """It needs what fires again, that often."""


class Backoff(NamedTuple):
    """Exponential backoff with jitter: the pause doubles with each failure in a row."""

    first_seconds: float = 1.0
    max_seconds: float = 300.0
    jitter: Callable[[], float] = lambda: 1.0
    """Returns the part of the doubled time to wait, at most 1: it spreads the attempts of many jobs."""

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 60)
        return min(doubled, self.max_seconds) * self.jitter()


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


class Failure(NamedTuple):
    """Why a sink did not accept a notification."""

    text: str
    retry: bool = True
    """It may succeed later without a change of the problem or the configuration."""
    after_seconds: float | None = None
    """How long the sink asks to wait."""


class Outbox:
    """What is due to one sink, which does one thing at a time."""

    def __init__(self, sink: SinkTraits, backoff: Backoff, unsent: Source, firing: Source) -> None:
        self._sink, self._grouping, self._unsent, self._firing = sink, sink.grouping, unsent, firing
        # a sink that gets firing problems again anyway is retried at least as often
        self._backoff = backoff._replace(max_seconds=min(backoff.max_seconds, sink.resend_seconds or math.inf))
        self.status = SinkStatus(sink.name)
        """The status of the sink, without what is waiting."""
        self.wakes_at = 0.0
        """When `take` next has something if no problem changes, as of its last call; infinity if nothing is due."""
        self.is_ending = False
        """No attempt is repeated any more."""
        self._ready_at: dict[_Key, float] = {}
        self._sent_at: dict[_Key, float] = {}
        self._refused_until: dict[tuple[str, str], float] = {}  # by id and event
        self._most_together: int | None = None
        self._resend_at = 0.0
        self._paused_until = 0.0
        self._failures = 0

    @property
    def _is_failing(self) -> bool:
        return self.status.failing is not None or bool(self._refused_until)

    def release(self) -> None:
        """Let nothing wait for others any longer."""
        self._grouping = self._grouping and Grouping(0, 0)
        self._ready_at = {}

    def take(self, ranks: Mapping[str, int], seconds: float) -> Notification | None:
        """Return what is to be sent now; None if nothing is.

        Groups with a rank come after all others, the lowest first. What fires is sent again before anything else.
        """
        if again := self._again(seconds):
            return again
        due = list(self._due(ranks))
        ready_at = self._ready(due, seconds)
        at = min(ready_at, default=math.inf)
        resend_at = self._resend_at if self._sink.resend_seconds and not self.is_ending else math.inf
        self.wakes_at = max(self._paused_until, min(at, resend_at))
        if max(self._paused_until, at) > seconds:
            return None
        ready = [one for one, one_at in zip(due, ready_at, strict=True) if one_at <= seconds]
        ready.sort(key=lambda one: (ranks.get(one[0].group_id or "", 0), one[1].attempts))
        first = self._key(*ready[0])
        most = self._most_together or (None if self._grouping else self._sink.at_once)
        together = [one for one in ready if self._key(*one) == first][:most]
        return Notification(first[1], *zip(*together, strict=True))

    def answered(
        self, sent: Notification, failure: Failure | None, at: datetime, seconds: float
    ) -> tuple[list[Delivery], str | None]:
        """Note what came of what `take` returned, at this time; `failure` is None if the sink accepted it.

        Returns the deliveries, which replace those of the notification, and a line for the operator if the sink starts
        to fail, or works again.
        """
        was_failing, line, name = self._is_failing, None, self._sink.name
        if failure:
            self._refused(sent, failure, at, seconds)
            action = "Retrying." if failure.retry else "Fix the cause; it is retried every few minutes."
            line = None if was_failing else f"Alerts cannot be sent to {name}: {failure.text}. {action}"
        else:
            self._accepted(sent, at, seconds)
            line = f"Alerts are sent to {name} again." if was_failing and not self._is_failing else None
        sent_at, error = (None, failure.text) if failure else (at, None)
        return [replace(one, sent_at=sent_at, attempts=one.attempts + 1, error=error) for one in sent.deliveries], line

    def _accepted(self, sent: Notification, at: datetime, seconds: float) -> None:
        if sent.deliveries:
            key = self._key(sent.problems[0], sent.deliveries[0])
            self._sent_at[key] = seconds
            if self._most_together is None:
                self._ready_at.pop(key, None)
            self._most_together = None
        for one in sent.problems:
            self._refused_until.pop((one.alert_id, sent.event), None)
        since = seconds - _MAX_RETRY_AFTER_SECONDS  # those that were not tried again are due no more
        self._refused_until = {of: until for of, until in self._refused_until.items() if until > since}
        self._failures, self._paused_until, known = 0, 0.0, self.status
        count = known.sent + len(sent.deliveries)
        self.status = replace(known, sent=count, error=None, failing=None, last_success_at=at)

    def _refused(self, sent: Notification, failure: Failure, at: datetime, seconds: float) -> None:
        """Pause, and note which problem may be to blame."""
        together = len(sent.deliveries)
        if together > 1 and not failure.retry:
            self._most_together = (together + 1) // 2
        elif together and not failure.retry:
            until = seconds + self._backoff.pause(_MANY_FAILURES)
            self._refused_until[sent.problems[0].alert_id, sent.event] = until
        self._failures += 1
        pause = max(self._backoff.pause(self._failures), min(failure.after_seconds or 0, _MAX_RETRY_AFTER_SECONDS))
        self._paused_until, known = seconds + pause, self.status
        failing = known.failing or FailingSink(self._sink.name, at, failure.text)
        self.status = replace(known, failed=known.failed + 1, error=failure.text, failing=failing)

    def _again(self, seconds: float) -> Notification | None:
        """Return the problems that fire and were sent before, if it is time for that; None if it is not."""
        is_time = max(self._resend_at, self._paused_until) <= seconds and not self.is_ending
        if not self._sink.resend_seconds or not is_time:
            return None
        self._resend_at = seconds + self._sink.resend_seconds
        own = (
            (one, [each.sent_at for each in one.deliveries if each.sink == self._sink.name]) for one in self._firing()
        )
        again = [one for one, sent_at in own if sent_at and all(sent_at)]
        return Notification(FIRING, again) if again else None

    def _due(self, ranks: Mapping[str, int]) -> Iterator[tuple[Problem, Delivery]]:
        """Yield what is due; to a sink that takes one at a time, nothing beyond the first that nothing comes before."""
        is_single = self._grouping is None and self._sink.at_once == 1
        for one in self._unsent():
            delivery = _next_delivery(one, self._sink.name)
            if delivery is None or (self.is_ending and (self._failures or delivery.attempts)):
                continue
            yield one, delivery
            if is_single and not delivery.attempts and one.group_id not in ranks:
                return

    def _key(self, one: Problem, delivery: Delivery) -> _Key:
        return one.rule if self._grouping else "", delivery.event

    def _ready(self, due: Sequence[tuple[Problem, Delivery]], seconds: float) -> list[float]:
        """Return when each of these may be sent."""
        keys = {self._key(*one) for one in due}
        self._ready_at = {key: at for key, at in self._ready_at.items() if key in keys}
        for key in keys:
            wait, interval = self._grouping or (0.0, 0.0)
            after_last = self._sent_at.get(key, -math.inf) + interval
            self._ready_at.setdefault(key, max(seconds + wait, after_last))
        return [
            max(self._ready_at[self._key(*one)], self._refused_until.get((one[0].alert_id, one[1].event), 0.0))
            for one in due
        ]


def _next_delivery(one: Problem, sink: str) -> Delivery | None:
    """Return what is due of a problem to a sink: that it fires comes before that it is over."""
    due = [delivery for delivery in one.deliveries if delivery.sink == sink and delivery.sent_at is None]
    return min(due, key=lambda delivery: delivery.event != FIRING, default=None)


class Outboxes:
    """What is due to all sinks, of problems that somebody else keeps."""

    def __init__(
        self,
        sinks: Iterable[SinkTraits],
        backoff: Backoff,
        unsent: Source,
        firing: Source,
        delivered: Callable[[Sequence[tuple[Problem, Delivery]]], None],
    ) -> None:
        """`delivered` takes what came of an attempt.

        `unsent` returns the problems with a notification that is not sent yet, `firing` those that fire, both without
        what may not be sent now.
        """
        self.by_sink: Mapping[str, Outbox] = {sink.name: Outbox(sink, backoff, unsent, firing) for sink in sinks}
        """The outbox of each sink, by its name."""
        self.ranks: Mapping[str, int] = {}
        """What is about groups with a rank is sent after everything else, the lowest first; see `groups.snapshot`."""
        self._unsent, self._delivered = unsent, delivered

    def take(self, sink: str, seconds: float) -> Notification | None:
        """Return what is to be sent to a sink now; None if nothing is."""
        return self.by_sink[sink].take(self.ranks, seconds)

    def answered(
        self, sink: str, sent: Notification, failure: Failure | None, at: datetime, seconds: float
    ) -> str | None:
        """Note what came of what `take` returned; return a line for the operator, or None."""
        deliveries, line = self.by_sink[sink].answered(sent, failure, at, seconds)
        if deliveries:
            self._delivered(list(zip(sent.problems, deliveries, strict=True)))
        return line

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink."""
        waiting = Counter(one.sink for problem in self._unsent() for one in problem.deliveries if not one.sent_at)
        return tuple(replace(outbox.status, waiting=waiting[name]) for name, outbox in self.by_sink.items())
