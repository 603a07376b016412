"""Several alerts in one notification: those of one rule that fire, or are resolved, at about the same time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from streaming_app.alerts.alert import CRITICAL, RESOLVED, WARNING, Alert
from streaming_app.notify.message import format_summary, notification_id, one_line
from streaming_app.text import and_more, count, first_of, shorten, utc_iso

_SEVERITIES = (CRITICAL, WARNING)  # the highest first; the others are equal
_MAX_ID = 100  # characters


@dataclass(frozen=True)
class AlertGroup:
    """Two or more alerts of one rule with the same event, in the order in which they became due."""

    alerts: tuple[Alert, ...]
    event: str
    """`firing` or `resolved`."""
    max_named: int = 20
    """How many of them a message names; of the others it says how many they are."""

    @property
    def first(self) -> Alert:
        """The alert that became due first, for what all have in common: the rule and the cluster."""
        return self.alerts[0]

    @property
    def severity(self) -> str:
        """The highest severity."""
        found = {alert.severity for alert in self.alerts}
        return next((severity for severity in _SEVERITIES if severity in found), self.first.severity)

    @property
    def since(self) -> datetime:
        """Since when the first of the conditions has held."""
        return min(alert.pending_since for alert in self.alerts)

    @property
    def at(self) -> datetime:
        """When the last of them fired, or was resolved."""
        times = ((alert.resolved_at if self.event == RESOLVED else alert.opened_at) for alert in self.alerts)
        return max((time for time in times if time), default=self.since)

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups, each once."""
        return tuple(dict.fromkeys(alert.group_id for alert in self.alerts if alert.group_id is not None))

    def notification_id(self, event: str) -> str:
        """Return an id that is the same for every attempt to send these alerts with this event."""
        ids = sorted(notification_id(alert, event) for alert in self.alerts)
        return hashlib.sha256("".join(ids).encode()).hexdigest()[:32]


def format_subject(group: AlertGroup) -> str:
    """Return what the alerts are about: `300 groups`, or `2 alerts` about the job."""
    number = len(group.group_ids)
    return count(number, "group") if number else f"{len(group.alerts):,} alerts"


def format_group_title(group: AlertGroup) -> str:
    """Return the title in one line: `[FIRING] StreamsGroupNotReady: 300 groups (cluster default)`."""
    return f"[{group.event.upper()}] {group.first.rule}: {format_subject(group)} (cluster {group.first.cluster})"


def format_names(group: AlertGroup) -> str:
    """Return the ids of the groups: `orders, payments and 298 more`."""
    ids = group.group_ids
    return first_of(
        [shorten(one_line(group_id), _MAX_ID) for group_id in ids[: group.max_named]], group.max_named, len(ids)
    )


def format_group_message(
    group: AlertGroup,
    runbook: str | None = None,
    page_link: Callable[[Alert], str | None] = lambda _alert: None,
    max_characters: int | None = None,
) -> str:
    """Return the message: a line for each alert that is named, how many more there are, and what they have in common.

    With `max_characters` it names only as many as fit.
    """
    common = [f"severity: {group.severity}", f"since: {utc_iso(group.since)}"]
    common += [f"runbook: {runbook}"] if runbook else []
    left = None if max_characters is None else max_characters - len("\n".join(common)) - _MAX_ID
    lines: list[str] = []
    for line in _alert_lines(group, page_link):
        if left is not None:
            left -= len(line) + 1
            if left < 0:
                break
        lines.append(line)
    if more := and_more(len(group.alerts) - len(lines)):
        lines.append(more.strip())
    return "\n".join([*lines, "", *common])


def _alert_lines(group: AlertGroup, page_link: Callable[[Alert], str | None]) -> Iterator[str]:
    for alert in group.alerts[: group.max_named]:
        link = page_link(alert)
        yield f"- {format_summary(alert)}" + (f" {link}" if link else "")
