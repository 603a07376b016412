"""One sink with its thread: it sends what the queue has ready, retries with pauses, and reports the results."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

from streaming_app.alerts.alert import FIRING, Alert, Delivery
from streaming_app.notify.daily_summary import DailySummary
from streaming_app.notify.message import AlertGroup
from streaming_app.notify.notification_queue import Attempt, Grouping, NotificationQueue
from streaming_app.notify.sink import Sink, SinkError, TextSink

_MANY_FAILURES = 1_000  # enough for the longest pause
_MAX_RETRY_AFTER_SECONDS = 3600.0  # for a receiver that asks for a longer pause
_log = logging.getLogger(__name__)

DeliveryCallback = Callable[[Sequence[tuple[str, Delivery]]], None]
"""Called with the results of an attempt: each alert's fingerprint, and the delivery that replaces its former one."""


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with jitter: the pause doubles with each failure in a row."""

    first_seconds: float = 1.0
    max_seconds: float = 300.0

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row: between half and all of the doubled time."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 60)
        return min(doubled, self.max_seconds) * random.uniform(0.5, 1)  # noqa: S311 - spreads attempts, hides nothing


@dataclass(frozen=True)
class SinkStatus:
    """The status of a sink; totals are since the start. Each alert counts, also where several are sent together."""

    name: str
    sent: int = 0
    """Notifications that it accepted."""
    failed: int = 0
    """Attempts that failed, including those to resend."""
    waiting: int = 0
    """Notifications that are not sent yet."""
    error: str | None = None
    """Why the last attempt failed; None if it succeeded."""
    last_success_at: datetime | None = None


class SinkWorker:
    """Sends to one sink from its own thread, one notification at a time."""

    def __init__(
        self,
        sink: Sink,
        on_delivery: DeliveryCallback,
        report: Callable[[str], None],
        backoff: Backoff,
        grouping: Grouping,
    ) -> None:
        self.name = sink.name
        self._sink, self._on_delivery, self._report = sink, on_delivery, report
        # a sink that gets firing alerts again anyway is retried at least as often
        self._backoff = replace(backoff, max_seconds=min(backoff.max_seconds, sink.resend_seconds or math.inf))
        self._max_named = grouping.max_named
        self._changed = threading.Condition()
        self._queue = NotificationQueue(sink.name, grouping if isinstance(sink, TextSink) else None)
        self._firing: dict[str, Alert] = {}
        self._resend_at = math.inf
        self._summary: tuple[DailySummary, Callable[[], None]] | None = None
        self._summary_at = math.inf
        self._paused_until = 0.0
        self._failures = 0
        self._busy = self._stopped = self._abandoned = self._failing = False
        self._status = SinkStatus(sink.name)
        self._thread = threading.Thread(target=self._run, name=f"alerts-{sink.name}", daemon=True)
        self._thread.start()

    def offer(self, alerts: Iterable[Alert]) -> None:
        """Queue what is due; an alert that is queued already is replaced by its latest state."""
        with self._changed:
            now = time.monotonic()
            for alert in alerts:
                is_due = self._queue.add(alert, now)
                self._track_firing(alert, soon=not is_due)
            self._changed.notify_all()

    def withdraw(self, wanted: Callable[[Alert], bool]) -> list[Alert]:
        """Return the alerts that are `wanted`, and send none of them any more, except one that is just being sent."""
        with self._changed:
            withdrawn = {alert.fingerprint: alert for alert in self._firing.values() if wanted(alert)}
            for fingerprint in withdrawn:
                del self._firing[fingerprint]
            return list((withdrawn | {alert.fingerprint: alert for alert in self._queue.withdraw(wanted)}).values())

    def offer_summary(self, summary: DailySummary, on_sent: Callable[[], None]) -> None:
        """Send a daily summary, instead of an earlier one that is not sent yet; `on_sent` is called when it is."""
        with self._changed:
            self._summary, self._summary_at = (summary, on_sent), 0.0
            self._changed.notify_all()

    def status(self) -> SinkStatus:
        """Return the current status of the sink."""
        with self._changed:
            return replace(self._status, waiting=len(self._queue))

    def flush(self, deadline: float) -> bool:
        """Wait until everything is sent, the deadline passes, or no attempt is due before it; return if all is sent.

        Nothing waits for others meanwhile.
        """
        with self._changed:
            while self._has_work and not self._stopped:
                self._queue.release()
                self._changed.notify_all()
                next_attempt = max(self._paused_until, min(self._summary_at, self._queue.next_at()))
                left = deadline - time.monotonic()
                if left <= 0 or (next_attempt > deadline and not self._busy):
                    break
                self._changed.wait(left)
            return not self._has_work

    def stop(self) -> None:
        """Send nothing more after the attempt in progress, except what was only held back to be sent with others."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the thread to end; abandon it if it takes longer. No callback is called after that."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._abandoned = True
        if not self._thread.is_alive():
            self._sink.close()

    @property
    def _has_work(self) -> bool:
        return len(self._queue) > 0 or self._summary is not None

    @property
    def _is_done(self) -> bool:
        return self._stopped and (self._abandoned or bool(self._failures) or not self._queue.is_holding)

    def _track_firing(self, alert: Alert, *, soon: bool) -> None:
        """Resend the alert while it fires, if the sink needs that; `soon` after a restart, when nothing else is due."""
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
        while task := self._next_task():
            task()

    def _next_task(self) -> Callable[[], None] | None:
        """Wait until something is due, and return it; None when the worker was stopped."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            while not self._is_done:
                if self._stopped:
                    self._queue.release()
                now = time.monotonic()
                if self._paused_until <= now and (task := self._due_task(now)):
                    self._busy = True
                    return task
                earliest = min(self._resend_at, self._summary_at, self._queue.next_at())
                pause = max(earliest, self._paused_until) - now
                self._changed.wait(None if math.isinf(pause) else max(pause, 0.0))
        return None

    def _due_task(self, now: float) -> Callable[[], None] | None:
        if self._resend_at <= now:
            self._resend_at = now + (self._sink.resend_seconds or math.inf)
            sent_before = [
                alert for fingerprint, alert in self._firing.items() if not self._queue.has(fingerprint, FIRING)
            ]
            return partial(self._resend, sent_before)
        if attempt := self._queue.take(now):
            return partial(self._deliver, attempt)
        if self._summary and self._summary_at <= now:
            return partial(self._send_summary, *self._summary)
        return None

    def _resend(self, alerts: Sequence[Alert]) -> None:
        if alerts:
            failure = self._attempt(partial(self._sink.resend, alerts))
            with self._changed:
                line = self._record(failure)
            self._report_line(line)

    def _deliver(self, attempt: Attempt) -> None:
        failure = self._attempt(partial(self._send, attempt))
        sent_at, error = (None, str(failure)) if failure else (_utc_now(), None)
        attempted = [replace(due, sent_at=sent_at, attempts=due.attempts + 1, error=error) for _, due in attempt.items]
        fingerprints = (alert.fingerprint for alert in attempt.alerts)
        self._call(partial(self._on_delivery, tuple(zip(fingerprints, attempted, strict=True))))
        with self._changed:
            now = time.monotonic()
            if failure:
                retry_alone_at = None if failure.retry else now + self._backoff.pause(_MANY_FAILURES)
                self._queue.failed(attempt, attempted, retry_alone_at)
            else:
                self._queue.sent(attempt, now)
                self._status = replace(self._status, sent=self._status.sent + len(attempted))
            line = self._record(failure)
        self._report_line(line)

    def _send(self, attempt: Attempt) -> None:
        if isinstance(self._sink, TextSink) and len(attempt.items) > 1:
            self._sink.send_group(AlertGroup(attempt.alerts, attempt.event, self._max_named))
        else:
            self._sink.send(attempt.alerts[0], attempt.event)

    def _send_summary(self, summary: DailySummary, on_sent: Callable[[], None]) -> None:
        sink = self._sink
        failure = self._attempt(partial(sink.send_summary, summary)) if isinstance(sink, TextSink) else None
        if not failure:
            self._call(on_sent)
        with self._changed:
            if not failure and self._summary and self._summary[0] is summary:
                self._summary, self._summary_at = None, math.inf
            elif failure and not failure.retry:
                self._summary_at = time.monotonic() + self._backoff.pause(_MANY_FAILURES)
            line = self._record(failure)
        self._report_line(line)

    def _attempt(self, send: Callable[[], None]) -> SinkError | None:
        try:
            send()
        except SinkError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a bug in a sink must not end its thread
            self._log_unexpected(error)
            return SinkError(f"unexpected {type(error).__name__}, see the log", retry=False)
        return None

    def _call(self, callback: Callable[[], None]) -> None:
        if self._abandoned:
            return
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the table is the caller's; the next alert must be sent all the same
            self._log_unexpected(error)

    def _log_unexpected(self, error: Exception) -> None:
        """Log where it happened, but not the error's message: it may contain a secret."""
        where = "".join(traceback.format_tb(error.__traceback__))
        _log.error("%s: unexpected %s\n%s", self._sink.name, type(error).__name__, where)

    def _record(self, failure: SinkError | None) -> str | None:
        """Count the attempt, and pause after a failure. The caller holds the lock.

        Returns a line for the operator if the sink starts to fail, or works again.
        """
        name = self._sink.name
        if failure:
            self._failures += 1
            pause = max(self._backoff.pause(self._failures), min(failure.after_seconds or 0, _MAX_RETRY_AFTER_SECONDS))
            self._paused_until = time.monotonic() + pause
            self._status = replace(self._status, failed=self._status.failed + 1, error=str(failure))
            was_failing, self._failing = self._failing, True
            action = "Retrying." if failure.retry else "Fix the cause; it is retried every few minutes."
            return None if was_failing else f"Alerts cannot be sent to {name}: {failure}. {action}"
        self._failures, self._paused_until = 0, 0.0
        self._status = replace(self._status, error=None, last_success_at=_utc_now())
        if not self._failing or self._queue.has_failed_ones:
            return None
        self._failing = False
        return f"Alerts are sent to {name} again."

    def _report_line(self, line: str | None) -> None:
        if line and not self._abandoned:
            try:
                self._report(line)
            except OSError as error:  # a terminal that was closed
                self._log_unexpected(error)


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)
