"""The newest facts of every group in memory, for the rules and the metrics, so that a look does not ask the tables.

Theory of operation
-------------------
The stream tells of a batch after it is in the tables: a small one is handed over and queued, of a large one it says
only that there was one. The watching thread applies that before each look. What is read from the tables anew is at
least as new as what was queued before, so a queued row then counts only if its offset is higher.

A deleted group is shown as Dead for one look, so that what is open about it can be closed, and then forgotten.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.core.facts import COLUMNS, REBALANCING, GroupFacts, group_facts
from streaming_app.serve.place import Place
from streaming_app.serve.warehouse import Warehouse, quoted

DEAD = "Dead"
_QUEUED_ROWS = 50_000  # beyond that, reading the table anew is cheaper than keeping them
_REBALANCES_KEPT = 1_000  # of a group: enough to call anything a storm
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_Rebalance = tuple[str, datetime]
"""A group and when it was assigned anew."""


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Mirror:
    """The groups of one cluster. `batch` and `changed` are for the stream's thread, `refresh` for one other.

    All else may be asked from anywhere. `window` is how long rebalances are remembered one by one.
    """

    def __init__(
        self, warehouse: Place | Path, cluster: str, window: timedelta, now: Callable[[], datetime] = _utc_now
    ) -> None:
        self._warehouse = warehouse
        self._cluster = cluster
        self._now = now
        self._lock = threading.Lock()  # for the two that the stream's thread writes
        self._queue: list[pa.Table] = []
        self._reload = True
        self._groups: dict[str, GroupFacts] = {}  # replaced, never changed: who has it may go on reading
        self._some_dead = False
        self._rebalances = _Rebalances(window, now())

    def batch(self, folded: pa.Table) -> None:
        """Take the folded rows of a small batch: the columns of `groups`, and `events`, see `job.folding`."""
        with self._lock:
            self._queue.append(folded.select([*COLUMNS, "members", "events"]))
            if sum(table.num_rows for table in self._queue) > _QUEUED_ROWS:
                self._queue, self._reload = [], True

    def changed(self) -> None:
        """Take it that the tables changed by more than was handed over: they will be read anew."""
        with self._lock:
            self._reload = True

    def refresh(self) -> None:
        """Bring the facts up to date. Raises WarehouseError when tables cannot be read; the next call tries again."""
        with self._lock:
            queue, self._queue = self._queue, []
            reload, self._reload = self._reload, False
        now = self._now()
        try:
            self._apply(queue, now, reload=reload)
        except BaseException:
            self.changed()  # what was queued is in the tables
            raise
        self._rebalances.forget(self._groups, now)

    def _apply(self, queue: list[pa.Table], now: datetime, *, reload: bool) -> None:
        if not (reload or queue or self._some_dead):
            return
        groups = {name: group for name, group in self._groups.items() if group.state != DEAD}
        rebalances: list[_Rebalance] = []
        if reload:
            groups, rebalances = self._read(groups, now)
        replaces = operator.gt if reload else operator.ge
        for table in queue:
            rows = table.filter(pc.is_valid(table["group_id"]))  # without a group: undecodable records
            rebalances += _rebalances(rows)
            for facts in _facts(rows, _members(rows)):
                held = groups.get(facts.group_id)
                if held is None or replaces(facts.last_offset, held.last_offset):
                    groups[facts.group_id] = facts
        self._groups = groups
        self._some_dead = any(group.state == DEAD for group in groups.values())
        self._rebalances.add((one for one in rebalances if one[0] in groups), now)

    def groups(self) -> Mapping[str, GroupFacts]:
        """The groups by id, as they were at the last `refresh`: a snapshot."""
        return MappingProxyType(self._groups)

    def rebalances(self, group_id: str) -> tuple[datetime, ...]:
        """The broker's times of the group's rebalances within the window, the newest 1,000 of them, oldest first."""
        return self._rebalances.recent.get(group_id, ())

    def all_rebalances(self) -> Mapping[str, tuple[datetime, ...]]:
        """`rebalances` of every group that had any; for the thread that calls `refresh`, until it does so again."""
        return MappingProxyType(self._rebalances.recent)

    def rebalances_total(self, group_id: str) -> int:
        """How many rebalances of the group came, by the broker's time, since this mirror was made."""
        return self._rebalances.totals.get(group_id, 0)

    def _read(self, known: Mapping[str, GroupFacts], now: datetime) -> tuple[dict[str, GroupFacts], list[_Rebalance]]:
        """What the tables hold of groups that live, or were known to, and of recent rebalances."""
        warehouse, mine = Warehouse(self._warehouse), f"cluster = {quoted(self._cluster)}"
        rows = _plain(warehouse.query(f"SELECT {', '.join(COLUMNS)} FROM groups WHERE {mine}"))  # noqa: S608 - our own names
        concerned = pc.or_(pc.invert(_is_in(rows["state"], (DEAD,))), _is_in(rows["group_id"], known))
        states = ", ".join(map(quoted, REBALANCING))
        members = warehouse.query(f"SELECT group_id, members FROM groups WHERE {mine} AND state IN ({states})")  # noqa: S608
        since = quoted(self._rebalances.since(now).isoformat())
        rebalances = warehouse.query(
            f"SELECT group_id, at FROM group_events WHERE {mine} AND kind = 'assignment_epoch' AND old IS NOT NULL "  # noqa: S608
            f"AND at >= TIMESTAMP {since} ORDER BY at"
        )
        facts = _facts(rows.filter(concerned), _by_group(members))
        return {one.group_id: one for one in facts}, list(zip(*map(_values, rebalances.columns), strict=True))


class _Rebalances:
    """The rebalances of the groups: the newest one by one, and how many there were.

    What one operation of the broker does has one time, and a batch may tell an operation again that the one before saw
    only in part: the same time again is the same rebalance.
    """

    def __init__(self, window: timedelta, started_at: datetime) -> None:
        self._window = window
        self._started_at = started_at
        self.recent: dict[str, tuple[datetime, ...]] = {}
        self.totals: dict[str, int] = {}

    def since(self, now: datetime) -> datetime:
        return now - self._window

    def add(self, rebalances: Iterable[_Rebalance], now: datetime) -> None:
        for group_id, at in rebalances:
            held = self.recent.get(group_id, ())
            if at < self.since(now) or at in held:
                continue
            self.recent[group_id] = (*held, at)[-_REBALANCES_KEPT:]
            if at >= self._started_at:
                self.totals[group_id] = self.totals.get(group_id, 0) + 1

    def forget(self, groups: Mapping[str, GroupFacts], now: datetime) -> None:
        """Forget what is older than the window, and all of groups that are not among these."""
        since = self.since(now)
        for group_id, held in list(self.recent.items()):
            kept = tuple(at for at in held if at >= since) if group_id in groups else ()
            if not kept:
                del self.recent[group_id]
            elif len(kept) < len(held):
                self.recent[group_id] = kept
        for group_id in self.totals.keys() - groups.keys():
            del self.totals[group_id]


def _facts(rows: pa.Table, members: Mapping[str, Any]) -> Iterator[GroupFacts]:
    columns = zip(*(_values(rows[name]) for name in COLUMNS), strict=True)
    for row in columns:
        named = dict(zip(COLUMNS, row, strict=True))
        yield group_facts(named | {"members": members.get(named["group_id"])})


def _members(rows: pa.Table) -> dict[str, Any]:
    """The members of the groups of which they matter: they are the bulk of a row."""
    return _by_group(rows.filter(_is_in(rows["state"], REBALANCING)))


def _by_group(rows: pa.Table) -> dict[str, Any]:
    return dict(zip(rows["group_id"].to_pylist(), rows["members"].to_pylist(), strict=True))


def _rebalances(rows: pa.Table) -> Iterator[_Rebalance]:
    """A first assignment is no rebalance; nor is one without a time, which no window holds."""
    for batch in rows.combine_chunks().to_batches():
        nested = batch["events"]
        events = pa.Table.from_struct_array(nested.flatten()).append_column(
            "group_id", batch["group_id"].take(pc.list_parent_indices(nested))
        )
        told = events.filter(
            (pc.field("kind") == "assignment_epoch") & pc.field("old").is_valid() & pc.field("at").is_valid()
        )
        yield from zip(_values(told["group_id"]), _values(told["at"]), strict=True)


def _is_in(column: pa.ChunkedArray, values: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(values, pa.string()))


def _plain(rows: pa.Table) -> pa.Table:
    """The rows with strings for the string views that DataFusion gives and Arrow can neither compare nor filter."""
    fields = [field.with_type(pa.string()) if field.type == pa.string_view() else field for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The column's values; the same text is one object. Times by their numbers: Arrow takes 7 us to make each."""
    values: list[Any]
    if pa.types.is_timestamp(column.type):
        values = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        return [None if us is None else _EPOCH + timedelta(microseconds=us) for us in values]
    values = column.to_pylist()
    if isinstance(next(iter(values), None), str):
        same: dict[str, str] = {}
        return [same.setdefault(value, value) for value in values]
    return values
