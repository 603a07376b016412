"""What the job of a history has stored, and what an on-call person heard of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.alerts.alert import HEALTH, Alert
from streaming_app.groups.group import Group, GroupEvent
from streaming_app.health.board import NOT_JUDGED, Change
from streaming_app.health.verdict import Verdict
from tests.histories.clients import START
from tests.histories.lag_passes import StoredLag


class Told(NamedTuple):
    """An alert that was open, as far as a relation compares it. Times are seconds since the start."""

    group_id: str | None
    rule: str
    severity: str
    opened_at: float
    ended_at: float | None
    ended_by: str | None
    since: float
    why: str = ""
    """The texts of its timeline."""

    @property
    def what(self) -> tuple[str | None, str]:
        """Group and rule."""
        return self.group_id, self.rule


@dataclass
class Outcome:
    """What an on-call person heard."""

    rules: set[str] = field(default_factory=set)
    """The rules that fired at some time: an alert about the verdict on a group has that of its worst verdict."""
    notifications: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)
    """Each message: when, of which event, and about which alerts."""
    alerts: list[Alert] = field(default_factory=list)
    """Those with the health of a group."""
    all_alerts: list[Alert] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    groups: Mapping[str, Group] = field(default_factory=dict)
    """What is folded of each group in the end."""
    moments: Mapping[float, Moment] = field(default_factory=dict)
    """Time -> what was stored then, for the times that were asked for."""

    @property
    def fired(self) -> list[Told]:
        """The alerts that were open, in the order in which they opened."""
        found = (_told(one) for one in self.all_alerts if one.opened_at)
        return sorted(found, key=lambda one: (one.opened_at, *one[:2]))


@dataclass
class Tables:
    """What survives a restart of the job."""

    states: dict[str, Group] = field(default_factory=dict)
    events: dict[str, list[GroupEvent]] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    ends: int = 0
    notifications: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)
    lag: Callable[[], StoredLag] = StoredLag

    def copy(self) -> Tables:
        """Return what the tables have now: they change, and what is in them does not."""
        lag = self.lag()
        copies = {one.name: copy(getattr(self, one.name)) for one in fields(self)}
        events = {group_id: list(those) for group_id, those in self.events.items()}
        return Tables(**copies | {"events": events, "lag": lambda: lag})


class Moment(NamedTuple):
    """What is stored at a moment of a run, from which another run can go on with a job that starts."""

    at: float
    read: int
    """How many records of the log are read."""
    tables: Tables

    def outcome(self) -> Outcome:
        """Return what was told until then."""
        return outcome_of(self.tables)


def outcome_of(tables: Tables) -> Outcome:
    """Return what tables tell. AssertionError: a verdict crashed."""
    failed = [one for one in tables.changes if one.verdict.why.startswith(NOT_JUDGED)]
    assert not failed, f"verdicts failed: {failed}"
    alerts = [*tables.alerts.values()]
    return Outcome(
        tables.rules,
        tables.notifications,
        [one for one in alerts if one.subject == HEALTH],
        alerts,
        tables.changes,
        tables.states,
    )


def _told(one: Alert) -> Told:
    assert one.opened_at
    ended_at = seconds(one.ended_at) if one.ended_at else None
    times = seconds(one.opened_at), ended_at, one.ended_by, seconds(one.since)
    return Told(one.group_id, one.rule, one.severity, *times, "; ".join(line.why for line in one.timeline))


def seconds(time: datetime) -> float:
    """Return a time as seconds since the start of a history."""
    return (time - START).total_seconds()


def time_at(at: float) -> datetime:
    """Return the time so many seconds after the start."""
    return START + timedelta(seconds=at)
