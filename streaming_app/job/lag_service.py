"""The service that makes the lag passes while the job runs, and writes the tables.

While passes fail, the tables stay as they are. The service may die at any point: each write to a table is one commit,
and the next run starts from the tables.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone

from kafka.errors import KafkaError

from streaming_app.alerts.catalog import RULE_OF_VERDICT
from streaming_app.config.settings import JobConfig
from streaming_app.health.verdict import STALLED
from streaming_app.job.lag_pass import LagPass, PassResult, describe_errors
from streaming_app.job.service import CLOSE_SECONDS, Job, Poller
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import HISTORY_REST_SECONDS, LagRow, ReadUntil
from streaming_app.lag.open_transactions import held_for_long
from streaming_app.lag.partition_progress import STALLED_SECONDS
from streaming_app.lag.tracker import LATE_SECONDS, LagTracker
from streaming_app.tables.lag_tables import LagTables
from streaming_app.text import escape

_LOOK_SECONDS = 3.0  # between two checks of the list of brokers
_MOST_DOUBLED = 20  # how often the pause until the next try is doubled
_NEEDS = "the lag needs Describe on the groups and on their topics"
_HISTORY_SECONDS = 60.0  # between two rows of a partition in the history
_OLD_PASSES = 4  # after so many intervals without a pass, the lag counts as unknown
_SAVE_SECONDS = 60.0  # between two writes of the samples
_SAVE_SHARE = 50  # a write that takes a second is done at most every fifty seconds
_UNCHANGED_SECONDS = 300.0  # after this, rows are written even if only `observed_at` has changed


def lag_tracker(config: JobConfig) -> LagTracker:
    """Return a tracker without knowledge, with the settings of the job."""
    patience = config.alerts.patience_of(RULE_OF_VERDICT[STALLED], STALLED_SECONDS)
    return LagTracker(LATE_SECONDS + 2 * config.offsets.trigger, patience)


class LagService(Poller):
    """Runs from `start` to `close`; or makes one pass with `finish`.

    Between two passes it checks the list of brokers every few seconds: when a broker has come or gone, the next pass is
    due at once. After a pass that failed, or could not ask all leaders, the next passes come sooner than the interval.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.time) -> None:
        """Prepare. No pass begins before the job is at the end of the topic. Raises WarehouseError without tables."""
        config = job.config
        super().__init__("lag", job, _NEEDS, config.lag.interval)
        self._settings, self._connection = config.lag, job.connection
        self._store = LagTables(config.warehouse, config.cluster, job.fence)
        self._clock = clock
        self._pass = LagPass(self._store, lag_tracker(config), clock, self._read_until, config.topic)
        self._is_restored = False
        self.result: PassResult | None = None
        """The newest pass; None before the first one."""
        self._written: list[object] | None = None
        self._written_at = self._saved_at = 0.0
        self._save_seconds = 0.0
        self._history: dict[tuple[str, str, int], tuple[float, object]] = {}
        self._gaps: frozenset[str] = frozenset()
        self._next_at = self._look_at = 0.0
        self._tries = 0
        """Passes in a row that failed or could not ask all leaders, since the list of brokers last changed."""

    def finish(self) -> None:
        """Make two passes now, for a run that ends: the second one confirms what the first one takes from the past."""
        failures = self.failures
        self.attempt()
        if self.failures == failures:
            self.attempt()

    def is_ready(self) -> bool:
        """Return whether a pass is due and may begin."""
        status = self._job.health.status
        if not status.caught_up or status.brokers_away_since:
            return False
        now = time.monotonic()
        if not self.report_failure.has_any and self._look_at <= now < self._next_at:
            self._look_at = now + _LOOK_SECONDS
            with suppress(KafkaError), self._connection.use() as admin:
                if not self._pass.has_news(admin):
                    return False
            self._tries, self._next_at = 0, now  # a broker came or went, or the pass will report the error
        return now >= self._next_at

    def pause(self, seconds: float) -> float:
        """Return the time until a pass may be due: after a long pass, at least as much time goes to other services."""
        interval = self._settings.interval
        if self._tries:
            interval = min(interval, _LOOK_SECONDS * 2 ** min(self._tries - 1, _MOST_DOUBLED))
        pause = max(interval - seconds, seconds)
        self._next_at = time.monotonic() + pause
        self._look_at = time.monotonic() + max(_LOOK_SECONDS, seconds)
        return min(pause, self.poll_seconds)

    def failed(self, text: str) -> str:
        """Note a failed pass in the job's health, and return the line about it."""
        self._tries += 1
        self._job.health.lag_pass(text)
        return f"lag: not known at present: {text}"

    def succeeded(self) -> None:
        """Report that the lag is known again."""
        if self.report_failure.clear():
            self.report("lag: known again")
        self._tries = self._tries + 1 if self.result and self.result.may_come else 0
        super().succeeded()

    def on_end(self) -> None:
        """Save the samples if that takes little time."""
        with suppress(OSError):
            if self.result is not None and self._save_seconds < CLOSE_SECONDS / 2:
                self._save_samples(self._clock())

    def newest(self) -> PassResult | None:
        """Return the newest pass; None if it is too old, or there was none."""
        if (result := self.result) is None:
            return None
        longest = _OLD_PASSES * max(self._settings.interval, 2 * result.seconds)
        return result if 0 <= self._clock() - result.at < longest else None

    def held(self) -> list[TopicPartition]:
        """Return the partitions where groups have waited for an open transaction for long."""
        result = self.newest()
        return held_for_long(result.work.values()) if result else []

    def tick(self) -> None:
        """Make one pass, and write its results. Raises the errors of kafka-python, of delta-rs and our own."""
        if not self._is_restored:
            self._pass.restore(self._store)
            self._is_restored = True
        with self._connection.use() as admin:
            result = self._pass.run(admin)
        if self.stopping.is_set():
            return
        self.result = result
        self._report_gaps(result)
        self._write(result)
        known = result.known.log_ends
        answered_at = {str(one): datetime.fromtimestamp(at, timezone.utc) for one, at in known.items()}
        self._job.health.lag_pass(None, answered_at)

    def _write(self, result: PassResult) -> None:
        now, rows = result.at, result.rows
        compared: list[object] = [row[:-2] for row in rows]  # without observed_at and known_until
        if compared != self._written or not 0 <= now - self._written_at < _UNCHANGED_SECONDS:
            self._store.replace_lag(rows)
            self._written, self._written_at = compared, now
        self._store.replace_inputs(result.known)
        self._store.append_events(result.topic_events)
        self._write_history(rows, now)
        if not 0 <= now - self._saved_at < max(_SAVE_SECONDS, _SAVE_SHARE * self._save_seconds):
            self._save_samples(now)

    def _write_history(self, rows: list[LagRow], now: float) -> None:
        """Write the rows that differ from their newest row in the history, or that come an hour after it."""
        new, known = list[LagRow](), self._history
        history: dict[tuple[str, str, int], tuple[float, object]] = {}
        for row in rows:
            key = (row.group_id, row.topic, row.partition)
            if row.lag is None and key not in known:  # the lag was never known
                continue
            value = (row.committed_offset, row.log_start_offset, row.log_end_offset, row.offset_status, row.lag is None)
            history[key] = at, before = known.get(key, (0.0, None))
            if not 0 <= now - at < (_HISTORY_SECONDS if value != before else HISTORY_REST_SECONDS):
                new.append(row)
                history[key] = (now, value)
        self._store.append_history(new)
        self._history = history

    def _save_samples(self, now: float) -> None:
        began = time.monotonic()
        self._store.replace_samples(self._pass.tracker.samples)
        self._saved_at, self._save_seconds = now, time.monotonic() - began

    def _report_gaps(self, result: PassResult) -> None:
        """Report missing answers of the brokers if they are new since the last pass, and when all are there again."""
        before, self._gaps = self._gaps, frozenset({*result.errors, *result.away})
        if self._gaps - before and (text := describe_errors(result.errors, result.away)):
            self.report(f"lag: {escape(text)}")
        elif before and not self._gaps:
            self.report("lag: the lag of all partitions is known")

    def _read_until(self) -> ReadUntil:
        status = self._job.health.status
        commits = status.offsets.caught_up_at if status.offsets else None
        return ReadUntil(_seconds(commits), _seconds(status.caught_up_at))


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0
