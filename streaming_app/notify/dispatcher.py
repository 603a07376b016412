"""Sends notifications to the sinks: one thread per sink, so that no sink delays another one, or the stream.

What is due, to whom and when is decided by `alerts.outbox`, without threads; here are the threads, the clock, and the
lock around all that they share. The notifications that are not sent yet are stored in the table `alerts`. Each is sent
at least once: after a restart the engine offers again what the table has as not sent, and receivers deduplicate it by
its id.
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
    Answer,
    Backoff,
    Failure,
    Outbox,
    Outboxes,
    Results,
    SinkStatus,
    SinkTraits,
    Task,
)
from streaming_app.notify.sink import Sink, TextSink
from streaming_app.notify.sink_worker import SinkWorker

_log = logging.getLogger(__name__)


def jittered(backoff: Backoff | None = None) -> Backoff:
    """Return the pauses of a job: between half and all of the doubled time."""
    given = backoff or Backoff()
    return Backoff(given.first_seconds, given.max_seconds, lambda: random.uniform(0.5, 1))  # noqa: S311 - spreads attempts


def traits_of(sink: Sink) -> SinkTraits:
    """Return what the outbox of a sink has to know of it."""
    return SinkTraits(sink.name, isinstance(sink, TextSink), sink.resend_seconds)


class Dispatcher:
    """The threads of the sinks, and the lock around `outboxes`, and around what else its owner guards with it."""

    def __init__(
        self,
        sinks: Iterable[Sink],
        outboxes: Outboxes,
        on_delivery: Callable[[Results], None],
        report: Callable[[str], None] = _log.warning,
        *,
        max_named: int,
    ) -> None:
        """Start a thread for each sink; it has an outbox, and is closed with the dispatcher.

        Those threads call `on_delivery` after every attempt, with the lock, and `report` with a line for the operator
        when a sink starts to fail and when it works again. A notification of several alerts names `max_named`.
        """
        self._outboxes, self._on_delivery = outboxes, on_delivery
        self._changed = threading.Condition()
        self._closed = False
        self._workers = [SinkWorker(sink, self, report, max_named) for sink in sinks]

    @contextmanager
    def changing(self) -> Iterator[Outboxes]:
        """Run the block with the lock; what is then due is sent."""
        with self._changed:
            yield self._outboxes
            self._changed.notify_all()

    def take(self, sink: str) -> Task | None:
        """Wait until something is due to this sink, and return it; None when nothing more comes. For its thread."""
        outbox = self._outboxes.by_sink[sink]
        with self._changed:
            while not (outbox.is_done or self._closed):
                now = time.monotonic()
                if task := outbox.take(now):
                    return task
                pause = outbox.wakes_at() - now
                self._changed.wait(None if math.isinf(pause) else max(pause, 0.0))
        return None

    def answered(self, sink: str, task: Task, failure: Failure | None) -> Answer:
        """Note what came of a task. For the thread of the sink."""
        with self.changing() as outboxes:
            if self._closed:
                return Answer()
            at = datetime.now(timezone.utc)
            answer = outboxes.by_sink[sink].answered(task, failure, at, time.monotonic())
            if answer.results:
                self._deliver(answer.results)
            return answer

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
        outboxes = self._outboxes.by_sink.values()
        with self._changed:
            while True:
                for outbox in outboxes:
                    outbox.release()
                if not any(self._awaits(outbox, deadline) for outbox in outboxes):
                    break
                self._changed.notify_all()
                self._changed.wait(deadline - time.monotonic())
            return not any(outbox.has_work for outbox in outboxes)

    def close(self, timeout: float) -> None:
        """Stop the threads; attempts in progress, and those that only wait for others, have `timeout` seconds.

        A thread that takes longer is abandoned, and the result of its attempt is no longer reported.
        """
        deadline = time.monotonic() + timeout
        with self.changing() as outboxes:
            for outbox in outboxes.by_sink.values():
                outbox.stop()
                outbox.release()
        for worker in self._workers:
            worker.join(deadline - time.monotonic())
        with self.changing():
            self._closed = True

    def _awaits(self, outbox: Outbox, deadline: float) -> bool:
        """Tell whether something of this outbox may still be sent before the deadline."""
        return time.monotonic() < deadline and outbox.has_work and not outbox.is_done and outbox.next_at() <= deadline

    def _deliver(self, results: Results) -> None:
        try:
            self._on_delivery(results)
        except Exception as error:  # noqa: BLE001 - the owner's; the next alert must be sent all the same
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("unexpected %s\n%s", type(error).__name__, where)
