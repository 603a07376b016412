"""Keeps the newest snapshot of the tables: one reading for all viewers, and only when something has changed.

Groups of other types than streams groups are read in the background. They are found in the newest records of every
consumer, share and classic group and in the committed offsets, of which a cluster may have millions. So a page does not
wait for them, and they are read for a small part of the time only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from streaming_app.errors import WarehouseError
from streaming_app.notify.mutes import Mutes
from streaming_app.queries.warehouse import find_staleness
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import open_table
from streaming_app.text import digest
from streaming_app.web.group_summary import GroupSummary
from streaming_app.web.snapshot import MAX_AGE, Reading, Snapshot, read_other_groups, read_streams_groups
from streaming_app.web.words import NO_LABELS, Labels

_REREAD_OTHERS_AFTER = 10.0  # times as long as a reading took


class OtherGroups:
    """The newest of them that were read. Safe to use from several threads."""

    def __init__(self, read: Callable[[], tuple[GroupSummary, ...]]) -> None:
        """`read` is called in a thread of its own, one call at a time."""
        self._read = read
        self._lock = threading.Lock()
        self._wanted: object = None
        self._read_for: object = None
        self._groups: tuple[GroupSummary, ...] = ()
        self._number = 0
        self._thread: threading.Thread | None = None
        self._rest_until = 0.0

    def newest(self, versions: object, wait: float = 0.0) -> tuple[tuple[GroupSummary, ...], int]:
        """Return the groups, and a number that changes with them; they are read again if the versions have changed.

        Waits for a reading that is under way, but not longer than so many seconds.
        """
        with self._lock:
            self._wanted = versions
            is_due = versions != self._read_for and time.monotonic() >= self._rest_until
            if is_due and self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(versions,), name="other groups", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None and wait:
            thread.join(wait)
        with self._lock:
            return self._groups, self._number

    def _run(self, versions: object) -> None:
        begin = time.monotonic()
        groups: tuple[GroupSummary, ...] | None = None
        try:
            groups = self._read()
        except WarehouseError:  # what the page shows of streams groups says the same, or these are read again soon
            pass
        finally:
            with self._lock:
                if groups is not None:
                    self._number += groups != self._groups
                    self._groups, self._read_for = groups, versions
                self._rest_until = time.monotonic() + _REREAD_OTHERS_AFTER * (time.monotonic() - begin)
                self._thread = None


CHECK_SECONDS = 0.5
"""How long a snapshot is returned without asking whether the tables have changed."""
_WATCHED = (
    "groups", "alerts", "group_health", "group_events", "lag", "task_copies", "broker_facts", "topologies",
    "descriptions",
)  # fmt: skip
"""The tables whose versions are asked for: whatever the page shows of streams groups changes with one of them."""
_WATCHED_OF_OTHERS = ("group_records", "offset_commits")
_FIRST_WAIT = 0.5  # seconds that the first page waits for the groups of other types
_Versions = tuple[tuple[str, str, int], ...]
_REREAD_AFTER = 3.0  # times as long as a reading took: large tables that change all the time do not keep a core busy


class SnapshotSource:
    """The newest snapshot of one cluster. Safe to use from several threads; one of them reads at a time."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        labels: Labels = NO_LABELS,
    ) -> None:
        self._location, self.cluster, self._clock, self._labels = Location.of(warehouse), cluster, clock, labels
        self._lock = threading.Lock()
        self._snapshot = Snapshot(cluster, "", clock())
        self._reading: Reading | None = None
        self._others = OtherGroups(lambda: read_other_groups(self._location, cluster, labels))
        self._number_of_others = 0
        self._mutes = Mutes(self._location, cluster)
        self._checked_at = -CHECK_SECONDS
        self._busy_until = 0.0
        self._versions: _Versions = ()
        self.readings = 0
        """How often the tables were read."""

    def of_cluster(self, cluster: str) -> SnapshotSource:
        """Return a source of another cluster of the same warehouse."""
        return SnapshotSource(self._location, cluster, self._clock, self._labels)

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
            heartbeat = read_heartbeat(self._location, self.cluster)
            versions = self._table_versions(_WATCHED)
            others, number = self._newest_others()
            self._mutes.refresh()
            if self._must_read(versions):
                self._read(versions, heartbeat, now)
        except WarehouseError as error:
            return self._failed(str(error))
        mutes = self._mutes.all
        tag = _digest(_tag(self._versions, heartbeat, self.cluster, now), number, mutes)
        return self._composed({"tag": tag, "heartbeat": heartbeat, "mutes": mutes}, others, number)

    def _must_read(self, versions: _Versions) -> bool:
        if self._reading is None or self._snapshot.problem is not None:
            return True
        return versions != self._versions and time.monotonic() >= self._busy_until

    def _newest_others(self) -> tuple[tuple[GroupSummary, ...], int]:
        is_first = self._reading is None
        return self._others.newest(self._table_versions(_WATCHED_OF_OTHERS), _FIRST_WAIT if is_first else 0.0)

    def _read(self, versions: _Versions, heartbeat: HeartbeatRecord | None, now: datetime) -> None:
        started = time.monotonic()
        known = self._reading
        has_lag = known is not None and _of_table("lag", versions) == _of_table("lag", self._versions)
        self._reading = read_streams_groups(
            self._location,
            self.cluster,
            read_at=now,
            heartbeat=heartbeat,
            labels=self._labels,
            lag=known.lag if known and has_lag else None,
        )
        self._snapshot = self._reading.snapshot
        self.readings += 1
        self._versions, self._number_of_others = versions, -1
        taken = time.monotonic() - started
        self._busy_until = time.monotonic() + _REREAD_AFTER * taken

    def _composed(self, newest: Mapping[str, Any], others: tuple[GroupSummary, ...], number: int) -> Snapshot:
        """Return the snapshot with these `newest` fields, and the newest groups of other types."""
        if self._reading and number != self._number_of_others:
            self._number_of_others = number
            return replace(self._snapshot, **newest, groups=self._reading.groups(others), _by_key={})
        if any(getattr(self._snapshot, name) != value for name, value in newest.items()):
            return replace(self._snapshot, **newest)
        return self._snapshot

    def _failed(self, problem: str) -> Snapshot:
        if problem == self._snapshot.problem:
            return self._snapshot
        return replace(self._snapshot, problem=problem, tag=_digest(self._snapshot.tag, problem))

    def _table_versions(self, names: tuple[str, ...]) -> _Versions:
        """Return the id and the version of each of these tables. Raises WarehouseError."""
        opened = [(name, open_table(self._location / name)) for name in names]
        return tuple((name, str(table.metadata().id), table.version()) for name, table in opened)


def _of_table(name: str, versions: _Versions) -> _Versions:
    return tuple(one for one in versions if one[0] == name)


def _tag(versions: object, heartbeat: HeartbeatRecord | None, cluster: str, now: datetime) -> str:
    """Return the tag of a snapshot. Times that every heartbeat changes do not count: the page updates them itself."""
    behind = heartbeat.facts.behind if heartbeat else None
    return _digest(versions, behind, find_staleness(heartbeat, cluster, now, MAX_AGE))


def _digest(*values: object) -> str:
    return digest(repr(values), 16)
