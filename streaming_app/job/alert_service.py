"""The background loop of the alerts: evaluates the rules every few seconds, stores the alerts and sends notifications.

It runs whether or not records arrive, because most alerts are about something that does not happen. An error of its
own, such as a table that cannot be written, is reported once and retried at each evaluation; it neither ends the loop
nor keeps alerts from the sinks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

from streaming_app.alerts.alert import FIRING, Alert, Delivery
from streaming_app.alerts.description_support import DescriptionSupport
from streaming_app.alerts.evaluate import RuleSettingsLookup, evaluate, is_held, watches_any
from streaming_app.alerts.lifecycle import AlertState, NotifyPolicy, advance
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.alerts.survey import survey_cluster
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.job.group_cache import GroupCache
from streaming_app.job_status import DifferingGroup, JobStatus
from streaming_app.lag.group_lag import GroupLag
from streaming_app.notify.daily_summary import DailySummary
from streaming_app.notify.sink_worker import DeliveryCallback, SinkStatus
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.text import count

_STOP = None
_RETRY_SAVE_SECONDS = 10.0  # delta-rs logs a lot at each attempt when the disk is full


class Notifier(Protocol):
    """What the evaluator needs of a `Dispatcher`."""

    def settle(self, alerts: tuple[Alert, ...]) -> tuple[Alert, ...]:
        """Return the alerts without the notifications that will never be sent."""

    def offer(self, alerts: tuple[Alert, ...]) -> None:
        """Send the notifications of these alerts that are due."""

    def offer_summary(self, sink: str, summary: DailySummary, on_sent: Callable[[], None]) -> None:
        """Send a daily summary to the sink of this name."""

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink."""

    def flush(self, timeout: float) -> bool:
        """Wait until everything is sent."""

    def close(self, timeout: float) -> None:
        """Stop the threads and close the sinks."""


@dataclass(frozen=True)
class EvaluatorConfig:
    """The settings of an `AlertEvaluator`."""

    cluster: str
    interval: float
    """Seconds between evaluations."""
    rule_settings_of: RuleSettingsLookup
    notify_policy: NotifyPolicy
    descriptions: DescriptionSupport
    retention_days: float
    lag_of_all_groups: bool = False


class AlertEvaluator:
    """Evaluates the rules every few seconds, in its own thread, until it is closed."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing it needs
        self,
        config: EvaluatorConfig,
        group_cache: GroupCache,
        store: AlertsTable,
        job_status: Callable[[], JobStatus],
        make_notifier: Callable[[DeliveryCallback], Notifier],
        report: Callable[[str], None],
        on_evaluated: Callable[[tuple[SinkStatus, ...]], None] = lambda _status: None,
        *,
        differing_groups: Callable[[], tuple[DifferingGroup, ...]] = tuple,
        copies: Callable[[], Sequence[GroupCopies] | None] = tuple,
        lag: Callable[[], Mapping[str, GroupLag] | None] = dict,
    ) -> None:
        """Restore the alerts from the table. Raises WarehouseError when it cannot be read.

        `make_notifier` gets the callback for the results of each attempt; `report` gets a line for the operator when
        something fails; `on_evaluated` is called after each evaluation with the status of the sinks;
        `differing_groups` returns what the self-check reports, `copies` what is known of copies of tasks,
        `lag` with the lag of which groups something is wrong; both None while it is not known.
        """
        self._config, self._group_cache, self._store, self._job_status = config, group_cache, store, job_status
        self._report, self._on_evaluated, self._differing_groups = report, on_evaluated, differing_groups
        self._copies, self._lag = copies, lag
        self._unsaved: dict[tuple[str, ...], tuple[Alert, bool]] = {}
        stored = [self._without_removed_sinks(alert) for alert in store.alerts()]
        self._state = AlertState.from_alerts(stored)
        self._tracked = {alert.fingerprint: alert for alert in stored if _may_be_sent(alert)}
        self._results: queue.SimpleQueue[Sequence[tuple[str, Delivery]] | None] = queue.SimpleQueue()
        self._reported: set[str] = set()  # errors since the last evaluation without any
        self._retry_save_at = 0.0
        self._checked_coverage = False
        self._notifier = make_notifier(self._results.put)
        self._notifier.offer(tuple(self._tracked.values()))
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def open_alerts(self) -> tuple[Alert, ...]:
        """Return the alerts that are pending or firing, as of the last evaluation."""
        return tuple(self._state.open.values())

    def sinks(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink."""
        return self._notifier.status()

    def send_summary(self, sink: str, summary: DailySummary, on_sent: Callable[[], None]) -> None:
        """Send a daily summary to the sink of this name; `on_sent` is called, by another thread, when it is sent."""
        self._notifier.offer_summary(sink, summary, on_sent)

    def finish(self, send_seconds: float) -> None:
        """Evaluate once more, wait up to `send_seconds` for the notifications that are due, and close."""
        self._stop_thread()
        self._evaluate()
        self._notifier.flush(send_seconds)
        self._notifier.close(1.0)
        self._store_results()

    def close(self, send_seconds: float) -> None:
        """Close without another evaluation; what was not sent is sent after the next start."""
        self._stop_thread()
        self._notifier.close(send_seconds)
        self._store_results()

    def _stop_thread(self) -> None:
        self._results.put(_STOP)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._evaluate()
            next_at = time.monotonic() + self._config.interval
            while (left := next_at - time.monotonic()) > 0:
                try:
                    result = self._results.get(timeout=left)
                except queue.Empty:
                    break
                if result is _STOP:
                    return
                self._results.put(result)
                if not self._store_results():
                    return

    def _evaluate(self) -> None:
        """Run one evaluation. An error does not prevent the next one."""
        evaluated = self._try(self._evaluate_rules)
        published = self._try(lambda: self._on_evaluated(self._notifier.status()))
        if evaluated and published and not self._unsaved:
            self._reported.clear()

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - an error in one evaluation must not end the loop
            self._report_error(error)
            return False
        return True

    def _evaluate_rules(self) -> None:
        """Evaluate the rules, and update, store and send the alerts."""
        self._group_cache.refresh()
        now = datetime.now(timezone.utc)
        groups, job = self._group_cache.groups(), self._job_status()
        if job.caught_up and groups and not self._checked_coverage:
            self._checked_coverage = True
            self._report_coverage(groups)
        survey = survey_cluster(groups.values(), now)
        context = EvaluationContext(
            now,
            self._group_cache.histories(),
            survey,
            descriptions_since=self._config.descriptions.since(survey),
            descriptions_required=self._config.descriptions.required,
            open_alerts=self._state.open,
            differing_groups=self._differing_groups(),
            copies=self._copies(),
            lag=self._lag(),
            lag_of_all_groups=self._config.lag_of_all_groups,
        )
        changes = advance(
            self._state,
            evaluate(groups.values(), job, context, self._config.rule_settings_of),
            cluster=self._config.cluster,
            now=now,
            rule_settings_of=self._config.rule_settings_of,
            notify_policy=self._config.notify_policy,
            caught_up=job.caught_up,
            is_held=lambda key: is_held(key, context),
        )
        self._state = changes.state
        changed = self._notifier.settle(changes.changed)
        self._mark_unsaved(changes.removed, removed=True)
        self._mark_unsaved(changed)
        self._save()  # before they are sent, so that a crash in between loses none
        self._tracked |= {alert.fingerprint: alert for alert in changed if _may_be_sent(alert)}
        self._notifier.offer(changed)

    def _store_results(self) -> bool:
        """Store the results of notifications at once: a crash before that would send them again. False: stop.

        Those of one message are stored together, so that it is repeated as a whole or not at all.
        """
        running = True
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                break
            if result is _STOP:
                running = False
            else:
                for fingerprint, delivery in result:
                    self._apply_result(fingerprint, delivery)
        self._save()
        return running

    def _apply_result(self, fingerprint: str, delivery: Delivery) -> None:
        alert = self._tracked.get(fingerprint)
        if alert is None:
            return
        updated = replace(
            alert, deliveries=tuple(delivery if _is_same(delivery, other) else other for other in alert.deliveries)
        )
        self._state = self._state.with_deliveries(updated)
        self._mark_unsaved((updated,))
        if _may_be_sent(updated):
            self._tracked[fingerprint] = updated
        else:
            del self._tracked[fingerprint]

    def _without_removed_sinks(self, alert: Alert) -> Alert:
        """Drop the unsent notifications for sinks that are no longer configured."""
        kept = tuple(d for d in alert.deliveries if d.sent_at or d.sink in self._config.notify_policy.sinks)
        if kept == alert.deliveries:
            return alert
        updated = replace(alert, deliveries=kept)
        self._mark_unsaved((updated,))
        return updated

    def _mark_unsaved(self, alerts: tuple[Alert, ...], *, removed: bool = False) -> None:
        for alert in alerts:
            row = (alert.rule, alert.group_id or "", alert.pending_since.isoformat())
            self._unsaved[row] = (alert, removed)

    def _save(self) -> None:
        """Write what is not written yet. Rows that cannot be written are kept and retried after a while."""
        if not self._unsaved or time.monotonic() < self._retry_save_at:
            return
        rows = self._unsaved.values()
        try:
            self._store.save((a for a, removed in rows if not removed), (a for a, removed in rows if removed))
            self._unsaved = {}
            self._store.maintain(self._config.retention_days)
        except Exception as error:  # noqa: BLE001 - delta-rs raises several kinds; alerts must be sent all the same
            self._retry_save_at = time.monotonic() + _RETRY_SAVE_SECONDS
            self._report_error(error)

    def _report_coverage(self, group_ids: Collection[str]) -> None:
        """Report settings that leave no group to watch, such as an override whose pattern matches everything."""
        if not watches_any(group_ids, self._config.rule_settings_of):
            self._report(
                f"alerts: of the {count(len(group_ids), 'group')} none has a rule that is enabled: "
                "check groups, ignore_groups, rules and overrides below `alerts:`"
            )

    def _report_error(self, error: Exception) -> None:
        text = f"alerts: {' '.join(str(error).split()) or type(error).__name__}; trying again"
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)


def _may_be_sent(alert: Alert) -> bool:
    """Tell whether the alert is firing, so that it may be sent again, or has a notification that is not sent yet."""
    return alert.state == FIRING or any(delivery.sent_at is None for delivery in alert.deliveries)


def _is_same(one: Delivery, other: Delivery) -> bool:
    return (one.sink, one.event) == (other.sink, other.event)
