"""The alert engine: turns the facts about a cluster at one time into alerts and due notifications. Pure.

Theory of operation
-------------------
`step` updates the verdicts, evaluates the rules, and updates the alerts (`lifecycle`). Then the caller stores the
unsaved alerts, or finds that it cannot, and calls `lifecycle.publish`. Only then the notifications may be sent. This
order survives a crash: no notification is lost, and none is sent for an alert that is not in the table.

The outboxes of the sinks take due notifications from `lifecycle` and note the results there. This changes alerts,
too, which the caller stores.

The thread of the job, `run --once` and the tests use the same class. All its state is in the stored alerts and
verdicts, so a restart changes nothing. It reads no clock, so tests can replay a recorded year. Not thread-safe: the
caller holds a lock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from streaming_app.alerts.alert import HEALTH, Alert, AlertKey, Holds, Over, Truth, severity_by
from streaming_app.alerts.catalog import RULE_OF_VERDICT, Rule
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineFacts, EngineSettings, Observed
from streaming_app.alerts.evaluate import Watched, evaluate
from streaming_app.alerts.open_alerts import OpenAlerts
from streaming_app.groups.group import CLASSIC
from streaming_app.groups.snapshot import GroupSnapshot, ranks
from streaming_app.health.board import Board, Change
from streaming_app.health.facts import HealthSettings
from streaming_app.health.verdict import (
    BEHIND,
    BROKER_AWAY,
    DOWN,
    LOSING,
    NO_TOPIC,
    OPEN_TRANSACTION,
    PLANNED,
    PROTOCOL,
    SINKS,
    Verdict,
    is_bad,
    is_over,
)

_FIELDS = {LOSING: "lost_after", DOWN: "patience", BEHIND: "behind_for"}
"""Verdict -> the field of `HealthSettings` that the `for` of its rule sets."""


class AlertEngine:
    """The alerts of one cluster."""

    def __init__(
        self,
        settings: EngineSettings,
        stored: Iterable[Alert],
        descriptions: DescriptionSupport,
        verdicts: Mapping[str, Verdict] = MappingProxyType({}),
    ) -> None:
        """Begin with the alerts and verdicts in the tables.

        Notifications of these alerts that are not sent yet, and not muted, are due.
        """
        self._health_rules_of = settings.rule_settings_of  # also of groups without alerts: they have verdicts
        self._settings, self._descriptions = replace(settings, rule_settings_of=self._rules_of), descriptions
        self.board = Board(
            self._health_settings, verdicts, severity_of=self._severity_of, of_all_types=settings.lag_of_all_groups
        )
        self._groups: Mapping[str, GroupSnapshot] = {}
        self.lifecycle = OpenAlerts(self._settings, stored)
        """The alerts, from which the outboxes of the sinks take due notifications."""
        self.unsaved_changes: list[Change] = []
        """The changes of verdicts that are not stored yet. The caller removes those that it has stored."""
        self.without_alerts = 0
        """How many new groups had no alerts at the last step, because of the limit for new groups."""
        self._watched = Watched(descriptions)
        self._has_judged = False

    def alert_with(self, group_id: str) -> Alert | None:
        """Return the pending or open alert from the verdict on a group, or None."""
        return self.lifecycle.open.get(AlertKey(HEALTH, group_id))

    def step(self, observed: Observed, now: datetime) -> None:
        """Update the verdicts, evaluate the rules, and update the alerts. `now` is aware, UTC."""
        self._groups = observed.groups
        for group_id, reason in self.lifecycle.end(observed.ended, now):
            self.unsaved_changes += self.board.end([group_id], reason, now)
        if not self._has_judged:
            self.lifecycle.leave_out(now)
        job, late = observed.job, timedelta(seconds=self._settings.late_seconds)
        if job is None or (job.caught_up and job.caught_up_at and now - job.caught_up_at <= late):
            self._judge(observed, now)  # if the job reads records late, every verdict stays as it is
        self._watched.update(observed.groups)
        facts = EngineFacts(now, observed, self.lifecycle.open, self._descriptions, self.board.failed)
        truths, left_out = evaluate(facts, self._watched, self._settings.rule_settings_of)
        self.without_alerts = len(left_out)
        for key, truth in truths.items():
            self.lifecycle.take(key, truth, now)
        alerted = {key.group_id for key in self.lifecycle.open if key.group_id is not None}
        self.lifecycle.ranks = ranks(observed.groups, alerted, now)

    def _judge(self, observed: Observed, now: datetime) -> None:
        stored = {} if self._has_judged else self.board.verdicts()
        changes = self.board.step(observed, now)
        self.unsaved_changes += changes
        for group_id, verdict, _ in (*self._not_followed(changes, now), *changes):
            if truth := truth_of(group_id, verdict, observed.groups.get(group_id)):
                # If only the configuration changed it while the job did not run, its alert begins now.
                is_as_stored = group_id in stored and stored[group_id].at == verdict.at
                is_new = is_bad(verdict) and self.alert_with(group_id) is None
                at = now if is_as_stored and is_new else verdict.at
                self.lifecycle.take(AlertKey(HEALTH, group_id), truth, at)
        self.lifecycle.end_calm(now, self.board.is_known)
        self._has_judged = True

    def _not_followed(self, changes: Sequence[Change], now: datetime) -> Iterator[Change]:
        """Yield, at the first step, the stored verdicts that do not fit to the stored alerts.

        Either a bad verdict has no alert, for example because the configuration ignored the group at that time. Or a
        good verdict has an open alert: the earlier run stored the verdict, and was killed before it stored the end.
        """
        changed = {change.group_id for change in changes}
        for group_id, verdict in {} if self._has_judged else self.board.verdicts().items():
            alert = self.alert_with(group_id)
            if group_id in changed:
                continue
            if is_bad(verdict) and not alert:
                yield Change(group_id, replace(verdict, at=now), now)
            elif is_over(verdict) and alert and verdict.at > alert.timeline[-1].at:  # the verdict is newer
                yield Change(group_id, verdict, now)

    def _health_settings(self, group_id: str) -> HealthSettings:
        """Return the settings for the verdict on a group. A disabled rule gives the default of `HealthSettings`."""
        rules = self._health_rules_of(group_id)
        times: dict[str, Any] = {
            field: timedelta(seconds=rules[rule].for_seconds)
            for verdict, field in _FIELDS.items()
            if (rule := RULE_OF_VERDICT[verdict]) in rules
        }
        return HealthSettings(
            **times,
            running_hours=self._settings.running_hours_of(group_id),
            successor=self._settings.successors.get(group_id),
        )

    def _rules_of(self, group_id: str | None) -> Mapping[str, Rule]:
        """Return the rules for a group, or None for the job; those of a classic group may be off."""
        if group_id is not None and not self._settings.of_classic_groups:
            group, verdict = self._groups.get(group_id), self.board.verdict_on(group_id)
            protocol = group.protocol if group else verdict.evidence.get(PROTOCOL) if verdict else None
            if protocol == CLASSIC:
                return {}
        return self._health_rules_of(group_id)

    def _severity_of(self, group_id: str, verdict: Verdict) -> str | None:
        rule = RULE_OF_VERDICT.get(verdict.verdict)
        return severity_by(self._settings.rule_settings_of(group_id).get(rule or ""), verdict.severity)


def truth_of(group_id: str, verdict: Verdict, group: GroupSnapshot | None) -> Truth:
    """Return `Holds` for a bad verdict, `Over` for one that ends it, and None (no change) for any other."""
    if is_over(verdict):
        return Over(verdict.verdict, verdict.why)
    if not is_bad(verdict) or verdict.evidence.get(PLANNED):
        return None
    summary = f"{group_id} is {verdict.verdict}: {verdict.why}"
    evidence = {"verdict": verdict.verdict, **verdict.evidence}
    return Holds(verdict.since, summary, evidence, verdict.severity, verdict.verdict, _causes_of(verdict, group))


def _causes_of(verdict: Verdict, group: GroupSnapshot | None) -> Sequence[str]:
    if "reason" in verdict.evidence and group and group.missing_topics:  # the group is, or was, NotReady
        return [f"missing_topic:{topic}" for topic in group.missing_topics]
    if missing := [topic for topic, what in verdict.evidence.get(SINKS, {}).items() if what == NO_TOPIC]:
        return [f"missing_topic:{topic}" for topic in missing]
    if OPEN_TRANSACTION in verdict.evidence:
        return [OPEN_TRANSACTION]
    broker = verdict.evidence.get(BROKER_AWAY)
    return [f"{BROKER_AWAY}:{broker}"] if broker else []
