"""The section `alerts:` of the configuration: which groups, which rules, and with which settings.

The models of the rules are generated from the rules themselves, so every key belongs to a rule's entry.

Overrides: all whose pattern matches the whole group id apply, in the order of the file, each one over those before it
and key by key. So put general overrides first; the last one wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    create_model,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from streaming_app.alerts.evaluate import (
    RULES,
    RULES_FOR_COPIES,
    RULES_FOR_DIFFERING_GROUPS,
    RULES_FOR_GROUPS,
    RULES_FOR_HEALTH,
    RULES_FOR_LAG,
    AnyRule,
)
from streaming_app.alerts.health_rules import REPLACED
from streaming_app.alerts.notification_queue import Grouping
from streaming_app.alerts.problem import CRITICAL, INFO, WARNING
from streaming_app.alerts.rule import MAX_NEW_GROUPS, RuleSettings, RuleSettingsLookup
from streaming_app.alerts.survey import DescriptionMode
from streaming_app.config.running_hours import as_list
from streaming_app.section import Duration, Pattern, PositiveDuration, Section

_Count = Annotated[int, Field(ge=1, strict=True)]
_CACHED_GROUPS = 1 << 18


def _make_model(rule: AnyRule, *, partial: bool) -> type[BaseModel]:
    """Return the model of one rule's keys, with its defaults; in a `partial` one all are None unless set."""
    fields: dict[str, tuple[Any, Any]] = {
        "enabled": (bool, True),
        "severity": (Literal[INFO, WARNING, CRITICAL], rule.severity),
    }
    if rule.for_seconds is not None:
        fields["for_"] = (Duration, rule.for_seconds)
    for name, threshold in rule.thresholds.items():
        fields[name] = (PositiveDuration if threshold.seconds else _Count, threshold.default)
    definitions: dict[str, Any] = {
        name: (kind | None if partial else kind, Field(None if partial else default, alias=name.rstrip("_")))
        for name, (kind, default) in fields.items()
    }
    return create_model(rule.name, __base__=Section, **definitions)


class _Sections(Section):
    """Sections of rules. Those of rules that others have replaced are left out, so that old files can be read."""

    _replaced: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _without_replaced(cls, given: Any, make: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401 - any YAML value
        replaced = tuple(name for name in given if name in REPLACED) if isinstance(given, Mapping) else ()
        made = make({name: value for name, value in given.items() if name not in replaced} if replaced else given)
        if replaced:
            made._replaced = replaced  # noqa: SLF001 - its own
        return made


def _make_sections(name: str, rules: Iterable[AnyRule], *, partial: bool) -> type[BaseModel]:
    models = {rule.name: _make_model(rule, partial=partial) for rule in rules}
    fields: dict[str, Any] = {name: (model, model()) for name, model in models.items()}
    return create_model(name, __base__=_Sections, **fields)


if TYPE_CHECKING:
    RuleSections = BaseModel
    OverrideSections = BaseModel
else:
    RuleSections = _make_sections("RuleSections", RULES.values(), partial=False)
    OverrideSections = _make_sections(
        "OverrideSections",
        (*RULES_FOR_HEALTH, *RULES_FOR_GROUPS, *RULES_FOR_COPIES, *RULES_FOR_LAG, *RULES_FOR_DIFFERING_GROUPS),
        partial=True,
    )


class Override(Section):
    """Different settings for the groups whose whole id matches."""

    groups: Pattern
    rules: OverrideSections


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
    group_wait: Duration = Grouping.group_wait
    """How long the first alert of a rule waits for others, in sinks that people read."""
    group_interval: Duration = Grouping.group_interval
    """How long after a notification of a rule the next one is sent there."""
    max_groups_per_notification: Annotated[int, Field(ge=1, le=1000, strict=True)] = Grouping.max_named
    """How many alerts a notification names there."""
    max_new_groups: _Count = MAX_NEW_GROUPS
    """Of how many groups of the last 24 hours there are alerts: of the oldest."""
    rules: RuleSections = RuleSections()
    overrides: tuple[Override, ...] = ()

    @field_validator("successors")
    @classmethod
    def _are_others(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        if itself := [group_id for group_id, other in given.items() if group_id == other]:
            raise ValueError(f"{itself[0]} cannot be its own successor")
        return given

    def replaced_rules(self) -> Mapping[str, str]:
        """Return the rules of earlier releases that have settings here, which do nothing, and what replaced them."""
        layers = (self.rules, *(override.rules for override in self.overrides))
        return {name: REPLACED[name] for layer in layers for name in getattr(layer, "_replaced", ())}

    @property
    def grouping(self) -> Grouping:
        """How alerts are put together for sinks that people read."""
        return Grouping(self.group_wait, self.group_interval, self.max_groups_per_notification)

    def rule_settings_of(self) -> RuleSettingsLookup:
        """Return the lookup of a group's rule settings, or the job's for None. Keep it: it caches the groups."""
        profiles: dict[tuple[int, ...], Mapping[str, RuleSettings]] = {}

        @lru_cache(_CACHED_GROUPS)
        def rule_settings_of(group_id: str | None) -> Mapping[str, RuleSettings]:
            if group_id is not None and not self._includes(group_id):
                return {}
            matching = tuple(
                index
                for index, override in enumerate(self.overrides)
                if group_id is not None and override.groups.matches(group_id)
            )
            if matching not in profiles:
                profiles[matching] = self._make_profile(matching)
            return profiles[matching]

        return rule_settings_of

    def _includes(self, group_id: str) -> bool:
        if self.groups is not None and not self.groups.matches(group_id):
            return False
        return not any(pattern.matches(group_id) for pattern in self.ignore_groups)

    def _make_profile(self, overrides: Iterable[int]) -> Mapping[str, RuleSettings]:
        layers = [self.rules, *(self.overrides[index].rules for index in overrides)]
        profile = {}
        for name, rule in RULES.items():
            values: dict[str, Any] = {}
            for layer in layers:
                if section := getattr(layer, name, None):
                    values |= section.model_dump(exclude_none=True)
            if values["enabled"]:
                thresholds = {threshold: values[threshold] for threshold in rule.thresholds}
                profile[name] = RuleSettings(
                    values["severity"], values.get("for_", 0.0), thresholds, rule.while_catching_up
                )
        return profile
