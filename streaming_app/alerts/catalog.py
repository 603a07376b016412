"""The catalogue of rules: what each rule means, when it fires, how to confirm it, and what to do. Each is a TOML file.

The runbook, the configuration, the page and the commands are made from it. The conditions are code: `health` for the
verdicts, `conditions` and `job_conditions` for all other rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from offsets_decoder.definitions import load_toml
from streaming_app.health.verdict import BEHIND, DOWN, LOSING, RESTORING, STALLED, UNSTABLE
from streaming_app.text import parse_duration

GROUP_ID, MISSING_TOPIC = "GROUP_ID", "MISSING_TOPIC"
"""Placeholder for the group's id in the SQL of a rule."""
RULE_OF_VERDICT: Mapping[str, str] = {
    **{verdict: f"StreamsGroup{verdict}" for verdict in (LOSING, DOWN, STALLED, BEHIND, UNSTABLE)},
    RESTORING: f"StreamsGroup{LOSING}",  # with a severity only if records will be lost before it ends
}
"""Verdict -> the rule that it opens, the worst first."""
HEALTH_RULES = tuple(dict.fromkeys(RULE_OF_VERDICT.values()))
_MAX_SECONDS = 30 * 86_400.0


class Step(NamedTuple):
    """Something to do about an alert."""

    text: str
    """May contain the placeholders `GROUP_ID`, `ID` (of the alert) and `MISSING_TOPIC` (of its cause)."""
    when: str = ""
    """If the text of the verdict contains these words, this is the first step to take."""


@dataclass(frozen=True)
class Rule:
    """An entry of the catalogue."""

    name: str
    order: int
    severity: str
    for_seconds: float
    """How long, in seconds, the condition must hold before an alert opens."""
    summary: str
    impact: str
    """What this means for the business."""
    meaning: str
    """When the alert opens and ends."""
    confirm: str
    """The command that shows the alert; may contain the placeholder `GROUP_ID`."""
    queries: Mapping[str, str]
    """Question -> the SQL (DataFusion's dialect) that answers it; may contain the placeholder `GROUP_ID`."""
    steps: tuple[Step, ...]
    """What to do, the most likely step first."""
    avoid: tuple[str, ...] = ()

    def queries_for(self, group_id: str) -> dict[str, str]:
        """Return `queries` for this group."""
        return {question: sql.replace(GROUP_ID, group_id.replace("'", "''")) for question, sql in self.queries.items()}

    def step_for(self, why: str) -> Step:
        """Return the first step to take: the one with the longest `when` that the verdict's text `why` contains."""
        return max(self.steps, key=lambda one: len(one.when) if one.when in why else 0)


@cache
def rules() -> Mapping[str, Rule]:
    """Return every rule by its name, in the order of the runbook."""
    found = []
    for file in (files(__package__ or "") / "catalog").iterdir():
        if file.name.endswith(".toml"):
            data = load_toml(file)
            seconds = parse_duration(data.pop("for"), _MAX_SECONDS)
            data["queries"] = {question: sql.strip() for question, sql in data["queries"].items()}
            data["steps"] = tuple(Step(one) if isinstance(one, str) else Step(**one) for one in data["steps"])
            data["avoid"] = tuple(data.get("avoid", ()))
            found.append(Rule(file.name.removesuffix(".toml"), for_seconds=seconds, **data))
    return {one.name: one for one in sorted(found, key=lambda one: one.order)}
