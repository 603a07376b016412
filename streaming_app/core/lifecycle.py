"""The life of an alert: pending, firing, resolved, and which notifications are due. Pure.

Theory of operation
-------------------
A rule and a group (or the job) are a key, and of a key at most one alert is open. At each look one event happens to
each key that has an alert or a finding, a table says which state follows, and `_ENTER` what the alert is then.

- HOLDS: there is a finding, and its condition has held for less than the grace. DUE: for the grace or longer.
- LINGERS: there is no finding, and the alert is kept firing for a while (`keep_firing_for`). ENDS: there is none.

The alerts are the only memory, so a restart changes nothing: since when a condition holds comes from the broker's
times, or else from the alert (`pending_since`), and what was sent from its deliveries. An alert that lingers notes
since when in its details, as `cleared_at`. Of resolved alerts only the time is kept: a condition cannot have held
since before it was last seen to have ended, so grace begins anew then.

Before the job has caught up, groups show as they once were: nothing happens, except to rules that look at no group.

Flapping: a condition that comes and goes within its grace never fires. One that comes and goes more slowly fires and
resolves each time, unless `keep_firing_for` bridges the gaps, as in Prometheus; it is 0 by default.

Notifications: at firing one is due to each sink, at resolution one to each sink that one of firing was sent or is due
to, so a sink added later hears of later alerts. Where firing could not be sent before the resolution, both are sent, in
order: the sink may have got it although no answer came back, and must not be left with an alert that never ends. A
changed summary is no news. With `repeat_after`, firing is due again so long after it was sent.

Clocks: a time ahead of now counts as now. A clock set back never fires or resolves anything by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.core.alert import FIRING, PENDING, RESOLVED, Alert, AlertKey, Delivery, Finding
from streaming_app.core.rule import Terms
from streaming_app.core.rules import TermsOf

_HOLDS, _DUE, _LINGERS, _ENDS = "holds", "due", "lingers", "ends"

# (state, event) -> state, where None is: no alert is open. What is not there cannot happen.
_NEXT: Mapping[tuple[str | None, str], str | None] = {
    (None, _HOLDS): PENDING,
    (None, _DUE): FIRING,
    (PENDING, _HOLDS): PENDING,
    (PENDING, _DUE): FIRING,
    (PENDING, _ENDS): None,
    (FIRING, _HOLDS): FIRING,
    (FIRING, _DUE): FIRING,
    (FIRING, _LINGERS): FIRING,
    (FIRING, _ENDS): RESOLVED,
}

_CLEARED_AT = "cleared_at"
_REMEMBERED = timedelta(days=30)


@dataclass(frozen=True)
class Manner:
    """How alerts are told, for all rules alike."""

    sinks: tuple[str, ...] = ()
    keep_firing_for: float = 0.0
    """Seconds that an alert goes on firing after its condition ended."""
    repeat_after: float | None = None
    """Seconds after which firing is told again; None: never."""


@dataclass(frozen=True)
class Book:
    """What is remembered from look to look: the open alerts, and when a key's last alert was resolved."""

    open: Mapping[AlertKey, Alert] = field(default_factory=dict)
    resolved_at: Mapping[AlertKey, datetime] = field(default_factory=dict)

    @classmethod
    def of(cls, alerts: Iterable[Alert]) -> Book:
        """Take up from rows of the table: the open ones, and of each key at least the one that was resolved last."""
        open_alerts: dict[AlertKey, Alert] = {}
        resolved_at: dict[AlertKey, datetime] = {}
        for alert in alerts:
            if alert.resolved_at is None:
                open_alerts[alert.key] = alert
            else:
                resolved_at[alert.key] = max(alert.resolved_at, resolved_at.get(alert.key, alert.resolved_at))
        return cls(open_alerts, resolved_at)

    def noting(self, alert: Alert) -> Book:
        """The book with what became of an alert's notifications; one that is no longer open changes nothing."""
        mine = self.open.get(alert.key)
        if mine is None or mine.fingerprint != alert.fingerprint:
            return self
        return replace(self, open={**self.open, alert.key: replace(mine, deliveries=alert.deliveries)})


@dataclass(frozen=True)
class Step:
    """What one look did: the book after it, the rows to write, and the rows to drop from the table."""

    book: Book
    changed: tuple[Alert, ...] = ()
    """Rows that are new or otherwise than before; to be written after those of `gone` are dropped."""
    gone: tuple[Alert, ...] = ()
    """Pending alerts that ended, or are written anew because the condition holds since another time."""


def advance(  # noqa: PLR0913 - each is one thing it needs
    book: Book,
    findings: Mapping[AlertKey, Finding],
    *,
    cluster: str,
    now: datetime,
    terms_of: TermsOf,
    manner: Manner,
    caught_up: bool,
) -> Step:
    """Let one look happen. `findings` are all that is wrong now; what is not among them is over."""
    changes: list[_Change] = []
    for key in dict.fromkeys((*book.open, *findings)):
        terms = terms_of(key.group_id).get(key.rule)
        if not caught_up and not (terms and terms.while_catching_up):
            continue
        before, finding = book.open.get(key), findings.get(key)
        if finding and terms:
            since = _since(before, finding, book.resolved_at.get(key), now)
            told = _founded(before or _blank(cluster, key, since), finding, terms, since)
            event = _DUE if now - since >= timedelta(seconds=terms.grace) else _HOLDS
        elif before:
            told, event = _unfounded(before, now, manner)
        else:
            continue
        state = _NEXT[before.state if before else None, event]
        after = _ENTER[state](told, now, manner) if state else None
        if after != before:
            changes.append(_Change(key, before, after))
    return _step(book, changes, now)


class _Change(NamedTuple):
    key: AlertKey
    before: Alert | None
    after: Alert | None


def _step(book: Book, changes: Sequence[_Change], now: datetime) -> Step:
    if not changes:
        return Step(book)
    open_alerts, resolved_at = dict(book.open), dict(book.resolved_at)
    for key, _, after in changes:
        if after and after.resolved_at:
            resolved_at[key] = max(after.resolved_at, resolved_at.get(key, after.resolved_at))
        if after and not after.resolved_at:
            open_alerts[key] = after
        else:
            open_alerts.pop(key, None)
    if len(resolved_at) > len(book.resolved_at):
        resolved_at = {key: at for key, at in resolved_at.items() if now - at < _REMEMBERED}
    return Step(
        Book(open_alerts, resolved_at),
        changed=tuple(after for _, _, after in changes if after),
        gone=tuple(before for _, before, after in changes if before and _leaves(before, after)),
    )


def _leaves(before: Alert, after: Alert | None) -> bool:
    """The row does not become that of `after`, which has another key in the table or is not there."""
    return after is None or after.pending_since != before.pending_since


def _blank(cluster: str, key: AlertKey, since: datetime) -> Alert:
    return Alert(cluster, key.group_id, key.rule, "", PENDING, since, None, None, "", {})


def _founded(alert: Alert, finding: Finding, terms: Terms, since: datetime) -> Alert:
    """The alert with what its finding says."""
    return replace(
        alert, severity=terms.severity, pending_since=since, summary=finding.summary, details=finding.details
    )


def _since(before: Alert | None, finding: Finding, resolved_at: datetime | None, now: datetime) -> datetime:
    """Since when the condition has held, as far as it counts for the grace.

    A firing alert stays what it is. A pending one whose finding tells another time ended and began in between, and its
    grace begins anew; but a finding whose time is now only says that it does not know, and the alert knows better.
    """
    since = min(finding.since, now)
    if resolved_at is not None:  # later than the last alert in any case: the two are told apart by this time
        since = max(since, resolved_at + timedelta(microseconds=1))
    if before is None:
        return since
    if before.state == PENDING and (since < now or before.pending_since > now):
        return since
    return before.pending_since


def _unfounded(alert: Alert, now: datetime, manner: Manner) -> tuple[Alert, str]:
    """What happens to an alert without a finding."""
    if alert.state != FIRING or not manner.keep_firing_for:
        return alert, _ENDS
    noted = alert.details.get(_CLEARED_AT)
    cleared_at = min(datetime.fromisoformat(noted), now) if noted else now
    if now - cleared_at >= timedelta(seconds=manner.keep_firing_for):
        return alert, _ENDS
    return replace(alert, details={**alert.details, _CLEARED_AT: cleared_at.isoformat()}), _LINGERS


def _pend(alert: Alert, _now: datetime, _manner: Manner) -> Alert:
    return alert


def _fire(alert: Alert, now: datetime, manner: Manner) -> Alert:
    if alert.state == FIRING:
        return alert if _CLEARED_AT in alert.details else replace(alert, deliveries=_repeated(alert, now, manner))
    due = tuple(Delivery(sink, FIRING) for sink in manner.sinks)
    return replace(alert, state=FIRING, opened_at=now, deliveries=due)


def _repeated(alert: Alert, now: datetime, manner: Manner) -> tuple[Delivery, ...]:
    if manner.repeat_after is None:
        return alert.deliveries
    pause = timedelta(seconds=manner.repeat_after)
    return tuple(
        Delivery(sent.sink, FIRING, repeat=sent.repeat + 1)
        if sent.sent_at and now - sent.sent_at >= pause and sent.sink in manner.sinks
        else sent
        for sent in alert.deliveries
    )


def _resolve(alert: Alert, now: datetime, manner: Manner) -> Alert:
    told = {delivery.sink for delivery in alert.deliveries}
    due = tuple(Delivery(sink, RESOLVED) for sink in manner.sinks if sink in told)
    ended = max(now, alert.opened_at or now)
    return replace(alert, state=RESOLVED, resolved_at=ended, deliveries=(*alert.deliveries, *due))


_ENTER: Mapping[str, Callable[[Alert, datetime, Manner], Alert]] = {PENDING: _pend, FIRING: _fire, RESOLVED: _resolve}
