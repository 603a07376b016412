"""A cluster for metrics to be about: some groups, a job that has done something, an alert, a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.sender import SinkStatus
from streaming_app.core.alert import FIRING, PENDING, Alert
from streaming_app.core.facts import GroupFacts
from streaming_app.job.health import Batch, Health
from streaming_app.metrics.collector import Sources

NOW = datetime.now(timezone.utc)
SINCE = NOW - timedelta(minutes=10)


def group(group_id: str, state: str = "Stable", **others: Any) -> GroupFacts:
    told: dict[str, Any] = {
        "group_type": "streams",
        "state_since": SINCE,
        "group_epoch": 7,
        "assignment_epoch": 6,
        "assigned_at": SINCE,
        "topology_epoch": 3,
        "validated_topology_epoch": 3,
        "stored_description_epoch": 3,
        "failed_description_epoch": -1,
        "description_status": "CURRENT",
        "description_since": SINCE,
        "description_stale_since": SINCE,
        "members_since": SINCE,
        "not_ready_reason": None,
        "solicitable": False,
        "unsolicited_pushes": 0,
        "last_unsolicited_push_at": None,
        "member_count": 4,
        "stale_member_count": 1,
        "first_seen_at": SINCE,
        "updated_at": SINCE,
        "deleted_at": None,
        "last_offset": 99,
    }
    return GroupFacts(group_id, state=state, **(told | others))


class Groups:
    """Groups that stand still."""

    def __init__(self, *groups: GroupFacts, rebalances: Mapping[str, int] | None = None) -> None:
        self._groups = {one.group_id: one for one in groups}
        self._rebalances = rebalances or {}

    def groups(self) -> Mapping[str, GroupFacts]:
        return self._groups

    def rebalances_total(self, group_id: str) -> int:
        return self._rebalances.get(group_id, 0)


def batch(behind: int = 0, **others: Any) -> Batch:
    told: dict[str, Any] = {
        "seen": 1_000,
        "seconds": 2.5,
        "by_type": {17: 20, 23: 5, 24: 1, -1: 2},
        "quarantined": 3,
        "drifted": 4,
        "behind": {0: behind, 1: 0},
    }
    return Batch(**(told | others))


def busy_health(behind: int = 0) -> Health:
    """A job that failed once and has since ended two batches well."""
    health = Health()
    health.failed("the cause")
    health.batch_done(batch())
    health.batch_done(batch(behind))
    return health


def alert(rule: str, state: str, group_id: str | None = None) -> Alert:
    return Alert("prod", group_id, rule, "critical", state, SINCE, None, None, "summary", {})


def sources(groups: Iterable[GroupFacts], **others: Any) -> Sources:
    alerts = [
        alert("StreamsGroupNotReady", FIRING, "b"),
        alert("StreamsGroupNotReady", FIRING, "c"),
        alert("StreamsGroupsJobBehind", PENDING),
    ]
    told: dict[str, Any] = {
        "health": busy_health(),
        "alerts": lambda: alerts,
        "sinks": lambda: (SinkStatus("pager", sent=5, failed=2, waiting=1, last_success_at=NOW), SinkStatus("mail")),
    }
    return Sources("prod", Groups(*groups, rebalances={"a": 6}), **(told | others))
