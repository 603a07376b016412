"""What the page reads from the tables at one moment, for all viewers: the groups, the alerts and the job.

What the overview needs is read at once: the streams groups with their alerts, tasks and lag, and the groups of other
types. What only the page of one group shows is read when it is first asked for, and kept with the snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from streaming_app.alerts.problem import FIRING, Problem, severity_rank
from streaming_app.errors import WarehouseError
from streaming_app.groups.task_copies import TaskCopy
from streaming_app.lag.status import LEFT_OVER, RANK, UNKNOWN
from streaming_app.notify.mutes import Mute
from streaming_app.queries.behind_series import BehindSeries, behind_series
from streaming_app.queries.facts import GroupFacts, read_group_facts
from streaming_app.queries.groups import other_members, search_groups
from streaming_app.queries.health import changes_before, last_deployments, quiet_since, read_verdicts, verdicts_since
from streaming_app.queries.history import GroupAt, Owned, group_at, owned_tasks, read_assignments, read_events
from streaming_app.queries.lag import MAX_PARTITIONS
from streaming_app.queries.lag_chart import LagChart, lag_chart
from streaming_app.queries.lag_series import lag_at, lag_series
from streaming_app.queries.pipelines import Pipelines, read_pipelines
from streaming_app.queries.rate_series import Rate, rate_series
from streaming_app.queries.topics import Topic, read_topics
from streaming_app.queries.topology_diff import KnownTopology, TopologyDiff, diff_topologies, topology_at
from streaming_app.queries.warehouse import find_clusters, find_staleness
from streaming_app.tables.alerts_table import read_problems
from streaming_app.tables.health_tables import HealthRow
from streaming_app.tables.heartbeat_file import HeartbeatRecord
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, of_group, quote, time_literal
from streaming_app.tables.task_copies_table import read_copies
from streaming_app.web.group_summary import (
    STREAMS,
    GroupSummary,
    all_summaries,
    other_summary,
    streams_summary,
    with_health,
    with_lag,
)
from streaming_app.web.timeline import DRAWN_KINDS, Events
from streaming_app.web.words import Labels, group_key

Row = Mapping[str, Any]
_Result = TypeVar("_Result")
_Before = TypeVar("_Before")

MAX_EVENTS = 2_000
"""Of one group in a time, the newest; the page says so where there are more."""
LISTED_EVENTS = 100
MAX_AGE = timedelta(minutes=1)
"""Of tables that count as up to date."""
_MAX_DETAILS = 256  # results of queries, most about single groups, that are kept with a snapshot

_COLUMNS = 'at, kind, member_id, old, new, cause, client_host, instance_id, "offset"'
_DRAWN = ", ".join(map(quote, DRAWN_KINDS))
_EVENTS = f"""
SELECT {_COLUMNS} FROM group_events
WHERE {{where}} AND void IS NOT TRUE AND {{within}} AND kind IN ({_DRAWN})
ORDER BY at DESC NULLS LAST, "offset" DESC LIMIT {MAX_EVENTS}
"""  # noqa: S608 - our own constants
_LISTED = f"""
SELECT {_COLUMNS}, count(*) OVER () AS found FROM group_events
WHERE {{where}} AND void IS NOT TRUE AND {{within}} ORDER BY at DESC NULLS LAST, "offset" DESC LIMIT {LISTED_EVENTS}
"""  # noqa: S608 - as above
_BEFORE = """
SELECT kind, new FROM (
  SELECT kind, new, row_number() OVER (PARTITION BY kind ORDER BY at DESC, "offset" DESC) AS number FROM group_events
  WHERE {where} AND void IS NOT TRUE AND at < {begin} AND kind IN ('state', 'description_status')) AS ranked
WHERE number = 1
"""
_AFTER = """
SELECT coalesce(sum(CASE kind WHEN 'member_joined' THEN 1 ELSE -1 END), 0) AS joined FROM group_events
WHERE {where} AND void IS NOT TRUE AND at > {end} AND kind IN ('member_joined', 'member_left')
"""
_HEALTH = f"""
SELECT at, verdict, severity, since, why FROM group_health_history
WHERE {{where}} AND {{within}} ORDER BY at DESC LIMIT {MAX_EVENTS}
"""  # noqa: S608 - our own constants
_HEALTH_BEFORE = """
SELECT at, verdict, severity, since, why FROM group_health_history
WHERE {where} AND at < {begin} ORDER BY at DESC LIMIT 1
"""
_LAG_ROWS = f"""
SELECT topic, partition, committed_offset, log_end_offset, lag, is_unknown, lag_seconds, status, subtopology_id,
       partition_time, task_id, leader, observed_at
FROM lag WHERE {{where}} ORDER BY lag DESC NULLS LAST, topic, partition LIMIT {MAX_PARTITIONS}
"""  # noqa: S608 - as above

_DESCRIPTION = "SELECT * FROM descriptions WHERE {where} AND is_newest LIMIT 1"


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
    alerts: tuple[Problem, ...] = ()
    """Those that are pending or firing, of groups, the cluster and the job."""
    mutes: tuple[Mute, ...] = ()
    """Those that have ended in the last 30 days or not yet."""
    has_lag: bool = False
    """The tables hold the lag of any group: the job may ask for the ends of the logs."""
    reader: WarehouseReader | None = None
    clusters: tuple[str, ...] = ()
    """All clusters of the warehouse."""
    _by_key: dict[str, str] = field(default_factory=dict)
    _details: dict[Hashable, Future[Any]] = field(default_factory=dict)
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
        rows = self._rows("SELECT * FROM groups WHERE {where}", group_id)
        return rows[0] if rows else None

    def summary(self, group_id: str) -> GroupSummary | None:
        """Return a group of any type as the overview has it; None if there is no such group."""
        return next((one for one in self.groups if one.group_id == group_id), None)

    def events(self, group_id: str, begin: datetime | None, end: datetime | None) -> Events:
        """Return the events from `begin` to `end` that are drawn; None stands for ever. Raises WarehouseError."""
        drawn = self._rows(_EVENTS, group_id, within=_within(begin, end))
        before = self._rows(_BEFORE, group_id, begin=time_literal(begin)) if begin else []
        after = self._rows(_AFTER, group_id, end=time_literal(end)) if end else []
        return Events(
            drawn=drawn[::-1],
            is_cut=len(drawn) == MAX_EVENTS,
            before={row["kind"]: row["new"] for row in before},
            joined_after=after[0]["joined"] if after else 0,
        )

    def listed_events(self, group_id: str, begin: datetime | None, end: datetime | None) -> tuple[Sequence[Row], int]:
        """Return the newest `LISTED_EVENTS` events of all kinds, the newest first, and how many there are.

        Raises WarehouseError.
        """
        listed = self._rows(_LISTED, group_id, within=_within(begin, end))
        return listed, listed[0]["found"] if listed else 0

    def health_history(self, group_id: str, begin: datetime | None, end: datetime | None) -> list[Row]:
        """Return the verdicts from `begin` to `end`, the oldest first, with the last one before; None stands for ever.

        Raises WarehouseError.
        """
        found = self._rows(_HEALTH, group_id, within=_within(begin, end))
        before = self._rows(_HEALTH_BEFORE, group_id, begin=time_literal(begin)) if begin else []
        return [*(before if len(found) < MAX_EVENTS else ()), *reversed(found)]

    def verdicts_since(self, group_ids: Sequence[str], begin: datetime) -> Mapping[str, list[tuple[datetime, str]]]:
        """Return verdicts by group, as `queries.health` does. Raises WarehouseError."""
        return self._ask(verdicts_since, self.cluster, tuple(group_ids), begin, before={})

    def last_deployments(self, group_ids: Sequence[str]) -> Mapping[str, datetime]:
        """Return the ends of last deployments, as `queries.health` does. Raises WarehouseError."""
        return self._ask(last_deployments, self.cluster, tuple(group_ids), before={})

    def quiet_since(self) -> datetime | None:
        """Return when the last problem ended; None if one is open, or there was none. Raises WarehouseError."""
        return self._ask(quiet_since, self.cluster, before=None)

    def group_at(self, group_id: str, at: datetime) -> GroupAt | None:
        """Return the group as it was at a time; None if no event is that old. Raises WarehouseError."""
        return self._ask(_group_at, self.cluster, group_id, at, before=None)

    def lag_rows(self, group_id: str) -> Sequence[Row]:
        """Return the rows of `lag` of a group; none without that table. Raises WarehouseError."""
        return self._rows(_LAG_ROWS, group_id)

    def description(self, group_id: str) -> Row | None:
        """Return the row of `descriptions` that the job fetched last of a group. Raises WarehouseError."""
        return next(iter(self._rows(_DESCRIPTION, group_id)), None)

    def copies(self, group_id: str) -> list[TaskCopy]:
        """Return what is known of copies of tasks that the records do not have. Raises WarehouseError."""
        return self._ask(read_copies, self._of(group_id), before=[])

    def other_members(self, group_id: str) -> Sequence[Row]:
        """Return the members of a classic or consumer group, as `describe --members` does. Raises WarehouseError."""
        return self._ask(other_members, self.cluster, (group_id,), before=None) or []

    def facts(self, group_id: str) -> GroupFacts:
        """Return what the brokers said of a group besides the log. Raises WarehouseError."""
        none = {group_id: GroupFacts()}
        return self._ask(read_group_facts, self.cluster, (group_id,), before=none)[group_id]

    def topics(self, row: Row) -> Sequence[Topic]:
        """Return the topics of a row of `groups` as they are. Raises WarehouseError."""
        reader, group_id = self.reader, row["group_id"]
        if reader is None:
            return []
        return self._kept((read_topics, group_id), lambda: read_topics(reader, self.cluster, [row])[group_id])

    def lag_chart(self, group_id: str, begin: datetime, end: datetime) -> LagChart | None:
        """Return the lag of a group in this time; None if it was not known. Raises WarehouseError."""
        return self._ask(_lag_chart, self.cluster, group_id, begin, end, before=None)

    def behind_series(
        self, group_id: str, begin: datetime, end: datetime, tasks: int, with_tasks: frozenset[str]
    ) -> BehindSeries | None:
        """Return how far behind a group and its tasks were, as `queries` does. Raises WarehouseError."""
        more: dict[str, Any] = {"tasks": tasks, "with_tasks": with_tasks}
        return self._ask(behind_series, self.cluster, group_id, begin, end, before=None, **more)

    def rate_series(self, group_id: str, begin: datetime, end: datetime) -> Mapping[int, Rate]:
        """Return what was produced and committed, as `queries` does. Raises WarehouseError."""
        return self._ask(rate_series, self.cluster, group_id, begin, end, before={})

    def owned_tasks(self, group_id: str, begin: datetime, end: datetime) -> Mapping[str, Owned] | None:
        """Return who had which task, as `queries` does; None if there are too many events. Raises WarehouseError."""
        return self._ask(_owned_tasks, self.cluster, group_id, begin, end, before={})

    def alerts_of(self, group_id: str, begin: datetime, end: datetime) -> list[Problem]:
        """Return the alerts of a group that were open in this time. Raises WarehouseError."""
        where = (
            f"{self._of(group_id)} AND since <= {time_literal(end)} "
            f"AND (ended_at IS NULL OR ended_at >= {time_literal(begin)})"
        )
        return self._ask(read_problems, where, before=[])

    def mutes_of(self, group_id: str) -> list[Mute]:
        """Return the mutes of alerts of a group."""
        return [one for one in self.mutes if one.pattern.matches(group_id)]

    def changes_before(self, group_id: str, time: datetime) -> Sequence[Row]:
        """Return what changed in a group before a time, as `queries` does. Raises WarehouseError."""
        return self._ask(changes_before, self.cluster, group_id, time, before=[])

    def lag_at(self, group_id: str, at: datetime) -> Sequence[Row]:
        """Return the lag of each partition at a time, as `queries.lag_series` does. Raises WarehouseError."""
        return self._ask(lag_at, self.cluster, group_id, at, before=[])

    def topology_at(self, group_id: str, at: datetime) -> KnownTopology | None:
        """Return the topology at a time, as `queries.topology_diff` does. Raises WarehouseError."""
        return self._ask(topology_at, self.cluster, group_id, at, before=None)

    def search(self, text: str) -> Mapping[str, str]:
        """Return the groups that `queries.groups` finds by this text, and by what. Raises WarehouseError."""
        return self._ask(search_groups, self.cluster, text, before={})

    def pipelines(self) -> Pipelines:
        """Return which groups read and write which topics. Raises WarehouseError."""
        return self._ask(read_pipelines, self.cluster, before=Pipelines())

    def topology_diff(self, group_id: str) -> TopologyDiff | None:
        """Return what changed from the topology before the newest to the newest; None if only one is known."""
        return self._ask(_topology_diff, self.cluster, group_id, before=None)

    def _of(self, group_id: str) -> str:
        return of_group(self.cluster, group_id)

    def _rows(self, sql: str, group_id: str, **literals: str) -> Sequence[Row]:
        return self._ask(WarehouseReader.rows, sql.format(where=self._of(group_id), **literals), before=[])

    def _ask(
        self, query: Callable[..., _Result], *arguments: Hashable, before: _Before, **more: Hashable
    ) -> _Result | _Before:
        """Return what `query` returns for the reader and these arguments; `before` as long as nothing was read."""
        reader = self.reader
        if reader is None:
            return before
        return self._kept((query, *arguments, *more.values()), lambda: query(reader, *arguments, **more))

    def _kept(self, key: Hashable, read: Callable[[], _Result]) -> _Result:
        """Return what was read before under this key, or read it; who asks for the same meanwhile waits for it."""
        with self._lock:
            is_ours = key not in self._details
            if is_ours:
                while len(self._details) >= _MAX_DETAILS:
                    del self._details[next(iter(self._details))]
                self._details[key] = Future()
            found: Future[_Result] = self._details[key]
        if is_ours:
            try:
                found.set_result(read())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it, too
                with self._lock:
                    if self._details.get(key) is found:
                        del self._details[key]
                found.set_exception(error)
        return found.result()


def _group_at(reader: WarehouseReader, cluster: str, group_id: str, at: datetime) -> GroupAt | None:
    events = read_events(reader, cluster, group_id, until=at)
    return group_at(events, at) if events else None


def _lag_chart(reader: WarehouseReader, cluster: str, group_id: str, begin: datetime, end: datetime) -> LagChart | None:
    return lag_chart(lag_series(reader, cluster, group_id, begin, end))


def _owned_tasks(
    reader: WarehouseReader, cluster: str, group_id: str, begin: datetime, end: datetime
) -> Mapping[str, Owned] | None:
    events = read_assignments(reader, cluster, group_id, begin, end)
    return None if events is None else owned_tasks(events)


def _topology_diff(reader: WarehouseReader, cluster: str, group_id: str) -> TopologyDiff | None:
    try:
        return diff_topologies(reader, cluster, group_id)
    except WarehouseError:  # the group has had one topology, or none
        return None


def _within(begin: datetime | None, end: datetime | None) -> str:
    limits = [f"at >= {time_literal(begin)}"] if begin else []
    limits += [f"at <= {time_literal(end)}"] if end else []
    return " AND ".join(limits) or "true"


# --- Reading the overview ---------------------------------------------------------------------------------------------

_GROUPS = """
SELECT g.group_id, g.group_type, g.state, g.not_ready_reason, g.group_epoch, g.topology_epoch,
       g.description_status, g.member_count, g.stale_member_count, g.updated_at,
       g.first_seen_at > now() - INTERVAL '1 day' AS is_new
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
       count(lag) AS known, sum(CASE WHEN is_unknown THEN 1 ELSE 0 END) AS unknown_partitions,
       bool_or(lag_seconds_is_lower_bound OR is_unknown) AS is_lower_bound,
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
    verdicts: dict[str, HealthRow]
    """Those on groups, of every type."""

    def groups(self, others: tuple[GroupSummary, ...]) -> tuple[GroupSummary, ...]:
        """Return all groups, the others with their lag and verdict."""
        with_lags = (with_lag(one, self.lag.get(one.group_id, {})) for one in others)
        with_both = (with_health(one, self.verdicts.get(one.group_id)) for one in with_lags)
        return all_summaries(self.snapshot.groups, with_both)


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
    alerts = read_problems(reader, f"cluster = {literal} AND ended_at IS NULL")
    if lag is None:
        lag = _by_group(reader.rows(_LAG.replace("{cluster}", literal)))
    verdicts = read_verdicts(reader, cluster)
    tasks = _by_group(reader.rows(_TASKS.replace("{cluster}", literal)))
    firing: dict[str, list[Problem]] = {}
    for alert in sorted(alerts, key=lambda one: severity_rank(one.severity)):
        if alert.state == FIRING and alert.group_id is not None:
            firing.setdefault(alert.group_id, []).append(alert)

    def summary(row: Row) -> GroupSummary:
        name = row["group_id"]
        group = streams_summary(row, tasks.get(name, {}), lag.get(name, {}), firing.get(name, ()), labels)
        return with_health(group, verdicts.get(name))

    groups = tuple(summary(row) for row in reader.query(_GROUPS.replace("{cluster}", literal)).to_pylist())
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
    return Reading(snapshot, lag, verdicts)


def read_other_groups(warehouse: Location, cluster: str, labels: Labels) -> tuple[GroupSummary, ...]:
    """Read the groups of other types, without their lag. Raises WarehouseError."""
    rows = WarehouseReader(warehouse).query(_OTHERS.replace("{cluster}", quote(cluster))).to_pylist()
    return tuple(other_summary(row, labels) for row in rows)


def _by_group(rows: list[dict[str, Any]]) -> dict[str, Row]:
    return {row["group_id"]: row for row in rows}
