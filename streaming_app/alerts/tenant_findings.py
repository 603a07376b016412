"""When a group is set aside, and what other findings about it say then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from streaming_app.alerts.problem import Finding, ProblemKey
from streaming_app.alerts.rule import (
    EvaluationContext,
    since_or_fallback,
)
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.text import shorten

SET_ASIDE = "StreamsGroupSetAside"
_REASON = 300  # characters
_OLD_ROW = "it is set aside: its row is as it was before"


def find_set_aside(group: GroupSnapshot, _context: EvaluationContext) -> Finding:
    """The records of the group are not folded any more."""
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
        if key.group_id in old and key.subject != SET_ASIDE:
            findings[key] = replace(finding, evidence={**finding.evidence, "cut": _OLD_ROW})


def rule_failed(group_id: str, rule: str, error: Exception) -> Finding:
    """Return the finding about a group for which a rule cannot be evaluated."""
    reason = shorten(f"the rule {rule} failed: {type(error).__name__}: {error}", _REASON)
    return Finding(None, f"{group_id} is set aside for a rule: {reason}", {"reason": reason, "rule": rule})
