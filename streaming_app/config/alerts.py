"""The section `alerts:` of the configuration: the groups with alerts, and the settings of the rules.

Every override applies whose pattern matches the whole group id, in the order of the file. For each key the last one
wins. So put general overrides first.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, field_validator, model_validator

from streaming_app.alerts.catalog import Rule, rules
from streaming_app.alerts.engine_facts import DescriptionMode, RuleSettingsLookup
from streaming_app.config.declared import as_list
from streaming_app.section import Duration, Pattern, PositiveDuration, Section, did_you_mean

_CACHED_GROUPS = 1 << 18


class RuleSection(Section):
    """The settings of a rule. Keys that are not set have the values of the catalogue."""

    enabled: bool | None = None
    severity: Literal["info", "warning", "critical"] | None = None
    """The severity of its alerts, apart from milder cases."""
    for_: Duration | None = Field(None, validation_alias=AliasChoices("for", "for_"), serialization_alias="for")


def _check_rule(name: str) -> str:
    if name not in rules():
        raise ValueError(f"is not the name of a rule{did_you_mean(name, rules())}")
    return name


RuleSections = Mapping[Annotated[str, AfterValidator(_check_rule)], RuleSection]


class Override(Section):
    """Settings of rules for the groups whose whole id matches the pattern."""

    groups: Pattern
    rules: RuleSections


class AlertSettings(Section):
    """The keys below `alerts:`."""

    interval: PositiveDuration = 5.0
    groups: Pattern | None = None
    """Only groups whose whole id matches have alerts; default: all."""
    ignore_groups: Annotated[tuple[Pattern, ...], BeforeValidator(as_list)] = ()
    """Groups whose whole id matches one of these have no alerts. A single pattern needs no list."""
    descriptions: DescriptionMode = "auto"
    """Whether the cluster keeps topology descriptions: `auto` detects it from the groups or the brokers' config."""
    protocols: Literal["streams", "all", "all_groups"] = "streams"
    """Of which groups: streams groups, Kafka Streams with either protocol, or all, those of other clients by lag."""
    successors: Mapping[str, str] = Field(default_factory=dict)
    """Group -> the group that takes over from it, with any topology, once its commits have passed the last offsets."""
    rules: RuleSections = Field(default_factory=dict)
    overrides: tuple[Override, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _has_no_lag_of(cls, given: Any) -> Any:  # noqa: ANN401 - any YAML value
        if isinstance(given, Mapping) and "lag_of" in given:
            raise ValueError("lag_of has gone: in place of `lag_of: all` write `protocols: all_groups`")
        return given

    @field_validator("successors")
    @classmethod
    def _are_others(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        if itself := [group_id for group_id, other in given.items() if group_id == other]:
            raise ValueError(f"{itself[0]} cannot be its own successor")
        return given

    def rule_settings_of(self) -> RuleSettingsLookup:
        """Return a function: group id (None for the job) -> its enabled rules by name. Keep it: it has a cache."""
        profile_of = cache(self._make_profile)  # many groups share a few combinations of overrides

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
        """Return a function: group id -> the `for` of a rule in seconds, or `default` if the rule is disabled."""
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
