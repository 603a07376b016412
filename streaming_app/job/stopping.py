"""Ends the job on SIGTERM and SIGINT within seconds, in whatever state it is.

The job runs in a thread of its own, and the main thread only waits: Python calls signal handlers in the main thread,
and a call into a library that waits for a broker or a store would delay them. Everything that the job does can be
repeated after the next start, so what does not end by itself is abandoned.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming_app.jvm.spark_jvm import SparkJvm

STOP_SECONDS = 9.0
"""After a signal, the job has ended within this time, whatever it was doing."""
_SAY_SECONDS = 0.5
_LOOK_SECONDS = 1.0
_TERMINATE_SECONDS = 7.0  # the JVM may then have 2 s to remove its temporary files
_SIGNAL, _END = "a signal arrived", "the job has ended"

_Events = queue.SimpleQueue[str]  # its put() may be called by a signal handler


class StopRequestedError(Exception):
    """The job was asked to stop, and does not finish what it was doing."""


def run_until_signal(
    job: Callable[[], None], stop: threading.Event, report: Callable[[str], None], jvm: SparkJvm
) -> None:
    """Run `job`; on SIGTERM or SIGINT report that, set `stop`, and return when the job has ended.

    If it does not end in time, or at a second signal, kills `jvm` and raises SystemExit with the code 0. Raises what
    `job` raises. In another thread than the main one, where Python allows no handlers, only runs `job`.
    """
    if threading.current_thread() is not threading.main_thread():
        job()
        return
    with _signals() as events:
        result = in_thread(job)
        result.add_done_callback(lambda _: events.put(_END))
        # The kernel may give a signal to another thread, which does not wake this one: it looks by itself, too.
        while (event := _next(events, _LOOK_SECONDS)) is None:
            pass
        if event is _SIGNAL:
            # First, so that it is the first of the lines about the end. Nobody may read the output, or it is blocked.
            wait([in_thread(lambda: report("Stopping ..."))], _SAY_SECONDS)
            stop.set()
            event = _next(events, _TERMINATE_SECONDS)
            if event is None:
                jvm.terminate()
                event = _next(events, STOP_SECONDS - _TERMINATE_SECONDS)
            if event is not _END:
                jvm.kill()
                raise SystemExit(0)
    result.result()


def in_thread(job: Callable[[], None]) -> Future[None]:
    """Run a job in a thread of its own, which the interpreter does not wait for; return its end."""
    result: Future[None] = Future()

    def run() -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - who waits for the end raises it
            result.set_exception(error)
        else:
            result.set_result(None)

    threading.Thread(target=run, name="job", daemon=True).start()
    return result


def _next(events: _Events, seconds: float) -> str | None:
    """Return the next event; None if there is none within this time."""
    try:
        return events.get(timeout=seconds)
    except queue.Empty:
        return None


@contextmanager
def _signals() -> Iterator[_Events]:
    """Put an event for each SIGTERM and SIGINT that arrives in the block."""
    events: _Events = queue.SimpleQueue()
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, lambda *_: events.put(_SIGNAL)) for number in numbers}
    try:
        yield events
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
