"""Keeps a stream running: watches it, starts it again when it fails or must change, and stops it when asked.

The job waits, however long, for brokers that are restarted, and for a topic that the brokers create when the first
group commits. It must run for months, so a single answer of the brokers does not end it either. Only three results of
the regular check end the job: another topic with the same name, an ACL that is missing in two checks in a row, and
another job that has taken over. If a stream fails repeatedly although the topic can be
read, waiting does not help, and the job also ends. So it does if its own checkpoint or tables cannot be read in as many
checks in a row.

At the first start, when somebody reads the output, every error ends the job except the two kinds of waiting; with
`--once` those end it, too. The stream of committed offsets never ends the job: after such an error it is tried again
after some minutes, and the other stream goes on.

Each stream has its own thread, which may wait for brokers. The end of the job does not wait for that: no query or batch
begins once the job ends.
"""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import ClassVar, TypeVar

from pyspark.sql.streaming.query import StreamingQuery

from streaming_app.errors import (
    JobError,
    MissingTopicError,
    NotAuthorizedError,
    NothingReadError,
    OtherOwnerError,
    OtherTopicError,
    SomeUnreachableError,
    StorageError,
    StreamChangedError,
    UnreachableError,
)
from streaming_app.job.service import Service
from streaming_app.job.stopping import StopRequestedError
from streaming_app.job.stream_query import cause_of, one_line, stop_query
from streaming_app.job.streams import TopicStream
from streaming_app.report import ReportOnce
from streaming_app.stream.failures import is_lost_jvm
from streaming_app.stream.log_positions import TruncatedLogError

T = TypeVar("T")

_MAX_FAILURES = 4
_PAUSE_SECONDS = 2.0  # doubled with each consecutive failure
_RETRY_SECONDS = 300.0  # before the second stream is tried again after it was given up
_HEALTHY_SECONDS = 300.0  # a stream that ran this long, or wrote a batch, has recovered from its last failure
_POLL_SECONDS = 0.25
_LOOK_SECONDS = 2.0  # between two checks whether a query is active: each is a call of the JVM
_TOPIC_SECONDS = 30.0  # between two checks of the topic
_CONFIRM_SECONDS = 5.0  # until a missing ACL is checked again
_WAIT_SECONDS = 2.0  # between two attempts to start
_ANSWER_SECONDS = 1.0  # how long the end of the job waits for an answer of the brokers
FINISH_SECONDS = 3.0
"""How long a running batch may take to end when the job stops. An interrupted batch is repeated later."""


class Supervisor(Service):
    """Keeps one stream running, from `start` to `close`."""

    close_seconds: ClassVar[float] = 6.0  # enough for a batch to end and a query to stop

    def __init__(self, stream: TopicStream, log_file: Path | str) -> None:
        """Prepare. Lines about failures name `log_file`: Spark's log, or a description of where it is."""
        self._stream, self._health, self._log_file = stream, stream.health, log_file
        self._once = stream.config.once  # then the stream ends when all available records are read
        is_tried_again = stream.name is not None and not self._once
        super().__init__(
            stream.name or "groups",
            stream.report,
            interval=_RETRY_SECONDS if is_tried_again else None,
            describe_error=str,
            stopping=stream.stopping,
        )
        self._is_asking = self._has_started = False
        self._was_cut = False
        """Whether the last failure came from a log that was cut."""
        self._topic_error: JobError | None = None
        """The error of the last attempt to reach the topic."""
        self._report_topic_error = ReportOnce(stream.report)
        self._storage_failures = 0
        """How many checks in a row could not read the checkpoint or a table."""
        self._report_storage_error = ReportOnce(stream.report)
        self._error: BaseException | None = None

    def wait(self, stop: Event) -> None:
        """Wait until the stream is done, or `stop` is set. If the stream was given up, raises the reason."""
        while not stop.is_set() and not self.join(_POLL_SECONDS):
            pass
        if self._error is not None and not stop.is_set():
            raise self._error

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread, but not long for brokers; return whether it has ended."""
        if super().join(min(seconds, _ANSWER_SECONDS)):
            return True
        return not self._is_asking and super().join(seconds - _ANSWER_SECONDS)

    def tick(self) -> None:
        """Keep the stream running until it is done or given up. Raises the reason if it will be tried again."""
        self._has_started = self._was_cut = False
        self._topic_error = None
        try:
            self._keep_running()
            if self._once and not self.stopping.is_set():
                self._stream.finish()
        except StopRequestedError:
            pass
        except BaseException as error:
            if self.interval is not None:
                raise
            self._error = error

    def failed(self, text: str) -> str:
        """Note why the stream was given up, and return the line about it, which is reported each time."""
        self.report_failure.clear()
        self._health.failed(text)
        return f"{text.rstrip('.')}. Trying again in {_RETRY_SECONDS / 60:.0f} min."

    def _keep_running(self) -> None:
        """Return when the stream is done. Raises JobError if it may not read the topic, or fails repeatedly."""
        failures = 0
        while True:
            began, batches = time.monotonic(), self._health.totals.batches
            try:
                failure = self._start_and_watch()
            except StreamChangedError as change:
                self.report(f"{change}: the stream starts again")
                continue
            if failure is None:
                return
            self._was_cut = self._was_cut and self._health.totals.batches == batches
            self._health.failed(failure)
            if time.monotonic() - began > _HEALTHY_SECONDS or self._health.totals.batches > batches:
                failures = 0
            if (no_leader := self._stream.query.unreachable) and not self._once:  # it is no reason to give up
                # A broker that has just been restarted under load answers one request, and then none for half a minute.
                self._note_topic(no_leader)
                self._sleep(_WAIT_SECONDS)
                continue
            if self._wait_for_topic(failure):  # the brokers caused it
                continue
            failures += 1
            if failures >= (1 if self._once else _MAX_FAILURES):
                raise JobError(f"The stream failed: {failure} (see {self._log_file})")
            pause = _PAUSE_SECONDS * 2 ** (failures - 1)
            self.report(f"The stream failed and restarts in {pause:.0f} s: {failure}")
            self._sleep(pause)

    def _start_and_watch(self) -> str | None:
        """Start the query and wait for its end; return why it failed, None if it is done."""
        try:
            query = self._start()
        except StorageError as error:
            if not self._has_started:
                raise
            return str(error)
        except (StreamChangedError, JobError, StopRequestedError):
            raise
        except Exception as error:
            if is_lost_jvm(error):
                raise
            return one_line(error)
        self._has_started = True
        return self._watch(query)

    def _start(self) -> StreamingQuery:
        while not self.stopping.is_set():
            try:
                query = self._ask(self._stream.start)
            except JobError as error:
                is_of_topic = self._has_started and not isinstance(error, StorageError)
                if self._once or not (is_of_topic or isinstance(error, _WAITED_FOR)):
                    raise
                self._note_topic(error)
            else:
                self._note_topic(None, say=False)  # the line about the start says so
                return query
            self.stopping.wait(_WAIT_SECONDS)
        raise StopRequestedError

    def _watch(self, query: StreamingQuery) -> str | None:
        check_at = time.monotonic() + _TOPIC_SECONDS
        try:
            while query.isActive and not self.stopping.wait(_POLL_SECONDS if self._once else _LOOK_SECONDS):
                if self._health.was_away_too_long:
                    raise StreamChangedError("The job was away from the end of the topic for too long")  # noqa: TRY301
                if time.monotonic() >= check_at:
                    self._check()
                    is_denied = isinstance(self._topic_error, NotAuthorizedError)
                    check_at = time.monotonic() + (_CONFIRM_SECONDS if is_denied else _TOPIC_SECONDS)
        except (StreamChangedError, JobError):
            self._end(query)
            self._stream.progress.poll(query)
            raise
        if self.stopping.is_set():
            self._finish(query)
            raise StopRequestedError
        self._stream.progress.poll(query)
        failure = query.exception()
        return None if failure is None else cause_of(str(failure))

    def _check(self) -> bool:
        """Return whether the topic can be read. Raises an error that ends or changes the stream."""
        failures, self._storage_failures = self._storage_failures, 0
        try:
            self._ask(self._stream.check)
        except StreamChangedError:
            self._note_topic(None)
            raise
        except StorageError as error:  # the topic was described before
            self._note_topic(None)
            self._storage_failures = failures + 1
            if self._storage_failures >= _MAX_FAILURES:
                raise
            self._report_storage_error(f"{error}. Trying again.")
            return True
        except JobError as error:
            self._note_topic(error)
            return False
        except Exception as error:
            if is_lost_jvm(error):
                raise
            self._note_topic(JobError(f"{one_line(error)}."))
            return False
        self._note_topic(None)
        if self._report_storage_error.clear():
            self.report("The warehouse can be read again.")
        return True

    def _wait_for_topic(self, failure: str) -> bool:
        """Wait until the topic can be read; return whether it may be the cause of the failure. With `--once` raise."""
        waited = False
        while True:
            try:
                if self._check():
                    return waited
            except TruncatedLogError as change:  # explains why Spark could not read on; no reason to give up
                because = "" if str(change) in failure else f" failed ({failure}), and"
                self.report(f"{change}: the stream{because} starts again")
                self._sleep(_POLL_SECONDS)
                is_first, self._was_cut = not self._was_cut, True
                return waited or is_first  # a start compares positions and log: a failure after it has another cause
            except StreamChangedError:  # the stream is started again anyway
                return waited
            if self._once and self._topic_error:
                raise self._topic_error
            waited = True
            self._sleep(_WAIT_SECONDS)

    def _note_topic(self, error: JobError | None, *, say: bool = True) -> None:
        """Note whether the topic can be read. Raises the error if waiting does not help."""
        before, self._topic_error = self._topic_error, error
        is_confirmed = isinstance(error, NotAuthorizedError) and isinstance(before, NotAuthorizedError)
        if error is not None and (is_confirmed or isinstance(error, _ENDING)):
            raise error
        self._health.topic_asked(is_answered=not _is_no_broker(error), exists=not isinstance(error, MissingTopicError))
        if error is None:
            if say and before is not None:
                self.report("A broker answers again." if _is_no_broker(before) else "The topic can be read again.")
            self._report_topic_error.clear()
        elif not self.stopping.is_set():
            self._report_topic_error(f"{error} {_WAITING.get(type(error), 'Trying again.')}")

    def _ask(self, call: Callable[[], T]) -> T:
        self._is_asking = True
        try:
            return call()
        finally:
            self._is_asking = False

    def _sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise StopRequestedError

    def _finish(self, query: StreamingQuery) -> None:
        deadline = time.monotonic() + FINISH_SECONDS
        while query.isActive and self._stream.query.is_writing and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)
        stop_query(query)

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query, and wait until it has ended: the next one must not write at the same time."""
        while query.isActive:
            stop_query(query)
            self._sleep(_POLL_SECONDS)


def _is_no_broker(error: JobError | None) -> bool:
    return isinstance(error, UnreachableError) and not isinstance(error, SomeUnreachableError)


_WAITING = {UnreachableError: "Waiting for a broker.", MissingTopicError: "Waiting for it."}
_WAITED_FOR = tuple(_WAITING)
_ENDING = (OtherTopicError, OtherOwnerError, NothingReadError)
