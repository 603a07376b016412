"""The evaluation of all rules but those about the health of groups, over all groups and the job.

Theory of operation
-------------------
Most groups are healthy, and rules are evaluated every few seconds. So rules declare as data which states and
description statuses they apply to, and what of a group they are about; a group of which no rule can have a finding is
left out until it changes, see `alerts.watched`.

Not evaluated: deleted groups, ids that a classic group has taken over, and groups that the settings exclude. Their
problems end. The health of groups is judged by `health.board`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import NamedTuple, TypeVar

from streaming_app.alerts import job_findings
from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.alerts.copies_findings import find_stale_members, find_standbys
from streaming_app.alerts.description_findings import (
    NOT_RETURNED,
    find_failed,
    find_lost,
    find_missing,
    find_unsolicited,
)
from streaming_app.alerts.lag_findings import find_rewound
from streaming_app.alerts.problem import Finding, Problem, ProblemKey
from streaming_app.alerts.rule import EvaluationContext, RuleSettingsLookup
from streaming_app.alerts.tenant_findings import SET_ASIDE, find_set_aside, rule_failed, say_which_rows_are_old
from streaming_app.groups.snapshot import GroupSnapshot, is_newcomer, ranks
from streaming_app.groups.state_rules import DEAD, EMPTY, STATES
from streaming_app.job_status import JobStatus

_EXISTS = frozenset(STATES) - {DEAD}
_WITH_MEMBERS = _EXISTS - {EMPTY}
_DESCRIPTION_FAILED = "StreamsGroupDescriptionFailed"
_STANDBYS, _REWOUND = "StreamsGroupStandbyBehind", "StreamsGroupOffsetsRewound"
_Found = Iterator[tuple[ProblemKey, Finding]]
_Subject = TypeVar("_Subject")


def _always(_group: GroupSnapshot) -> bool:
    return True


class GroupRule(NamedTuple):
    """A rule that is checked for each streams group in one of these states and description statuses."""

    name: str
    find: Callable[[GroupSnapshot, EvaluationContext], Finding | None]
    states: frozenset[str]
    statuses: frozenset[str] | None = None
    """None: any description status."""
    about: Callable[[GroupSnapshot], object] = _always
    """What of the group it is about: where that is absent, or zero, it has no finding."""
    requires_descriptions: bool = False
    """Not checked on a cluster that does not keep topology descriptions."""


GROUP_RULES = (
    GroupRule(
        "StreamsGroupUnsolicitedDescription", find_unsolicited, _EXISTS, about=attrgetter("last_unsolicited_push_at")
    ),
    GroupRule(_DESCRIPTION_FAILED, find_failed, _EXISTS, frozenset({"FAILED", "UNCERTAIN"})),
    GroupRule(
        "StreamsGroupDescriptionMissing",
        find_missing,
        _WITH_MEMBERS,
        frozenset({"NEVER_STORED", "STALE", "UNCERTAIN"}),
        requires_descriptions=True,
    ),
    GroupRule("StreamsGroupMembersStale", find_stale_members, _WITH_MEMBERS, about=attrgetter("stale_member_count")),
    GroupRule(SET_ASIDE, find_set_aside, _EXISTS, about=attrgetter("set_aside_reason")),
)


def evaluate(
    groups: Collection[GroupSnapshot],
    job: JobStatus | None,
    context: EvaluationContext,
    rule_settings_of: RuleSettingsLookup,
) -> dict[ProblemKey, Finding]:
    """Return a finding for every rule whose condition holds now, for any group and for the job.

    Groups that are not new and that `may_concern` excludes may be missing in `groups`: they change nothing.
    """
    findings: dict[ProblemKey, Finding] = {}
    for lost in context.lost_descriptions or ():
        findings.update(_find(_DESCRIPTION_FAILED, find_lost, lost, lost.group_id, context, rule_settings_of))
    with_descriptions = context.descriptions_since is not None
    for group in groups:
        if group.group_type == "streams":
            for rule in _applicable_rules(group.state, group.description_status, with_descriptions):
                if rule.about(group):
                    findings.update(_find(rule.name, rule.find, group, group.group_id, context, rule_settings_of))
    for copies in context.copies or ():
        findings.update(_find(_STANDBYS, find_standbys, copies, copies.group_id, context, rule_settings_of))
    for work in [one for one in (context.work or {}).values() if one.rewound]:
        findings.update(_find(_REWOUND, find_rewound, work, work.group_id, context, rule_settings_of))
    if job is not None:
        for name, find in job_findings.FINDINGS.items():
            findings.update(_find(name, find, job, None, context, rule_settings_of))
    say_which_rows_are_old(findings, groups)
    _leave_out_newcomers(findings, groups, context)
    return findings


def _find(  # noqa: PLR0913, PLR0917 - each is one thing it needs
    name: str,
    find: Callable[[_Subject, EvaluationContext], Finding | None],
    subject: _Subject,
    group_id: str | None,
    context: EvaluationContext,
    rule_settings_of: RuleSettingsLookup,
) -> _Found:
    """Yield what a rule that is enabled finds. Whatever one group causes, the others have their alerts."""
    if name not in rule_settings_of(group_id):
        return
    key = ProblemKey(name, group_id)
    try:
        finding = find(subject, context)
    except Exception as error:
        if group_id is None:
            raise
        context.failed.add(key)
        key, finding = ProblemKey(SET_ASIDE, group_id), rule_failed(group_id, name, error)
    if finding:
        yield key, finding


def may_concern(group: GroupSnapshot, *, with_descriptions: bool) -> bool:
    """Tell whether a rule may have a finding of a group, on a cluster with descriptions or without."""
    rules = _applicable_rules(group.state, group.description_status, with_descriptions)
    return group.group_type == "streams" and any(rule.about(group) for rule in rules)


def _leave_out_newcomers(
    findings: dict[ProblemKey, Finding], groups: Iterable[GroupSnapshot], context: EvaluationContext
) -> None:
    """Leave out the findings of new groups beyond `max_new_groups`, of the newest ones.

    Groups with an open problem keep it, so that none ends since others came, and take no place of others.
    """
    ids = {key.group_id for key in findings if key.group_id is not None}
    if len(ids) <= context.max_new_groups:
        return
    new = {one.group_id: one for one in groups if one.group_id in ids and is_newcomer(one, context.now)}
    if len(new) <= context.max_new_groups:
        return
    alerted = {key.group_id for key in findings if key in context.open_problems}
    place = ranks(new, new, context.now)
    context.left_out.update(one for one in new if place[one] > context.max_new_groups and one not in alerted)
    for key in [key for key in findings if key.group_id in context.left_out]:
        del findings[key]


def is_unknown(key: ProblemKey, problem: Problem | None, context: EvaluationContext) -> bool:
    """Tell whether nothing is known at present of a condition without a finding: its problem stays as it is."""
    if key in context.failed:
        return True
    evidence = problem.evidence if problem else {}
    if key.subject == _STANDBYS:
        return context.copies is None
    if key.subject == _DESCRIPTION_FAILED:
        return context.lost_descriptions is None and evidence.get("status") in NOT_RETURNED
    if key.subject != _REWOUND:
        return False
    work = context.work.get(key.group_id or "") if context.work is not None else None
    if work is None:
        return context.work is None
    places = evidence.get("partitions", ())
    is_known = not any((place["topic"], place["partition"]) in work.without_status for place in places)
    return work.is_held or work.is_blind or not is_known


def watches_any(group_ids: Iterable[str], rule_settings_of: RuleSettingsLookup) -> bool:
    """Return whether a rule about groups is enabled for at least one of these groups."""
    names = {*(rule.name for rule in GROUP_RULES), *HEALTH_RULES}
    return any(not names.isdisjoint(rule_settings_of(group_id)) for group_id in group_ids)


@cache
def _applicable_rules(
    state: str,
    status: str,
    with_descriptions: bool,  # noqa: FBT001 - a cache's key
) -> tuple[GroupRule, ...]:
    return tuple(
        rule
        for rule in GROUP_RULES
        if state in rule.states
        and (rule.statuses is None or status in rule.statuses)
        and (with_descriptions or not rule.requires_descriptions)
    )
