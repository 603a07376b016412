"""The rule about what one tenant costs the others: groups that are set aside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from streaming_app.alerts.problem import CRITICAL, Finding, ProblemKey
from streaming_app.alerts.rule import (
    NOT_DEAD,
    EvaluationContext,
    GroupRule,
    Thresholds,
    since_or_fallback,
)
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.text import shorten

_REASON = 300  # characters
_OLD_ROW = "it is set aside: its row is as it was before"


def _set_aside(group: GroupSnapshot, _thresholds: Thresholds, _context: EvaluationContext) -> Finding:
    reason = shorten(group.set_aside_reason or "", _REASON)
    return Finding(
        since_or_fallback(group.set_aside_at, group),
        f"{group.group_id} is set aside, and its row stays as it was: {reason}",
        {"reason": reason},
    )


def say_which_rows_are_old(findings: dict[ProblemKey, Finding], groups: Iterable[GroupSnapshot]) -> None:
    """Let every other finding about a group that is set aside say that its row is old."""
    old = {one.group_id for one in groups if one.set_aside_reason}
    for key, finding in findings.items():
        if key.group_id in old and key.subject != "StreamsGroupSetAside":
            findings[key] = replace(finding, evidence={**finding.evidence, "cut": _OLD_ROW})


def rule_failed(group_id: str, rule: str, error: Exception) -> Finding:
    """Return the finding about a group for which a rule cannot be evaluated."""
    reason = shorten(f"the rule {rule} failed: {type(error).__name__}: {error}", _REASON)
    return Finding(None, f"{group_id} is set aside for a rule: {reason}", {"reason": reason, "rule": rule})


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
