"""All rules, and asking them of everything in one look.

Theory of operation
-------------------
Most groups are well, and a look comes every few seconds. So rules say in data which states and description statuses
they are about, and a group meets only the rules that can concern it; nearly all groups are Stable and CURRENT, and meet
two, both of which end at their first comparison.

What raises nothing: deleted groups, ids that a classic group has taken over, and groups that the settings leave out.
The life cycle then resolves what was open of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import cache

from streaming_app.core.alert import AlertKey, Finding
from streaming_app.core.description_rules import DESCRIPTION_RULES
from streaming_app.core.facts import GroupFacts, JobFacts
from streaming_app.core.group_rules import GROUP_RULES
from streaming_app.core.job_rules import JOB_RULES
from streaming_app.core.rule import GroupRule, Look, Rule, Terms
from streaming_app.core.states import NONE

OF_GROUPS: tuple[GroupRule, ...] = (*GROUP_RULES, *DESCRIPTION_RULES)
OF_JOB: tuple[Rule[JobFacts], ...] = JOB_RULES
RULES: Mapping[str, Rule[GroupFacts] | Rule[JobFacts]] = {
    **{rule.name: rule for rule in OF_GROUPS},
    **{rule.name: rule for rule in OF_JOB},
}

TermsOf = Callable[[str | None], Mapping[str, Terms]]
"""The terms of each rule that is enabled for a group, by the rule's name; those of the job for None."""


def evaluate(
    groups: Iterable[GroupFacts], job: JobFacts | None, look: Look, terms_of: TermsOf
) -> dict[AlertKey, Finding]:
    """Ask every rule of every group, and of the job. The answer is all that is wrong now."""
    found: dict[AlertKey, Finding] = {}
    with_descriptions = look.descriptions_since is not None
    for group in groups:
        rules = _concerned(group.state, group.description_status, with_descriptions)
        if not rules or group.group_type != "streams":
            continue
        terms = terms_of(group.group_id)
        for rule in rules:
            agreed = terms.get(rule.name)
            if agreed and (finding := rule.find(group, agreed.thresholds, look)):
                found[AlertKey(rule.name, group.group_id)] = finding
    if job is not None:
        terms = terms_of(None)
        for job_rule in OF_JOB:
            agreed = terms.get(job_rule.name)
            if agreed and (finding := job_rule.find(job, agreed.thresholds, look)):
                found[AlertKey(job_rule.name, None)] = finding
    return found


@cache
def _concerned(state: str, status: str, with_descriptions: bool) -> tuple[GroupRule, ...]:  # noqa: FBT001 - a cache's key
    return tuple(
        rule
        for rule in OF_GROUPS
        if state in rule.states
        and (rule.statuses is None or status in rule.statuses)
        and (with_descriptions or not rule.of_descriptions)
    )


def descriptions_since(groups: Iterable[GroupFacts]) -> datetime | None:
    """Since when, as the groups show, the cluster keeps topology descriptions; None if no group shows it.

    A description stored, failed or begun, or a push that nobody asked for, proves that a plugin is configured; of
    deleted groups, too. Where the log has no time it is taken for long ago.
    """
    return min((_first_shown(group) for group in groups if _shows_plugin(group)), default=None)


def _shows_plugin(group: GroupFacts) -> bool:
    return (
        group.stored_description_epoch != NONE or group.failed_description_epoch != NONE or group.unsolicited_pushes > 0
    )


def _first_shown(group: GroupFacts) -> datetime:
    return group.description_since or group.first_seen_at or datetime.fromtimestamp(0, timezone.utc)
