"""The section `alerts:` of the configuration: which groups, which rules, and with which settings.

Overrides: all whose pattern matches the whole group id apply, in the order of the file, each one over those before it
and key by key. So put general overrides first; the last one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, field_validator

from streaming_app.alerts.catalog import Rule, rules
from streaming_app.alerts.facts import DescriptionMode, RuleSettingsLookup
from streaming_app.config.declared import as_list
from streaming_app.section import Duration, Pattern, PositiveDuration, Section, did_you_mean

_CACHED_GROUPS = 1 << 18


class RuleSection(Section):
    """The settings of a rule; what is not set is as in the catalogue."""

    enabled: bool | None = None
    severity: Literal["info", "warning", "critical"] | None = None
    """How severe it is at most."""
    for_: Duration | None = Field(
        None, validation_alias=AliasChoices("for", "for_", "after"), serialization_alias="for"
    )
    """How long the condition must hold; `after` in 0.2.0."""


def _check_rule(name: str) -> str:
    if name not in rules():
        raise ValueError(f"is not the name of a rule{did_you_mean(name, rules())}")
    return name


RuleSections = Mapping[Annotated[str, AfterValidator(_check_rule)], RuleSection]


class Override(Section):
    """Different settings for the groups whose whole id matches."""

    groups: Pattern
    rules: RuleSections


class AlertSettings(Section):
    """The keys below `alerts:`."""

    interval: PositiveDuration = 5.0
    """Time between two evaluations."""
    groups: Pattern | None = None
    """Only groups whose whole id matches; default all."""
    ignore_groups: Annotated[tuple[Pattern, ...], BeforeValidator(as_list)] = ()
    """Except groups whose whole id matches one of these; a single one needs no list."""
    descriptions: DescriptionMode = "auto"
    """Whether the cluster keeps topology descriptions: `auto` detects it from the groups, or the brokers' config."""
    lag_of: Literal["streams", "all"] = "streams"
    """Whether the rules about lag are for streams groups only, or for groups of every type."""
    successors: Mapping[str, str] = Field(default_factory=dict)
    """Group to the one that takes over from it, whatever its topology, once its commits have passed."""
    rules: RuleSections = Field(default_factory=dict)
    """Settings by the name of a rule."""
    overrides: tuple[Override, ...] = ()

    @field_validator("successors")
    @classmethod
    def _are_others(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        if itself := [group_id for group_id, other in given.items() if group_id == other]:
            raise ValueError(f"{itself[0]} cannot be its own successor")
        return given

    def rule_settings_of(self) -> RuleSettingsLookup:
        """Return the lookup of a group's rule settings, or the job's for None. Keep it: it caches the groups."""
        profile_of = cache(self._make_profile)  # most groups have one of a few

        @lru_cache(_CACHED_GROUPS)
        def rule_settings_of(group_id: str | None) -> Mapping[str, Rule]:
            if group_id is None:
                return profile_of()
            is_left_out = self.groups is not None and not self.groups.matches(group_id)
            if is_left_out or any(pattern.matches(group_id) for pattern in self.ignore_groups):
                return {}
            return profile_of(*(index for index, one in enumerate(self.overrides) if one.groups.matches(group_id)))

        return rule_settings_of

    def patience_of(self, rule: str, default: float) -> Callable[[str], float]:
        """Return the lookup of the `for` of a rule for a group, in seconds; where it is disabled, the default."""
        settings_of = self.rule_settings_of()

        def patience(group_id: str) -> float:
            settings = settings_of(group_id).get(rule)
            return settings.for_seconds if settings else default

        return patience

    def _make_profile(self, *overrides: int) -> Mapping[str, Rule]:
        layers = [self.rules, *(self.overrides[index].rules for index in overrides)]
        profile = {}
        for name, rule in rules().items():
            values: dict[str, Any] = {"enabled": True, "severity": rule.severity, "for_": rule.for_seconds}
            for section in (layer[name] for layer in layers if name in layer):
                values |= section.model_dump(exclude_none=True)
            if values["enabled"]:
                profile[name] = replace(rule, severity=values["severity"], for_seconds=values["for_"])
        return profile
