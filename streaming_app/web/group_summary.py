"""A group as the overview has it: of a streams group what `groups` has, of others what their records show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from streaming_app.alerts.problem import HEALTH, Problem
from streaming_app.groups.state_rules import DEAD
from streaming_app.health.verdict import BAD, Verdict
from streaming_app.health.verdict import UNKNOWN as UNKNOWN_HEALTH
from streaming_app.lag.status import BY_RANK, UNKNOWN
from streaming_app.tables.health_tables import HealthRow
from streaming_app.web.words import Label, Labels

Row = Mapping[str, Any]
STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in the overview."""

    group_id: str
    group_type: str
    """A key of `TYPES`."""
    state: str | None
    """None for a classic group with members: the log does not have its state."""
    members: int
    updated_at: datetime | None
    reason: str | None = None
    """Why it is NotReady, or why it needs an assignment."""
    topology_epoch: int | None = None
    description_status: str | None = None
    stale_members: int = 0
    tasks: int = 0
    moving: int = 0
    """Copies of tasks that members give up or take over, whichever are more: most do both."""
    alerts: tuple[Problem, ...] = ()
    """Those that fire, the most severe first."""
    lag: int | None = None
    """Offsets, the sum over all partitions of which it is known; None if it is of none."""
    lag_seconds: float | None = None
    """Of the partition that is furthest behind."""
    lag_status: str | None = None
    """The worst of its partitions with a commit; None without the table."""
    lag_is_partial: bool = False
    """Of some partitions the lag is not known."""
    lag_seconds_is_lower_bound: bool = False
    labels: tuple[Label, ...] = ()
    protocol: str | None = None
    """Of another group than a streams group: what its members agreed on, such as an assignor."""
    partitions: int | None = None
    """Of another group: with a committed offset."""
    kafka_streams: bool = False
    """Of a classic group: it is a Kafka Streams application."""
    group_epoch: int | None = None
    is_new: bool = False
    """It was created in the last 24 hours."""
    health: Verdict | None = None
    """None: nothing judges it, or there is no verdict yet."""
    incident_id: str | None = None

    @property
    def verdict(self) -> str | None:
        """The verdict, if any; of a streams group without one Unknown."""
        return self.health.verdict if self.health else UNKNOWN_HEALTH if self.group_type == STREAMS else None

    @property
    def cause(self) -> str | None:
        """What is proven to be the cause of the problem with its health."""
        return next((one.cause for one in self.alerts if one.subject == HEALTH), None)

    @property
    def is_troubled(self) -> bool:
        """Whether it does not process what it should."""
        return self.verdict in BAD


def streams_summary(row: Row, tasks: Row, lag: Row, alerts: Sequence[Problem], labels: Labels) -> GroupSummary:
    """Return the summary of a row of `groups`; `tasks` and `lag` are sums over its tasks and partitions, if any."""
    return GroupSummary(
        group_id=row["group_id"],
        group_type=row["group_type"] or STREAMS,
        state=row["state"] or "Unknown",
        reason=row["not_ready_reason"],
        topology_epoch=row["topology_epoch"],
        description_status=row["description_status"],
        members=row["member_count"] or 0,
        stale_members=row["stale_member_count"] or 0,
        tasks=tasks.get("tasks", 0),
        moving=max(tasks.get("taken", 0), tasks.get("given", 0)),
        updated_at=row["updated_at"],
        alerts=tuple(alerts),
        labels=labels.of(row["group_id"]),
        group_epoch=row["group_epoch"],
        is_new=bool(row["is_new"]),
        **_lag(lag),
    )


def other_summary(row: Row, labels: Labels) -> GroupSummary:
    """Return the summary of a row of `all_groups`, without its lag."""
    return GroupSummary(
        group_id=row["group_id"],
        group_type=row["group_type"],
        state=row["state"],
        members=row["member_count"] or 0,
        updated_at=row["updated_at"],
        labels=labels.of(row["group_id"]),
        protocol=" ".join(filter(None, (row["protocol_type"], row["protocol"]))) or None,
        partitions=row["offset_count"],
        kafka_streams=bool(row["kafka_streams"]),
        group_epoch=row["group_epoch"],
    )


def with_lag(group: GroupSummary, lag: Row) -> GroupSummary:
    """Return the summary with the sums over the partitions of the group; without any, as it is."""
    return replace(group, **_lag(lag)) if lag else group


def with_health(group: GroupSummary, health: HealthRow | None) -> GroupSummary:
    """Return the summary with the verdict on the group; without one, as it is."""
    return replace(group, health=health.verdict, incident_id=health.incident_id) if health else group


def _lag(lag: Row) -> dict[str, Any]:
    """Return the fields of these sums; none without any."""
    if not lag:
        return {}
    is_known = lag["known"] > 0
    return {
        "lag": lag["lag"] if is_known else None,
        "lag_seconds": lag["lag_seconds"] if is_known else None,
        "lag_status": UNKNOWN if lag["worst"] is None else BY_RANK[lag["worst"]],
        "lag_is_partial": lag["unknown_partitions"] > 0,
        "lag_seconds_is_lower_bound": bool(lag["is_lower_bound"]),
    }


def all_summaries(streams: Iterable[GroupSummary], others: Iterable[GroupSummary]) -> tuple[GroupSummary, ...]:
    """Return one summary for each group id: a group that is not a streams group any more has its new type."""
    by_id = {group.group_id: group for group in streams}
    for group in others:
        known = by_id.get(group.group_id)
        if known is None or known.state == DEAD or known.group_type != STREAMS:
            by_id[group.group_id] = group
    return tuple(by_id.values())
