"""The service of the alerts: observes the cluster every few seconds, lets the engine step, stores the alerts, sends.

It runs whether or not records arrive, because most alerts are about something that does not happen. An error of its
own, such as a table that cannot be written, is reported once and retried at each evaluation; it neither ends the loop
nor keeps alerts from the sinks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import ClassVar, NamedTuple

from streaming_app.alerts.engine import AlertEngine, EngineSettings, Observed
from streaming_app.alerts.evaluate import watches_any
from streaming_app.alerts.outbox import Grouping, IsMuted, SinkStatus
from streaming_app.alerts.problem import Problem
from streaming_app.alerts.survey import DescriptionSupport, LostDescription, TopicDifference
from streaming_app.errors import OtherOwnerError
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.health.verdict import Verdict
from streaming_app.job.group_cache import GroupCache
from streaming_app.job.service import Service, WakeableEvent, error_text
from streaming_app.job_status import DiskSpace, JobStatus
from streaming_app.lag.work import GroupWork
from streaming_app.notify.mutes import Mutes
from streaming_app.notify.sender import Sender, jittered, traits_of
from streaming_app.notify.sink import Sink
from streaming_app.report import Report
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.fence import Fence
from streaming_app.tables.health_tables import EndedProblems, HealthRow, HealthTables
from streaming_app.text import count

_RETRY_SAVE_SECONDS = 10.0  # delta-rs logs a lot at each attempt when the disk is full


@dataclass(frozen=True)
class AlertConfig:
    """The settings of an `AlertService`."""

    engine: EngineSettings
    interval: float
    """Seconds between evaluations."""
    retention_days: float
    grouping: Grouping = field(default_factory=Grouping)


class Sources(NamedTuple):
    """Where an `AlertService` learns what there is."""

    groups: GroupCache
    job_status: Callable[[], JobStatus]
    mutes: Mutes
    copies: Callable[[], Sequence[GroupCopies] | None] = tuple
    """What is known of copies of tasks; None while it is not known."""
    disks: Callable[[], Sequence[DiskSpace]] = tuple
    """The disks that the job writes to."""
    work: Callable[[], Mapping[str, GroupWork] | None] = dict
    """What waits for each group; None while it is not known."""
    retention: Callable[[], Mapping[str, float]] = dict
    """For how many seconds topics keep records."""
    away: Callable[[], Mapping[str, Collection[str]]] = dict
    """The partitions without a leader, by the broker that led them."""
    lost_descriptions: Callable[[], Sequence[LostDescription] | None] = tuple
    """The descriptions that the plugin does not return; None before the job has looked."""
    topic_differences: Callable[[], Sequence[TopicDifference] | None] = tuple
    """What of internal topics is not as it was asked for; None before the job has looked."""


class AlertService(Service):
    """Evaluates the rules every few seconds, until it is closed."""

    close_seconds: ClassVar[float] = 60.0  # an evaluation that has begun ends: what it changed is stored

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing it needs
        self,
        config: AlertConfig,
        sources: Sources,
        store: AlertsTable,
        health: HealthTables,
        ended: EndedProblems,
        sinks: Iterable[Sink],
        descriptions: DescriptionSupport,
        report: Report,
        on_evaluated: Callable[[tuple[SinkStatus, ...]], None] = lambda _status: None,
        fence: Fence | None = None,
    ) -> None:
        """Restore the alerts from the table. Raises WarehouseError when it cannot be read.

        `report` gets a line for the operator when something fails; `on_evaluated` is called after each evaluation with
        the status of the sinks. Nothing is sent once `fence` shows that another job sends the alerts.
        """
        self._wakeable = WakeableEvent()
        super().__init__("alerts", report, interval=config.interval, stopping=self._wakeable)
        self._config, self._sources, self._store, self._on_evaluated = config, sources, store, on_evaluated
        self._fence = fence
        self._evaluate_at = self._retry_save_at = self._retry_health_at = 0.0
        self._checked_coverage, self._evaluated = False, True
        sinks = list(sinks)
        traits = tuple(traits_of(sink, config.grouping) for sink in sinks)
        self._health_tables, self._ended = health, ended
        verdicts, relabelled, labels_of = dict[str, Verdict](), list[str](), config.engine.labels_of
        for row in health.rows():
            verdicts[row.group_id] = row.verdict
            if row.labels != labels_of(row.group_id):
                relabelled.append(row.group_id)
        self._engine = AlertEngine(
            replace(config.engine, sinks=traits, backoff=jittered(config.engine.backoff)),
            store.problems(),
            descriptions,
            is_muted=self._muted(),
            verdicts=verdicts,
            rewrite=relabelled,
        )
        # the result of an attempt is stored at once: after a crash it would be sent again
        self._sender = Sender(sinks, self._engine.outboxes, self._wakeable.wake, report)

    def problems(self) -> tuple[Problem, ...]:
        """Return the problems that are pending or open, as of the last evaluation."""
        return self._engine.problems

    def sinks(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink."""
        return self._sender.status()

    def tick(self) -> None:
        """Evaluate the rules if that is due; store what has changed. Raises the first error, after all was tried."""
        if self._fence:
            self._fence.check_owner()
        if time.monotonic() < self._evaluate_at:
            self._save()
            return
        self._evaluate_at, self._evaluated = time.monotonic() + self._config.interval, False
        self._try(self._evaluate, lambda: self._on_evaluated(self._sender.status()))
        self._evaluated = True

    def pause(self, seconds: float) -> float:
        """Return the seconds until the next evaluation; the result of a notification wakes the service before that."""
        del seconds
        return max(0.0, self._evaluate_at - time.monotonic())

    def failed(self, text: str) -> str:
        """Return the line about an evaluation that failed."""
        return f"alerts: {text}; trying again"

    def succeeded(self) -> None:
        """Note that a tick has succeeded: nothing has while the last evaluation failed, or rows wait for the table."""
        if self._evaluated and not any(self._engine.unsaved):
            super().succeeded()

    def finish(self, send_seconds: float) -> None:
        """Evaluate once more, wait up to `send_seconds` for the notifications that are due, and close."""
        super().close()
        self._evaluate_at = self._retry_save_at = self._retry_health_at = 0.0
        self._report_error_of(self.tick)
        self._sender.flush(send_seconds)
        self._end(1.0)

    def end(self, send_seconds: float) -> None:
        """Close without another evaluation; what was not sent is sent after the next start."""
        super().close()
        self._end(send_seconds)

    def _end(self, send_seconds: float) -> None:
        self._sender.close(send_seconds)
        self._retry_save_at = self._retry_health_at = 0.0
        self._report_error_of(self._save)
        self._report_error_of(self._save_health)

    def _evaluate(self) -> None:
        """Observe, step, store and send."""
        groups = self._sources.groups
        groups.refresh()
        now, sinks = datetime.now(timezone.utc), self._sender.status()
        failing = tuple(sink.failing for sink in sinks if sink.failing)
        job = replace(self._sources.job_status(), failing_sinks=failing, disks=self._sources.disks())
        self._check_coverage(job, groups.groups())
        observed = Observed(
            groups.groups(),
            groups.histories(),
            job,
            self._sources.copies(),
            self._sources.work(),
            self._sources.retention(),
            self._sources.away(),
            self._sources.lost_descriptions(),
            self._sources.topic_differences(),
            self._ended.reasons(),
            self._muted(),
        )
        with self._sender.changing():
            self._engine.step(observed, now)
        # stored before they are sent, so that a crash in between loses none
        self._try(self._save, self._save_health, self._publish)

    def _muted(self) -> IsMuted:
        self._sources.mutes.refresh()
        return self._sources.mutes.is_muted

    def _publish(self) -> None:
        with self._sender.changing():
            self._engine.publish()

    def _save(self) -> None:
        """Write what is not written yet. Rows that cannot be written are kept and retried after a while."""
        with self._sender.changing():
            unsaved = self._engine.unsaved
        if not any(unsaved) or time.monotonic() < self._retry_save_at:
            return
        self._retry_save_at = time.monotonic() + _RETRY_SAVE_SECONDS
        self._store.save(unsaved.changed, unsaved.removed)
        self._retry_save_at = 0.0
        with self._sender.changing():
            self._engine.saved(unsaved)
        self._store.maintain(self._config.retention_days)

    def _save_health(self) -> None:
        """Write the verdicts that are not written yet; what cannot be written is tried again."""
        unsaved = self._engine.unsaved_health
        if not (unsaved.verdicts or unsaved.changes):
            return
        if time.monotonic() < self._retry_health_at:
            return
        self._retry_health_at = time.monotonic() + _RETRY_SAVE_SECONDS
        tables, labels_of = self._health_tables, self._config.engine.labels_of
        rows = [
            HealthRow(group_id, verdict, self._problem_id(group_id), None, labels_of(group_id))
            for group_id, verdict in unsaved.verdicts.items()
        ]
        tables.save(rows, unsaved.gone, datetime.now(timezone.utc))
        tables.append_changes(unsaved.changes)
        self._retry_health_at = 0.0
        self._engine.saved_health(unsaved)
        tables.maintain(self._config.retention_days)

    def _problem_id(self, group_id: str) -> str | None:
        problem = self._engine.problem_with(group_id)
        return problem.alert_id if problem else None

    def verdicts(self) -> Mapping[str, Verdict]:
        """Return the newest verdict on each group."""
        return self._engine.verdicts

    def newcomers_left_out(self) -> Mapping[str, int]:
        """Return how many new groups have no alerts, and how many no verdict yet, since others came first."""
        return self._engine.newcomers_left_out

    def _report_error_of(self, step: Callable[[], None]) -> None:
        error = _error_of(step)
        if error and not isinstance(error, OtherOwnerError):
            self.report_failure(self.failed(error_text(error)))

    def _try(self, *steps: Callable[[], None]) -> None:
        """Take every step, whatever the others raise. Raises the first error; the others are reported."""
        errors = [error for step in steps if (error := _error_of(step))]
        for error in errors[1:]:
            self.report_failure(self.failed(error_text(error)))
        if errors:
            raise errors[0]

    def _check_coverage(self, job: JobStatus, group_ids: Collection[str]) -> None:
        """Report settings that leave no group to watch, such as an override whose pattern matches everything."""
        if self._checked_coverage or not (job.caught_up and group_ids):
            return
        self._checked_coverage = True
        if not watches_any(group_ids, self._config.engine.rule_settings_of):
            self.report(
                f"alerts: of the {count(len(group_ids), 'group')} none has a rule that is enabled: "
                "check groups, ignore_groups, rules and overrides below `alerts:`"
            )


def _error_of(step: Callable[[], None]) -> Exception | None:
    try:
        step()
    except Exception as error:  # noqa: BLE001 - one step must not keep the others from being taken
        return error
    return None
