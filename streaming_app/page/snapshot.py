"""What the page reads from the tables at one moment, for all viewers: the groups, the alerts and the job.

What only the page of one group shows is read when it is first asked for, and kept with the snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from streaming_app.alerts.rules.alert import FIRING, PENDING, Alert
from streaming_app.alerts.store import read_alerts
from streaming_app.errors import WarehouseError
from streaming_app.page.words import group_key
from streaming_app.queries.freshness import find_staleness
from streaming_app.queries.topology_diff import TopologyDiff, diff_topologies
from streaming_app.tables.heartbeat_file import HeartbeatRecord
from streaming_app.tables.reader import WarehouseReader, quote

Row = Mapping[str, Any]
_Result = TypeVar("_Result")

MAX_EVENTS = 2_000
"""Of one group, the newest; the page says so where there are more."""
_MAX_LAG_ROWS = 5_000
MAX_LAG_SAMPLES = 50_000
MAX_AGE = timedelta(minutes=1)
"""Of tables that count as up to date."""
_MAX_DETAILS = 256  # queries about single groups that are kept with a snapshot

_GROUPS = """
SELECT g.group_id, g.group_type, g.state, g.state_since, g.not_ready_reason, g.causes_since_assignment, g.group_epoch,
       g.assignment_epoch, g.topology_epoch, g.description_status, g.member_count, g.stale_member_count, g.updated_at,
       g.deleted_at, g.source_partition
FROM groups g WHERE g.cluster = {cluster} ORDER BY g.group_id
"""
_TASKS = """
SELECT group_id, sum(CASE WHEN role = 'active' AND target THEN 1 ELSE 0 END) AS tasks,
       sum(CASE WHEN target AND NOT current THEN 1 ELSE 0 END) AS taken,
       sum(CASE WHEN pending_revocation OR (current AND NOT target) THEN 1 ELSE 0 END) AS given
FROM assignments WHERE cluster = {cluster} GROUP BY group_id
"""
LAG_STATUSES = (
    "OK",
    "LEFT_OVER",
    "UNKNOWN",
    "CATCHING_UP",
    "BEHIND",
    "UNOWNED",
    "RECREATED",
    "REWOUND",
    "STOPPED",
    "STALLED",
    "LOST",
)
"""Of a partition, the worst last: what a group shows of its partitions."""
_RANK = (
    "CASE status " + " ".join(f"WHEN '{name}' THEN {rank}" for rank, name in enumerate(LAG_STATUSES)) + " ELSE 2 END"
)
_LAG = """
SELECT group_id, sum(lag) AS lag, max(lag_seconds) AS lag_seconds, count(*) AS partitions,
       count(lag) AS known, bool_or(lag_seconds_is_lower_bound) AS is_lower_bound,
       max({rank}) AS worst
FROM lag WHERE cluster = {cluster} GROUP BY group_id
"""
_EVENTS = f"""
SELECT at, kind, member_id, old, new, cause, client_host, instance_id, "offset" FROM group_events
WHERE {{where}} ORDER BY "offset" DESC LIMIT {MAX_EVENTS}
"""  # noqa: S608 - our own number
_LAG_ROWS = f"""
SELECT topic, partition, committed_offset, log_end_offset, lag, lag_seconds, status, subtopology_id, task_id,
       observed_at
FROM lag WHERE {{where}} ORDER BY lag DESC NULLS LAST LIMIT {_MAX_LAG_ROWS}
"""  # noqa: S608 - as above
_LAG_HISTORY = f"""
SELECT topic, partition, lag, lag_seconds, observed_at FROM lag_history
WHERE {{where}} AND observed_at >= TIMESTAMP '{{since}}' ORDER BY observed_at LIMIT {MAX_LAG_SAMPLES}
"""  # noqa: S608 - as above


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in the overview."""

    group_id: str
    group_type: str | None
    state: str
    state_since: datetime | None
    reason: str | None
    """Why it is NotReady, or why it needs an assignment."""
    topology_epoch: int | None
    description_status: str | None
    members: int
    stale_members: int
    tasks: int
    moving: int
    """Copies of tasks that members give up or take over, whichever are more: most do both."""
    updated_at: datetime | None
    alerts: tuple[Alert, ...] = ()
    """Those that fire, the most severe first."""
    lag: int | None = None
    """Offsets, the sum over all partitions of which it is known; None if it is of none."""
    lag_seconds: float | None = None
    """Of the partition that is furthest behind."""
    lag_status: str | None = None
    """The worst of its partitions, one of `LAG_STATUSES`; None without the table."""
    lag_is_partial: bool = False
    """Of some partitions the lag is not known, or is more than this."""


@dataclass
class Snapshot:
    """The tables of one cluster, as they were at one moment. Safe to use from several threads."""

    cluster: str
    tag: str
    """Changes whenever anything that the page shows may have changed, other than with time."""
    read_at: datetime
    heartbeat: HeartbeatRecord | None = None
    problem: str | None = None
    """Why the tables could not be read, in one line; the rest is then what was read before, if anything."""
    groups: tuple[GroupSummary, ...] = ()
    alerts: tuple[Alert, ...] = ()
    """Those that are pending or firing, of groups, the cluster and the job."""
    has_lag: bool = False
    """The tables hold the lag of any group: the job may ask for the ends of the logs."""
    reader: WarehouseReader | None = None
    _by_key: dict[str, str] = field(default_factory=dict)
    _details: dict[tuple[str, str], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def job_problem(self, now: datetime) -> str | None:
        """Return why the tables are not up to date; None if they are."""
        return find_staleness(self.heartbeat, self.cluster, now, MAX_AGE)

    def id_of(self, key: str) -> str | None:
        """Return the id of the group that `group_key` gives this key; None if there is none."""
        with self._lock:
            if not self._by_key:
                self._by_key.update({group_key(one.group_id): one.group_id for one in self.groups})
        return self._by_key.get(key)

    def group(self, group_id: str) -> Row | None:
        """Return the row of `groups`; None if there is no such group. Raises WarehouseError."""
        rows: list[Row] = self._detail("group", group_id, "SELECT * FROM groups WHERE {where}")
        return rows[0] if rows else None

    def events(self, group_id: str) -> list[Row]:
        """Return the newest events of a group, oldest first. Raises WarehouseError."""
        newest: list[Row] = self._detail(
            "events",
            group_id,
            _EVENTS,
        )
        return newest[::-1]

    def lag_rows(self, group_id: str) -> list[Row]:
        """Return the rows of `lag` of a group; none without that table. Raises WarehouseError."""
        rows: list[Row] = self._detail(
            "lag",
            group_id,
            _LAG_ROWS,
        )
        return rows

    def lag_history(self, group_id: str, begin: datetime) -> list[Row]:
        """Return the samples of the lag of a group since `begin`, oldest first.

        Raises WarehouseError.
        """
        since = f"{begin.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        rows: list[Row] = self._detail(f"lag_history {since}", group_id, _LAG_HISTORY.replace("{since}", since))
        return rows

    def topology_diff(self, group_id: str) -> TopologyDiff | None:
        """Return what changed from the topology before the newest to the newest; None if only one is known."""
        reader = self.reader

        def find() -> TopologyDiff | None:
            if reader is None:
                return None
            try:
                return diff_topologies(reader, self.cluster, group_id)
            except WarehouseError:  # the group has had one topology, or none
                return None

        return self._kept(("topology_diff", group_id), find)

    def _detail(self, name: str, group_id: str, sql: str) -> Any:  # noqa: ANN401 - rows
        reader = self.reader
        if reader is None:
            return []
        where = f"cluster = {quote(self.cluster)} AND group_id = {quote(group_id)}"
        return self._kept((name, group_id), lambda: reader.rows(sql.replace("{where}", where)))

    def _kept(self, key: tuple[str, str], read: Callable[[], _Result]) -> _Result:
        """Return what was read before under this key, or read it; one reading at a time."""
        with self._lock:
            if key not in self._details:
                while len(self._details) >= _MAX_DETAILS:
                    del self._details[next(iter(self._details))]
                self._details[key] = read()
            result: _Result = self._details[key]
            return result


def read_snapshot(
    reader: WarehouseReader, cluster: str, tag: str, read_at: datetime, heartbeat: HeartbeatRecord | None
) -> Snapshot:
    """Read what all views need. Raises WarehouseError."""
    literal = quote(cluster)
    alerts = read_alerts(reader, f"cluster = {literal} AND state IN ({quote(FIRING)}, {quote(PENDING)})")
    lag = _by_group(reader.rows(_LAG.replace("{rank}", _RANK).replace("{cluster}", literal)))
    tasks = _by_group(reader.rows(_TASKS.replace("{cluster}", literal)))
    firing: dict[str, list[Alert]] = {}
    for alert in sorted(alerts, key=_severity):
        if alert.state == FIRING and alert.group_id is not None:
            firing.setdefault(alert.group_id, []).append(alert)
    groups = tuple(
        _summary(row, tasks.get(row["group_id"], {}), lag.get(row["group_id"], {}), firing.get(row["group_id"], ()))
        for row in reader.query(_GROUPS.replace("{cluster}", literal)).to_pylist()
    )
    return Snapshot(cluster, tag, read_at, heartbeat, None, groups, tuple(alerts), bool(lag), reader)


def _by_group(rows: list[dict[str, Any]]) -> dict[str, Row]:
    return {row["group_id"]: row for row in rows}


def _severity(alert: Alert) -> int:
    return {"critical": 0, "warning": 1}.get(alert.severity, 2)


def _summary(row: Row, tasks: Row, lag: Row, alerts: Any) -> GroupSummary:  # noqa: ANN401 - alerts of the group
    partial = bool(lag) and (lag["known"] < lag["partitions"] or bool(lag["is_lower_bound"]))
    is_known = bool(lag) and lag["known"] > 0
    return GroupSummary(
        group_id=row["group_id"],
        group_type=row["group_type"],
        state=row["state"] or "Unknown",
        state_since=row["state_since"],
        reason=row["not_ready_reason"],
        topology_epoch=row["topology_epoch"],
        description_status=row["description_status"],
        members=row["member_count"] or 0,
        stale_members=row["stale_member_count"] or 0,
        tasks=tasks.get("tasks", 0),
        moving=max(tasks.get("taken", 0), tasks.get("given", 0)),
        updated_at=row["updated_at"],
        alerts=tuple(alerts),
        lag=lag["lag"] if is_known else None,
        lag_seconds=lag["lag_seconds"] if is_known else None,
        lag_status=LAG_STATUSES[lag["worst"]] if lag else None,
        lag_is_partial=partial,
    )
