"""One evaluation of the rules, of everything that a test says."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from streaming_app.alerts.alert import Alert, AlertKey, Holds
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineFacts, Observed, RuleSettingsLookup
from streaming_app.alerts.evaluate import Truths, Watched, evaluate
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import GroupSnapshot

rule_settings_of = AlertSettings().rule_settings_of()


def truths_of(
    groups: Iterable[GroupSnapshot],
    now: datetime,
    settings_of: RuleSettingsLookup = rule_settings_of,
    descriptions_since: datetime | None = None,
    open: Mapping[AlertKey, Alert] = MappingProxyType({}),  # noqa: A002 - as in `EngineFacts`
    **observed: Any,
) -> tuple[Truths, frozenset[str]]:
    """Return what is known of each condition, and the new groups that are left out."""
    descriptions, by_id = DescriptionSupport("auto"), {one.group_id: one for one in groups}
    watched = Watched(descriptions)
    watched.update(by_id)
    descriptions.known_since = descriptions_since
    return evaluate(EngineFacts(now, Observed(by_id, **observed), open, descriptions), watched, settings_of)


def findings_of(groups: Iterable[GroupSnapshot], now: datetime, **facts: Any) -> Mapping[AlertKey, Holds]:
    """Return the conditions that hold."""
    truths, _ = truths_of(groups, now, **facts)
    return {key: truth for key, truth in truths.items() if isinstance(truth, Holds)}
