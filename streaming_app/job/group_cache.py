"""The latest snapshot of every group in memory, for the rules and the metrics, so that they need no queries.

Theory of operation
-------------------
The stream calls the cache once a batch is in the tables. For a small batch it passes the rows, which are queued; for a
large one it only reports that there was one. The alert thread applies both before each evaluation. Rows that it reads
from the tables are at least as new as all rows that were queued before. So after such a read a queued row is used only
if its offset is higher.

A deleted group stays in the cache as Dead for one evaluation, so that its open alerts can be resolved. Then it is
removed. At a start, this holds for the deleted groups of which an earlier run stored a verdict.

A streams group whose id a classic group of other clients has taken over is Dead in the cache.

The cache keeps the events of about the last hour (see `health.group_history`); after a start it reads them from the
tables.
Rows that the stream passes were written after the job had last read everything. This corrects the times of brokers
whose clocks are wrong (see `groups.snapshot`).
"""

import operator
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.groups.group import CLASSIC
from streaming_app.groups.snapshot import (
    COLUMNS,
    MEMBER_FIELDS,
    REBALANCING,
    GroupSnapshot,
    Versions,
    WrittenBetween,
    changed,
    correct_snapshot,
    group_snapshot,
)
from streaming_app.groups.state_rules import DEAD
from streaming_app.health import group_history
from streaming_app.health.group_history import GroupHistories, GroupHistory
from streaming_app.job.service import Job
from streaming_app.stream.batch_rows import EVENTS, RETRACTED, BatchRows, schema_of
from streaming_app.tables.arrow import to_values, with_plain_types
from streaming_app.tables.reader import WarehouseReader, quote

_QUEUED_ROWS = 50_000  # for more, reading the table again is cheaper than keeping them
_SLICE = 10_000  # rows that are Python objects at a time
_READ = 200  # unsettled members of one group, the ones with the oldest records: there may be thousands
_TASK_FIELDS = ("member_id", "subtopology_id", "partition", "current", "target", "pending_revocation")
_SCHEMA = pa.schema([schema_of("groups").field(name) for name in (*COLUMNS, "members", "assignments")])
_EVENT_COLUMNS = ", ".join(f'"{name}"' for name in group_history.COLUMNS)

_Batch = tuple[Mapping[str, Any], WrittenBetween]
"""Rows that the stream passed, by table, and when their records were written."""


class GroupCache:
    """The groups of one cluster, as a `GroupListener` of the stream.

    The stream's thread calls `on_rows` and `on_bulk_change`, and one other thread calls `refresh`. All other methods
    are safe in any thread.
    """

    def __init__(self, job: Job) -> None:
        self._warehouse, self._cluster = job.config.warehouse, job.config.cluster
        self._health, self._now = job.health, job.now
        self._lock = threading.Lock()  # guards the two fields that the stream's thread writes
        self._queue: list[_Batch] = []
        self._reload = True
        self._groups = Versions[GroupSnapshot]()  # replaced, never modified
        self._dead = set[str]()
        self._histories = GroupHistories()
        self._rebalances: dict[str, int] = {}
        self._started_at = self._now()
        self._is_read = False
        self.is_complete = False
        """Whether a `refresh` is done that began after the job had read everything: then no group is missing."""

    def on_rows(self, rows: BatchRows) -> None:
        """Queue the rows of a small batch: those of groups, and their events."""
        bounds = WrittenBetween(self._read_all_at(), self._now())
        tables = {name: rows.tables[name] for name in (EVENTS, RETRACTED) if name in rows.tables}
        tables["groups"] = rows.read("groups", self._cluster, _SCHEMA)
        with self._lock:
            self._queue.append((tables, bounds))
            if sum(one["groups"].num_rows for one, _ in self._queue) > _QUEUED_ROWS:
                self._queue, self._reload = [], True

    def on_bulk_change(self) -> None:
        """Read the tables at the next `refresh`: more rows have changed than `on_rows` got."""
        with self._lock:
            self._reload = True

    def _read_all_at(self) -> datetime | None:
        """Return when this run had last read everything; None if it has not yet."""
        status = self._health.status
        return status.caught_up_at if status.caught_up else None

    def refresh(self) -> None:
        """Update the cache. Raises WarehouseError when tables cannot be read; the next call tries again."""
        with self._lock:
            queue, self._queue = self._queue, []
            reload, self._reload = self._reload, False
        now, had_read_all, before = self._now(), self._read_all_at() is not None, self._groups
        try:
            self._apply(queue, now, reload=reload)
        except BaseException:
            self.on_bulk_change()  # the queued rows are in the tables
            raise
        self.is_complete |= had_read_all
        self._histories.prune(self._groups, now)
        for group_id in changed(before, self._groups):
            if group_id not in self._groups:
                self._rebalances.pop(group_id, None)

    def _apply(self, queue: list[_Batch], now: datetime, *, reload: bool) -> None:
        if not (reload or queue or self._dead):
            return
        before, gone, unbounded = self._groups, self._dead, WrittenBetween(None, now)
        if reload:
            known, names = before, [name for name in before if name not in gone]
            if not self._is_read:  # what became of a group of which an earlier run stored a verdict
                names = list(self._stored())
            before, gone = (
                Versions(
                    (one.group_id, correct_snapshot(one, known.get(one.group_id), unbounded))
                    for one in self._read(names)
                ),
                set(),
            )
            self._is_read = True
        new = _replacing(queue, before, gone, operator.gt if reload else operator.ge)
        self._groups = before.after(new, gone - new.keys())
        self._dead = {name for name, group in (self._groups if reload else new).items() if group.state == DEAD}
        if reload:
            self._add_events(self._read_events(now), unbounded)
        for tables, bounds in queue:
            for group_id, event in _events(tables.get(RETRACTED)):
                self._histories.retract(group_id, event)
            self._add_events(_events(tables.get(EVENTS)), bounds)

    def _add_events(self, events: Iterable[tuple[str, dict[str, Any]]], bounds: WrittenBetween) -> None:
        for group_id, event in events:
            group = self._groups.get(group_id)
            if group is None or event["at"] is None:
                continue
            event["at"] = bounds.correct(event["at"])
            is_new = self._histories.add(group.group_id, event, bounds.latest) and event["at"] >= self._started_at
            if is_new and event["kind"] == group_history.ASSIGNED:
                self._rebalances[group_id] = self._rebalances.get(group_id, 0) + 1

    def groups(self) -> Mapping[str, GroupSnapshot]:
        """Return the groups by id, as of the last `refresh`; the same object until something changes."""
        return self._groups

    def histories(self) -> Mapping[str, GroupHistory]:
        """Return the recent events by group, until the next `refresh`, whose thread alone may call this."""
        return self._histories.groups()

    def rebalances_total(self, group_id: str) -> int:
        """Return how many new assignments the group got since this cache was created, by the broker's time."""
        return self._rebalances.get(group_id, 0)

    def _stored(self) -> Iterator[str]:
        mine = f"cluster = {quote(self._cluster)}"
        for rows in WarehouseReader(self._warehouse).slices(f"SELECT group_id FROM group_health WHERE {mine}"):  # noqa: S608 - our own names
            yield from to_values(rows["group_id"])

    def _read(self, known: Sequence[str]) -> Iterator[GroupSnapshot]:
        """Read from the tables the groups that are not Dead, or that are in `known`."""
        warehouse, mine = WarehouseReader(self._warehouse), f"cluster = {quote(self._cluster)}"
        states = ", ".join(map(quote, REBALANCING))
        members = dict[str, Mapping[str, Any]]()
        for rows in warehouse.slices(
            f"SELECT group_id, assignment_epoch, members, assignments FROM groups WHERE {mine} AND state IN ({states})"  # noqa: S608 - our own names
        ):
            members |= _rebalancing_members(rows)
        known_ids = pa.array(known, pa.string())
        for rows in map(with_plain_types, warehouse.slices(f"SELECT {', '.join(COLUMNS)} FROM groups WHERE {mine}")):  # noqa: S608 - the same
            wanted = pc.or_(pc.invert(_is_in(rows["state"], (DEAD,))), pc.is_in(rows["group_id"], known_ids))
            yield from _snapshots(rows.filter(wanted), members)

    def _read_events(self, now: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
        since, reasons_since = (
            quote((now - kept).isoformat()) for kept in (group_history.WINDOW, group_history.REASONS_KEPT_FOR)
        )
        kinds = ", ".join(map(quote, group_history.KINDS))
        slices = WarehouseReader(self._warehouse).slices(
            f"SELECT group_id, {_EVENT_COLUMNS} FROM group_events e WHERE cluster = {quote(self._cluster)} AND ("  # noqa: S608 - the same
            f"(at >= TIMESTAMP {since} AND kind IN ({kinds})) OR "
            f"(at >= TIMESTAMP {reasons_since} AND kind = {quote(group_history.REASON)})) AND void IS NOT TRUE "
            f"ORDER BY e.offset"
        )
        for rows in slices:
            yield from _with_group_ids(rows)


def _replacing(
    queue: Iterable[_Batch],
    before: Mapping[str, GroupSnapshot],
    gone: Collection[str],
    replaces: Callable[[int, int], bool],
) -> dict[str, GroupSnapshot]:
    """Return the groups of which a row of a batch has an offset that `replaces` the one before."""
    new = dict[str, GroupSnapshot]()
    for tables, bounds in queue:
        rows = tables["groups"]
        for group in _snapshots(rows, _rebalancing_members(rows.filter(_is_in(rows["state"], REBALANCING)))):
            group_id = group.group_id
            cached = new.get(group_id) or (None if group_id in gone else before.get(group_id))
            if cached is None or replaces(group.last_offset, cached.last_offset):
                new[group_id] = correct_snapshot(group, cached, bounds)
    return new


def _snapshots(rows: pa.Table, members: Mapping[str, Mapping[str, Any]]) -> Iterator[GroupSnapshot]:
    for row in _rows(rows, COLUMNS):
        group = group_snapshot({**row, **members.get(row["group_id"], {})})
        yield replace(group, state=DEAD) if group.group_type == CLASSIC and group.is_of_other_type else group


def _rows(rows: pa.Table, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield rows as dicts; within a slice, equal texts of a column are one object, and equal times, too."""
    for start in range(0, rows.num_rows, _SLICE):
        part, times = rows.slice(start, _SLICE), dict[int, datetime]()
        for row in zip(*(to_values(part[name], times) for name in names), strict=True):
            yield dict(zip(names, row, strict=True))


def _events(events: pa.Table | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if events is not None:
        yield from _with_group_ids(events.filter(_is_in(events["kind"], group_history.KINDS)))


def _with_group_ids(events: pa.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    for event in _rows(events, ("group_id", *group_history.COLUMNS)):
        yield event.pop("group_id"), event


def _is_in(column: pa.ChunkedArray, values: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(values, pa.string()))


def _rebalancing_members(rows: pa.Table) -> Mapping[str, Mapping[str, Any]]:
    """Return by group `members`, `assignments`, `unsettled_count` for `group_snapshot`, from rows of `groups`."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in range(rows.num_rows):
        members, assignments = rows["members"][row].values, rows["assignments"][row].values
        if members is None:
            continue
        unsettled = _unsettled(_table(members, MEMBER_FIELDS), rows["assignment_epoch"][row].as_py())
        count = unsettled.num_rows
        if count > _READ:
            unsettled = unsettled.sort_by("updated_at").slice(0, _READ)
        found[rows["group_id"][row].as_py()] = {
            "members": unsettled.to_pylist(),
            "assignments": [] if assignments is None else _tasks(_table(assignments, _TASK_FIELDS), unsettled),
            "unsettled_count": count,
        }
    return found


def _table(structs: pa.StructArray, names: Iterable[str]) -> pa.Table:
    return with_plain_types(pa.table({name: structs.field(name) for name in names}))


def _unsettled(members: pa.Table, assignment_epoch: int | None) -> pa.Table:
    """Return the members that are not STABLE at the assignment epoch, as `groups.snapshot` does."""
    if assignment_epoch is None:
        return members
    settled = (pc.field("member_state") == "STABLE") & (pc.field("member_epoch") == assignment_epoch)
    return members.filter(~pc.coalesce(settled, pc.scalar(False)))  # noqa: FBT003 - null counts as unsettled


def _tasks(assignments: pa.Table, members: pa.Table) -> list[dict[str, Any]]:
    wanted: list[dict[str, Any]] = assignments.filter(
        pc.is_in(assignments["member_id"], value_set=members["member_id"].combine_chunks())
    ).to_pylist()
    return wanted
