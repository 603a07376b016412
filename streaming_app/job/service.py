"""The base of the job's background services: how a service starts and ends, and what a failure does.

Theory of operation
-------------------
A service is a thread that calls `tick` until the job ends. A tick does the work that is due, and returns. If it raises,
only this service has failed: it reports the error in one line, reports it again only after a success, and makes the
next tick after the usual pause. So no error ends the thread or the job, with one exception: once another job has taken
over, each service ends, and the stream ends the job. Errors while the job ends are not reported.

All services are asked to end before any of them is waited for, and the wait for each is limited. If a request to a
broker or a store gets no answer, its thread is left behind: it is a daemon, and ends with the process. So everything
that a service writes must be whole at any point.

This module has only code that is common to all services.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from socket import gaierror
from ssl import SSLError
from typing import Any, ClassVar

from kafka.errors import KafkaError

from streaming_app.config.settings import JobConfig
from streaming_app.errors import OtherOwnerError, UserError, java_error_message
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import SharedConnection
from streaming_app.kafka.error_lines import REQUEST_ERRORS, error_message
from streaming_app.report import Report, ReportOnce
from streaming_app.stream.job_state import JobState
from streaming_app.tables.fence import Fence
from streaming_app.tables.kept_table import KNOWN_SECONDS
from streaming_app.tables.reader import WarehouseReader, quote

CLOSE_SECONDS = 2.0
"""How long to wait for the end of a service after it was asked to end."""
_POLL_SECONDS = 60.0  # between two passes over the groups: by default clients report their offsets once a minute


class Service:
    """A service, which is started once: it calls a function at intervals. Subclasses override what differs."""

    close_seconds: ClassVar[float] = CLOSE_SECONDS
    poll_seconds: ClassVar[float] = 1.0

    def __init__(  # noqa: PLR0913 - each may be otherwise with a service
        self,
        name: str,
        report: Report,
        *,
        interval: float | None,
        after: float = 0.0,
        describe_error: Callable[[Exception], str] | None = None,
        stopping: threading.Event | None = None,
        may_tick: Callable[[], bool] = lambda: True,
        do: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare. `name` is the thread's name, and the start of lines about failures, which `report` gets.

        `interval` is in seconds between two ticks, None for a single tick; `after` is before the first one. `stopping`
        is set when the service must end. A tick begins only if `may_tick`, and calls `do`.
        """
        self.name, self.report, self.interval = name, report, interval
        self.stopping = stopping or threading.Event()
        self.report_failure = ReportOnce(report)
        self.failures = 0
        """The number of ticks that have failed since the start."""
        self._after, self._describe_error = after, describe_error or error_text
        self._may_tick, self._do = may_tick, do
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def tick(self) -> None:
        """Do the work that is due. Called in the thread of the service."""
        self._do()

    def is_ready(self) -> bool:
        """Return whether a due tick may begin."""
        return self._may_tick()

    def pause(self, seconds: float) -> float | None:
        """Return the seconds until the next tick; `seconds` is how long this one took. None: it was the last one."""
        del seconds
        return self.interval

    def failed(self, text: str) -> str:
        """Note that a tick has failed, and return the line about it; `text` is the error."""
        return f"{self.name}: {text}"

    def succeeded(self) -> None:
        """Note that a tick has succeeded."""
        self.report_failure.clear()

    def on_end(self) -> None:
        """Do the work after the last tick, within a fraction of `close_seconds`. In the thread of the service."""

    @property
    def is_running(self) -> bool:
        """Whether its thread is alive."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait up to `seconds` for the end of the thread; return whether it has ended, or was never started."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, seconds))
        return not self.is_running

    def close(self) -> bool:
        """End the service; return whether it has ended within `close_seconds`."""
        self.stopping.set()
        return self.join(self.close_seconds)

    def attempt(self) -> None:
        """Make one tick in this thread. A failure is noted and reported, not raised."""
        try:
            self.tick()
        except BaseException as error:  # noqa: BLE001 - even if a library calls exit, the job goes on
            self._fail(error)
        else:
            self.succeeded()

    def tick_if_due(self) -> float | None:
        """Make a tick in this thread if one is due; return how long to wait then, None after the last one."""
        try:
            if not self.is_ready():
                return self.poll_seconds
        except BaseException as error:  # noqa: BLE001 - as above
            self._fail(error)
            return self.poll_seconds
        began = time.monotonic()
        self.attempt()
        return self.pause(time.monotonic() - began)

    def _run(self) -> None:
        pause: float | None = self._after
        try:
            while pause is not None and not self.stopping.wait(pause):
                pause = self.tick_if_due()
            self.on_end()
        except BaseException as error:  # noqa: BLE001 - a bug of the service; nothing else would report it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, OtherOwnerError):  # the stream ends the job with this line
            self.stopping.set()
        if self.stopping.is_set():
            return
        self.failures += 1
        text = self._describe_error(error) if isinstance(error, Exception) else error_text(error)
        with suppress(OSError):  # nobody reads the output any more
            self.report_failure(self.failed(text))


@dataclass(frozen=True)
class Job:
    """The running job: what its streams and its services have in common."""

    config: JobConfig
    connection: SharedConnection[StreamsGroupClient]
    health: JobState
    report: Report
    fence: Fence | None = None
    groups: Callable[[], Mapping[str, GroupSnapshot]] = dict
    """Returns the groups by id. Nobody changes the mapping: it is replaced."""
    may_ask: Callable[[], bool] = lambda: True
    """Whether brokers may be asked about the groups."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def rows(self, table: str, columns: str, condition: str = "TRUE") -> list[dict[str, Any]]:
        """Return columns of the rows of the job's cluster that match a condition. Raises WarehouseError."""
        own = f"cluster = {quote(self.config.cluster)}"
        query = f"SELECT {columns} FROM {table} WHERE {own} AND {condition}"  # noqa: S608 - the callers quote
        return WarehouseReader(self.config.warehouse, known_for=KNOWN_SECONDS if self.fence else 0.0).rows(query)


class Poller(Service):
    """A service whose ticks are passes that ask the brokers."""

    def __init__(self, name: str, job: Job, needs: str, interval: float = _POLL_SECONDS) -> None:
        """Prepare for a job; `needs` is as for `error_message`."""
        super().__init__(
            name,
            job.report,
            interval=interval,
            after=self.poll_seconds,
            describe_error=partial(_request_error_text, job.connection.properties, needs),
            may_tick=job.may_ask,
        )
        self._job, self._now, self._denials = job, job.now, ReportOnce(job.report)

    def report_denied(self, what: str | None) -> None:
        """Report what the principal may not read, once until it changes; None: it may read all."""
        if what:
            self._denials(f"{self.name}: {what}")
        else:
            self._denials.clear()


class Services:
    """Services that run at the same time: started one by one, ended together."""

    def __init__(self) -> None:
        self._services: list[Service] = []

    def start(self, service: Service) -> None:
        """Start a service; `close` ends it with the others."""
        self._services.append(service)
        service.start()

    def close(self) -> list[str]:
        """End all services, the last started first; return the names of those that did not end in time."""
        ending = self._services[::-1]
        self._services = []
        for service in ending:
            service.stopping.set()
        asked_at = time.monotonic()
        return [one.name for one in ending if not one.join(asked_at + one.close_seconds - time.monotonic())]


class WakeableEvent(threading.Event):
    """An event whose `wait` also ends early, once, when somebody calls `wake`, because there is something to do."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Event()

    def set(self) -> None:
        """Set it, and let `wait` end."""
        super().set()
        self._changed.set()

    def wake(self) -> None:
        """Let `wait` end without setting the event; if nobody waits, the next wait ends at once."""
        self._changed.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set or woken; return whether it is set."""
        self._changed.wait(timeout)
        self._changed.clear()
        return self.is_set()


def error_text(error: BaseException) -> str:
    """Return the text of an error in one line; with its type, unless it is ours or the operating system's."""
    if isinstance(error, UserError | OSError):
        return " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {' '.join(java_error_message(error).split())}"


def _request_error_text(properties: Mapping[str, str], needs: str, error: Exception) -> str:
    """Return the line about an error of a service that asks brokers with these client properties."""
    is_of_brokers = isinstance(error, REQUEST_ERRORS) and not isinstance(error, UserError)
    if not is_of_brokers or (isinstance(error, OSError) and not isinstance(error, _NETWORK_ERRORS)):
        return error_text(error)
    return error_message(error, properties, needs)


_NETWORK_ERRORS = (KafkaError, ConnectionError, TimeoutError, SSLError, gaierror)  # some of them are OSErrors
