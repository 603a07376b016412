"""Ends the job on SIGTERM, SIGINT and SIGHUP within seconds, in whatever state it is.

The job runs in its own thread, and the main thread only waits. Python calls signal handlers in the main thread, and a
call into a library that waits for a broker or a store would delay them. The next start can repeat everything that the
job does, so work that does not end in time is abandoned.
"""

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager

from streaming_app.jvm.spark_jvm import SparkJvm
from streaming_app.threads import in_thread

STOP_SECONDS = 9.0
"""After a signal, the job has ended within this time, whatever it did."""
STOPPED = "Stopped."
_SAY_SECONDS = 0.5
_LOOK_SECONDS = 1.0
_TERMINATE_SECONDS = 7.0  # then the JVM has 2 s to remove its temporary files
_KILLED_SECONDS = 0.5  # then whatever waited for the JVM has ended
_SIGNAL, _END = "a signal arrived", "the job has ended"

_Events = queue.SimpleQueue[str]  # a signal handler may call its put()


class StopRequestedError(Exception):
    """The job was asked to stop, and does not finish its current work."""


def run_until_signal(
    job: Callable[[], None], stop: threading.Event, report: Callable[[str], None], jvm: SparkJvm
) -> None:
    """Run `job`; on a signal report that, set `stop`, and return when the job has ended; it reports STOPPED.

    If it does not end in time, or at a second signal, kills `jvm`, and raises SystemExit with the code 0. Raises the
    error of the job; but once a signal has come, that is only the end of a job that was stopped.
    """
    with _signals() as events:
        result = in_thread(job, "job")
        result.add_done_callback(lambda _: events.put(_END))
        # The kernel may deliver a signal to another thread, which does not wake this one: so look at intervals.
        looked_at = time.monotonic()
        while (event := _next(events, _LOOK_SECONDS)) is None:
            looked_at = time.monotonic()
        if event is _SIGNAL:
            # Report first, so that this line comes first.
            _say("Stopping ...", report)
            stop.set()
            # A library that holds Python's lock while it waits for a store delays this thread: it came since then.
            event = _next(events, looked_at + _TERMINATE_SECONDS - time.monotonic())
            if event is None:
                jvm.terminate()
                event = _next(events, STOP_SECONDS - _TERMINATE_SECONDS)
            if event is not _END:
                jvm.kill()
                if _next(events, _KILLED_SECONDS) is not _END:
                    _say(STOPPED, report)
                raise SystemExit(0)
        try:
            result.result()
        except Exception:
            if not stop.is_set() and events.empty():  # else a signal came, which may have ended the JVM, too
                raise
            report(STOPPED)


def _say(line: str, report: Callable[[str], None]) -> None:
    """Report a line, but do not wait for an output that is blocked."""
    wait([in_thread(lambda: report(line))], _SAY_SECONDS)


def _next(events: _Events, seconds: float) -> str | None:
    try:
        return events.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return None


@contextmanager
def _signals() -> Iterator[_Events]:
    """Put an event for each signal that arrives in the block."""
    events: _Events = queue.SimpleQueue()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup; else it comes when a terminal is closed
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, lambda *_: events.put(_SIGNAL)) for number in numbers}
    try:
        yield events
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
