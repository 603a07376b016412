"""What the page shows of a cluster, for all viewers: the rows of every group, read when a table has changed.

Rows are those of the view `group_overview`; groups of other types have the same columns, as far as they are known of
them. What only one page shows is read when it is first asked for, and kept until a table changes.

Groups of other types are found in the newest records of every consumer, share and classic group and in the committed
offsets, of which a cluster may have millions. So they are read in the background, for a small part of the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

from streaming_app.alerts.problem import FIRING, HEALTH, Problem, severity_rank
from streaming_app.errors import WarehouseError
from streaming_app.groups.state_rules import DEAD
from streaming_app.notify.mutes import Mute, Mutes
from streaming_app.queries.warehouse import find_clusters, find_staleness
from streaming_app.tables.alerts_table import read_problems
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, open_table, quote
from streaming_app.text import digest
from streaming_app.web.words import group_key

Row = Mapping[str, Any]
_Result = TypeVar("_Result")

STREAMS = "streams"
MAX_AGE = timedelta(minutes=1)
"""Of tables that count as up to date."""
CHECK_SECONDS = 0.5
"""How long a snapshot is returned without asking whether the tables have changed."""
_MAX_KEPT = 256  # results of queries, most about single groups, that are kept with a snapshot
_FIRST_WAIT = 0.5  # seconds that the first page waits for the groups of other types
_REREAD_AFTER = 3.0  # times as long as a reading took: large tables that change all the time do not keep a core busy
_REREAD_OTHERS_AFTER = 10.0
_WATCHED = (
    "groups", "alerts", "group_health", "group_health_history", "group_events", "lag", "lag_history", "task_copies",
    "broker_facts", "topologies", "descriptions",
)  # fmt: skip
"""The tables whose versions are asked for: all that pages read but `inputs` and `log_ends`, which each pass changes."""
_WATCHED_OF_OTHERS = ("group_records", "offset_commits")
_Versions = tuple[tuple[str, str, int], ...]

_SHOWN = (
    "group_type", "state", "not_ready_reason", "member_count", "stale_member_count", "group_epoch", "topology_epoch",
    "description_status", "updated_at", "tasks", "moving", "deployed_at",
)  # fmt: skip
_OF_HEALTH = (
    "verdict", "severity", "since", "judged_at", "why", "evidence", "caught_up_at", "losing_at", "incident_id",
    "inputs_at", "labels",
)  # fmt: skip
_OF_LAG = ("lag", "lag_seconds", "is_lower_bound", "status", "partitions", "unknown_partitions")
_OF_OTHERS = ("protocol", "offset_count", "kafka_streams")
_GROUPS = f"""
SELECT group_id, {", ".join((*_SHOWN, *_OF_HEALTH, *_OF_LAG))},
       coalesce(first_seen_at > now() - INTERVAL '1 day', false) AS is_new
FROM group_overview WHERE cluster = {{cluster}}
"""  # noqa: S608 - our own names
_OTHERS = f"""
SELECT a.group_id, a.group_type, a.state, a.member_count, a.group_epoch, a.updated_at, a.offset_count, a.kafka_streams,
       concat(a.protocol_type, CASE WHEN a.protocol IS NULL THEN '' ELSE ' ' END, coalesce(a.protocol, '')) AS protocol,
       {", ".join(f"h.{one}" for one in _OF_HEALTH)}, {", ".join(f"l.{one}" for one in _OF_LAG)}
FROM all_groups a
LEFT JOIN group_health h ON h.cluster = a.cluster AND h.group_id = a.group_id
LEFT JOIN group_lag l ON l.cluster = a.cluster AND l.group_id = a.group_id
WHERE a.cluster = {{cluster}} AND a.group_type <> '{STREAMS}'
"""  # noqa: S608 - our own names
NOTHING_KNOWN: Row = {
    **dict.fromkeys(("group_id", "cause", *_SHOWN, *_OF_HEALTH, *_OF_LAG, *_OF_OTHERS)),
    "is_new": False,
    "labels": (),
    "alerts": (),
}
"""The columns of a group."""


@dataclass
class Snapshot:
    """The tables of one cluster, as they were at one moment. Safe to use from several threads."""

    cluster: str
    tag: str
    """Changes whenever anything that the page shows may have changed, other than with time."""
    read_at: datetime
    reader: WarehouseReader
    heartbeat: HeartbeatRecord | None = None
    problem: str | None = None
    """Why the tables could not be read, in one line; the rest is then what was read before, if anything."""
    groups: Mapping[str, Row] = field(default_factory=dict)
    """By id, those of every type. `NOTHING_KNOWN` has the columns: besides those of `group_overview` the `alerts` that
    fire, the most severe first, the `cause` that is proven of the problem with its health, and `is_new`
    if it was created in the last 24 hours."""
    alerts: tuple[Problem, ...] = ()
    """Those that are pending or firing, of groups, the cluster and the job."""
    mutes: tuple[Mute, ...] = ()
    """Those that have ended in the last 30 days or not yet."""
    clusters: tuple[str, ...] = ()
    """All clusters of the warehouse."""
    _kept: dict[Hashable, Future[Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def job_problem(self, now: datetime) -> str | None:
        """Return why the tables are not up to date; None if they are."""
        return find_staleness(self.heartbeat, self.cluster, now, MAX_AGE)

    def id_of(self, key: str) -> str | None:
        """Return the id of the group that `group_key` gives this key; None if there is none."""
        return next((one for one in self.groups if group_key(one) == key), None)

    def ask(self, query: Callable[..., _Result], *arguments: Hashable) -> _Result:
        """Return what a query returns for the reader, the cluster and these arguments. Raises WarehouseError.

        It is kept; who asks for the same meanwhile waits for it.
        """
        key = (query, arguments)
        with self._lock:
            is_ours = key not in self._kept
            if is_ours:
                while len(self._kept) >= _MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = Future()
            found: Future[_Result] = self._kept[key]
        if is_ours:
            try:
                found.set_result(query(self.reader, self.cluster, *arguments))
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it, too
                with self._lock:
                    if self._kept.get(key) is found:
                        del self._kept[key]
                found.set_exception(error)
        return found.result()


def read_snapshot(warehouse: Location, cluster: str, now: datetime) -> Snapshot:
    """Read all but the groups of other types, without heartbeat and tag. Raises WarehouseError."""
    reader = WarehouseReader(warehouse)
    alerts = tuple(read_problems(reader, f"cluster = {quote(cluster)} AND ended_at IS NULL"))
    groups = _read(reader, _GROUPS, cluster)
    return Snapshot(
        cluster,
        "",
        now,
        reader,
        groups={row["group_id"]: row for row in with_alerts(groups, alerts)},
        alerts=alerts,
        clusters=tuple(find_clusters(reader, warehouse)),
    )


def read_other_groups(warehouse: Location, cluster: str) -> list[Row]:
    """Read the groups of other types. Raises WarehouseError."""
    return list(_read(WarehouseReader(warehouse), _OTHERS, cluster))


def _read(reader: WarehouseReader, sql: str, cluster: str) -> Iterator[Row]:
    for row in reader.rows(sql.replace("{cluster}", quote(cluster))):
        yield {**NOTHING_KNOWN, **row, "labels": tuple((row["labels"] or {}).items())}


def with_alerts(groups: Iterable[Row], alerts: Iterable[Problem]) -> Iterator[Row]:
    """Yield rows of groups with those of these alerts that fire, and the cause that is proven."""
    firing: dict[str | None, list[Problem]] = {}
    for alert in sorted(alerts, key=lambda one: severity_rank(one.severity)):
        if alert.state == FIRING:
            firing.setdefault(alert.group_id, []).append(alert)
    for row in groups:
        own = firing.get(row["group_id"], ())
        cause = next((one.cause for one in own if one.subject == HEALTH), None)
        yield {**row, "alerts": own, "cause": cause}


def all_groups(streams: Mapping[str, Row], others: Iterable[Row]) -> dict[str, Row]:
    """Return one row for each group id: a group that is not a streams group any more has its new type."""
    found = dict(streams)
    for row in others:
        known = found.get(row["group_id"])
        if known is None or known["state"] == DEAD or known["group_type"] != STREAMS:
            found[row["group_id"]] = row
    return found


class OtherGroups:
    """The newest groups of other types that were read. Safe to use from several threads."""

    def __init__(self, read: Callable[[], list[Row]]) -> None:
        """`read` is called in a thread of its own, one call at a time."""
        self._read = read
        self._lock = threading.Lock()
        self._read_for: object = None
        self._groups: list[Row] = []
        self._thread: threading.Thread | None = None
        self._rest_until = 0.0

    def newest(self, versions: object, wait: float = 0.0) -> list[Row]:
        """Return the groups, another list whenever they have changed; they are read again for other versions.

        Waits for a reading that is under way, but not longer than so many seconds.
        """
        with self._lock:
            is_due = versions != self._read_for and time.monotonic() >= self._rest_until
            if is_due and self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(versions,), name="other groups", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None and wait:
            thread.join(wait)
        return self._groups

    def _run(self, versions: object) -> None:
        begin = time.monotonic()
        try:
            groups = self._read()
            if groups != self._groups:
                self._groups = groups
            self._read_for = versions
        except WarehouseError:  # what the page shows of streams groups says the same, or these are read again soon
            pass
        finally:
            with self._lock:
                self._rest_until = time.monotonic() + _REREAD_OTHERS_AFTER * (time.monotonic() - begin)
                self._thread = None


class SnapshotSource:
    """The newest snapshot of one cluster. Safe to use from several threads."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._location, self.cluster, self._clock = Location.of(warehouse), cluster, clock
        self._lock = threading.Lock()
        self._snapshot = Snapshot(cluster, "", clock(), WarehouseReader(self._location))
        self._streams: Snapshot | None = None  # as it was read
        self._others = OtherGroups(lambda: read_other_groups(self._location, cluster))
        self._shown_others: list[Row] | None = None
        self._compositions = 0
        self._mutes = Mutes(self._location, cluster)
        self._checked_at = -CHECK_SECONDS
        self._busy_until = 0.0
        self._versions: _Versions = ()
        self.readings = 0
        """How often the tables were read."""

    def of_cluster(self, cluster: str) -> SnapshotSource:
        """Return a source of another cluster of the same warehouse."""
        return SnapshotSource(self._location, cluster, self._clock)

    def current(self) -> Snapshot:
        """Return the newest snapshot. What prevents reading the tables is its `problem`; nothing is raised.

        While a thread reads, the others get the snapshot before.
        """
        if self._lock.acquire(blocking=self._streams is None):
            try:
                if time.monotonic() >= self._checked_at + CHECK_SECONDS:
                    self._snapshot = self._check()
                    self._checked_at = time.monotonic()
            finally:
                self._lock.release()
        return self._snapshot

    def _check(self) -> Snapshot:
        now = self._clock()
        try:
            heartbeat = read_heartbeat(self._location, self.cluster)
            versions = self._table_versions(_WATCHED)
            wait = _FIRST_WAIT if self._streams is None else 0.0
            others = self._others.newest(self._table_versions(_WATCHED_OF_OTHERS), wait)
            self._mutes.refresh()
            streams = self._read(versions, now)
        except WarehouseError as error:
            if (problem := str(error)) == self._snapshot.problem:
                return self._snapshot
            return replace(self._snapshot, problem=problem, tag=digest(self._snapshot.tag + problem, 16))
        groups = self._snapshot.groups
        if streams is not self._streams or others is not self._shown_others:
            groups = all_groups(streams.groups, with_alerts(others, streams.alerts))
            self._streams, self._shown_others = streams, others
            self._compositions += 1
        behind = heartbeat.facts.behind if heartbeat else None  # times that every heartbeat changes do not count
        stale = find_staleness(heartbeat, self.cluster, now, MAX_AGE)
        tag = digest(repr((self._versions, self._compositions, behind, stale, self._mutes.all)), 16)
        if tag == self._snapshot.tag and heartbeat == self._snapshot.heartbeat:
            return self._snapshot
        return replace(streams, tag=tag, heartbeat=heartbeat, mutes=self._mutes.all, groups=groups)

    def _read(self, versions: _Versions, now: datetime) -> Snapshot:
        started = time.monotonic()
        if self._streams and not self._snapshot.problem and (versions == self._versions or started < self._busy_until):
            return self._streams
        streams = read_snapshot(self._location, self.cluster, now)
        self.readings += 1
        self._versions = versions
        ended = time.monotonic()
        self._busy_until = ended + _REREAD_AFTER * (ended - started)
        return streams

    def _table_versions(self, names: tuple[str, ...]) -> _Versions:
        """Return the id and the version of each of these tables. Raises WarehouseError."""
        opened = [(name, open_table(self._location / name)) for name in names]
        return tuple((name, str(one.metadata().id), one.version()) for name, one in opened)
