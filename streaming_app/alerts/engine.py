"""The alert engine: what is observed of a cluster at one time goes in, problems and what is due to whom come out. Pure.

Theory of operation
-------------------
`step` judges the health of the groups, evaluates the rules, and brings the problems up to date. The caller then stores
`unsaved`, or finds that it cannot, and calls `publish`: what is due may be sent from now on. This order is what a crash
needs: no notification is lost, and none is sent that the table does not know.

What sends takes notifications from `outboxes`, and tells them what came of each: that, too, changes rows to be stored.

The job's thread, `run --once` and the test bed drive the same object. Its whole memory are the problems that are
stored: a restart changes nothing. It reads no clock, so a recorded year can be replayed through it. Not safe in
several threads: the caller has a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.alerts.catalog import RULE_OF_VERDICT
from streaming_app.alerts.evaluate import evaluate, is_unknown
from streaming_app.alerts.health_findings import causes_of, finding_of, health_settings
from streaming_app.alerts.outbox import Backoff, IsMuted, Outboxes, SinkTraits
from streaming_app.alerts.problem import FIRING, HEALTH, Delivery, Problem, ProblemKey
from streaming_app.alerts.problems import Problems
from streaming_app.alerts.rule import MAX_NEW_GROUPS, EvaluationContext, RuleSettingsLookup
from streaming_app.alerts.survey import DescriptionSupport, LostDescription
from streaming_app.alerts.watched import WatchedGroups
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.snapshot import GroupSnapshot, ranks
from streaming_app.groups.task_copies import format_task
from streaming_app.health.board import Board, Change, Known
from streaming_app.health.history import GroupHistory
from streaming_app.health.verdict import GOOD, PLANNED, Away, HealthSettings, Verdict, is_bad
from streaming_app.job_status import JobStatus
from streaming_app.lag.work import GroupWork
from streaming_app.time_intervals import TimeInterval


@dataclass(frozen=True)
class EngineSettings:
    """What the configuration says of alerts."""

    cluster: str
    rule_settings_of: RuleSettingsLookup
    sinks: tuple[SinkTraits, ...] = ()
    """The sinks that get alerts."""
    backoff: Backoff = field(default_factory=Backoff)
    """The pauses after a sink has failed."""
    lag_of_all_groups: bool = False
    max_new_groups: int = MAX_NEW_GROUPS
    late_seconds: float = 120.0
    """How long ago the records may be read for groups to be judged by them."""
    running_hours_of: Callable[[str], Sequence[TimeInterval]] = lambda _group_id: ()
    """Returns when a group is meant to run, if that is declared."""
    successors: Mapping[str, str] = field(default_factory=dict)
    """Group to the one that is declared to take over from it."""
    labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {}
    """Returns the labels that are declared for a group."""


@dataclass(frozen=True)
class Observed:
    """What is known of a cluster at one time."""

    groups: Mapping[str, GroupSnapshot]
    histories: Mapping[str, GroupHistory] = field(default_factory=dict)
    """What happened lately, by group; groups to which nothing happened are missing."""
    job: JobStatus | None = None
    """None: the rules about the job are not evaluated, and it has caught up."""
    copies: Sequence[GroupCopies] | None = ()
    """What is known of copies of tasks; None while it is not known."""
    work: Mapping[str, GroupWork] | None = field(default_factory=dict)
    """What waits for each group; None while the lag is not known."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader by the broker that led them."""
    lost_descriptions: Sequence[LostDescription] | None = ()
    """The descriptions that the plugin does not return; None before the job has looked."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """Problems that a person ended, by id, and why."""
    is_muted: IsMuted | None = None
    """Tells whether a problem is muted; None: no mute is active."""


class Unsaved(NamedTuple):
    """Rows of the table `alerts` that are not stored yet."""

    changed: Sequence[Problem] = ()
    removed: Sequence[Problem] = ()
    """Pending ones that are gone: their rows are to be deleted."""


class UnsavedHealth(NamedTuple):
    """Verdicts by group that are not stored yet."""

    verdicts: Mapping[str, Verdict] = MappingProxyType({})
    changes: Sequence[Change] = ()
    """The history of verdicts."""
    gone: frozenset[str] = frozenset()
    """The groups of `verdicts` that nothing is known of any more."""


class AlertEngine:
    """The problems of one cluster."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        settings: EngineSettings,
        stored: Iterable[Problem],
        descriptions: DescriptionSupport,
        *,
        is_muted: IsMuted | None = None,
        verdicts: Mapping[str, Verdict] = MappingProxyType({}),
        rewrite: Iterable[str] = (),
    ) -> None:
        """Go on from the problems in the table, and the verdicts of an earlier run.

        What is not sent of the problems, and is not muted, is due. The rows of the groups in `rewrite`,
        which have a verdict, are not as they would be written now.
        """
        self._settings, self._descriptions = settings, descriptions
        self.outboxes = Outboxes(settings.sinks, settings.backoff, self._unsent_now, self._firing_now, self._delivered)
        """What is due to the sinks."""
        self._watched = WatchedGroups()
        self._board = Board(self._health_settings, verdicts)
        self._unsaved_verdicts = {group_id: verdicts[group_id] for group_id in rewrite}
        self._unsaved_changes: list[Change] = []
        self._unsaved: dict[str, tuple[Problem, bool]] = {}  # by id; True: its row is to be deleted
        self._without_alerts = 0
        self._has_judged = False
        names = [sink.name for sink in settings.sinks]
        self._problems = Problems(settings.cluster, settings.rule_settings_of, names, stored, settings.labels_of)
        self._problems.is_muted = is_muted
        self._unpublished: set[str] = set()
        restored, _ = self._problems.take_changes()
        self._note_unsaved(restored)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that are pending or open, as of the last step."""
        return tuple(self._problems.open.values())

    @property
    def calm_ends(self) -> tuple[datetime, ...]:
        """When problems end if their groups go on to process."""
        return self._problems.calm_ends

    @property
    def newcomers_left_out(self) -> Mapping[str, int]:
        """How many new groups have no alerts, and how many no verdict yet, as of the last step: others came first."""
        return {"alerts": self._without_alerts, "verdicts": len(self._board.put_off)}

    def step(self, observed: Observed, now: datetime) -> tuple[Problem, ...]:
        """Judge the groups, evaluate the rules, and return the problems that changed. `now` is aware, UTC."""
        self._problems.is_muted = observed.is_muted
        for group_id, reason in self._problems.end(observed.ended, now):
            self._note_changes(self._board.end([group_id], reason, now))
        if not self._has_judged:
            self._problems.leave_out(now)
        self._judge(observed, now)
        self._evaluate(observed, now)
        alerted = {key.group_id for key in self._problems.open if key.group_id is not None}
        self.outboxes.ranks = ranks(observed.groups, alerted, now)
        changed, removed = self._problems.take_changes()
        self._note_unsaved(removed, removed=True)
        self._note_unsaved(changed)
        self._unpublished |= {one.alert_id for one in changed}
        return changed

    def _judge(self, observed: Observed, now: datetime) -> None:
        """Bring the verdicts up to date, and the problems with the health of groups, unless records are read late."""
        job, settings = observed.job, self._settings
        late = timedelta(seconds=settings.late_seconds)
        if job and not (job.caught_up and job.caught_up_at and now - job.caught_up_at <= late):
            return
        work = observed.work
        restores = {
            one.group_id: {format_task(task): restore for task, restore in one.restoring.items()}
            for one in observed.copies or ()
            if one.restoring
        }
        facts = (work, observed.retention, observed.away, restores)
        others = work or {} if settings.lag_of_all_groups else {}
        changes = self._board.step(Known(observed.groups, observed.histories, *facts, others), now)
        self._note_changes(changes)
        for change in (*self._bad_without_problem(changes, now), *changes):
            self._take_verdict(change.group_id, change.verdict)
        self._problems.end_calm(now)
        self._has_judged = True

    def _take_verdict(self, group_id: str, verdict: Verdict) -> None:
        """Tell the problems of a verdict. One that says nothing for sure leaves them as they are."""
        key, at = ProblemKey(HEALTH, group_id), verdict.at
        self._problems.end_calm(at)
        if verdict.verdict in GOOD:
            self._problems.over(key, at, verdict.verdict, verdict.why)
        elif is_bad(verdict) and not verdict.evidence.get(PLANNED):
            finding = finding_of(group_id, verdict)
            cause = self._problems.cause_of(causes_of(verdict))
            self._problems.found(key, RULE_OF_VERDICT[verdict.verdict], replace(finding, cause=cause), at)

    def _bad_without_problem(self, changes: Sequence[Change], now: datetime) -> list[Change]:
        """Return the bad verdicts of an earlier run that have no problem, such as of a group that was ignored then."""
        if self._has_judged:
            return []
        changed, known = {change.group_id for change in changes}, self._problems.open
        return [
            Change(group_id, replace(verdict, at=now), now)
            for group_id, verdict in self._board.verdicts().items()
            if is_bad(verdict) and group_id not in changed and ProblemKey(HEALTH, group_id) not in known
        ]

    def _evaluate(self, observed: Observed, now: datetime) -> None:
        """Evaluate the other rules. Groups are outdated until the job has caught up."""
        self._watched.update(observed.groups, now)
        context, settings = self._context(observed, now), self._settings
        groups = self._watched.groups(with_descriptions=context.descriptions_since is not None)
        findings = evaluate(groups, observed.job, context, settings.rule_settings_of)
        self._without_alerts = len(context.left_out)
        caught_up = observed.job is None or observed.job.caught_up
        for key in dict.fromkeys((*self._problems.open, *findings)):
            enabled = settings.rule_settings_of(key.group_id).get(key.subject)
            if key.subject == HEALTH or not (caught_up or (enabled and enabled.while_catching_up)):
                continue
            if finding := findings.get(key):
                self._problems.found(key, key.subject, finding, now)
            elif not is_unknown(key, self._problems.open.get(key), context):
                self._problems.over(key, now)

    def _note_changes(self, changes: Sequence[Change]) -> None:
        self._unsaved_changes += changes
        self._unsaved_verdicts |= {change.group_id: change.verdict for change in changes}

    def _health_settings(self, group_id: str) -> HealthSettings:
        settings = health_settings(self._settings.rule_settings_of(group_id))
        hours, successor = self._settings.running_hours_of(group_id), self._settings.successors.get(group_id)
        return replace(settings, running_hours=hours, successor=successor) if hours or successor else settings

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The newest verdict on each group."""
        return self._board.verdicts()

    def problem_with(self, group_id: str) -> Problem | None:
        """Return the open problem with the health of a group."""
        return self._problems.open.get(ProblemKey(HEALTH, group_id))

    @property
    def unsaved_health(self) -> UnsavedHealth:
        """What is not stored yet of verdicts."""
        return UnsavedHealth(
            dict(self._unsaved_verdicts),
            tuple(self._unsaved_changes),
            frozenset(group_id for group_id in self._unsaved_verdicts if not self._board.knows(group_id)),
        )

    def saved_health(self, stored: UnsavedHealth) -> None:
        """Note that these are stored; what has changed since is still unsaved."""
        del self._unsaved_changes[: len(stored.changes)]
        for group_id, verdict in stored.verdicts.items():
            if self._unsaved_verdicts.get(group_id) is verdict:
                del self._unsaved_verdicts[group_id]

    def publish(self) -> None:
        """Let everything be sent that is due: call it after each step, once its rows are stored or cannot be."""
        self._unpublished.clear()

    @property
    def unsaved(self) -> Unsaved:
        """The rows that are not stored yet."""
        rows = tuple(self._unsaved.values())
        return Unsaved(tuple(one for one, gone in rows if not gone), tuple(one for one, gone in rows if gone))

    def saved(self, stored: Unsaved) -> None:
        """Note that these rows are stored; one that has changed since is still unsaved."""
        for problems, gone in ((stored.changed, False), (stored.removed, True)):
            for one in problems:
                if self._unsaved.get(one.alert_id) == (one, gone):
                    del self._unsaved[one.alert_id]

    def _context(self, observed: Observed, now: datetime) -> EvaluationContext:
        survey, known = self._watched.survey, self._problems.open
        return EvaluationContext(
            now,
            observed.histories,
            survey,
            descriptions_since=self._descriptions.since(survey),
            descriptions_required=self._descriptions.required,
            open_problems=known,
            copies=observed.copies,
            work=observed.work,
            max_new_groups=self._settings.max_new_groups,
            lost_descriptions=observed.lost_descriptions,
        )

    def _unsent_now(self) -> Iterator[Problem]:
        """Yield the problems with a notification that is not sent yet and may be."""
        return (one for one in self._problems.unsent.values() if self._may_be_sent(one))

    def _firing_now(self) -> Iterator[Problem]:
        """Yield the problems that fire and may be sent again."""
        return (one for one in self._problems.open.values() if one.state == FIRING and self._may_be_sent(one))

    def _may_be_sent(self, one: Problem) -> bool:
        is_muted = self._problems.is_muted
        return one.alert_id not in self._unpublished and not (is_muted and is_muted(one))

    def _delivered(self, deliveries: Sequence[tuple[Problem, Delivery]]) -> None:
        self._note_unsaved(
            updated
            for one, delivery in deliveries
            if (updated := self._problems.delivered(one.alert_id, delivery)) is not None
        )

    def _note_unsaved(self, problems: Iterable[Problem], *, removed: bool = False) -> None:
        for one in problems:
            self._unsaved[one.alert_id] = (one, removed)
