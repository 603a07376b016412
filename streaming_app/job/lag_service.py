"""Runs the passes over the lag while the job runs, in a thread of its own, and writes the tables.

An error never ends the thread or the job: it is reported in one line, and not again until a pass has succeeded. The
tables stay as they are meanwhile. Nothing waits for this service, and it may die at any point: each table is replaced
or added to in one commit, and the next run begins with what is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kafka.errors import KafkaError

from streaming_app.errors import UserError, WarehouseError
from streaming_app.job.lag_pass import LagPass, PassResult, describe_errors
from streaming_app.kafka.admin import Admin
from streaming_app.kafka.security import security_settings
from streaming_app.lag.group_lag import GroupLag, group_lags
from streaming_app.lag.model import LagRow
from streaming_app.metrics.lag_metrics import LagStatus
from streaming_app.tables.lag_store import LagStore
from streaming_app.text import escape
from streaming_app.verify.request_errors import REQUEST_ERRORS, error_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_app.config.job_config import JobConfig
    from streaming_app.config.lag import LagSettings
    from streaming_app.stream.health import Health

_BOOTSTRAP_MS = 10_000
_POLL_SECONDS = 1.0
_OLD_PASSES = 4  # after so many intervals without a pass, the lag is not known
_CLOSE_SECONDS = 2.0
_SAVE_SECONDS = 60.0  # between two writes of the samples
_SAVE_SHARE = 50  # a write that takes a second is done once in fifty at most
_UNCHANGED_SECONDS = 300.0  # after that, rows are written although only `observed_at` has changed
_MAINTENANCE_SECONDS = 1_800.0


class LagService:
    """Runs from `start` to `close`; or once, with `finish`."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        settings: LagSettings,
        store: LagStore,
        connect: Callable[[], Admin],
        *,
        report: Callable[[str], None],
        describe_error: Callable[[Exception], str] = str,
        clock: Callable[[], float] = time.time,
        is_ready: Callable[[], bool] = lambda: True,
        on_pass: Callable[[str | None], None] = lambda _failure: None,
    ) -> None:
        """Prepare. `connect` returns a connection to the brokers; `report` gets lines for the operator.

        `on_pass` is called after each pass, with the error of one that failed.

        No pass begins while not `is_ready`: the job reads old records, or has itself reported that no broker answers.
        """
        self._settings, self._store, self._connect = settings, store, connect
        self._report, self._describe_error, self._clock, self._is_ready = report, describe_error, clock, is_ready
        self._on_pass = on_pass
        self._pass = LagPass(store, settings.allowed_for, clock)
        self._admin: Admin | None = None
        self._is_restored = False
        self._result: PassResult | None = None
        self._groups: Mapping[str, GroupLag] = {}
        self._written: list[object] | None = None
        self._written_at = self._saved_at = self._maintained_at = 0.0
        self._save_seconds = 0.0
        self._history: dict[tuple[str, str, int], tuple[float, object]] = {}
        self._reported: str | None = None
        self._reported_gap: frozenset[str] = frozenset()
        self.failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop. A request that brokers have not answered is left to the thread, which writes nothing any more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._disconnect()

    def finish(self) -> None:
        """Do one pass now, for a run that ends, and save everything."""
        self._attempt()
        with suppress(OSError):
            self._save_samples(self._clock())
        self._disconnect()

    @property
    def result(self) -> PassResult | None:
        """The newest pass; None before the first one."""
        return self._result

    def groups(self) -> Mapping[str, GroupLag] | None:
        """Return the groups with whose lag something is wrong; None if the newest pass says nothing of now."""
        result = self._result
        if result is None:
            return None
        longest = _OLD_PASSES * max(self._settings.interval, 2 * result.seconds)
        return self._groups if 0 <= self._clock() - result.at < longest else None

    def status(self) -> LagStatus | None:
        """Return the newest pass for the metrics; None before the first one."""
        result = self._result
        if result is None:
            return None
        return LagStatus(result.rows, result.at, result.seconds, result.requests, result.partitions, self.failures)

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._is_ready():
                self._stop.wait(_POLL_SECONDS)
                continue
            began = time.monotonic()
            self._attempt()
            seconds = time.monotonic() - began
            # A pass that takes long leaves as much time to others.
            self._stop.wait(max(self._settings.interval - seconds, seconds))
        with suppress(OSError):
            if self._result is not None and self._save_seconds < _CLOSE_SECONDS / 2:
                self._save_samples(self._clock())

    def _attempt(self) -> None:
        try:
            self._step()
        except Exception as error:  # noqa: BLE001 - of kafka-python, delta-rs and our own; the job goes on
            self._disconnect()
            if self._stop.is_set():
                return
            self.failures += 1
            line = self._describe_error(error)
            self._on_pass(line)
            if line != self._reported:
                self._reported = line
                self._report(f"lag: not known at present: {line}")

    def _step(self) -> None:
        if not self._is_restored:
            self._pass.restore()
            self._is_restored = True
        if self._admin is None:
            self._admin = self._connect()
        result = self._pass.run(self._admin)
        if self._stop.is_set():
            return
        self._groups = group_lags(result.rows, result.groups, self._groups, result.at)
        self._result = result
        self._report_gaps(result)
        self._write(result)
        self._on_pass(None)
        if self._reported is not None:
            self._reported = None
            self._report("lag: known again")

    def _write(self, result: PassResult) -> None:
        now, rows = result.at, result.rows
        compared: list[object] = [row[:-1] for row in rows]  # without observed_at
        if compared != self._written or not 0 <= now - self._written_at < _UNCHANGED_SECONDS:
            self._store.replace_lag(rows)
            self._written, self._written_at = compared, now
        self._store.append_history(self._new_history(rows, now))
        if not 0 <= now - self._saved_at < max(_SAVE_SECONDS, _SAVE_SHARE * self._save_seconds):
            self._save_samples(now)
        if not 0 <= now - self._maintained_at < _MAINTENANCE_SECONDS:
            self._maintained_at = now
            self._maintain()

    def _maintain(self) -> None:
        """Keep the tables small; a failure is reported and tried again at the next time, and loses no pass."""
        try:
            self._store.maintain(self._settings.history_days)
        except (OSError, UserError) as error:
            self._report(f"lag: {error}")

    def _new_history(self, rows: list[LagRow], now: float) -> list[LagRow]:
        """Return the rows that differ from their newest one in the history, which is old enough."""
        new, known = [], self._history
        history: dict[tuple[str, str, int], tuple[float, object]] = {}
        for row in rows:
            if row.lag is None:
                continue
            key = (row.group_id, row.topic, row.partition)
            value = (row.committed_offset, row.log_end_offset, row.status)
            at, before = known.get(key, (0.0, None))
            if value != before and not 0 <= now - at < self._settings.history_interval:
                new.append(row)
                history[key] = (now, value)
            else:
                history[key] = (at, before)
        self._history = history
        return new

    def _save_samples(self, now: float) -> None:
        if not self._is_restored:  # what is in the table is more than what is known here
            return
        began = time.monotonic()
        self._store.replace_samples(self._pass.tracker.samples(), self._pass.topic_ids())
        self._saved_at, self._save_seconds = now, time.monotonic() - began

    def _report_gaps(self, result: PassResult) -> None:
        """Report what brokers do not tell, once, and again when it is about other errors."""
        errors = frozenset(result.errors)
        if errors != self._reported_gap:
            self._reported_gap = errors
            self._report(f"lag: {escape(describe_errors(result.errors) or 'the lag of all partitions is known')}")

    def _disconnect(self) -> None:
        if self._admin is not None:
            with suppress(Exception):
                self._admin.close()
            self._admin = None


def make_lag_service(
    config: JobConfig, properties: Mapping[str, str], health: Health, report: Callable[[str], None]
) -> LagService:
    """Return the service of a job. Raises WarehouseError if the tables do not exist."""

    def connect() -> Admin:
        settings = security_settings(properties)
        servers = config.bootstrap_server.split(",")
        return Admin(bootstrap_servers=servers, bootstrap_timeout_ms=_BOOTSTRAP_MS, **settings)

    return LagService(
        config.lag,
        LagStore(config.warehouse, config.cluster),
        connect,
        report=report,
        describe_error=partial(_describe_error, config.bootstrap_server, properties),
        on_pass=health.lag_pass,
        is_ready=lambda: health.status.caught_up and health.status.brokers_away_since is None,
    )


def _describe_error(bootstrap_server: str, properties: Mapping[str, str], error: Exception) -> str:
    if isinstance(error, UserError | WarehouseError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, REQUEST_ERRORS):
        return error_message(error, bootstrap_server, properties)
    return f"{type(error).__name__}: {error}"
