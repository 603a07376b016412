"""All rules, and their evaluation over all groups and the job.

Theory of operation
-------------------
Most groups are healthy, and rules are evaluated every few seconds. So rules declare as data which states and
description statuses they apply to, and what of a group they are about; a group of which no rule can have a finding is
left out until it changes, see `alerts.watched`.

One cause is to give one alert. A rule names the rules that say the same and more (`hidden_by`), and a rule for the
cluster those for a group that it takes the place of, once many groups have a finding of them (`replaces`). An alert
that fires already stays in both cases: to resolve it would say that its condition is over.

Not evaluated: deleted groups, ids that a classic group has taken over, and groups that the settings exclude. The
lifecycle then resolves their open alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache

from streaming_app.alerts.alert import Alert, AlertKey, Finding
from streaming_app.alerts.copies_rules import COPIES_RULES, MEMBER_RULES
from streaming_app.alerts.description_rules import CLUSTER_RULES, DESCRIPTION_RULES, LOST_RULES
from streaming_app.alerts.health_rules import HEALTH_RULES, RULES_BY_VERDICT, HealthRule
from streaming_app.alerts.job_rules import JOB_RULES, SELF_CHECK_RULES
from streaming_app.alerts.lag_rules import LAG_RULES
from streaming_app.alerts.rule import (
    ClusterRule,
    EvaluationContext,
    GroupFinding,
    GroupRule,
    Rule,
    RuleSettings,
    Snapshot,
)
from streaming_app.alerts.survey import LostDescription
from streaming_app.alerts.tenant_rules import TENANT_RULES, rule_failed, say_which_rows_are_old
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.newcomers import is_newcomer, ranks
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.incidents import Incident
from streaming_app.job_status import DifferingGroup, JobStatus
from streaming_app.lag.group_lag import GroupLag

RULES_FOR_GROUPS: tuple[GroupRule, ...] = (*DESCRIPTION_RULES, *MEMBER_RULES, *TENANT_RULES)
RULES_FOR_CLUSTER: tuple[ClusterRule, ...] = CLUSTER_RULES
RULES_FOR_JOB: tuple[Rule[JobStatus], ...] = JOB_RULES
RULES_FOR_DIFFERING_GROUPS: tuple[Rule[DifferingGroup], ...] = SELF_CHECK_RULES
RULES_FOR_COPIES: tuple[Rule[GroupCopies], ...] = COPIES_RULES
RULES_FOR_LAG: tuple[Rule[GroupLag], ...] = LAG_RULES
RULES_FOR_INCIDENTS: tuple[HealthRule, ...] = HEALTH_RULES
RULES_FOR_LOST_DESCRIPTIONS: tuple[Rule[LostDescription], ...] = LOST_RULES
AnyRule = (
    Rule[GroupSnapshot]
    | ClusterRule
    | Rule[JobStatus]
    | Rule[DifferingGroup]
    | Rule[GroupCopies]
    | Rule[GroupLag]
    | HealthRule
    | Rule[LostDescription]
)
RULES: Mapping[str, AnyRule] = {
    **{rule.name: rule for rule in RULES_FOR_INCIDENTS},
    **{rule.name: rule for rule in RULES_FOR_GROUPS},
    **{rule.name: rule for rule in RULES_FOR_CLUSTER},
    **{rule.name: rule for rule in RULES_FOR_JOB},
    **{rule.name: rule for rule in RULES_FOR_DIFFERING_GROUPS},
    **{rule.name: rule for rule in RULES_FOR_COPIES},
    **{rule.name: rule for rule in RULES_FOR_LAG},
    **{rule.name: rule for rule in RULES_FOR_LOST_DESCRIPTIONS},
}

_SET_ASIDE = next(rule for rule in TENANT_RULES if rule.name == "StreamsGroupSetAside")

RuleSettingsLookup = Callable[[str | None], Mapping[str, RuleSettings]]
"""Returns the settings of each rule that is enabled for a group, by the rule's name; for None, those for the job."""


def evaluate(
    groups: Collection[GroupSnapshot],
    job: JobStatus | None,
    context: EvaluationContext,
    rule_settings_of: RuleSettingsLookup,
) -> dict[AlertKey, Finding]:
    """Return a finding for every rule whose condition holds now, for any group and for the job.

    Groups that are not new and that `may_concern` excludes may be missing in `groups`: they change nothing.
    """
    findings: dict[AlertKey, Finding] = {}
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
            is_firing = AlertKey(rule.name, group_id) in context.firing_alerts
            if not is_firing and _has_finding(findings, rule.hidden_by, group_id):
                continue
            try:
                finding = rule.find(group, settings.thresholds, context)
            except Exception as error:  # noqa: BLE001 - whatever one group causes, the others have their alerts
                context.failed.add(AlertKey(rule.name, group_id))
                finding, rule = rule_failed(group_id, rule.name, error), _SET_ASIDE  # noqa: PLW2901 - reported as
            if finding:
                findings[AlertKey(rule.name, group_id)] = finding
    for lost in context.lost_descriptions or ():
        findings.update(_find(RULES_FOR_LOST_DESCRIPTIONS, lost, lost.group_id, context, rule_settings_of))
    _replace_by_cluster_findings(findings, context, rule_settings_of)
    findings.update(_findings_of_services(context, rule_settings_of))
    findings.update(_findings_of_incidents(context.incidents, context, rule_settings_of))
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
    findings: dict[AlertKey, Finding], groups: Iterable[GroupSnapshot], context: EvaluationContext
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
    alerted = {key.group_id for key in findings if key in context.open_alerts}
    place = ranks(new, new, context.now)
    context.left_out.update(one for one in new if place[one] > context.max_new_groups and one not in alerted)
    for key in [key for key in findings if key.group_id in context.left_out]:
        del findings[key]


def _findings_of_services(
    context: EvaluationContext, rule_settings_of: RuleSettingsLookup
) -> Iterator[tuple[AlertKey, Finding]]:
    """Yield the findings of what the job asks brokers for: of few groups, since only those are passed along."""
    for differing in context.differing_groups:
        yield from _find(RULES_FOR_DIFFERING_GROUPS, differing, differing.group_id, context, rule_settings_of)
    for copies in context.copies or ():
        yield from _find(RULES_FOR_COPIES, copies, copies.group_id, context, rule_settings_of)
    for lag in (context.lag or {}).values():
        yield from _find(RULES_FOR_LAG, lag, lag.group_id, context, rule_settings_of)


def _findings_of_incidents(
    incidents: Iterable[Incident], context: EvaluationContext, rule_settings_of: RuleSettingsLookup
) -> Iterator[tuple[AlertKey, Finding]]:
    """Yield a finding for each group that an open incident concerns, so that its owner hears of it.

    Once all its groups process, an incident that may come again has those whose alert is still open.
    """
    for incident in incidents:
        for one in incident.by_group(context.verdict_of):
            (group_id,) = one.groups
            key = AlertKey(incident.incident_id, group_id)
            rule = RULES_BY_VERDICT.get(one.verdict)
            if rule is None:  # the time line no longer says what was wrong with it: its alert stays as it is
                context.failed.add(key)
                continue
            settings = rule_settings_of(group_id).get(rule.name)
            if not settings or not (one.open_groups or key in context.open_alerts):
                continue
            if finding := rule.find(one, settings.thresholds, context):
                yield key, finding


def is_held(key: AlertKey, context: EvaluationContext) -> bool:
    """Tell whether an alert stays as it is, since nothing is known at present of its condition."""
    if key in context.failed:
        return True
    rule: AnyRule | None = RULES.get(key.rule)
    if rule in RULES_FOR_LAG:
        if context.lag is None:
            return True
        lag = context.lag.get(key.group_id or "")
        return lag is not None and lag.is_held
    unknown = (context.copies, RULES_FOR_COPIES), (context.lost_descriptions, RULES_FOR_LOST_DESCRIPTIONS)
    return any(known is None and rule in rules for known, rules in unknown)


def is_unknown(alert: Alert | None, context: EvaluationContext) -> bool:
    """Tell whether the lag of a partition that an open alert names is not known, so that the alert is not resolved."""
    lag = (context.lag or {}).get(alert.group_id or "") if alert else None
    if alert is None or not lag or not lag.unknown or RULES.get(alert.rule) not in RULES_FOR_LAG:
        return False
    return any((place["topic"], place["partition"]) in lag.unknown for place in alert.details.get("partitions", ()))


def watches_any(group_ids: Iterable[str], rule_settings_of: RuleSettingsLookup) -> bool:
    """Return whether a rule about groups is enabled for at least one of these groups."""
    rules: tuple[AnyRule, ...] = (*RULES_FOR_GROUPS, *RULES_FOR_INCIDENTS)
    names = {rule.name for rule in rules}
    return any(not names.isdisjoint(rule_settings_of(group_id)) for group_id in group_ids)


def _find(
    rules: Iterable[Rule[Snapshot]],
    snapshot: Snapshot,
    group_id: str | None,
    context: EvaluationContext,
    rule_settings_of: RuleSettingsLookup,
) -> Iterator[tuple[AlertKey, Finding]]:
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
            context.failed.add(AlertKey(rule.name, group_id))
            yield AlertKey(_SET_ASIDE.name, group_id), rule_failed(group_id, rule.name, error)
            continue
        if finding:
            yield AlertKey(rule.name, group_id), finding


def _has_finding(findings: Mapping[AlertKey, Finding], rules: Iterable[str], group_id: str) -> bool:
    return any(AlertKey(rule, group_id) in findings for rule in rules)


def _replace_by_cluster_findings(
    findings: dict[AlertKey, Finding], context: EvaluationContext, rule_settings_of: RuleSettingsLookup
) -> None:
    """Replace the findings for many groups by one for the cluster.

    Those whose alert fires already keep it: nothing is mended because other groups have the same.
    """
    enabled = rule_settings_of(None)
    for rule in RULES_FOR_CLUSTER:
        settings = enabled.get(rule.name)
        replaced = [key for key in findings if key.rule in rule.replaces] if settings else []
        if not settings or not replaced:
            continue
        is_open = AlertKey(rule.name, None) in context.open_alerts
        if len({key.group_id for key in replaced}) < settings.thresholds["groups"] and not is_open:
            continue
        affected = [_group_finding(key, findings[key], context.now, rule_settings_of) for key in replaced]
        for key in replaced:
            if key not in context.firing_alerts:
                del findings[key]
        if finding := rule.find(affected, settings.thresholds, context):
            findings[AlertKey(rule.name, None)] = finding


def _group_finding(
    key: AlertKey, finding: Finding, now: datetime, rule_settings_of: RuleSettingsLookup
) -> GroupFinding:
    seconds = rule_settings_of(key.group_id)[key.rule].for_seconds
    return GroupFinding(key.group_id or "", key.rule, finding, (finding.since or now) + timedelta(seconds=seconds))


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
