"""One evaluation of the rules, of everything that a test says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from streaming_app.alerts.evaluate import Truths, Watched, evaluate
from streaming_app.alerts.problem import Finding, ProblemKey
from streaming_app.alerts.rule import Facts, Observed, RuleSettingsLookup
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import GroupSnapshot

rule_settings_of = AlertSettings().rule_settings_of()
KNOWN = ("open", "survey", "descriptions_since", "descriptions_required")


def truths_of(
    groups: Iterable[GroupSnapshot],
    now: datetime,
    settings_of: RuleSettingsLookup = rule_settings_of,
    **facts: Any,
) -> tuple[Truths, frozenset[str]]:
    """Return whether each condition holds, and the new groups that are left out; `facts` are observed, or known."""
    watched, by_id = Watched(), {one.group_id: one for one in groups}
    watched.update(by_id)
    known = {"survey": watched.survey, **{name: facts.pop(name) for name in KNOWN if name in facts}}
    return evaluate(Facts(now, Observed(by_id, **facts), **known), watched, settings_of)


def findings_of(groups: Iterable[GroupSnapshot], now: datetime, **facts: Any) -> Mapping[ProblemKey, Finding]:
    """Return the conditions that hold."""
    truths, _ = truths_of(groups, now, **facts)
    return {key: truth for key, truth in truths.items() if isinstance(truth, Finding)}
