"""The catalogue of rules: what each means, when it fires, what to ask, and what to do; one TOML file for each rule.

The runbook, the configuration, the page and the commands are made from it. When a rule's condition holds is code: of
the health of groups in `health`, of the others in `conditions` and `job_conditions`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from streaming_app.health.verdict import BEHIND, DOWN, LOSING, RESTORING, STALLED, UNSTABLE
from streaming_app.text import parse_duration

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GROUP_ID = "GROUP_ID"
"""Placeholder for the group's id in the SQL of a rule."""
RULE_OF_VERDICT: Mapping[str, str] = {
    **{verdict: f"StreamsGroup{verdict}" for verdict in (LOSING, DOWN, STALLED, BEHIND, UNSTABLE)},
    RESTORING: f"StreamsGroup{LOSING}",  # with a severity only if records will be lost before it ends
}
"""The rules about the health of groups, by verdict, the worst first."""
HEALTH_RULES = tuple(dict.fromkeys(RULE_OF_VERDICT.values()))
_MAX_SECONDS = 30 * 86_400.0


class Step(NamedTuple):
    """Something to do about a problem."""

    text: str
    """`GROUP_ID` is the placeholder for the group's id, `ID` for that of the alert."""
    when: str = ""
    """What the verdict says where this is the step to take."""


@dataclass(frozen=True)
class Rule:
    """An entry of the catalogue."""

    name: str
    order: int
    severity: str
    for_seconds: float
    """How long, in seconds, the condition must hold before a problem opens."""
    summary: str
    """What is wrong, in a sentence."""
    impact: str
    """What that means for the business."""
    meaning: str
    """When the alert opens and ends."""
    confirm: str
    """The command that shows it; `GROUP_ID` is the placeholder for the group's id."""
    queries: Mapping[str, str]
    """Question to the SQL (DataFusion's) that answers it; `GROUP_ID` is the placeholder for the group's id."""
    steps: tuple[Step, ...]
    """What to do, the most likely first."""
    avoid: tuple[str, ...] = ()
    """What not to do, and why."""
    replaces: tuple[str, ...] = ()
    """The rules of releases up to 0.2 whose place it has taken."""

    def queries_for(self, group_id: str) -> dict[str, str]:
        """Return `queries` for this group."""
        return {question: sql.replace(GROUP_ID, group_id.replace("'", "''")) for question, sql in self.queries.items()}

    def step_for(self, why: str) -> Step:
        """Return what to do first where the verdict says so: the step with the longest `when` in it, else the first."""
        return max(self.steps, key=lambda one: len(one.when) if one.when in why else 0)


@cache
def rules() -> Mapping[str, Rule]:
    """Return every rule by its name, in the order of the runbook."""
    found = []
    for file in (files(__package__ or "") / "catalog").iterdir():
        if file.name.endswith(".toml"):
            data = tomllib.loads(file.read_text("utf-8"))
            seconds = parse_duration(data.pop("for"), _MAX_SECONDS)
            data["queries"] = {question: sql.strip() for question, sql in data["queries"].items()}
            data["steps"] = tuple(Step(one) if isinstance(one, str) else Step(**one) for one in data["steps"])
            data |= {key: tuple(data.get(key, ())) for key in ("avoid", "replaces")}
            found.append(Rule(file.name.removesuffix(".toml"), for_seconds=seconds, **data))
    return {one.name: one for one in sorted(found, key=lambda one: one.order)}


@cache
def replaced() -> Mapping[str, str]:
    """Return the rules of releases up to 0.2, and what has taken the place of each."""
    return {old: one.name for one in rules().values() for old in one.replaces}
