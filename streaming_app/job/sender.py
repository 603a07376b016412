"""Sends notifications to the sinks. Each sink has its own thread, so that no sink delays another one or the stream.

`notify.outbox` decides which notifications are due to which sink and when. This module has the threads, the clock, and
the lock around the shared state. Each notification is sent at least once: after a restart, those that the table
`alerts` does not have as sent are sent again. Receivers recognize a duplicate by its id.
"""

import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from streaming_app.job.service import Service, WakeableEvent
from streaming_app.job_status import SinkStatus
from streaming_app.notify.outbox import Outbox
from streaming_app.notify.sink import SinkError
from streaming_app.report import Report

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 10.0  # after an unexpected error, when it is not known what is due
_LONGEST_PAUSE = 3600.0  # a change ends it


class Sender:
    """The threads of the sinks, and the lock around their outboxes and around other state of the owner."""

    def __init__(self, outboxes: Iterable[Outbox], on_answer: Callable[[], None], report: Report) -> None:
        """Start a thread for each sink.

        The threads call `on_answer` after every attempt, and `report` with a line for the operator when a sink starts
        to fail and when it works again.
        """
        self._lock = threading.Lock()
        self._sinks = [_SinkService(one, self._lock, on_answer, report) for one in outboxes]
        for one in self._sinks:
            one.start()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Run the block with the lock; then send the notifications that are due."""
        try:
            with self._lock:
                yield
        finally:
            for one in self._sinks:
                one.wakeable.wake()

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the current status of each sink."""
        with self._lock:
            return tuple(one.outbox.status for one in self._sinks)

    def close(self, timeout: float) -> None:
        """Send all that is due or waits within `timeout` seconds; then abandon the threads and their attempts."""
        ends_at = time.monotonic() + timeout
        with self.changing():
            for one in self._sinks:
                one.ends_at = ends_at
                one.outbox.release()
        for one in self._sinks:
            one.join(ends_at - time.monotonic())
        with self._lock:
            for one in self._sinks:
                one.stopping.set()


class _SinkService(Service):
    def __init__(self, outbox: Outbox, lock: threading.Lock, on_answer: Callable[[], None], report: Report) -> None:
        self.wakeable = WakeableEvent()
        name = f"alerts-{outbox.sink.name}"
        super().__init__(name, report, interval=None, describe_error=self._describe, stopping=self.wakeable)
        self.outbox, self.ends_at, self._lock, self._on_answer = outbox, math.inf, lock, on_answer

    def tick(self) -> None:
        """Send a due notification, if there is one."""
        with self._lock:
            notification = None if self.stopping.is_set() else self.outbox.take(time.monotonic())
        if notification is None:
            return
        error = None
        try:
            if notification.content:
                self.outbox.sink.send(notification.content, notification.event)
        except SinkError as refused:
            error = refused
        except Exception as bug:  # noqa: BLE001 - a bug in a sink must not stop the other notifications
            error = SinkError(self._describe(bug), retry=False)
        with self._lock:
            if self.stopping.is_set():
                return
            line = self.outbox.answered(notification, error, datetime.now(timezone.utc), time.monotonic())
        self._on_answer()
        if line:
            self.report(line)

    def pause(self, seconds: float) -> float | None:
        """Return the seconds until something is due; None if nothing more is due before the end."""
        del seconds
        with self._lock:  # `close` sets both
            wakes_at, ends_at = self.outbox.wakes_at, self.ends_at
        if self.report_failure.has_any:
            return _PAUSE_SECONDS if math.isinf(ends_at) else None
        return None if wakes_at > ends_at else max(0.0, min(wakes_at - time.monotonic(), _LONGEST_PAUSE))

    def failed(self, text: str) -> str:
        """Return the line about an unexpected error."""
        return f"Alerts cannot be sent to {self.outbox.sink.name}: {text}. Retrying."

    def _describe(self, error: Exception) -> str:
        """Log the place of the error, once, but not its message, which may contain a secret."""
        kind = type(error).__name__
        if not self.report_failure.has_any:
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("%s: unexpected %s\n%s", self.name, kind, where)
        return f"unexpected {kind}, see the log"
