"""What a bad verdict on a group says to its owner, and what is proven to be its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from streaming_app.alerts.catalog import RULE_OF_VERDICT
from streaming_app.alerts.problem import Finding
from streaming_app.alerts.rule import RuleSettings
from streaming_app.groups.not_ready import missing_sources
from streaming_app.health.verdict import BEHIND, BROKER_AWAY, DOWN, LOSING, HealthSettings, Verdict

MISSING_TOPIC = "missing_topic"
"""The kind of cause whose name is a topic; that of a broker is `BROKER_AWAY`."""
_FIELDS = {LOSING: ("lost_after",), DOWN: ("down_after", "not_ready_after"), BEHIND: ("behind_for",)}
"""By verdict: what the `for` of its rule sets."""


def finding_of(group_id: str, verdict: Verdict) -> Finding:
    """Return what a bad verdict on a group says to its owner."""
    return Finding(
        verdict.since,
        f"{group_id} is {verdict.verdict}: {verdict.why}",
        {"verdict": verdict.verdict, **verdict.evidence},
        verdict.severity,
        verdict.verdict,
    )


def causes_of(verdict: Verdict) -> Sequence[str]:
    """Return what is proven to be the cause of a bad verdict, and may be that of other groups, too."""
    if missing := missing_sources(str(verdict.evidence.get("reason", ""))):
        return [f"{MISSING_TOPIC}:{topic}" for topic in missing]
    broker = verdict.evidence.get(BROKER_AWAY)
    return [f"{BROKER_AWAY}:{broker}"] if broker else []


def health_settings(settings: Mapping[str, RuleSettings]) -> HealthSettings:
    """Return the settings of the verdicts from those of the rules; of a rule that is disabled, the defaults."""
    seconds: dict[str, Any] = {
        field: settings[rule].for_seconds
        for verdict, fields in _FIELDS.items()
        if (rule := RULE_OF_VERDICT[verdict]) in settings
        for field in fields
    }
    known = HealthSettings(**seconds)
    return replace(known, down_unknown_after=max(known.down_unknown_after, known.down_after))
