"""Keeps the stream running: looks after it, starts it again when it fails, ends it when asked.

A broker that is away is waited for, however long: the job runs for months, and brokers are restarted. A stream that
fails over and over although the brokers answer has a trouble that waiting does not mend.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.job.errors import JobError, UnreachableError
from streaming_app.job.health import Health

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TRIES = 4
_PAUSE_SECONDS = 2.0  # doubled with each failure in a row
_HEALTHY_SECONDS = 300.0  # a stream that ran so long had recovered
_LOOK_SECONDS = 0.25
_TOPIC_SECONDS = 30.0  # a topic that was made again is noticed after so long
_FINISH_SECONDS = 60.0  # how long a batch in flight may take to end after SIGTERM


def keep_running(  # noqa: PLR0913 - each is one thing it needs
    start: Callable[[], StreamingQuery],
    look: Callable[[], None],
    stop: threading.Event,
    say: Callable[[str], None],
    log_file: Path,
    *,
    health: Health,
    tries: int,
) -> None:
    """Start the stream and return when it is done, or `stop` was set and the batch at hand has ended.

    `look` asks the cluster whether the topic may still be read: it raises UnreachableError when no broker answers, and
    JobError when it may not. Raises JobError then, and when the stream failed `tries` times in a row.
    """
    cluster = _Cluster(look, say, health)
    failures = 0
    while not stop.is_set():
        started = time.monotonic()
        failure = _run(start(), cluster, stop)
        if failure is None:
            return
        failures = 1 if time.monotonic() - started > _HEALTHY_SECONDS else failures + 1
        cause = _cause(failure)
        health.failed(cause)
        if failures >= tries:
            look()  # which may know better
            raise JobError(f"The stream failed: {cause} (see {log_file})")
        pause = _PAUSE_SECONDS * 2 ** (failures - 1)
        say(f"The stream failed and starts again in {pause:.0f} s: {cause}")
        stop.wait(pause)
        while not cluster.answers() and not stop.wait(_PAUSE_SECONDS):
            pass


class _Cluster:
    """Says once when the brokers are away, and once when they are back."""

    def __init__(self, look: Callable[[], None], say: Callable[[str], None], health: Health) -> None:
        self._look = look
        self._say = say
        self._health = health
        self.away = False

    def answers(self) -> bool:
        try:
            self._look()
        except UnreachableError as error:
            if not self.away:
                self._say(f"{error} Waiting for it.")
            self.away = True
            self._health.brokers(answer=False)
            return False
        if self.away:
            self._say("A broker answers again.")
        self.away = False
        self._health.brokers(answer=True)
        return True


def _run(query: StreamingQuery, cluster: _Cluster, stop: threading.Event) -> str | None:
    """Wait for the end of the query; what it failed by, if it did. While brokers are away Spark's reader waits, too."""
    look_at = time.monotonic() + _TOPIC_SECONDS
    try:
        while query.isActive and not stop.wait(_LOOK_SECONDS):
            if time.monotonic() > look_at:
                cluster.answers()
                look_at = time.monotonic() + _TOPIC_SECONDS
    except JobError:
        query.stop()
        raise
    if stop.is_set():
        if not cluster.away:  # else there is nothing to come
            _finish_batch(query)
        query.stop()
        return None
    failure = query.exception()
    return None if failure is None else str(failure)


def _finish_batch(query: StreamingQuery) -> None:
    """Let the batch in flight end: stopping in its midst is safe, but reads the batch again at the next start."""
    ends = time.monotonic() + _FINISH_SECONDS
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < ends:
        time.sleep(_LOOK_SECONDS)


def _cause(failure: str) -> str:
    """The line of a streaming failure that tells a person something."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Invalid): ", line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    said = re.search(r"terminated with exception: (.+?)(?: SQLSTATE| ===|$)", lines[0])
    return ([*causes, *python] or [said[1] if said else lines[0]])[-1][:500]
