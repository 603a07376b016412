"""Keeps the newest snapshot of the tables: one reading for all viewers, and only when something has changed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from streaming_app.errors import WarehouseError
from streaming_app.page.snapshot import MAX_AGE, Snapshot, read_snapshot
from streaming_app.queries.freshness import find_staleness
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, open_table

CHECK_SECONDS = 0.5
"""How long a snapshot is returned without asking whether the tables have changed."""
_WATCHED = ("groups", "alerts", "group_events", "lag")
"""The tables whose versions are asked for: whatever the page shows changes with one of them."""
_REREAD_AFTER = 3.0  # times as long as a reading took: large tables that change all the time do not keep a core busy


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(timezone.utc)


class SnapshotSource:
    """The newest snapshot of one cluster. Safe to use from several threads; one of them reads at a time."""

    def __init__(self, warehouse: Location | Path, cluster: str, clock: Callable[[], datetime] = utc_now) -> None:
        self._location, self._cluster, self._clock = Location.of(warehouse), cluster, clock
        self._lock = threading.Lock()
        self._snapshot = Snapshot(cluster, "", clock())
        self._checked_at = -CHECK_SECONDS
        self._busy_until = 0.0
        self._versions: tuple[tuple[str, str, int], ...] = ()
        self.readings = 0
        """How often the tables were read."""

    def current(self) -> Snapshot:
        """Return the newest snapshot. What prevents reading the tables is its `problem`; nothing is raised."""
        with self._lock:
            started = time.monotonic()
            if started >= self._checked_at + CHECK_SECONDS:
                self._snapshot = self._check()
                self._checked_at = time.monotonic()
            return self._snapshot

    def _check(self) -> Snapshot:
        now = self._clock()
        try:
            heartbeat = read_heartbeat(self._location, self._cluster)
            versions = self._table_versions()
        except WarehouseError as error:
            return self._failed(str(error))
        tag = _tag(versions, heartbeat, self._cluster, now)
        previous = self._snapshot
        if previous.problem is None and versions == self._versions:
            return self._with_heartbeat(tag, heartbeat)
        if time.monotonic() < self._busy_until and previous.problem is None:
            return self._with_heartbeat(previous.tag, heartbeat)
        return self._read(tag, versions, heartbeat, now)

    def _read(
        self, tag: str, versions: tuple[tuple[str, str, int], ...], heartbeat: HeartbeatRecord | None, now: datetime
    ) -> Snapshot:
        started = time.monotonic()
        try:
            snapshot = read_snapshot(WarehouseReader(self._location), self._cluster, tag, now, heartbeat)
        except WarehouseError as error:
            return self._failed(str(error))
        self.readings += 1
        self._versions = versions
        taken = time.monotonic() - started
        self._busy_until = time.monotonic() + _REREAD_AFTER * taken
        return snapshot

    def _with_heartbeat(self, tag: str, heartbeat: HeartbeatRecord | None) -> Snapshot:
        """Return the snapshot as it is, but for the job."""
        if (tag, heartbeat) != (self._snapshot.tag, self._snapshot.heartbeat):
            return replace(self._snapshot, tag=tag, heartbeat=heartbeat)
        return self._snapshot

    def _failed(self, problem: str) -> Snapshot:
        if problem == self._snapshot.problem:
            return self._snapshot
        return replace(self._snapshot, problem=problem, tag=_digest(self._snapshot.tag, problem))

    def _table_versions(self) -> tuple[tuple[str, str, int], ...]:
        """Return the id and the version of each table that is watched. Raises WarehouseError."""
        opened = [(name, open_table(self._location / name)) for name in _WATCHED]
        return tuple((name, str(table.metadata().id), table.version()) for name, table in opened)


def _tag(versions: object, heartbeat: HeartbeatRecord | None, cluster: str, now: datetime) -> str:
    """Return the tag of a snapshot. Times that every heartbeat changes do not count: the page updates them itself."""
    behind = heartbeat.facts.behind if heartbeat else None
    return _digest(versions, behind, find_staleness(heartbeat, cluster, now, MAX_AGE))


def _digest(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]
