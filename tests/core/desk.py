"""Looks one after the other, and the table of alerts that they leave."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from streaming_app.core.alert import FIRING, RESOLVED, Alert, AlertKey, Delivery, Finding
from streaming_app.core.lifecycle import Book, Manner, Step, advance
from streaming_app.core.rule import Terms

START = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
KEY = AlertKey("StreamsGroupNotReady", "payments")
GRACE = 300.0
TERMS = {
    "StreamsGroupNotReady": Terms("critical", GRACE, {}),
    "StreamsGroupEmpty": Terms("warning", 0.0, {}),
    "StreamsGroupsJobStopped": Terms("critical", 0.0, {}, while_catching_up=True),
}
SINKS = ("mail", "chat")
DUE = tuple(Delivery(sink, FIRING) for sink in SINKS)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Desk:
    """Looks one after the other, with the table that is written."""

    manner: Manner = field(default_factory=lambda: Manner(SINKS))
    book: Book = field(default_factory=Book)
    table: dict[tuple[AlertKey, datetime], Alert] = field(default_factory=dict)
    terms: dict[str, Terms] = field(default_factory=lambda: dict(TERMS))

    def look(
        self,
        second: float,
        *,
        since: float | None = None,
        key: AlertKey = KEY,
        said: str = "why",
        caught_up: bool = True,
    ) -> Step:
        """A look at which the condition holds since `since`, or not at all."""
        found = {} if since is None else {key: Finding(at(since), said)}
        return self.look_at(at(second), found, caught_up=caught_up)

    def look_at(self, now: datetime, found: dict[AlertKey, Finding], *, caught_up: bool = True) -> Step:
        step = advance(
            self.book,
            found,
            cluster="c",
            now=now,
            terms_of=lambda _group: self.terms,
            manner=self.manner,
            caught_up=caught_up,
        )
        for alert in step.gone:
            del self.table[alert.key, alert.pending_since]
        for alert in step.changed:
            former = self.table.get((alert.key, alert.pending_since))
            assert former is None or former.state != RESOLVED, "a resolved alert would be overwritten"
            self.table[alert.key, alert.pending_since] = from_json(alert)
        self.book = step.book
        return step

    def restart(self) -> None:
        self.book = Book.of(self.table.values())

    def sent(self, second: float, *sinks: str) -> None:
        """The newest notification of each sink was sent."""
        for row, alert in self.table.items():
            told = tuple(
                replace(one, sent_at=at(second), attempts=1) if one.sink in sinks and not one.sent_at else one
                for one in alert.deliveries
            )
            self.table[row] = replace(alert, deliveries=told)
            self.book = self.book.noting(self.table[row])

    @property
    def alerts(self) -> list[Alert]:
        return list(self.table.values())


def from_json(alert: Alert) -> Alert:
    return replace(alert, details=json.loads(json.dumps(alert.details)))
