"""The alert service: every few seconds it observes the cluster, runs the alert engine, stores the alerts, sends.

It runs whether or not records arrive, because most alerts are about something that does not happen. If a table cannot
be written, the sinks still get the alerts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import ClassVar

from streaming_app.alerts.alert import Alert
from streaming_app.alerts.engine import AlertEngine
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineSettings, Observed
from streaming_app.alerts.evaluate import watches_any
from streaming_app.config.declared import make_times_of
from streaming_app.errors import OtherOwnerError
from streaming_app.health.verdict import Verdict
from streaming_app.job.sender import Sender
from streaming_app.job.service import Job, Service, WakeableEvent, error_text
from streaming_app.job_status import SinkStatus
from streaming_app.notify.http_sink import WatchdogSink
from streaming_app.notify.mutes import Mutes
from streaming_app.notify.outbox import Outbox
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.health_tables import WRITTEN_ROWS, EndedAlerts, HealthRow, HealthTable
from streaming_app.tables.heartbeat_file import first_started_at
from streaming_app.text import count, escape, first_of

_NAMED = 5  # groups in a line
_RETRY_SECONDS = 10.0  # delta-rs logs a lot at each attempt when the disk is full


class AlertService(Service):
    """Evaluates the rules every few seconds, until it is closed."""

    close_seconds: ClassVar[float] = 60.0  # for the running evaluation, so that its changes are stored

    def __init__(
        self,
        job: Job,
        settings: EngineSettings,
        observe: Callable[[Sequence[SinkStatus]], Observed],
        descriptions: DescriptionSupport,
        on_evaluated: Callable[[tuple[SinkStatus, ...]], None] = lambda _status: None,
    ) -> None:
        """Restore the alerts from the table. Raises WarehouseError when it cannot be read.

        `observe` gets the sinks that fail, and returns what is known of the cluster now; `on_evaluated` is called
        after each evaluation with the status of the sinks. Nothing is sent once another job sends the alerts.
        """
        self._wakeable, config = WakeableEvent(), job.config
        super().__init__("alerts", job.report, interval=config.alerts.interval, stopping=self._wakeable)
        self._job, self._observe, self._on_evaluated = job, observe, on_evaluated
        self._evaluate_at = self._retry_at = 0.0
        self._checked_coverage, self._evaluated = False, True
        self._named = set[str]()
        times_of = make_times_of(config.mute_times, config.time_intervals)
        self._mutes = Mutes(config.warehouse, config.cluster, job.report, times_of=times_of)
        self._mutes.refresh()
        sinks = [sink for sink in config.sinks if not isinstance(sink, WatchdogSink)]
        self._store = AlertsTable(config.warehouse, config.cluster, job.fence)
        self._verdicts = HealthTable(config.warehouse, config.cluster, job.fence)
        self._ended = EndedAlerts(config.warehouse, config.cluster)
        names = tuple(sink.name for sink in sinks)
        first = first_started_at(config.warehouse, config.cluster, datetime.now(timezone.utc))
        self._settings = replace(settings, sinks=names, is_muted=self._mutes.find, first_started_at=first)
        verdicts, relabelled = dict[str, Verdict](), set[str]()
        for row in self._verdicts.rows():
            verdicts[row.group_id] = row.verdict
            if row.labels != settings.labels_of(row.group_id):
                relabelled.add(row.group_id)
        self._relabelled = frozenset(relabelled)
        self._engine = AlertEngine(self._settings, self._store.alerts(), descriptions, verdicts)
        # The result of an attempt is stored at once: else the notification would be sent again after a crash.
        alerts = self._engine.lifecycle
        outboxes = [Outbox(sink, alerts, first) for sink in sinks]
        self._sender = Sender(outboxes, self._wakeable.wake, job.report)

    def open_alerts(self) -> tuple[Alert, ...]:
        """Return the alerts that are pending or open, as of the last evaluation."""
        return tuple(self._engine.lifecycle.open.values())

    def is_muted(self, one: Alert) -> bool:
        """Return whether an alert is muted now, as of the last evaluation."""
        return self._settings.is_muted(one) is not None

    def sinks(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink."""
        return self._sender.status()

    def tick(self) -> None:
        """Evaluate the rules if that is due, and store the changes. Raises an error after trying all steps."""
        if self._job.fence:
            self._job.fence.check_owner()
        if time.monotonic() < self._evaluate_at:
            self._save()
            return
        self._evaluate_at, self._evaluated = time.monotonic() + self._job.config.alerts.interval, False
        try:
            self._evaluate()
        finally:
            self._on_evaluated(self._sender.status())
        self._evaluated = True

    def pause(self, seconds: float) -> float:
        """Return the seconds until the next evaluation; the result of a notification wakes the service earlier."""
        del seconds
        return max(0.0, self._evaluate_at - time.monotonic())

    def failed(self, text: str) -> str:
        """Return the line about an evaluation that failed."""
        return f"alerts: {text}; trying again"

    def succeeded(self) -> None:
        """Note that a tick succeeded, unless the last evaluation failed or rows are not written yet."""
        if self._evaluated and not self._engine.lifecycle.unsaved:
            super().succeeded()

    def finish(self, send_seconds: float) -> None:
        """Evaluate once more, and close as `end` does."""
        super().close()
        self._evaluate_at = self._retry_at = 0.0
        self._report_error_of(self.tick)
        self.end(send_seconds)

    def end(self, send_seconds: float) -> None:
        """Close, and wait up to `send_seconds` for due notifications; unsent ones are sent after the next start."""
        super().close()
        self._sender.close(send_seconds)
        self._retry_at = 0.0
        self._report_error_of(self._save)

    def _evaluate(self) -> None:
        failing = tuple(sink for sink in self._sender.status() if sink.failing_since)
        observed = replace(self._observe(failing), ended=self._ended.reasons())
        self._mutes.refresh()
        self._check_coverage(observed)
        now = datetime.now(timezone.utc)
        with self._sender.changing():
            self._engine.step(observed, now)
        self._report_failed()
        try:
            self._save()
        finally:  # after that, so that a crash in between loses no notification
            with self._sender.changing():
                self._engine.lifecycle.publish()

    def _report_failed(self) -> None:
        """Name the groups whose verdict could not be decided, once each."""
        failed = self._engine.board.failed
        if new := sorted(failed.keys() - self._named):
            groups, why = first_of([escape(one) for one in new[:_NAMED]], _NAMED, len(new)), escape(failed[new[0]])
            self.report(f"alerts: no verdict on {count(len(new), 'group')}, the others go on: {groups}. {why}")
        self._named.update(new)

    def _save(self) -> None:
        """Write the changes that are not written yet. On failure they are kept, and tried again later."""
        if time.monotonic() < self._retry_at:
            return
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        try:
            with self._sender.changing():
                unsaved = self._engine.lifecycle.unsaved
            if unsaved:
                self._store.save(unsaved)
                with self._sender.changing():
                    self._engine.lifecycle.saved(unsaved)
        finally:
            self._save_verdicts()
        self._retry_at = 0.0

    def _save_verdicts(self) -> None:
        board, unsaved, labels_of = self._engine.board, self._engine.unsaved_changes, self._settings.labels_of
        moved, now = frozenset(board.moved), datetime.now(timezone.utc)
        others = moved | self._relabelled
        last = {one.group_id: one for one in unsaved if one.group_id in others}
        ends = {one.group_id: one for one in unsaved if not board.knows(one.group_id)}
        while some := unsaved[:WRITTEN_ROWS]:
            rows = [HealthRow(*one, labels_of(one.group_id), is_end=ends.get(one.group_id) is one) for one in some]
            self._verdicts.append(rows)
            del unsaved[: len(some)]
        verdicts = board.verdicts() if others else {}
        rows = [
            HealthRow(one, verdicts[one], now, labels_of(one))
            for one in others
            if one in verdicts and (one not in last or last[one].verdict is not verdicts[one])
        ]
        if rows:
            self._verdicts.append(rows)
        board.moved -= moved
        self._relabelled = frozenset()

    def verdicts(self) -> Mapping[str, Verdict]:
        """Return the newest verdict of each group."""
        return self._engine.board.verdicts()

    def newcomers_left_out(self) -> Mapping[str, int]:
        """Return how many new groups have no alerts, and how many no verdict yet, because older groups come first."""
        return {"alerts": self._engine.without_alerts, "verdicts": len(self._engine.board.put_off)}

    def _report_error_of(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OtherOwnerError:
            pass
        except Exception as error:  # noqa: BLE001 - the job ends anyway
            self.report_failure(self.failed(error_text(error)))

    def _check_coverage(self, observed: Observed) -> None:
        """Report settings that exclude every group, such as an override whose pattern matches everything."""
        job, group_ids = observed.job, observed.groups
        if self._checked_coverage or not (job and job.caught_up and group_ids):
            return
        self._checked_coverage = True
        if not watches_any(group_ids, self._settings.rule_settings_of):
            self.report(
                f"alerts: no rule is enabled for any of the {count(len(group_ids), 'group')}: "
                "check groups, ignore_groups, rules and overrides below `alerts:`"
            )
