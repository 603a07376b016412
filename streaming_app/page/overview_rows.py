"""Reads what the overview needs: the streams groups with their alerts, tasks and lag, and the groups of other types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming_app.alerts.alert import FIRING, PENDING, Alert
from streaming_app.lag.status import LEFT_OVER, RANK, UNKNOWN
from streaming_app.page.group_summary import (
    STREAMS,
    GroupSummary,
    all_summaries,
    other_summary,
    streams_summary,
    with_lag,
)
from streaming_app.page.labels import Labels
from streaming_app.page.snapshot import Row, Snapshot
from streaming_app.queries.clusters import find_clusters
from streaming_app.tables.alerts_table import read_alerts
from streaming_app.tables.heartbeat_file import HeartbeatRecord
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote

_GROUPS = """
SELECT g.group_id, g.group_type, g.state, g.state_since, g.not_ready_reason, g.group_epoch, g.topology_epoch,
       g.description_status, g.member_count, g.stale_member_count, g.updated_at
FROM groups g WHERE g.cluster = {cluster} ORDER BY g.group_id
"""
_OTHERS = f"""
SELECT group_id, group_type, protocol_type, protocol, state, member_count, group_epoch, offset_count, kafka_streams,
       updated_at
FROM all_groups WHERE cluster = {{cluster}} AND group_type <> '{STREAMS}'
"""  # noqa: S608 - our own constant
_TASKS = """
SELECT group_id, sum(CASE WHEN role = 'active' AND target THEN 1 ELSE 0 END) AS tasks,
       sum(CASE WHEN target AND NOT current THEN 1 ELSE 0 END) AS taken,
       sum(CASE WHEN pending_revocation OR (current AND NOT target) THEN 1 ELSE 0 END) AS given
FROM assignments WHERE cluster = {cluster} GROUP BY group_id
"""
_RANKS = " ".join(f"WHEN {quote(name)} THEN {rank}" for name, rank in RANK.items())
_RANK = f"CASE status {_RANKS} ELSE {RANK[UNKNOWN]} END"  # a later release may have written others
_LAG = f"""
SELECT group_id, sum(lag) AS lag, max(lag_seconds) AS lag_seconds, count(*) AS partitions,
       count(lag) AS known, bool_or(lag_seconds_is_lower_bound) AS is_lower_bound,
       min(CASE WHEN committed_offset IS NOT NULL THEN {_RANK} END) AS worst
FROM lag WHERE cluster = {{cluster}} AND status <> '{LEFT_OVER}' GROUP BY group_id
"""  # noqa: S608 - our own constants


@dataclass(frozen=True)
class Reading:
    """What was read of one cluster: all of the overview, but for groups of other types."""

    snapshot: Snapshot
    """Its groups are the streams groups."""
    lag: dict[str, Row]
    """The sums by group, of every type."""

    def groups(self, others: tuple[GroupSummary, ...]) -> tuple[GroupSummary, ...]:
        """Return all groups, the others with their lag."""
        return all_summaries(self.snapshot.groups, (with_lag(one, self.lag.get(one.group_id, {})) for one in others))


def read_streams_groups(  # noqa: PLR0913 - what a snapshot has
    warehouse: Location,
    cluster: str,
    *,
    read_at: datetime,
    heartbeat: HeartbeatRecord | None,
    labels: Labels,
    lag: dict[str, Row] | None = None,
) -> Reading:
    """Read all but the groups of other types, and the sums of the lag unless they are given. Raises WarehouseError.

    The snapshot has no tag yet.
    """
    reader = WarehouseReader(warehouse)
    literal = quote(cluster)
    alerts = read_alerts(reader, f"cluster = {literal} AND state IN ({quote(FIRING)}, {quote(PENDING)})")
    if lag is None:
        lag = _by_group(reader.rows(_LAG.replace("{cluster}", literal)))
    tasks = _by_group(reader.rows(_TASKS.replace("{cluster}", literal)))
    firing: dict[str, list[Alert]] = {}
    for alert in sorted(alerts, key=_severity):
        if alert.state == FIRING and alert.group_id is not None:
            firing.setdefault(alert.group_id, []).append(alert)
    groups = tuple(
        streams_summary(
            row, tasks.get(row["group_id"], {}), lag.get(row["group_id"], {}), firing.get(row["group_id"], ()), labels
        )
        for row in reader.query(_GROUPS.replace("{cluster}", literal)).to_pylist()
    )
    snapshot = Snapshot(
        cluster,
        "",
        read_at,
        heartbeat,
        groups=groups,
        alerts=tuple(alerts),
        has_lag=bool(lag),
        reader=reader,
        clusters=tuple(find_clusters(reader, warehouse)),
    )
    return Reading(snapshot, lag)


def read_other_groups(warehouse: Location, cluster: str, labels: Labels) -> tuple[GroupSummary, ...]:
    """Read the groups of other types, without their lag. Raises WarehouseError."""
    rows = WarehouseReader(warehouse).query(_OTHERS.replace("{cluster}", quote(cluster))).to_pylist()
    return tuple(other_summary(row, labels) for row in rows)


def _by_group(rows: list[dict[str, Any]]) -> dict[str, Row]:
    return {row["group_id"]: row for row in rows}


def _severity(alert: Alert) -> int:
    return {"critical": 0, "warning": 1}.get(alert.severity, 2)
