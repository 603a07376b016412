"""Keys and values of 0.2.0 that went: for one release they are left out with a line that says what to use instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_DOWN = "`after`, which is five minutes for every group, also by group under `overrides`"
_HOURS = "`running_hours`, which declares when groups are meant to run"
_RULE = ("alerts", "rules", "StreamsGroupDown")
_OVERRIDE = ("alerts", "overrides", "rules", "StreamsGroupDown")
_OF_DOWN = {
    "restart_within": _DOWN,
    "established": _HOURS,
    "short_run": _HOURS,
    "hand_over": "`alerts.successors`, where the commits of the group that takes over do not prove it",
}
REMOVED: Mapping[tuple[str, ...], str] = {
    **{(*rule, name): instead for rule in (_RULE, _OVERRIDE) for name, instead in _OF_DOWN.items()},
    ("duty",): "`running_hours`, with the same entries",
    (
        "metrics",
        "compatibility",
    ): "the names in the metrics page of the documentation, which has those of other exporters",
    ("page", "listen"): "`streams-groups web --listen HOST:PORT`, a process of its own",
    ("page", "memory"): "a limit of the unit or container of `streams-groups web`",
    ("sinks", "summary"): "`streams-groups status`, or `streams-groups alerts --json` in a cron job",
}
"""By path, in which the items of a list have no place: what to use instead."""
REMOVED_ITEMS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("metrics", "lag_by"): {
        by: f"`streams-groups lag --by {by} --json`, or SQL over the table `lag`"
        for by in ("subtopology", "process", "task")
    },
}
"""By the path of a list and the item in it: what to use instead."""
_SINKS = ("sinks",)
REMOVED_SINKS: Mapping[str, str] = {
    "email": "a sink of type apprise with a URL mailtos://USER:PASSWORD@HOST",
    "slack": "a sink of type apprise with a URL slack://A/B/C, its parts those of the incoming webhook",
    "log": "the job's own output, which has a line for each change of an alert",
}
"""By the type of a sink: what to use instead."""


def without_removed(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values without the keys, items and sinks that went, and a line about each of these."""
    lines: dict[str, None] = {}
    kept = _without(values, (), lines)
    return kept, list(lines)


def _without(value: Any, path: tuple[str, ...], lines: dict[str, None]) -> Any:  # noqa: ANN401 - any YAML value
    if path and not any(gone[: len(path)] == path for gone in (*REMOVED, *REMOVED_ITEMS, _SINKS)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if instead := REMOVED.get((*path, key)):
                lines[f"{'.'.join((*path, key))} was removed and does nothing: use {instead}"] = None
        return {
            key: _without(inner, (*path, key), lines) for key, inner in value.items() if (*path, key) not in REMOVED
        }
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_without(item, path, lines) for item in value if not _is_removed(item, path, lines)]
    return value


def _is_removed(item: Any, path: tuple[str, ...], lines: dict[str, None]) -> bool:  # noqa: ANN401 - any YAML value
    if isinstance(item, str) and (used := REMOVED_ITEMS.get(path, {}).get(item)):
        lines[f"{'.'.join(path)}: {item} was removed and does nothing: use {used}"] = None
        return True
    kind = item.get("type") if path == _SINKS and isinstance(item, Mapping) else None
    instead = REMOVED_SINKS.get(kind) if isinstance(kind, str) else None
    if instead:
        lines[f"sinks of type {kind} were removed, and nothing is sent to them: use {instead}"] = None
    return instead is not None
