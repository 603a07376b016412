"""Keeps the stream running: watches it, starts it again when it fails or must change, and stops it when asked.

The job waits for what is not there yet, however long: brokers that are restarted, a topic that the brokers create when
the first group commits. It runs for months, so a single answer of the brokers does not end it either. Only four things
that the regular check finds do: another topic of the same name, an ACL that is missing twice in a row, records that
Spark does not return, and another job that has taken over. A stream that fails repeatedly although the topic can be
read has a problem that waiting does not solve.

At its first start, where somebody reads the output, every error but those two kinds of waiting ends the job, and with
`--once` those end it, too.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from streaming_app.errors import (
    JobError,
    MissingTopicError,
    NotAuthorizedError,
    NothingReadError,
    OtherOwnerError,
    OtherTopicError,
    SomeUnreachableError,
    UnreachableError,
)
from streaming_app.job.stopping import StopRequestedError
from streaming_app.job.stream_query import (
    LogTruncatedError,
    SparkProgress,
    StreamChangedError,
    cause_of,
    is_lost_connection,
    one_line,
    stop_query,
)
from streaming_app.report import Report, ReportOnce
from streaming_app.stream.health import Health

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

_MAX_FAILURES = 4
_PAUSE_SECONDS = 2.0  # doubled with each consecutive failure
_HEALTHY_SECONDS = 300.0  # a stream that ran this long, or wrote a batch, had recovered from its last failure
_POLL_SECONDS = 0.25
_TOPIC_SECONDS = 30.0  # between two checks of the topic
_CONFIRM_SECONDS = 5.0  # until a missing ACL is checked again
_WAIT_SECONDS = 2.0  # between two attempts to start
_PROGRESS_SECONDS = 15.0  # between two looks at Spark's progress: executors report every 10 s
FINISH_SECONDS = 3.0
"""How long a running batch may take to end when the job stops. A batch that is interrupted is repeated."""


class Stream(Protocol):
    """The stream to keep running: `streaming_app.job.streams.TopicStream`."""

    @property
    def is_writing(self) -> bool:
        """Whether a batch is being written."""

    def start(self) -> StreamingQuery:
        """Start the query, from where it has to read."""

    def check(self) -> None:
        """Check that the running query may go on."""

    def look_at(self, query: StreamingQuery) -> None:
        """Note what the running query does of which Spark posts no event; called a few times a second."""


class _Ended(Exception):  # noqa: N818 - no error
    """`stop` is set."""


@dataclass
class Supervisor:
    """Keeps one stream running."""

    stream: Stream
    stop: threading.Event
    """Set when the job ends."""
    report: Report
    log_file: Path | str
    """Spark's, which lines about failures name; or where it is, in words."""
    health: Health
    progress: SparkProgress
    once: bool
    """Whether the stream ends when all there is has been read."""

    def run(self) -> None:
        """Start the stream; return when it is done, or soon after `stop` was set.

        Raises JobError when the topic may not be read, or the stream failed four times in a row, with `once` once.
        """
        calls = BackgroundCalls("topic")
        try:
            _Run(self, calls).until_done()
        except (_Ended, StopRequestedError):
            pass
        finally:
            calls.close()


class BackgroundCalls:
    """Makes calls that may wait for brokers, so that the caller can stop waiting for them.

    One after the other, always in the same thread: PySpark keeps a connection for each thread. A call that nobody waits
    for any more goes on until it ends by itself, or the process does.
    """

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call `function` after the calls before it; the future gets its result or its exception."""
        future: Future[T] = Future()

        def call() -> None:
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._calls.put(call)
        return future

    def close(self) -> None:
        """End the thread after the calls that were submitted; does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class _Run:
    """One run of a supervisor."""

    def __init__(self, supervisor: Supervisor, calls: BackgroundCalls) -> None:
        self._stream, self._stop, self._health = supervisor.stream, supervisor.stop, supervisor.health
        self._supervisor, self._once, self._calls = supervisor, supervisor.once, calls
        self._topic = _TopicState(supervisor.report, supervisor.health)
        self._has_started = False
        self._was_cut = False  # at the failure before

    def until_done(self) -> None:
        failures = 0
        while True:
            began, batches = time.monotonic(), self._health.totals.batches
            try:
                failure = self._start_and_watch()
            except StreamChangedError as change:
                self._supervisor.report(f"{change}: the stream starts again")
                continue
            if failure is None:
                return
            self._was_cut = self._was_cut and self._health.totals.batches == batches
            self._health.failed(failure)
            if time.monotonic() - began > _HEALTHY_SECONDS or self._health.totals.batches > batches:
                failures = 0
            if self._wait_for_topic(failure):  # the failure was of the brokers
                continue
            failures += 1
            if failures >= (1 if self._once else _MAX_FAILURES):
                raise JobError(f"The stream failed: {failure} (see {self._supervisor.log_file})")
            pause = _PAUSE_SECONDS * 2 ** (failures - 1)
            self._supervisor.report(f"The stream failed and restarts in {pause:.0f} s: {failure}")
            self._sleep(pause)

    def _start_and_watch(self) -> str | None:
        """Start the query and wait for its end; return why it failed, None if it is done."""
        try:
            query = self._start()
        except (StreamChangedError, JobError, StopRequestedError, _Ended):
            raise
        except Exception as error:
            if is_lost_connection(error):
                raise
            return one_line(error)
        self._has_started = True
        return self._watch(query)

    def _start(self) -> StreamingQuery:
        """Start the query as soon as there is something to read."""
        while True:
            try:
                query = self._call(self._stream.start)
            except JobError as error:
                if self._once or not (self._has_started or isinstance(error, _WAITED_FOR)):
                    raise
                self._topic.failed(error)
            else:
                self._topic.found(say=False)  # the line about the start says it
                return query
            self._sleep(_WAIT_SECONDS)

    def _watch(self, query: StreamingQuery) -> str | None:
        check: Future[None] | None = None
        check_at = time.monotonic() + _TOPIC_SECONDS
        progress_at = time.monotonic() + _PROGRESS_SECONDS
        try:
            while query.isActive and not self._stop.wait(_POLL_SECONDS):
                now = time.monotonic()
                self._stream.look_at(query)
                if self._health.was_away_too_long:
                    raise StreamChangedError("The job was away from the end of the topic for too long")  # noqa: TRY301
                if now >= progress_at:
                    progress_at = now + _PROGRESS_SECONDS
                    self._look_at_progress()
                if check is None and now >= check_at:
                    check = self._calls.submit(self._stream.check)
                elif check is not None and check.done():
                    self._evaluate(check)
                    check, check_at = None, now + self._topic.next_check_seconds
        except (StreamChangedError, JobError):
            self._end(query)
            self._stream.look_at(query)
            raise
        if self._stop.is_set():
            self._finish(query)
            raise _Ended
        self._stream.look_at(query)
        failure = query.exception()
        return None if failure is None else cause_of(str(failure))

    def _evaluate(self, check: Future[None]) -> bool:
        """Return whether a check found that the topic can be read. Raises what ends or changes the stream."""
        try:
            check.result()
        except StreamChangedError:
            self._topic.found()
            raise
        except JobError as error:
            self._topic.failed(error)
            return False
        except Exception as error:
            if is_lost_connection(error):
                raise
            self._topic.failed(JobError(f"{one_line(error)}."))
            return False
        self._topic.found()
        return True

    def _wait_for_topic(self, failure: str) -> bool:
        """Wait until the topic can be read; return whether the stream may have failed because it could not.

        With `--once` it raises then.
        """
        waited = False
        while True:
            check = self._calls.submit(self._stream.check)
            self._wait(check)
            try:
                if self._evaluate(check):
                    return waited
            except LogTruncatedError as change:  # why Spark could not read on, and no reason to give up
                self._supervisor.report(f"{change}: the stream failed ({failure}), and starts again")
                self._sleep(_POLL_SECONDS)
                is_first, self._was_cut = not self._was_cut, True
                return waited or is_first  # a start compares positions and log: what fails after it is something else
            except StreamChangedError:  # it is started again anyway
                return waited
            if self._once and self._topic.error:
                raise self._topic.error
            waited = True
            self._sleep(_WAIT_SECONDS)

    def _call(self, function: Callable[[], StreamingQuery]) -> StreamingQuery:
        call = self._calls.submit(function)
        try:
            self._wait(call)
        except _Ended:
            call.add_done_callback(_stop_if_started)  # nobody watches the query
            raise
        return call.result()

    def _wait(self, call: Future[object] | Future[None] | Future[StreamingQuery]) -> None:
        """Wait for a call. Its Spark jobs may take long, after tables were lost."""
        progress_at = time.monotonic() + _PROGRESS_SECONDS
        while not call.done():
            self._sleep(_POLL_SECONDS / 5)
            if time.monotonic() >= progress_at:
                progress_at = time.monotonic() + _PROGRESS_SECONDS
                self._look_at_progress()

    def _look_at_progress(self) -> None:
        if self._supervisor.progress.has_changed():
            self._health.progressed()

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _Ended

    def _finish(self, query: StreamingQuery) -> None:
        """Let a running batch end, and stop the query; no other batch begins."""
        deadline = time.monotonic() + FINISH_SECONDS
        while query.isActive and self._stream.is_writing and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)
        stop_query(query)

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query, and wait until it has ended: the next one must not write at the same time."""
        while query.isActive:
            stop_query(query)
            self._sleep(_POLL_SECONDS)


class _TopicState:
    """What the last attempt to reach the topic gave; reports a change once, and keeps `health` up to date."""

    def __init__(self, report: Report, health: Health) -> None:
        self._report, self._report_error, self._health = report, ReportOnce(report), health
        self.error: JobError | None = None

    @property
    def next_check_seconds(self) -> float:
        """Seconds until the next check of a running query."""
        return _CONFIRM_SECONDS if isinstance(self.error, NotAuthorizedError) else _TOPIC_SECONDS

    def found(self, *, say: bool = True) -> None:
        """Record that the topic can be read."""
        if say and self.error is not None:
            self._report("A broker answers again." if _is_no_broker(self.error) else "The topic can be read again.")
        self.error = None
        self._report_error.clear()
        self._update()

    def failed(self, error: JobError) -> None:
        """Record an error. Raises it if waiting does not help."""
        is_confirmed = isinstance(error, NotAuthorizedError) and isinstance(self.error, NotAuthorizedError)
        if isinstance(error, _ENDING) or is_confirmed:
            raise error
        self.error = error
        self._update()
        self._report_error(f"{error} {_WAITING.get(type(error), 'Trying again.')}")

    def _update(self) -> None:
        self._health.brokers(answer=not _is_no_broker(self.error))
        self._health.topic(exists=not isinstance(self.error, MissingTopicError))


def _is_no_broker(error: JobError | None) -> bool:
    return isinstance(error, UnreachableError) and not isinstance(error, SomeUnreachableError)


_WAITING = {UnreachableError: "Waiting for a broker.", MissingTopicError: "Waiting for it."}
_WAITED_FOR = tuple(_WAITING)
_ENDING = (OtherTopicError, OtherOwnerError, NothingReadError)


def _stop_if_started(call: Future[StreamingQuery]) -> None:
    if call.exception() is None:
        stop_query(call.result())
