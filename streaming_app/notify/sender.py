"""Sends notifications to the sinks: one thread for each, so that no sink delays another one, or the stream.

What is due, to whom and when is decided by `notify.outbox`; here are the threads, the clock, and the lock around all
that they share. Each notification is sent at least once: after a restart what the table `alerts` has as not sent is
sent again, and receivers deduplicate it by its id.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from streaming_app.notify.outbox import Notification, Outbox, SinkStatus
from streaming_app.notify.sink import Sink, SinkError

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 10.0  # after an error that nobody expects, where it cannot be known what to send


class Sender:
    """The threads of the sinks, and the lock around their outboxes, and around what else its owner guards with it."""

    def __init__(
        self,
        outboxes: Iterable[Outbox],
        on_answer: Callable[[], None] = lambda: None,
        report: Callable[[str], None] = _log.warning,
    ) -> None:
        """Start a thread for each sink.

        Those threads call `on_answer` after every attempt, with the lock, and `report` with a line for the operator
        when a sink starts to fail and when it works again.
        """
        self._on_answer, self._report = on_answer, report
        self._changed = threading.Condition(threading.Lock())
        self._ends_at = math.inf
        self._closed = False
        self._outboxes = list(outboxes)
        self._threads = [
            threading.Thread(target=self._run, args=(one,), name=f"alerts-{one.sink.name}", daemon=True)
            for one in self._outboxes
        ]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Run the block with the lock; what is then due is sent."""
        with self._changed:
            try:
                yield
            finally:
                self._changed.notify_all()

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the current status of each sink."""
        with self._changed:
            return tuple(outbox.status for outbox in self._outboxes)

    def close(self, timeout: float) -> None:
        """Send what is due within `timeout` seconds, also what waits to be sent with others, and stop the threads.

        A thread that takes longer is abandoned, and the result of its attempt is no longer noted.
        """
        with self.changing():
            self._ends_at = time.monotonic() + timeout
            for outbox in self._outboxes:
                outbox.release()
        for thread in self._threads:
            thread.join(max(0.0, self._ends_at - time.monotonic()))
        with self.changing():
            self._closed = True

    def _run(self, outbox: Outbox) -> None:
        """Send what is due to a sink until the sender is closed; the thread of the sink."""
        while notification := self._next(outbox):
            error = _attempt(outbox.sink, notification)
            try:
                with self.changing():
                    if self._closed:
                        break
                    line = outbox.answered(notification, error, datetime.now(timezone.utc), time.monotonic())
                    self._on_answer()
                if line:
                    self._report(line)
            except Exception as unexpected:  # noqa: BLE001 - the owner's; the next alert must be sent all the same
                _log_unexpected(outbox.sink.name, unexpected)

    def _next(self, outbox: Outbox) -> Notification | None:
        """Wait until something is due to a sink, and return it; None when nothing more comes in time.

        What is unexpected is reported once, and it is tried again after pauses, until the sender is to end.
        """
        has_failed = False
        while True:
            try:
                return self._wait_for_next(outbox)
            except Exception as unexpected:  # noqa: BLE001 - the owner's; without its thread the sink would get nothing
                if not has_failed:
                    self._report_unexpected(outbox.sink.name, unexpected)
            has_failed = True
            with self._changed:
                if not math.isinf(self._ends_at):
                    return None
                self._changed.wait_for(lambda: not math.isinf(self._ends_at), _PAUSE_SECONDS)

    def _report_unexpected(self, name: str, error: Exception) -> None:
        _log_unexpected(name, error)
        try:
            self._report(f"Alerts cannot be sent to {name}: unexpected {type(error).__name__}, see the log. Retrying.")
        except Exception as unexpected:  # noqa: BLE001 - the owner's
            _log_unexpected(name, unexpected)

    def _wait_for_next(self, outbox: Outbox) -> Notification | None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                if notification := outbox.take(now):
                    return notification
                if outbox.wakes_at > self._ends_at:
                    break
                self._changed.wait(None if math.isinf(outbox.wakes_at) else max(outbox.wakes_at - now, 0.0))
        return None


def _attempt(sink: Sink, notification: Notification) -> SinkError | None:
    try:
        sink.send(notification.problems, notification.event)
    except SinkError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a bug in a sink must not end its thread
        _log_unexpected(sink.name, error)
        return SinkError(f"unexpected {type(error).__name__}, see the log", retry=False)
    return None


def _log_unexpected(what: str, error: Exception) -> None:
    """Log where it happened, but not the error's message: it may contain a secret."""
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("%s: unexpected %s\n%s", what, type(error).__name__, where)
