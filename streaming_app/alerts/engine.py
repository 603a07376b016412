"""The alert engine: what is observed of a cluster at one time goes in, problems and what is due to whom come out. Pure.

Theory of operation
-------------------
`step` judges the health of the groups, evaluates the rules, and brings the problems (`lifecycle`) up to date. The
caller stores what is unsaved of them, or finds that it cannot, and calls `publish`: what is due may be sent then.
This order is what a crash needs: no notification is lost, and none is sent that the table does not know.

What sends takes what is due from `lifecycle`, and notes there what came of it: that, too, changes rows to be stored.

The job's thread, `run --once` and the test bed drive the same object. Its whole memory are the problems that are
stored: a restart changes nothing. It reads no clock, so a recorded year can be replayed through it. Not safe in
several threads: the caller has a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from streaming_app.alerts.catalog import RULE_OF_VERDICT
from streaming_app.alerts.conditions import UNKNOWN, Truth
from streaming_app.alerts.evaluate import Watched, evaluate
from streaming_app.alerts.problem import HEALTH, Finding, Problem, ProblemKey
from streaming_app.alerts.problems import Problems
from streaming_app.alerts.rule import Facts, Observed, RuleSettings, RuleSettingsLookup
from streaming_app.alerts.survey import DescriptionSupport
from streaming_app.groups.not_ready import missing_sources
from streaming_app.groups.snapshot import ranks
from streaming_app.groups.task_copies import format_task
from streaming_app.health.board import Board, Change, Known
from streaming_app.health.facts import HealthSettings
from streaming_app.health.verdict import BEHIND, BROKER_AWAY, DOWN, GOOD, LOSING, PLANNED, Verdict, is_bad
from streaming_app.time_intervals import TimeInterval

__all__ = ["AlertEngine", "EngineSettings", "Observed", "UnsavedHealth"]

_FIELDS = {LOSING: "lost_after", DOWN: "down_after", BEHIND: "behind_for"}
"""By verdict: what the `for` of its rule sets."""


@dataclass(frozen=True)
class EngineSettings:
    """What the configuration says of alerts."""

    cluster: str
    rule_settings_of: RuleSettingsLookup
    sinks: tuple[str, ...] = ()
    """The names of the sinks that get alerts."""
    lag_of_all_groups: bool = False
    late_seconds: float = 120.0
    """How long ago the records may be read for groups to be judged by them."""
    running_hours_of: Callable[[str], Sequence[TimeInterval]] = lambda _group_id: ()
    """Returns when a group is meant to run, if that is declared."""
    successors: Mapping[str, str] = field(default_factory=dict)
    """Group to the one that is declared to take over from it."""
    labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {}
    """Returns the labels that are declared for a group."""
    is_muted: Callable[[Problem], bool] = lambda _one: False
    """Tells whether a problem is muted now."""


class UnsavedHealth(NamedTuple):
    """Verdicts by group that are not stored yet."""

    verdicts: Mapping[str, Verdict] = MappingProxyType({})
    changes: Sequence[Change] = ()
    """The history of verdicts."""
    gone: frozenset[str] = frozenset()
    """The groups of `verdicts` that nothing is known of any more."""


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
        rules, labels_of = settings.rule_settings_of, settings.labels_of
        self.lifecycle = Problems(settings.cluster, rules, settings.sinks, stored, labels_of, settings.is_muted)
        """The problems, of which the outboxes of the sinks take what is due."""
        self._watched = Watched()
        self._board = Board(self._health_settings, verdicts)
        self._unsaved_changes: list[Change] = []
        self._without_alerts = 0
        self._has_judged = False

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that are pending or open, as of the last step."""
        return tuple(self.lifecycle.open.values())

    @property
    def newcomers_left_out(self) -> Mapping[str, int]:
        """How many new groups have no alerts, and how many no verdict yet, as of the last step: others came first."""
        return {"alerts": self._without_alerts, "verdicts": len(self._board.put_off)}

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The newest verdict on each group."""
        return self._board.verdicts()

    def problem_with(self, group_id: str) -> Problem | None:
        """Return the open problem with the health of a group."""
        return self.lifecycle.open.get(ProblemKey(HEALTH, group_id))

    def step(self, observed: Observed, now: datetime) -> tuple[Problem, ...]:
        """Judge the groups, evaluate the rules, and return the problems that changed. `now` is aware, UTC.

        Those that changed since the last `publish` are returned again.
        """
        for group_id, reason in self.lifecycle.end(observed.ended, now):
            self._unsaved_changes += self._board.end([group_id], reason, now)
        if not self._has_judged:
            self.lifecycle.leave_out(now)
        self._judge(observed, now)
        self._evaluate(observed, now)
        alerted = {key.group_id for key in self.lifecycle.open if key.group_id is not None}
        self.lifecycle.ranks = ranks(observed.groups, alerted, now)
        return tuple(self.lifecycle.unpublished.values())

    def _judge(self, observed: Observed, now: datetime) -> None:
        """Bring the verdicts up to date, and the problems with the health of groups, unless records are read late."""
        job, work, late = observed.job, observed.work, timedelta(seconds=self._settings.late_seconds)
        if job and not (job.caught_up and job.caught_up_at and now - job.caught_up_at <= late):
            return
        restores = {
            one.group_id: {format_task(task): restore for task, restore in one.restoring.items()}
            for one in observed.copies or ()
            if one.restoring
        }
        others = work or {} if self._settings.lag_of_all_groups else {}
        facts = (work, observed.retention, observed.away, restores, others)
        changes = self._board.step(Known(observed.groups, observed.histories, *facts), now)
        self._unsaved_changes += changes
        for group_id, verdict, _ in (*self._not_followed(changes, now), *changes):
            key, truth = ProblemKey(HEALTH, group_id), truth_of(group_id, verdict)
            self.lifecycle.end_calm(verdict.at)
            if truth is None:
                self.lifecycle.over(key, verdict.at, verdict.verdict, verdict.why)
            elif truth != UNKNOWN:
                self.lifecycle.found(key, RULE_OF_VERDICT[verdict.verdict], truth, verdict.at)
        self.lifecycle.end_calm(now)
        self._has_judged = True

    def _not_followed(self, changes: Sequence[Change], now: datetime) -> list[Change]:
        """Return the verdicts of an earlier run that the problems do not follow.

        A bad one has no problem, such as of a group that was ignored then. A good one has an open one: the run was
        killed when it had stored the verdict, and could not store the end.
        """
        if self._has_judged:
            return []
        changed, not_followed = {change.group_id for change in changes}, []
        for group_id, verdict in self._board.verdicts().items():
            problem = self.problem_with(group_id)
            if group_id in changed:
                continue
            if is_bad(verdict) and not problem:
                not_followed.append(Change(group_id, replace(verdict, at=now), now))
            elif verdict.verdict in GOOD and problem and _is_newer(verdict, problem):
                not_followed.append(Change(group_id, verdict, now))
        return not_followed

    def _evaluate(self, observed: Observed, now: datetime) -> None:
        """Evaluate the other rules."""
        self._watched.update(observed.groups)
        survey, descriptions, settings = self._watched.survey, self._descriptions, self._settings
        since = descriptions.since(survey)
        facts = Facts(now, observed, self.lifecycle.open, survey, since, descriptions.required)
        truths, left_out = evaluate(facts, self._watched, settings.rule_settings_of)
        self._without_alerts = len(left_out)
        for key, truth in truths.items():
            if truth is None:
                self.lifecycle.over(key, now)
            elif truth != UNKNOWN:
                self.lifecycle.found(key, key.subject, truth, now)

    def _health_settings(self, group_id: str) -> HealthSettings:
        settings = health_settings(self._settings.rule_settings_of(group_id))
        hours, successor = self._settings.running_hours_of(group_id), self._settings.successors.get(group_id)
        return replace(settings, running_hours=hours, successor=successor) if hours or successor else settings

    @property
    def unsaved_health(self) -> UnsavedHealth:
        """What is not stored yet of verdicts."""
        changes = tuple(self._unsaved_changes)
        verdicts = {change.group_id: change.verdict for change in changes}
        return UnsavedHealth(verdicts, changes, frozenset(one for one in verdicts if not self._board.knows(one)))

    def saved_health(self, stored: UnsavedHealth) -> None:
        """Note that these are stored; what has changed since is still unsaved."""
        del self._unsaved_changes[: len(stored.changes)]


def _is_newer(verdict: Verdict, problem: Problem) -> bool:
    """Tell whether a verdict is from after everything that a problem knows; the other way round it was not stored."""
    return not problem.timeline or verdict.at > problem.timeline[-1].at


def truth_of(group_id: str, verdict: Verdict) -> Truth:
    """Return what a verdict says of the health of a group. One that says nothing for sure leaves it as it is."""
    if verdict.verdict in GOOD:
        return None
    if not is_bad(verdict) or verdict.evidence.get(PLANNED):
        return UNKNOWN
    summary = f"{group_id} is {verdict.verdict}: {verdict.why}"
    evidence = {"verdict": verdict.verdict, **verdict.evidence}
    return Finding(verdict.since, summary, evidence, verdict.severity, verdict.verdict, _causes_of(verdict))


def _causes_of(verdict: Verdict) -> Sequence[str]:
    if missing := missing_sources(str(verdict.evidence.get("reason", ""))):
        return [f"missing_topic:{topic}" for topic in missing]
    broker = verdict.evidence.get(BROKER_AWAY)
    return [f"{BROKER_AWAY}:{broker}"] if broker else []


def health_settings(settings: Mapping[str, RuleSettings]) -> HealthSettings:
    """Return the settings of the verdicts from those of the rules; of a rule that is disabled, the defaults."""
    seconds: dict[str, Any] = {
        field: settings[rule].for_seconds
        for verdict, field in _FIELDS.items()
        if (rule := RULE_OF_VERDICT[verdict]) in settings
    }
    return HealthSettings(**seconds)
