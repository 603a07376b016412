"""The rules about what one tenant costs the others: groups over their budget, set aside, and a flood of new groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

from streaming_app.alerts.alert import CRITICAL, AlertKey, Finding
from streaming_app.alerts.rule import (
    NOT_DEAD,
    EvaluationContext,
    GroupRule,
    Rule,
    Threshold,
    Thresholds,
    since_or_fallback,
)
from streaming_app.groups.newcomers import Newcomers
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.text import count, escape, first_of, round_down, shorten

_REASON, _PREFIX = 300, 60  # characters
_OLD_ROW = "it is set aside: its row is as it was before"


def _set_aside(group: GroupSnapshot, _thresholds: Thresholds, _context: EvaluationContext) -> Finding:
    reason = shorten(group.set_aside_reason or "", _REASON)
    return Finding(
        since_or_fallback(group.set_aside_at, group),
        f"{group.group_id} is set aside, and its row stays as it was: {reason}",
        {"reason": reason},
    )


def say_which_rows_are_old(findings: dict[AlertKey, Finding], groups: Iterable[GroupSnapshot]) -> None:
    """Let every other finding about a group that is set aside say that its row is old."""
    old = {one.group_id for one in groups if one.set_aside_reason}
    for key, finding in findings.items():
        if key.group_id in old and key.rule != "StreamsGroupSetAside":
            findings[key] = replace(finding, details={**finding.details, "cut": _OLD_ROW})


def rule_failed(group_id: str, rule: str, error: Exception) -> Finding:
    """Return the finding about a group for which a rule cannot be evaluated."""
    reason = shorten(f"the rule {rule} failed: {type(error).__name__}: {error}", _REASON)
    return Finding(None, f"{group_id} is set aside for a rule: {reason}", {"reason": reason, "rule": rule})


def _flood(new: Newcomers, thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    if new.count < thresholds["groups"] and not new.without_alerts and not new.unjudged:
        return None
    number = round_down(new.count)
    hosts = _named(new.hosts)
    named = f", most of which begin with {shorten(escape(new.prefix), _PREFIX)!r}" if new.prefix else ""
    summary = f"{count(number, 'group')} or more are new since yesterday{named}; most are of {hosts}"
    details: dict[str, object] = {"groups_at_least": number, "hosts": list(new.hosts)}
    if new.prefix:
        details["prefix"] = new.prefix
    if new.without_alerts:
        left_out = round_down(new.without_alerts)
        details["groups_without_alerts_at_least"] = left_out
        summary += f". The alerts of {left_out:,} of them or more are left out"
    if new.unjudged:
        details["groups_not_judged_at_least"] = late = round_down(new.unjudged)
        details["hosts_not_judged"] = list(new.unjudged_hosts)
        summary += f". {count(late, 'verdict')} or more are late, most of groups of {_named(new.unjudged_hosts)}"
    return Finding(new.since, summary, details)


def _named(hosts: Mapping[str, int]) -> str:
    return first_of([escape(one) for one in hosts], len(hosts))


TENANT_RULES = (
    GroupRule(
        name="StreamsGroupSetAside",
        find=_set_aside,
        severity=CRITICAL,
        for_seconds=0.0,
        states=NOT_DEAD,
        about=attrgetter("set_aside_reason"),
        meaning=(
            "The records of the group cannot be folded, or the group has more members, tasks, text or topology than "
            "`group_budget` allows, or its records take more steps, or a rule cannot be evaluated for it. The group "
            "alone is set aside: its row stays as it was, and all others go on. Its records are in the log until they "
            "are compacted. The defaults of `group_budget` are far above what applications need."
        ),
        queries={
            "Why, and since when?": (
                "SELECT set_aside_at, set_aside_reason, set_aside_release, last_offset, client_host\n"
                "FROM groups WHERE group_id = 'GROUP_ID'"
            ),
        },
        steps=(
            "The reason names a key of `group_budget`: raise it if the application really is that large or changes so "
            "often, give the job more memory, and release the group. Large client tags, or thousands of members of one "
            "group, are a mistake or an attack: the principal of `client_host` needs a quota.",
            "Another reason is a defect of streams-groups or a damaged row: report it with the reason. A new release "
            "tries the group again by itself.",
            "`streams-groups quarantine release --group GROUP_ID` lets the running job read its records again.",
        ),
    ),
)
"""In the order of the runbook."""

NEWCOMER_RULES = (
    Rule[Newcomers](
        name="StreamsGroupsFlood",
        find=_flood,
        for_seconds=0.0,
        thresholds={"groups": Threshold(1_000, "so many groups of the last 24 hours are a flood")},
        meaning=(
            "Very many groups were created within a day, or more new groups than `alerts.max_new_groups` have alerts. "
            "Groups that were known before keep their series, alerts, notifications and verdicts in time; the new ones "
            "share what is left, in turns from each host that the broker saw. The alert names what most of the new ids "
            "begin with, and the hosts with the most of them."
        ),
        queries={
            "Whose are they?": (
                "SELECT client_host, count(*) AS groups, min(first_seen_at) AS since, min(group_id) AS one_of_them\n"
                "FROM groups WHERE first_seen_at > now() - INTERVAL '1 day'\n"
                "GROUP BY client_host ORDER BY groups DESC LIMIT 20"
            ),
        },
        steps=(
            "An application that makes up an `application.id` at each start: correct it, and delete the groups.",
            "A migration of many applications: the alert resolves within a day. Raise `alerts.max_new_groups` if they "
            "should have alerts of their own at once.",
            "Nobody knows them: take the principal's permission to create groups (`READ` on groups with that prefix) "
            "away.",
        ),
    ),
)
"""In the order of the runbook."""
