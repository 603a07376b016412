"""Sends notifications to the sinks: one thread per sink, so that no sink delays another one, or the stream.

What is due, to whom and when is decided by `alerts.outbox`, without threads; here are the threads, the clock, and the
lock around all that they share. The notifications that are not sent yet are stored in the table `alerts`. Each is sent
at least once: after a restart what the table has as not sent is sent again, and receivers deduplicate it by its id.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from streaming_app.alerts.outbox import (
    Backoff,
    Failure,
    Grouping,
    Notification,
    Outbox,
    Outboxes,
    SinkStatus,
    SinkTraits,
)
from streaming_app.notify.sink import Sink, SinkError

_log = logging.getLogger(__name__)


def jittered(backoff: Backoff) -> Backoff:
    """Return the pauses of a job: between half and all of the doubled time."""
    return backoff._replace(jitter=lambda: random.uniform(0.5, 1))  # noqa: S311 - spreads attempts


def traits_of(sink: Sink, grouping: Grouping) -> SinkTraits:
    """Return what the outbox of a sink has to know of it."""
    return SinkTraits(sink.name, grouping if sink.is_read_by_people else None, sink.at_once, sink.resend_seconds)


class Sender:
    """The threads of the sinks, and the lock around `outboxes`, and around what else its owner guards with it."""

    def __init__(
        self,
        sinks: Iterable[Sink],
        outboxes: Outboxes,
        on_answer: Callable[[], None] = lambda: None,
        report: Callable[[str], None] = _log.warning,
    ) -> None:
        """Start a thread for each sink.

        Those threads call `on_answer` after every attempt, with the lock, and `report` with a line for the operator
        when a sink starts to fail and when it works again.
        """
        self._outboxes, self._on_answer, self._report = outboxes, on_answer, report
        self._changed = threading.Condition(threading.Lock())
        self._closed = False
        self._active: set[str] = set()  # the sinks whose thread sends, or is to look what is due
        self._threads = [
            threading.Thread(target=self._run, args=(sink,), name=f"alerts-{sink.name}", daemon=True) for sink in sinks
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
                self._active |= self._outboxes.by_sink.keys()
                self._changed.notify_all()

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the current status of each sink."""
        with self._changed:
            return self._outboxes.status()

    def flush(self, timeout: float) -> bool:
        """Wait until everything is sent, and return whether it is.

        Waits at most `timeout` seconds, and not at all for attempts that are due only after that. What waits to be sent
        with others is sent at once.
        """
        deadline = time.monotonic() + timeout
        with self.changing():
            for outbox in self._outboxes.by_sink.values():
                outbox.release()
        with self._changed:
            self._changed.wait_for(lambda: not self._awaits(deadline), timeout)
            return not any(sink.waiting for sink in self._outboxes.status())

    def close(self, timeout: float) -> None:
        """Stop the threads; what was never attempted has `timeout` seconds.

        A thread that takes longer is abandoned, and the result of its attempt is no longer noted.
        """
        deadline = time.monotonic() + timeout
        with self.changing():
            for outbox in self._outboxes.by_sink.values():
                outbox.is_ending = True
                outbox.release()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self.changing():
            self._closed = True

    def _awaits(self, deadline: float) -> bool:
        """Tell whether something may still be sent before the deadline."""
        return any(
            sink.waiting and (sink.name in self._active or self._outboxes.by_sink[sink.name].wakes_at <= deadline)
            for sink in self._outboxes.status()
        )

    def _run(self, sink: Sink) -> None:
        """Send what is due to a sink until the sender is closed; the thread of the sink."""
        outbox = self._outboxes.by_sink[sink.name]
        while notification := self._take(sink.name, outbox):
            failure = _attempt(sink, notification)
            try:
                with self.changing():
                    if self._closed:
                        break
                    at = datetime.now(timezone.utc)
                    line = self._outboxes.answered(sink.name, notification, failure, at, time.monotonic())
                    self._on_answer()
                if line:
                    self._report(line)
            except Exception as error:  # noqa: BLE001 - the owner's; the next alert must be sent all the same
                _log_unexpected(sink.name, error)

    def _take(self, name: str, outbox: Outbox) -> Notification | None:
        """Wait until something is due to a sink, and return it; None when nothing more comes."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                notification = self._outboxes.take(name, now)
                if notification:
                    self._active.add(name)
                    return notification
                if name in self._active:
                    self._active.remove(name)
                    self._changed.notify_all()
                if outbox.is_ending:
                    break
                self._changed.wait(None if math.isinf(outbox.wakes_at) else max(outbox.wakes_at - now, 0.0))
        return None


def _attempt(sink: Sink, notification: Notification) -> Failure | None:
    try:
        sink.send(notification.problems, notification.event)
    except SinkError as error:
        return Failure(str(error), error.retry, error.after_seconds)
    except Exception as error:  # noqa: BLE001 - a bug in a sink must not end its thread
        _log_unexpected(sink.name, error)
        return Failure(f"unexpected {type(error).__name__}, see the log", retry=False)
    return None


def _log_unexpected(what: str, error: Exception) -> None:
    """Log where it happened, but not the error's message: it may contain a secret."""
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("%s: unexpected %s\n%s", what, type(error).__name__, where)
