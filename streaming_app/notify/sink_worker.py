"""The thread of one sink: it does what its outbox gives out, one task at a time, and says what came of it."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from streaming_app.alerts.outbox import Answer, Failure, Resend, Task
from streaming_app.notify.message import AlertGroup
from streaming_app.notify.sink import Sink, SinkError, TextSink

_log = logging.getLogger(__name__)


class Desk(Protocol):
    """Where the thread gets its tasks: the `Dispatcher`."""

    def take(self, sink: str) -> Task | None:
        """Wait until something is due to this sink, and return it; None when nothing more comes."""

    def answered(self, sink: str, task: Task, failure: Failure | None) -> Answer:
        """Note what came of a task."""


class SinkWorker:
    """Sends to one sink from its own thread, one notification at a time."""

    def __init__(self, sink: Sink, desk: Desk, report: Callable[[str], None], max_named: int) -> None:
        """Start the thread; a notification of several alerts names `max_named`."""
        self._sink, self._desk, self._report, self._max_named = sink, desk, report, max_named
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name=f"alerts-{sink.name}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end; abandon it if it takes longer, with the result of its attempt."""
        self._thread.join(max(0.0, seconds))
        self._abandoned = True
        if not self._thread.is_alive():
            self._sink.close()

    def _run(self) -> None:
        while not self._abandoned and (task := self._desk.take(self._sink.name)):
            failure = self._attempt(task)
            if not self._abandoned:
                self._report_line(self._desk.answered(self._sink.name, task, failure).line)

    def _attempt(self, task: Task) -> Failure | None:
        try:
            self._do(task)
        except SinkError as error:
            return Failure(str(error), error.retry, error.after_seconds)
        except Exception as error:  # noqa: BLE001 - a bug in a sink must not end its thread
            self._log_unexpected(error)
            return Failure(f"unexpected {type(error).__name__}, see the log", retry=False)
        return None

    def _do(self, task: Task) -> None:
        sink = self._sink
        if isinstance(task, Resend):
            sink.resend(task.alerts)
        elif isinstance(sink, TextSink) and len(task.items) > 1:
            sink.send_group(AlertGroup(task.alerts, task.event, self._max_named))
        else:
            sink.send(task.alerts[0], task.event)

    def _log_unexpected(self, error: Exception) -> None:
        """Log where it happened, but not the error's message: it may contain a secret."""
        where = "".join(traceback.format_tb(error.__traceback__))
        _log.error("%s: unexpected %s\n%s", self._sink.name, type(error).__name__, where)

    def _report_line(self, line: str | None) -> None:
        if line and not self._abandoned:
            try:
                self._report(line)
            except OSError as error:  # a terminal that was closed
                self._log_unexpected(error)
