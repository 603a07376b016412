"""The snapshot: rows of every group of a cluster, read for all viewers when a table has changed.

Rows come from the view `group_overview`. Groups of other types have the same columns; unknown values are null. What
only one page shows is read when a reader first asks for it, and kept until a table changes.

Groups of other types come from group records and committed offsets, of which a cluster may have millions. So a thread
reads them in the background, for a small part of the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Generic, TypeVar

from streaming_app.alerts.alert import Alert
from streaming_app.errors import WarehouseError
from streaming_app.groups.state_rules import DEAD
from streaming_app.notify.mutes import Mute, Mutes
from streaming_app.queries.clusters import find_clusters, find_staleness
from streaming_app.queries.group_list import DELETED, LIVING, OTHERS, overview_sql
from streaming_app.tables.alerts_table import read_alerts
from streaming_app.tables.definitions import table
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, open_table, quote
from streaming_app.text import digest

Row = Mapping[str, Any]
_Result = TypeVar("_Result")

MAX_AGE = timedelta(minutes=1)
"""Of tables that count as up to date."""
CHECK_SECONDS = 0.5
"""How long a snapshot is returned without asking whether the tables have changed."""
_MAX_KEPT = 320  # pages, and results of queries, most about single groups
_FIRST_WAIT = 0.5  # seconds that the first page waits for the groups of other types
_REREAD_AFTER = 3.0  # times the duration of a reading, so that large tables that change often keep no core busy
_REREAD_OTHERS_AFTER = 10.0
_WATCHED = (
    "groups", "alerts", "group_health_history", "group_events", "lag", "lag_history", "task_copies",
    "broker_facts", "topologies", "descriptions",
)  # fmt: skip
"""The tables whose versions are asked for: all that pages read but `inputs` and `log_ends`, which each pass changes."""
_WATCHED_OF_OTHERS = ("group_records", "offset_commits")

NOTHING_KNOWN: Row = {**dict.fromkeys(table("group_overview").names), "is_new": False, "labels": (), "alerts": 0}
"""The columns of a group: those of `group_overview`, and `is_new` if it was created in the last 24 hours."""


@dataclass
class Snapshot:
    """The tables of one cluster, as they were at one moment. Safe to use from several threads."""

    cluster: str
    tag: str
    """Changes when anything on the page may have changed, except ages."""
    read_at: datetime
    reader: WarehouseReader
    heartbeat: HeartbeatRecord | None = None
    problem: str | None = None
    """Why the tables could not be read, in one line. The other fields are then from the last successful reading."""
    groups: Mapping[str, Row] = field(default_factory=dict)
    """Groups of every type, by id, with the columns of `NOTHING_KNOWN`."""
    alerts: tuple[Alert, ...] = ()
    """Pending and open alerts of groups, the cluster and the job."""
    mutes: tuple[Mute, ...] = ()
    """Mutes that have not ended, or ended in the last 30 days."""
    clusters: tuple[str, ...] = ()
    _kept: dict[Hashable, Future[Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, query: Callable[..., _Result], *arguments: Hashable) -> _Result:
        """Return the result of a query for the reader, the cluster and these arguments. Raises WarehouseError."""
        return self.keep((query, arguments), lambda: query(self.reader, self.cluster, *arguments))

    def keep(self, key: Hashable, compute: Callable[[], _Result]) -> _Result:
        """Return what is kept with this key until a table changes; else compute it, and keep it unless that fails.

        A thread that asks for the same meanwhile waits for it.
        """
        with self._lock:
            is_ours = key not in self._kept
            if is_ours:
                while len(self._kept) >= _MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = Future()
            found: Future[_Result] = self._kept[key]
        if is_ours:
            try:
                found.set_result(compute())
            except BaseException as error:  # noqa: BLE001 - threads that wait for it raise it, too
                with self._lock:
                    if self._kept.get(key) is found:
                        del self._kept[key]
                found.set_exception(error)
        return found.result()


def read_snapshot(warehouse: Location, cluster: str, now: datetime) -> Snapshot:
    """Read all but the groups of other types, without heartbeat and tag. Raises WarehouseError."""
    reader = WarehouseReader(warehouse)
    alerts = tuple(read_alerts(reader, f"cluster = {quote(cluster)} AND ended_at IS NULL"))
    return Snapshot(
        cluster,
        "",
        now,
        reader,
        groups={row["group_id"]: row for row in _read(reader, cluster, LIVING, DELETED)},
        alerts=alerts,
        clusters=tuple(find_clusters(reader, warehouse)),
    )


def read_other_groups(warehouse: Location, cluster: str) -> list[Row]:
    """Read the groups of other types. Raises WarehouseError."""
    return list(_read(WarehouseReader(warehouse), cluster, OTHERS))


def _read(reader: WarehouseReader, cluster: str, *kinds: str) -> Iterator[Row]:
    names = table("group_overview").names
    is_new = "coalesce(first_seen_at > now() - INTERVAL '1 day', false) AS is_new"
    for row in reader.rows(overview_sql(cluster, [*names, is_new], kinds)):
        row["labels"] = tuple((row["labels"] or {}).items())
        yield row


def all_groups(streams: Mapping[str, Row], others: Iterable[Row]) -> dict[str, Row]:
    """Return one row for each group id. A group that is no streams group any more has its new type."""
    found = dict(streams)
    for row in others:
        known = found.get(row["group_id"])
        if known is None or known["state"] == DEAD:
            found[row["group_id"]] = row
    return found


class Reading(Generic[_Result]):
    """What a thread reads again when tables have changed, but only for a part of the time. Safe to use from several."""

    def __init__(self, read: Callable[[], _Result], known: _Result, rest: float) -> None:
        """`read` returns what is new, `known` is returned before that. It rests `rest` times as long as it has read."""
        self._read, self._known, self._rest = read, known, rest
        self._lock = threading.Lock()
        self.versions: object = None
        """Of the tables as they were read."""
        self._thread: threading.Thread | None = None
        self._rest_until = 0.0
        self.error: Exception | None = None
        self.count = 0  # of readings that found something else

    def newest(self, versions: object, wait: float | None = None) -> tuple[_Result, int]:
        """Return what was read last, and how often it has changed until then. Other versions start a new reading.

        Waits at most `wait` seconds for a reading that is under way; None: until its end.
        """
        with self._lock:
            is_new = versions != self.versions or self.error is not None
            is_due = is_new and time.monotonic() >= self._rest_until
            if is_due and self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(versions,), name="reading", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(wait)
        with self._lock:
            return self._known, self.count

    def _run(self, versions: object) -> None:
        begin = time.monotonic()
        try:
            found, self.error = self._read(), None
            if found != self._known:
                with self._lock:
                    self._known, self.count = found, self.count + 1
            self.versions = versions
        except Exception as error:  # noqa: BLE001 - for whoever asks
            self.error = error
        finally:
            with self._lock:
                self._rest_until = time.monotonic() + self._rest * (time.monotonic() - begin)
                self._thread = None


class SnapshotSource:
    """The newest snapshot of one cluster. Safe to use from several threads."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self.location, self.cluster, self._clock = Location.of(warehouse), cluster, clock
        self._lock = threading.Lock()
        self._snapshot = Snapshot(cluster, "", clock(), WarehouseReader(self.location))
        self._streams = Reading(lambda: read_snapshot(self.location, cluster, clock()), self._snapshot, _REREAD_AFTER)
        self._others = Reading(lambda: read_other_groups(self.location, cluster), list[Row](), _REREAD_OTHERS_AFTER)
        self._mutes = Mutes(self.location, cluster)
        self._checked_at = -CHECK_SECONDS

    def current(self) -> Snapshot:
        """Return the newest snapshot. It never raises: `problem` says why the tables could not be read.

        While a thread reads, other threads get the previous snapshot.
        """
        if self._lock.acquire(blocking=not self._streams.count):
            try:
                if time.monotonic() >= self._checked_at + CHECK_SECONDS:
                    self._snapshot = self._check()
                    self._checked_at = time.monotonic()
            finally:
                self._lock.release()
        return self._snapshot

    def _check(self) -> Snapshot:
        try:
            heartbeat = read_heartbeat(self.location, self.cluster)
            others, changes = self._others.newest(
                self._table_versions(_WATCHED_OF_OTHERS), 0.0 if self._streams.count else _FIRST_WAIT
            )
            self._mutes.refresh()
            streams, _ = self._streams.newest(self._table_versions(_WATCHED))
            if self._streams.error:
                raise self._streams.error
        except WarehouseError as error:
            if (problem := str(error)) == self._snapshot.problem:
                return self._snapshot
            return replace(self._snapshot, problem=problem, tag=digest(self._snapshot.tag + problem, 16))
        behind = heartbeat.facts.behind if heartbeat else None  # ignores the times, which each heartbeat changes
        stale = find_staleness(heartbeat, self.cluster, self._clock(), MAX_AGE)
        tag = digest(repr((self._streams.versions, changes, behind, stale, self._mutes.all)), 16)
        if tag != self._snapshot.tag:
            groups = all_groups(streams.groups, others)
            return replace(streams, tag=tag, heartbeat=heartbeat, mutes=self._mutes.all, groups=groups)
        return self._snapshot if heartbeat == self._snapshot.heartbeat else replace(self._snapshot, heartbeat=heartbeat)

    def _table_versions(self, names: tuple[str, ...]) -> tuple[tuple[str, str, int], ...]:
        opened = [(name, open_table(self.location / name)) for name in names]
        return tuple((name, str(one.metadata().id), one.version()) for name, one in opened)
