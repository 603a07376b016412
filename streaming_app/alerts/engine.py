"""The alert engine: what is observed of a cluster at one time goes in, problems and what is due to whom come out. Pure.

Theory of operation
-------------------
`step` judges the health of the groups, evaluates the rules, and brings the problems (`lifecycle`) up to date. The
caller stores what is unsaved of them, or finds that it cannot, and calls `lifecycle.publish`: what is due may be sent
then. This order is what a crash needs: no notification is lost, and none is sent that the table does not know.

What sends takes what is due from `lifecycle`, and notes there what came of it: that, too, changes rows to be stored.

The job's thread, `run --once` and the test bed drive the same object. Its whole memory are the problems that are
stored: a restart changes nothing. It reads no clock, so a recorded year can be replayed through it. Not safe in
several threads: the caller has a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from streaming_app.alerts.catalog import RULE_OF_VERDICT
from streaming_app.alerts.evaluate import Watched, evaluate
from streaming_app.alerts.facts import DescriptionSupport, EngineSettings, Facts, Observed
from streaming_app.alerts.problem import HEALTH, Finding, Over, Problem, ProblemKey, Truth
from streaming_app.alerts.problems import Problems
from streaming_app.groups.snapshot import GroupSnapshot, ranks
from streaming_app.health.board import Board, Change
from streaming_app.health.facts import HealthSettings
from streaming_app.health.verdict import BEHIND, BROKER_AWAY, DOWN, GOOD, LOSING, PLANNED, Verdict, is_bad

_FIELDS = {LOSING: "lost_after", DOWN: "patience", BEHIND: "behind_for"}
"""By verdict: what the `for` of its rule sets."""


class AlertEngine:
    """The problems of one cluster."""

    def __init__(
        self,
        settings: EngineSettings,
        stored: Iterable[Problem],
        descriptions: DescriptionSupport,
        verdicts: Mapping[str, Verdict] = MappingProxyType({}),
    ) -> None:
        """Go on from the problems in the table, and the verdicts of an earlier run.

        What is not sent of the problems, and is not muted, is due.
        """
        self._settings, self._descriptions = settings, descriptions
        self.lifecycle = Problems(settings, stored)
        """The problems, of which the outboxes of the sinks take what is due."""
        self.board = Board(self._health_settings, verdicts, of_all_types=settings.lag_of_all_groups)
        self.unsaved_changes: list[Change] = []
        """The changes of verdicts that are not stored yet: the caller removes those that it has stored."""
        self.without_alerts = 0
        """How many new groups have no alerts, as of the last step: others came first."""
        self._watched = Watched(descriptions)
        self._has_judged = False

    def problem_with(self, group_id: str) -> Problem | None:
        """Return the open problem with the health of a group."""
        return self.lifecycle.open.get(ProblemKey(HEALTH, group_id))

    def step(self, observed: Observed, now: datetime) -> None:
        """Judge the groups, evaluate the rules, and bring the problems up to date. `now` is aware, UTC."""
        for group_id, reason in self.lifecycle.end(observed.ended, now):
            self.unsaved_changes += self.board.end([group_id], reason, now)
        if not self._has_judged:
            self.lifecycle.leave_out(now)
        job, late = observed.job, timedelta(seconds=self._settings.late_seconds)
        if job is None or (job.caught_up and job.caught_up_at and now - job.caught_up_at <= late):
            self._judge(observed, now)  # else records are read late: every verdict stays as it is
        self._watched.update(observed.groups)
        facts = Facts(now, observed, self.lifecycle.open, self._descriptions)
        truths, left_out = evaluate(facts, self._watched, self._settings.rule_settings_of)
        self.without_alerts = len(left_out)
        for key, truth in truths.items():
            self.lifecycle.take(key, truth, now)
        alerted = {key.group_id for key in self.lifecycle.open if key.group_id is not None}
        self.lifecycle.ranks = ranks(observed.groups, alerted, now)

    def _judge(self, observed: Observed, now: datetime) -> None:
        """Bring the verdicts up to date, and the problems with the health of groups."""
        changes = self.board.step(observed, now)
        self.unsaved_changes += changes
        for group_id, verdict, _ in (*self._not_followed(changes, now), *changes):
            if truth := truth_of(group_id, verdict, observed.groups.get(group_id)):
                self.lifecycle.take(ProblemKey(HEALTH, group_id), truth, verdict.at)
        self.lifecycle.end_calm(now)
        self._has_judged = True

    def _not_followed(self, changes: Sequence[Change], now: datetime) -> Iterator[Change]:
        """Yield at the start the verdicts of an earlier run that the problems do not follow.

        A bad one has no problem, such as of a group that was ignored then. A good one has an open one: the run was
        killed when it had stored the verdict, and could not store the end.
        """
        changed = {change.group_id for change in changes}
        for group_id, verdict in {} if self._has_judged else self.board.verdicts().items():
            problem = self.problem_with(group_id)
            if group_id in changed:
                continue
            if is_bad(verdict) and not problem:
                yield Change(group_id, replace(verdict, at=now), now)
            elif verdict.verdict in GOOD and problem and verdict.at > problem.timeline[-1].at:  # it was stored last
                yield Change(group_id, verdict, now)

    def _health_settings(self, group_id: str) -> HealthSettings:
        """Return from when on something is wrong with a group; of a rule that is disabled, the defaults."""
        rules = self._settings.rule_settings_of(group_id)
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


def truth_of(group_id: str, verdict: Verdict, group: GroupSnapshot | None) -> Truth:
    """Return what a verdict says of the health of a group. One that says nothing for sure leaves it as it is."""
    if verdict.verdict in GOOD:
        return Over(verdict.verdict, verdict.why)
    if not is_bad(verdict) or verdict.evidence.get(PLANNED):
        return None
    summary = f"{group_id} is {verdict.verdict}: {verdict.why}"
    evidence = {"verdict": verdict.verdict, **verdict.evidence}
    return Finding(verdict.since, summary, evidence, verdict.severity, verdict.verdict, _causes_of(verdict, group))


def _causes_of(verdict: Verdict, group: GroupSnapshot | None) -> Sequence[str]:
    if "reason" in verdict.evidence and group and group.missing_topics:  # why the group was not ready
        return [f"missing_topic:{topic}" for topic in group.missing_topics]
    broker = verdict.evidence.get(BROKER_AWAY)
    return [f"{BROKER_AWAY}:{broker}"] if broker else []
