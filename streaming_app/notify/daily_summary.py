"""The daily summary: what a sink for people says once a day, whether anything fires or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from streaming_app.alerts.alert import Alert
from streaming_app.notify.message import format_summary
from streaming_app.text import and_more, count, utc_iso

_DAY_MINUTES = 24 * 60
_NAMED = 20


def _to_time(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return a time of day. YAML reads 18:00 without quotes as the number 1080, but 08:00 as text."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < _DAY_MINUTES:
        return time(given // 60, given % 60)
    if isinstance(given, time):
        return given
    hours, colon, minutes = str(given).partition(":")
    try:
        if colon and len(minutes) == 2:  # noqa: PLR2004 - HH:MM
            return time(int(hours), int(minutes))
    except ValueError:
        pass
    raise ValueError(f'must be a time of day in UTC such as "08:00", not "{given}"')


TimeOfDay = Annotated[time, BeforeValidator(_to_time), PlainSerializer(lambda at: f"{at:%H:%M}", return_type=str)]
"""A time in UTC, as `"08:00"`."""


@dataclass(frozen=True)
class DailySummary:
    """The groups and alerts of a cluster at one time, and the alerts of the 24 hours before."""

    cluster: str
    at: datetime
    groups: Mapping[str, int]
    """Number of groups by state."""
    firing: Sequence[Alert]
    silenced: int
    """How many of `firing` are silenced."""
    fired: Mapping[str, int] = field(default_factory=dict)
    """How many alerts fired in the 24 hours before, by rule."""
    resolved: int = 0
    """How many alerts were resolved in the 24 hours before."""


def format_summary_title(summary: DailySummary) -> str:
    """Return the title in one line: `[SUMMARY] 2 alerts fire, 120 groups (cluster default)`."""
    alerts = count(len(summary.firing), "alert fires", "alerts fire")
    groups = count(sum(summary.groups.values()), "group")
    return f"[SUMMARY] {alerts}, {groups} (cluster {summary.cluster})"


def format_summary_text(summary: DailySummary) -> str:
    """Return the whole summary in a few lines."""
    return "\n".join(_lines(summary))


def _lines(summary: DailySummary) -> Iterator[str]:
    states = sorted(summary.groups.items(), key=lambda item: (-item[1], item[0]))
    yield f"groups: {', '.join(f'{number:,} {state}' for state, number in states) or 'none'}"
    silenced = f", {summary.silenced:,} of them silenced" if summary.silenced else ""
    yield f"firing: {len(summary.firing):,}{silenced}"
    for alert in summary.firing[:_NAMED]:
        yield f"- {alert.severity} {alert.rule}: {format_summary(alert)}"
    if more := and_more(len(summary.firing) - _NAMED):
        yield more.strip()
    fired = ", ".join(f"{number:,} {rule}" for rule, number in sorted(summary.fired.items()))
    yield f"fired in the last 24 hours: {fired or 'none'}"
    yield f"resolved in the last 24 hours: {summary.resolved:,}"
    yield f"as of: {utc_iso(summary.at)}"
