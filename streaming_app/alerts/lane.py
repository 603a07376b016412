"""One sink, its thread, and what waits for it. How notifications get there, and when a failed one is tried again."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial

from streaming_app.alerts.sinks.base import Sink, SinkError
from streaming_app.core.alert import FIRING, RESOLVED, Alert, Delivery

_IN_ORDER = (FIRING, RESOLVED)
_REMEMBERED = 10_000  # notifications sent, which the caller may offer again until it has stored that they were
_MOST_ASKED_SECONDS = 3600.0  # a receiver that asks for a longer rest gets this much
_log = logging.getLogger(__name__)

Done = Callable[[str, Delivery], None]
"""Told what became of a try: the alert's fingerprint, and the delivery to put in place of the one it had."""


@dataclass(frozen=True)
class Backoff:
    """How long a sink is left alone after failures in a row: twice as long each time, less a part at random."""

    first_seconds: float = 1.0
    most_seconds: float = 300.0

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row: between half and all of the doubled time."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 60)
        return min(doubled, self.most_seconds) * random.uniform(0.5, 1)  # noqa: S311 - spreads tries, hides nothing


@dataclass(frozen=True)
class SinkStatus:
    """How a sink is doing; totals are since the start."""

    name: str
    sent: int = 0
    """Notifications that it took."""
    failed: int = 0
    """Tries that failed, those of telling again included."""
    waiting: int = 0
    """Notifications not sent yet."""
    error: str | None = None
    """Why the last try failed; None if it did not."""
    last_success_at: datetime | None = None


@dataclass
class _Waiting:
    """What is to be sent of an alert."""

    alert: Alert
    due: dict[str, Delivery] = field(default_factory=dict)
    """By event; what was sent leaves."""
    not_before: float = 0.0

    @property
    def event(self) -> str:
        return next(event for event in _IN_ORDER if event in self.due)


class Lane:
    """Sends to one sink from a thread of its own, one notification at a time."""

    def __init__(self, sink: Sink, done: Done, say: Callable[[str], None], backoff: Backoff) -> None:
        self._sink, self._done, self._say = sink, done, say
        # to a sink that is told again anyway, the next telling is the next try
        self._backoff = replace(backoff, most_seconds=min(backoff.most_seconds, sink.resend_seconds or math.inf))
        self._changed = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._firing: dict[str, Alert] = {}
        self._sent: dict[tuple[str, str, int], None] = {}
        self._resend_at = math.inf
        self._paused_until = 0.0
        self._failures = 0
        self._busy = self._stopped = self._left = self._troubled = False
        self._status = SinkStatus(sink.name)
        self._thread = threading.Thread(target=self._run, name=f"alerts-{sink.name}", daemon=True)
        self._thread.start()

    def offer(self, alerts: Iterable[Alert]) -> None:
        """Take what is due; of an alert that waits already, the newest state."""
        with self._changed:
            for alert in alerts:
                self._take(alert)
            self._changed.notify_all()

    def status(self) -> SinkStatus:
        """How the sink is doing now."""
        with self._changed:
            return replace(self._status, waiting=sum(len(one.due) for one in self._waiting.values()))

    def flush(self, deadline: float) -> bool:
        """Wait until nothing waits, the time is up, or the next try would come after it; whether nothing waits."""
        with self._changed:
            while self._waiting and not self._stopped:
                next_try = max(self._paused_until, min(one.not_before for one in self._waiting.values()))
                left = deadline - time.monotonic()
                if left <= 0 or (next_try > deadline and not self._busy):
                    break
                self._changed.wait(left)
            return not self._waiting

    def stop(self) -> None:
        """Send nothing more after what is being sent."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the thread's end; leave it behind if it takes longer. Nothing is told or said from then on."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._left = True
        if not self._thread.is_alive():
            self._sink.close()

    def _take(self, alert: Alert) -> None:
        fingerprint = alert.fingerprint
        due = {
            one.event: one
            for one in alert.deliveries
            if one.sink == self._sink.name
            and one.sent_at is None
            and (fingerprint, one.event, one.repeat) not in self._sent
        }
        self._keep_telling(alert, soon=not due)
        if waiting := self._waiting.get(fingerprint):
            waiting.alert = alert
            waiting.due = due | waiting.due
        elif due:
            self._waiting[fingerprint] = _Waiting(alert, due)

    def _keep_telling(self, alert: Alert, *, soon: bool) -> None:
        """Tell of it again while it fires, if the sink wants that; `soon` after a restart, when nothing else would."""
        if not self._sink.resend_seconds:
            return
        if alert.state != FIRING:
            self._firing.pop(alert.fingerprint, None)
        else:
            if not self._firing:
                self._resend_at = time.monotonic() + (0 if soon else self._sink.resend_seconds)
            self._firing[alert.fingerprint] = alert
        if not self._firing:
            self._resend_at = math.inf

    def _run(self) -> None:
        while work := self._next():
            work()

    def _next(self) -> Callable[[], None] | None:
        """Wait until there is something to do; None when there never will be."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            while not self._stopped:
                now = time.monotonic()
                soonest = min([self._resend_at, *(one.not_before for one in self._waiting.values())])
                pause = max(soonest, self._paused_until) - now
                if pause <= 0:
                    self._busy = True
                    return self._due(now)
                self._changed.wait(None if math.isinf(pause) else pause)
        return None

    def _due(self, now: float) -> Callable[[], None]:
        if self._resend_at <= now:
            self._resend_at = now + (self._sink.resend_seconds or math.inf)
            announced = [
                alert
                for fingerprint, alert in self._firing.items()
                if fingerprint not in self._waiting or FIRING not in self._waiting[fingerprint].due
            ]
            return partial(self._resend, announced)
        waiting = next(one for one in self._waiting.values() if one.not_before <= now)
        return partial(self._deliver, waiting.alert, waiting.due[waiting.event])

    def _resend(self, alerts: Sequence[Alert]) -> None:
        if alerts:
            failure = self._failure(partial(self._sink.resend, alerts))
            with self._changed:
                line = self._record(failure)
            self._speak(line)

    def _deliver(self, alert: Alert, due: Delivery) -> None:
        fingerprint = alert.fingerprint
        failure = self._failure(partial(self._sink.send, alert, due.event))
        sent_at, error = (None, str(failure)) if failure else (_now(), None)
        tried = replace(due, sent_at=sent_at, attempts=due.attempts + 1, error=error)
        self._tell(fingerprint, tried)
        with self._changed:
            waiting = self._waiting.pop(fingerprint)
            if failure:
                waiting.due[due.event] = tried
                if not failure.retry:
                    waiting.not_before = time.monotonic() + self._backoff.pause(_REMEMBERED)
            else:
                del waiting.due[due.event]
                self._remember(fingerprint, tried)
            if waiting.due:  # behind the others, which may have better luck
                self._waiting[fingerprint] = waiting
            self._status = replace(self._status, sent=self._status.sent + (not failure))
            line = self._record(failure)
        self._speak(line)

    def _failure(self, send: Callable[[], None]) -> SinkError | None:
        try:
            send()
        except SinkError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a bug of a sink must not end its thread
            self._bug(error)
            return SinkError(f"unexpected {type(error).__name__}, see the log", retry=False)
        return None

    def _tell(self, fingerprint: str, delivery: Delivery) -> None:
        if self._left:
            return
        try:
            self._done(fingerprint, delivery)
        except Exception as error:  # noqa: BLE001 - the table is the caller's; the next alert is to be sent all the same
            self._bug(error)

    def _bug(self, error: Exception) -> None:
        """Log where it happened, but not what was said there: that may hold a secret."""
        where = "".join(traceback.format_tb(error.__traceback__))
        _log.error("%s: unexpected %s\n%s", self._sink.name, type(error).__name__, where)

    def _remember(self, fingerprint: str, sent: Delivery) -> None:
        self._sent[fingerprint, sent.event, sent.repeat] = None
        if len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]

    def _record(self, failure: SinkError | None) -> str | None:
        """Count the try, pause after a failure; what is to be said if trouble began or ended. Call it with the lock."""
        name = self._sink.name
        if failure:
            self._failures += 1
            pause = max(self._backoff.pause(self._failures), min(failure.after_seconds or 0, _MOST_ASKED_SECONDS))
            self._paused_until = time.monotonic() + pause
            self._status = replace(self._status, failed=self._status.failed + 1, error=str(failure))
            known, self._troubled = self._troubled, True
            how = "It is tried again." if failure.retry else "Mend this; it is tried again every few minutes."
            return None if known else f"Alerts cannot be sent to {name}: {failure}. {how}"
        self._failures, self._paused_until = 0, 0.0
        self._status = replace(self._status, error=None, last_success_at=_now())
        if not self._troubled or any(due.attempts for one in self._waiting.values() for due in one.due.values()):
            return None
        self._troubled = False
        return f"Alerts are sent to {name} again."

    def _speak(self, line: str | None) -> None:
        if line and not self._left:
            try:
                self._say(line)
            except OSError as error:  # a terminal that was closed
                self._bug(error)


def _now() -> datetime:
    return datetime.now(timezone.utc)
