"""The section `alerts:` of the configuration: which groups, which rules, on what terms.

The models of the rules are made from the rules themselves, so that each key that there is, is one of a rule's entry.

Overrides: all whose pattern matches the whole of the group's id apply, in the order of the file, each over those before
it and key by key; so the general ones stand first, and what stands last wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from streaming_app.alerts.durations import Duration, PositiveDuration, Regex
from streaming_app.core.alert import CRITICAL, INFO, WARNING
from streaming_app.core.facts import GroupFacts, JobFacts
from streaming_app.core.lifecycle import Manner
from streaming_app.core.rule import Rule, Terms
from streaming_app.core.rules import OF_GROUPS, RULES, TermsOf, descriptions_since

_AnyRule = Rule[GroupFacts] | Rule[JobFacts]
_Count = Annotated[int, Field(ge=1, strict=True)]
_REMEMBERED_GROUPS = 1 << 18


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _model_of(rule: _AnyRule, *, partial: bool) -> type[BaseModel]:
    """The keys of one rule, with its defaults; those of a `partial` one are None until said."""
    fields: dict[str, tuple[Any, Any]] = {
        "enabled": (bool, True),
        "severity": (Literal[INFO, WARNING, CRITICAL], rule.severity),
    }
    if rule.grace is not None:
        fields["for_"] = (Duration, rule.grace)
    for name, threshold in rule.thresholds.items():
        fields[name] = (PositiveDuration if threshold.seconds else _Count, threshold.default)
    described: dict[str, Any] = {
        name: (kind | None if partial else kind, Field(None if partial else default, alias=name.rstrip("_")))
        for name, (kind, default) in fields.items()
    }
    return create_model(rule.name, __base__=_Section, **described)


def _sections(name: str, rules: Iterable[_AnyRule], *, partial: bool) -> type[BaseModel]:
    models = {rule.name: _model_of(rule, partial=partial) for rule in rules}
    fields: dict[str, Any] = {name: (model, model()) for name, model in models.items()}
    return create_model(name, __base__=_Section, **fields)


if TYPE_CHECKING:
    RuleSections = BaseModel
    OverrideSections = BaseModel
else:
    RuleSections = _sections("RuleSections", RULES.values(), partial=False)
    OverrideSections = _sections("OverrideSections", OF_GROUPS, partial=True)


class Override(_Section):
    """Other terms for the groups whose whole id matches."""

    groups: Regex
    rules: OverrideSections


def _as_list(given: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    return [given] if isinstance(given, str) else given


class AlertSettings(_Section):
    """What the file may say below `alerts:`; durations are seconds, or text such as `90s`, `5m`, `1h30m`."""

    interval: PositiveDuration = 5.0
    """Between two looks."""
    groups: Regex | None = None
    """Only groups whose whole id matches; default all."""
    ignore_groups: Annotated[tuple[Regex, ...], BeforeValidator(_as_list)] = ()
    """And of these none whose whole id matches one of these; a single one needs no list."""
    descriptions: Literal["auto", "always", "never"] = "auto"
    """Whether the cluster keeps topology descriptions: `auto` sees it from the groups, or the brokers' config."""
    keep_firing_for: Duration = 0.0
    repeat_after: PositiveDuration | None = None
    """Firing is told again so long after it was sent; default never."""
    rules: RuleSections = RuleSections()
    overrides: tuple[Override, ...] = ()

    @property
    def rebalance_window(self) -> float:
        """How far back, in seconds, any group's rules look at rebalances."""
        layers = (self.rules, *(override.rules for override in self.overrides))
        storms = (getattr(layer, "StreamsGroupRebalanceStorm", None) for layer in layers)
        return max(storm.window or 0.0 for storm in storms if storm)

    def manner(self, sinks: Iterable[str]) -> Manner:
        """How alerts are told to the sinks of these names."""
        return Manner(tuple(sinks), self.keep_firing_for, self.repeat_after)

    def descriptions_since(self, groups: Iterable[GroupFacts], plugin_since: datetime | None) -> datetime | None:
        """Since when the cluster keeps topology descriptions; None if it does not, or must not be thought to.

        `plugin_since` is since when the brokers' config is known to name a plugin, None if it is not known to.
        """
        if self.descriptions == "never":
            return None
        if self.descriptions == "always":
            return datetime.fromtimestamp(0, timezone.utc)
        shown = descriptions_since(groups)
        return min((since for since in (shown, plugin_since) if since), default=None)

    def terms_of(self) -> TermsOf:
        """What gives the terms of a group's rules, or for None those of the job's. Keep it: it remembers groups."""
        profiles: dict[tuple[int, ...], Mapping[str, Terms]] = {}

        @lru_cache(_REMEMBERED_GROUPS)
        def terms_of(group_id: str | None) -> Mapping[str, Terms]:
            if group_id is not None and not self._concerns(group_id):
                return {}
            matching = tuple(
                place
                for place, override in enumerate(self.overrides)
                if group_id is not None and override.groups.fullmatch(group_id)
            )
            if matching not in profiles:
                profiles[matching] = self._profile(matching)
            return profiles[matching]

        return terms_of

    def _concerns(self, group_id: str) -> bool:
        if self.groups is not None and not self.groups.fullmatch(group_id):
            return False
        return not any(pattern.fullmatch(group_id) for pattern in self.ignore_groups)

    def _profile(self, overrides: Iterable[int]) -> Mapping[str, Terms]:
        layers = [self.rules, *(self.overrides[place].rules for place in overrides)]
        profile = {}
        for name, rule in RULES.items():
            said: dict[str, Any] = {}
            for layer in layers:
                if section := getattr(layer, name, None):
                    said |= section.model_dump(exclude_none=True)
            if said["enabled"]:
                thresholds = {threshold: said[threshold] for threshold in rule.thresholds}
                profile[name] = Terms(said["severity"], said.get("for_", 0.0), thresholds, rule.while_catching_up)
        return profile
