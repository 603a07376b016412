"""Short functions that make facts about one group, and the verdict from them."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.facts import Facts
from streaming_app.health.group_history import JOINED, LEFT, NO_HISTORY, STATE, Event, GroupHistory
from streaming_app.health.judge import judge
from streaming_app.health.verdict import Verdict
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.work import NO_WORK, GroupWork, Partitions
from tests.support.healthy_group import healthy_group
from tests.support.lag_harness import row

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
LONG_AGO = NOW - timedelta(days=30)


def ago(**duration: float) -> datetime:
    return NOW - timedelta(**duration)


def group(state: str = "Stable", since: datetime = LONG_AGO, **fields: Any) -> GroupSnapshot:
    members = 0 if state == "Empty" else 3
    values = {"state": state, "state_since": since, "member_count": members, "members_since": since, **fields}
    return replace(healthy_group(LONG_AGO), **values)


def states(*changes: tuple[datetime, str, str]) -> GroupHistory:
    """Return a history of state changes (when, from, to)."""
    return GroupHistory([Event(at, n, STATE, old, new) for n, (at, old, new) in enumerate(changes)])


def members(*changes: tuple[datetime, str, bool, str]) -> GroupHistory:
    """Return a history of members: when, who, whether it joined, and on which host."""
    return GroupHistory(
        members=[
            Event(at, n, JOINED if joined else LEFT, member_id=who, place=place)
            for n, (at, who, joined, place) in enumerate(changes)
        ]
    )


def work(at: datetime = NOW, **fields: Any) -> GroupWork:
    """Return the work of a group as of this pass: twelve partitions, no waiting records."""
    values = {"partitions": 12, "has_commits": True, **fields}
    times = {name: one.timestamp() for name, one in values.items() if isinstance(one, datetime)}
    complete_at = 0.0 if values.get("unknown") else at.timestamp()
    return GroupWork("payments", at.timestamp(), **{"complete_at": complete_at, **values, **times})


def waiting(since: datetime, at: datetime = NOW, **fields: Any) -> GroupWork:
    """Return work whose oldest record was written at `since`."""
    return work(at, **{"waiting": 12, "offsets": 7_200, "waits_since": since, "arrived_at": at, **fields})


def unmoved(since: datetime, count: int = 1, **fields: Any) -> Partitions:
    one = row(member_id="m", task_id="0_0", client_host="10.0.0.1")
    return Partitions(
        **{"since": since.timestamp(), "count": count, "unowned": 0, "offsets": 90, "named": (one,), **fields}
    )


def late(*partitions: tuple[datetime, datetime]) -> dict[tuple[str, int], Standing]:
    """Return partitions whose offsets move: since when each is late, and since when it does not catch up."""
    return {
        ("orders", n): Standing(
            row(partition=n, lag_seconds=3_600.0),
            waits=True,
            known_from=LONG_AGO.timestamp(),
            moved_at=NOW.timestamp(),
            late_since=since.timestamp(),
            slow_since=slow.timestamp(),
        )
        for n, (since, slow) in enumerate(partitions)
    }


def facts(
    snapshot: GroupSnapshot,
    of_work: GroupWork | None = None,
    history: GroupHistory | None = None,
    *,
    at: datetime = NOW,
    **fields: Any,
) -> Facts:
    return Facts(snapshot, at, history=history or NO_HISTORY, work=of_work or NO_WORK, **fields)


def verdict(known: Facts, previous: Verdict | None = None, at: datetime = NOW) -> Verdict:
    return judge(replace(known, now=at, previous=previous))


def bad(name: str, since: datetime, **fields: Any) -> Verdict:
    return Verdict(name, since, since, "why", "critical", **fields)
