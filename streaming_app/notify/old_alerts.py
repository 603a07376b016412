"""The alerts that are older than the job: a sink gets all of them as one.

Theory of operation
-------------------
At the first start on a cluster, all that has been wrong for long opens at once. Nobody is to be woken by hundreds of
messages about groups that nobody has missed. So of alerts that began more than a day before the job first started
there, a sink gets one that names them, of the rule `OLD_ALERTS`. It ends once all of them have ended.

The deliveries of an alert say whether a sink got it in this way, so a restart changes nothing. An old alert that
becomes worse is sent on its own from then on. So is one that a release before 0.3.1 has sent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from zlib import crc32

from streaming_app.alerts.alert import (
    CRITICAL,
    FIRING,
    INFO,
    RESOLVED,
    WARNING,
    Alert,
    Delivery,
    Line,
    is_old,
    severity_rank,
)
from streaming_app.text import and_more, count, digest, shorten

OLD_ALERTS = "StreamsGroupsOldAlerts"
_IN_SUMMARY, _IN_EVIDENCE = 5, 50  # groups that are named; of each rule in the evidence
_MAX_ID = 100  # characters of an id
_ID_CHARACTERS = 12


def is_sent_together(one: Alert, sink: str, first_started_at: datetime | None) -> bool:
    """Return whether a sink gets, or got, the begin of this alert as a part of the one about all old alerts."""
    if first_started_at is None or not is_old(one, first_started_at):
        return False
    firing = next((d for d in one.deliveries if (d.sink, d.event) == (sink, FIRING)), None)
    is_first = firing is not None and not firing.repeat
    return is_first and not (firing and firing.sent_at and firing.sent_at < first_started_at)


def as_one(alerts: Sequence[Alert], event: str, sink: str) -> Alert:
    """Return the alert that stands for these old ones. Its id is always the same in a cluster."""
    ordered = sorted(alerts, key=lambda one: one.urgency)
    ids = [shorten(one.group_id or "", _MAX_ID) for one in ordered]
    by_rule, groups = defaultdict[str, list[str]](list), [*dict.fromkeys(ids)]
    for one, group_id in zip(ordered, ids, strict=True):
        by_rule[one.rule].append(group_id)
    counts = ", ".join(f"{number:,} {rule}" for rule, number in Counter(one.rule for one in ordered).items())
    named = ", ".join(groups[:_IN_SUMMARY]) + and_more(len(groups) - _IN_SUMMARY)
    have = "has had an alert" if len(groups) == 1 else "have had alerts"
    severity = min((one.severity for one in alerts), key=severity_rank)
    at = max(one.opened_at or one.since for one in alerts)
    # Alertmanager has an alert for each severity: it falls when the worst alerts end
    is_over, now = event == RESOLVED, severity_rank(severity)
    earlier = [one for one in (CRITICAL, WARNING, INFO) if is_over or severity_rank(one) < now]
    delivery = Delivery(sink, event, repeat=crc32(" ".join(sorted(one.alert_id for one in alerts)).encode()))
    return Alert(
        digest(f"{alerts[0].cluster}/{OLD_ALERTS}", _ID_CHARACTERS),
        alerts[0].cluster,
        None,
        OLD_ALERTS,
        severity,
        min(one.since for one in alerts),
        min(one.opened_at or one.since for one in alerts),
        max(one.ended_at or at for one in alerts) if is_over else None,
        None,
        None,
        dict(set.intersection(*(set(one.labels.items()) for one in alerts))),
        f"{count(len(groups), 'group')} {have} since long before the job first started ({counts}): {named}",
        {rule: [*some[:_IN_EVIDENCE], *_more(len(some) - _IN_EVIDENCE)] for rule, some in by_rule.items()},
        tuple(Line(at, None, OLD_ALERTS, one, "") for one in earlier),
        (delivery,),
    )


def _more(number: int) -> list[str]:
    return [and_more(number).strip()] if number > 0 else []
