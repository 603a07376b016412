"""The problems that are older than the job: a sink gets all of them as one.

Theory of operation
-------------------
At the first start on a cluster, all that has been wrong for long opens at once. Nobody is to be woken by hundreds of
messages about groups that nobody has missed. So of problems that began more than a day before the job first started
there, a sink gets one that names them, of the rule `OLD_PROBLEMS`. It ends once all of them have ended.

The deliveries of a problem say whether a sink got it in this way, so a restart changes nothing. An old problem that
becomes worse is sent on its own from then on. So is one that a release before 0.3.1 has sent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from zlib import crc32

from streaming_app.alerts.problem import (
    CRITICAL,
    FIRING,
    INFO,
    RESOLVED,
    WARNING,
    Delivery,
    Line,
    Problem,
    is_old,
    severity_rank,
)
from streaming_app.text import and_more, count, digest, shorten

OLD_PROBLEMS = "StreamsGroupsOldProblems"
_IN_SUMMARY, _IN_EVIDENCE = 5, 50  # groups that are named; of each rule in the evidence
_MAX_ID = 100  # characters of an id
_ID_CHARACTERS = 12


def is_sent_together(one: Problem, sink: str, first_started_at: datetime | None) -> bool:
    """Return whether a sink gets, or got, the begin of this problem as a part of the one about all old problems."""
    if first_started_at is None or not is_old(one, first_started_at):
        return False
    firing = next((d for d in one.deliveries if (d.sink, d.event) == (sink, FIRING)), None)
    is_first = firing is not None and not firing.repeat
    return is_first and not (firing and firing.sent_at and firing.sent_at < first_started_at)


def as_one(problems: Sequence[Problem], event: str, sink: str) -> Problem:
    """Return the problem that stands for these old ones. Its id is always the same in a cluster."""
    ordered = sorted(problems, key=lambda one: one.urgency)
    ids = [shorten(one.group_id or "", _MAX_ID) for one in ordered]
    by_rule, groups = defaultdict[str, list[str]](list), [*dict.fromkeys(ids)]
    for one, group_id in zip(ordered, ids, strict=True):
        by_rule[one.rule].append(group_id)
    counts = ", ".join(f"{number:,} {rule}" for rule, number in Counter(one.rule for one in ordered).items())
    named = ", ".join(groups[:_IN_SUMMARY]) + and_more(len(groups) - _IN_SUMMARY)
    have = "has had an alert" if len(groups) == 1 else "have had alerts"
    severity = min((one.severity for one in problems), key=severity_rank)
    at = max(one.opened_at or one.since for one in problems)
    # Alertmanager has an alert for each severity: it falls when the worst problems end
    is_over, now = event == RESOLVED, severity_rank(severity)
    earlier = [one for one in (CRITICAL, WARNING, INFO) if is_over or severity_rank(one) < now]
    delivery = Delivery(sink, event, repeat=crc32(" ".join(sorted(one.alert_id for one in problems)).encode()))
    return Problem(
        digest(f"{problems[0].cluster}/{OLD_PROBLEMS}", _ID_CHARACTERS),
        problems[0].cluster,
        None,
        OLD_PROBLEMS,
        severity,
        min(one.since for one in problems),
        min(one.opened_at or one.since for one in problems),
        max(one.ended_at or at for one in problems) if is_over else None,
        None,
        None,
        dict(set.intersection(*(set(one.labels.items()) for one in problems))),
        f"{count(len(groups), 'group')} {have} since long before the job first started ({counts}): {named}",
        {rule: [*some[:_IN_EVIDENCE], *_more(len(some) - _IN_EVIDENCE)] for rule, some in by_rule.items()},
        tuple(Line(at, None, OLD_PROBLEMS, one, "") for one in earlier),
        (delivery,),
    )


def _more(number: int) -> list[str]:
    return [and_more(number).strip()] if number > 0 else []
