"""All rules, and their evaluation over all groups and the job.

Theory of operation
-------------------
Most groups are healthy, and rules are evaluated every few seconds. So rules declare as data which states and
description statuses they apply to, and what of a group they are about; a group of which no rule can have a finding is
left out until it changes, see `alerts.watched`.

A rule names the rules that say the same and more (`hidden_by`). A problem that is open already stays all the same: to
end it would say that its condition is over.

Not evaluated: deleted groups, ids that a classic group has taken over, and groups that the settings exclude. Their
problems end. The health of groups is evaluated by `health.board`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

from streaming_app.alerts.copies_rules import COPIES_RULES, MEMBER_RULES
from streaming_app.alerts.description_rules import DESCRIPTION_RULES, LOST_RULES
from streaming_app.alerts.health_rules import HEALTH_RULES, HealthRule
from streaming_app.alerts.job_rules import JOB_RULES, SELF_CHECK_RULES
from streaming_app.alerts.lag_rules import LAG_RULES
from streaming_app.alerts.problem import Finding, Problem, ProblemKey
from streaming_app.alerts.rule import EvaluationContext, GroupRule, Rule, RuleSettingsLookup, Snapshot
from streaming_app.alerts.survey import LostDescription
from streaming_app.alerts.tenant_rules import TENANT_RULES, rule_failed, say_which_rows_are_old
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.newcomers import is_newcomer, ranks
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.job_status import DifferingGroup, JobStatus
from streaming_app.lag.group_lag import GroupLag

RULES_FOR_GROUPS: tuple[GroupRule, ...] = (*DESCRIPTION_RULES, *MEMBER_RULES, *TENANT_RULES)
RULES_FOR_JOB: tuple[Rule[JobStatus], ...] = JOB_RULES
RULES_FOR_DIFFERING_GROUPS: tuple[Rule[DifferingGroup], ...] = SELF_CHECK_RULES
RULES_FOR_COPIES: tuple[Rule[GroupCopies], ...] = COPIES_RULES
RULES_FOR_LAG: tuple[Rule[GroupLag], ...] = LAG_RULES
RULES_FOR_HEALTH: tuple[HealthRule, ...] = HEALTH_RULES
RULES_FOR_LOST_DESCRIPTIONS: tuple[Rule[LostDescription], ...] = LOST_RULES
AnyRule = (
    Rule[GroupSnapshot]
    | Rule[JobStatus]
    | Rule[DifferingGroup]
    | Rule[GroupCopies]
    | Rule[GroupLag]
    | HealthRule
    | Rule[LostDescription]
)
RULES: Mapping[str, AnyRule] = {
    **{rule.name: rule for rule in RULES_FOR_HEALTH},
    **{rule.name: rule for rule in RULES_FOR_GROUPS},
    **{rule.name: rule for rule in RULES_FOR_JOB},
    **{rule.name: rule for rule in RULES_FOR_DIFFERING_GROUPS},
    **{rule.name: rule for rule in RULES_FOR_COPIES},
    **{rule.name: rule for rule in RULES_FOR_LAG},
    **{rule.name: rule for rule in RULES_FOR_LOST_DESCRIPTIONS},
}

_SET_ASIDE = next(rule for rule in TENANT_RULES if rule.name == "StreamsGroupSetAside")


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
    with_descriptions = context.descriptions_since is not None
    for group in groups:
        group_id = group.group_id
        rules = _applicable_rules(group.state, group.description_status, with_descriptions)
        if not rules or group.group_type != "streams":
            continue
        enabled = rule_settings_of(group_id)
        for rule in rules:
            settings = enabled.get(rule.name)
            if not settings or not rule.about(group):
                continue
            is_firing = ProblemKey(rule.name, group_id) in context.firing_problems
            if not is_firing and _has_finding(findings, rule.hidden_by, group_id):
                continue
            try:
                finding = rule.find(group, settings.thresholds, context)
            except Exception as error:  # noqa: BLE001 - whatever one group causes, the others have their alerts
                context.failed.add(ProblemKey(rule.name, group_id))
                finding, rule = rule_failed(group_id, rule.name, error), _SET_ASIDE  # noqa: PLW2901 - reported as
            if finding:
                findings[ProblemKey(rule.name, group_id)] = finding
    for lost in context.lost_descriptions or ():
        findings.update(_find(RULES_FOR_LOST_DESCRIPTIONS, lost, lost.group_id, context, rule_settings_of))
    findings.update(_findings_of_services(context, rule_settings_of))
    if job is not None:
        findings.update(_find(RULES_FOR_JOB, job, None, context, rule_settings_of))
    say_which_rows_are_old(findings, groups)
    _leave_out_newcomers(findings, groups, context)
    return findings


def may_concern(group: GroupSnapshot, *, with_descriptions: bool) -> bool:
    """Tell whether a rule may have a finding of a group, on a cluster with descriptions or without."""
    rules = _applicable_rules(group.state, group.description_status, with_descriptions)
    return group.group_type == "streams" and any(rule.about(group) for rule in rules)


def _leave_out_newcomers(
    findings: dict[ProblemKey, Finding], groups: Iterable[GroupSnapshot], context: EvaluationContext
) -> None:
    """Leave out the findings of new groups beyond `max_new_groups`, of the newest ones.

    Groups with an open alert keep it, so that no alert is resolved since others came, and take no place of others.
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


def _findings_of_services(
    context: EvaluationContext, rule_settings_of: RuleSettingsLookup
) -> Iterator[tuple[ProblemKey, Finding]]:
    """Yield the findings of what the job asks brokers for: of few groups, since only those are passed along."""
    for differing in context.differing_groups:
        yield from _find(RULES_FOR_DIFFERING_GROUPS, differing, differing.group_id, context, rule_settings_of)
    for copies in context.copies or ():
        yield from _find(RULES_FOR_COPIES, copies, copies.group_id, context, rule_settings_of)
    for lag in (context.lag or {}).values():
        yield from _find(RULES_FOR_LAG, lag, lag.group_id, context, rule_settings_of)


def is_unknown(key: ProblemKey, problem: Problem | None, context: EvaluationContext) -> bool:
    """Tell whether nothing is known at present of a condition without a finding: its problem stays as it is."""
    if key in context.failed:
        return True
    rule = RULES.get(key.subject)
    services = (context.copies, RULES_FOR_COPIES), (context.lost_descriptions, RULES_FOR_LOST_DESCRIPTIONS)
    if any(known is None and rule in rules for known, rules in services):
        return True
    if rule not in RULES_FOR_LAG:
        return False
    if context.lag is None:
        return True
    lag = context.lag.get(key.group_id or "")
    if lag is None:
        return False
    places = problem.evidence.get("partitions", ()) if problem else ()
    return lag.is_held or any((place["topic"], place["partition"]) in lag.unknown for place in places)


def watches_any(group_ids: Iterable[str], rule_settings_of: RuleSettingsLookup) -> bool:
    """Return whether a rule about groups is enabled for at least one of these groups."""
    rules: tuple[AnyRule, ...] = (*RULES_FOR_GROUPS, *RULES_FOR_HEALTH)
    names = {rule.name for rule in rules}
    return any(not names.isdisjoint(rule_settings_of(group_id)) for group_id in group_ids)


def _find(
    rules: Iterable[Rule[Snapshot]],
    snapshot: Snapshot,
    group_id: str | None,
    context: EvaluationContext,
    rule_settings_of: RuleSettingsLookup,
) -> Iterator[tuple[ProblemKey, Finding]]:
    enabled = rule_settings_of(group_id)
    for rule in rules:
        settings = enabled.get(rule.name)
        if not settings:
            continue
        try:
            finding = rule.find(snapshot, settings.thresholds, context)
        except Exception as error:
            if group_id is None:
                raise
            context.failed.add(ProblemKey(rule.name, group_id))
            yield ProblemKey(_SET_ASIDE.name, group_id), rule_failed(group_id, rule.name, error)
            continue
        if finding:
            yield ProblemKey(rule.name, group_id), finding


def _has_finding(findings: Mapping[ProblemKey, Finding], rules: Iterable[str], group_id: str) -> bool:
    return any(ProblemKey(rule, group_id) in findings for rule in rules)


@cache
def _applicable_rules(
    state: str,
    status: str,
    with_descriptions: bool,  # noqa: FBT001 - a cache's key
) -> tuple[GroupRule, ...]:
    return tuple(
        rule
        for rule in RULES_FOR_GROUPS
        if state in rule.states
        and (rule.statuses is None or status in rule.statuses)
        and (with_descriptions or not rule.requires_descriptions)
    )
