"""Finds the acts on the committed offsets of Kafka Streams: a tool set them, somebody deleted them, or they expired.

What proves an act
------------------
Kafka Streams commits each offset with metadata (see `lag.partition_time`). Tools commit none: the text is empty in what
kafka-streams-groups.sh, kafka-consumer-groups.sh, kafka-streams-application-reset.sh and other users of
`Admin.alterConsumerGroupOffsets` write (Kafka 4.4.0). So a commit without metadata is a reset if the group is known to
commit Streams' metadata. Of any other streams group it is one only if the group was Empty at this place of the log:
members of another client library may commit no metadata. A tombstone is a deletion or an expiry. The offset before is
known if this run of the query has read it, or if the act is newer than the run: until then the log's cleaner may have
removed commits in between.

Whether the group was Empty, the query of the groups knows once it has read the log up to the act. Until then the act
waits, in the state of the stream: which events are written does not depend on which of the two queries has read more.
Only if very many wait, the oldest are written as far as they are proven without the group's state.

A batch without such records costs two comparisons of columns. Groups of plain consumers have no events: all of their
commits may look like those of a tool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.groups.events import OFFSETS_DELETED, OFFSETS_RESET
from streaming_app.groups.group import READ_AGAIN
from streaming_app.groups.state_rules import DEAD, EMPTY
from streaming_app.stream.batch_rows import BatchRows, schema_of
from streaming_app.stream.truncation import NOT_VOID
from streaming_app.tables.arrow import microseconds
from streaming_app.tables.newest_tables import COMMITS, RECORDS
from streaming_app.tables.reader import of_groups

if TYPE_CHECKING:
    from streaming_app.stream.group_result import FoldOptions
    from streaming_app.tables.writer import TableWriter

WHILE_EMPTY, WHILE_RUNNING = "while_empty", "while_running"
EXPIRED, DELETED, GROUP_DELETED, DELETED_OR_EXPIRED = "expired", "deleted", "group_deleted", "deleted_or_expired"
"""The causes of the events."""
_CLASSIC, _STREAMS, _OF_TYPES = 2, 17, (2, 3, 11, 17)  # types of records: those that tell the type of a group
_MOST_WAITING = 5_000  # acts: the state of the stream has them
_MICROSECONDS = 60_000_000  # of a minute
_KEY, _OFFSET = itemgetter("group_id", "topic", "partition"), itemgetter("last_offset")
_STORED = ("group_id", "topic", "partition", "committed_offset", "last_offset")
_OF_BATCH = (*_STORED, "committed_at", "metadata", "partition_time", "recorded_at", "source_partition", "log_epoch")
_OF_ALL = ("group_id", "committed_offset", "metadata", "partition_time", "source_partition", "last_offset")
_SEEN, _SCHEMA = (pa.schema([schema_of(COMMITS).field(one) for one in names]) for names in (_OF_ALL, _OF_BATCH))
_RETENTION = "kind = 'broker_config' AND name = 'offsets.retention.minutes'"

_EVENT = ("group_id", "topic", "partition", "source_partition", "log_epoch", "at", "kind", "old", "new", "offset")
_PLACE = itemgetter("source_partition", "offset")

Row = dict[str, Any]
"""Times are in microseconds since 1970."""
Act = Mapping[str, Any]
"""The columns of an event that are known, and what decides about it. The state of the stream stores acts."""


class OffsetActs:
    """Makes the events of the batches of one run of the query, in their order."""

    def __init__(
        self, writer: TableWriter, options: FoldOptions, waiting: Iterable[Act], groups_are_read: Callable[[Act], bool]
    ) -> None:
        """Prepare. `waiting` acts are stored; `groups_are_read`: whether the query of the groups has read up to one."""
        self._writer, self._options, self._are_read = writer, options, groups_are_read
        self.waiting = tuple(waiting)
        """The acts about which nothing is decided yet."""
        self._began = datetime.now(timezone.utc).timestamp() * 1e6
        self._first: dict[int, int] = {}  # partition of the offsets topic -> the lowest offset that this run has read
        self._by_streams: set[str] | None = None  # the groups that have committed Streams' metadata
        self._changed: dict[str, int] = {}  # their newest record that tells the type: members that come or go write one
        self._by_members: dict[str, int] = {}  # the same, after which members commit without metadata

    def find(self, rows: BatchRows, metadata: Sequence[Row]) -> None:
        """Note the acts of a batch. `metadata` has its records that tell the types of groups."""
        known = self._load() if self._by_streams is None else self._by_streams
        gone, plain = set[str](), set[str]()  # groups with tombstones, and with commits without metadata
        for part in rows.parts(COMMITS, self._options.cluster, _SEEN):
            known.update(pc.unique(part.filter(pc.is_valid(part["partition_time"]))["group_id"]).to_pylist())
            lowest = part.group_by("source_partition").aggregate([("last_offset", "min")])
            for partition, offset in zip(*(one.to_pylist() for one in lowest.columns), strict=True):
                self._first.setdefault(partition, offset)
            are_empty = pc.fill_null(pc.equal(part["metadata"], ""), False)  # noqa: FBT003 - Arrow's
            for groups, acts in ((gone, pc.is_null(part["committed_offset"])), (plain, are_empty)):
                groups.update(pc.unique(part.filter(acts)["group_id"]).to_pylist())
        self._note_types(metadata, known)
        gone |= {one for one in plain if self._changed.get(one, -1) != self._by_members.get(one)}
        chosen = pa.array([one for one in gone if one in known or one in self._changed], pa.string())
        parts = rows.parts(COMMITS, self._options.cluster, _SCHEMA) if len(chosen) else ()
        those = (microseconds(part.filter(pc.is_in(part["group_id"], chosen))) for part in parts)
        if own := [row for some in those for row in some.to_pylist()]:
            acts = (*self.waiting, *self._find_acts(own, metadata, known), *self.waiting)
            self.waiting = tuple({_PLACE(act): act for act in acts}.values())  # an earlier one may know more

    def decide(self) -> tuple[Sequence[Row], Sequence[Act]]:
        """Return the events of the acts that need not wait any longer, and the acts that go on waiting."""
        read, late = list[Act](), list[Act]()
        for act in self.waiting:
            (read if self._are_read(act) else late).append(act)
        states = self._states(sorted({act["group_id"] for act in read})) if read else {}
        events = [self._event(act, None) for act in late[:-_MOST_WAITING]]
        for act in read:
            before = (state for offset, state in states.get(act["group_id"], ()) if offset < act["offset"])
            events.append(self._event(act, next(before, None)))
        return [event for event in events if event], late[-_MOST_WAITING:]

    def _load(self) -> set[str]:
        """Note what the tables know of all groups, and return those that have committed Streams' metadata."""
        sources = ((COMMITS, "partition_time IS NOT NULL"), ("group_events", f"kind = '{OFFSETS_RESET}'"))
        found = (self._writer.table(name).select("DISTINCT group_id", where)["group_id"] for name, where in sources)
        self._by_streams = known = {group_id for some in found for group_id in some.to_pylist()}
        where = f"record_type IN {_OF_TYPES} AND last_offset > {READ_AGAIN}"
        records = self._writer.table(RECORDS).select("group_id, record_type, last_offset", where)
        self._note_types(records.to_pylist(), known)
        return known

    def _note_types(self, records: Sequence[Row], known: set[str]) -> None:
        for row in sorted(records, key=_OFFSET):
            if row["record_type"] not in {_CLASSIC, _STREAMS}:  # a consumer or share group has the id now
                known.discard(row["group_id"])
                self._changed.pop(row["group_id"], None)
            elif row["record_type"] == _STREAMS or row["group_id"] in known:
                self._changed[row["group_id"]] = _OFFSET(row)

    def _find_acts(self, own: Sequence[Row], metadata: Sequence[Row], known: Collection[str]) -> Iterator[Act]:
        of = of_groups(self._options.cluster, sorted({row["group_id"] for row in own}))
        columns = f"{', '.join(_STORED)}, CAST(committed_at AS bigint) AS committed_at"
        stored = self._writer.table(COMMITS).select(columns, f"{of} AND last_offset >= 0").to_pylist()
        repeated, commits = {*map(_OFFSET, own)}, defaultdict[Any, list[Row | None]](lambda: [None])
        for row in sorted([*own, *(row for row in stored if _OFFSET(row) not in repeated)], key=_OFFSET):
            commits[_KEY(row)].append(row)
        retention = self._retention()
        ended = {(row["group_id"], row["recorded_at"]) for row in metadata if row["deleted"]}
        for before, act in (pair for rows in commits.values() for pair in pairwise(rows)):
            if act is None or "metadata" not in act or (act["committed_offset"] is not None and act["metadata"] != ""):
                continue
            group_id, new = act["group_id"], act["committed_offset"]
            is_of_run = before and _OFFSET(before) >= self._first[act["source_partition"]]
            last = before if is_of_run or act["recorded_at"] >= self._began else None
            old = last and last["committed_offset"]
            if new is None and last and old is None:
                continue  # a tombstone after another one
            is_with_group = (group_id, act["recorded_at"]) in ended
            yield {
                **{name: act[name] for name in ("group_id", "topic", "partition", "source_partition", "log_epoch")},
                "at": act["recorded_at"],
                "kind": OFFSETS_DELETED if new is None else OFFSETS_RESET,
                "old": None if old is None else str(old),
                "new": None if new is None else str(new),
                "offset": _OFFSET(act),
                "cause": _why_gone(act, last, retention, is_with_group=is_with_group) if new is None else None,
                "by_streams": group_id in known,
                "changed": self._changed.get(group_id, -1),
            }

    def _event(self, act: Act, state: str | None) -> Row | None:
        """Return the event of an act, given the state of the group before it; None if it is no act."""
        if act["kind"] == OFFSETS_RESET and state != EMPTY and (state == DEAD or not act["by_streams"]):
            if state and act["changed"] < act["offset"]:
                self._by_members[act["group_id"]] = act["changed"]
            return None  # a member of another client library, or of a group of another type, may have committed it
        causes = [act["cause"]] if act["cause"] else []
        causes += [WHILE_EMPTY if state == EMPTY else WHILE_RUNNING] if state not in {None, DEAD} else []
        columns = {name: act[name] for name in _EVENT}
        return {**columns, "cluster": self._options.cluster, "void": False, "cause": ",".join(causes) or None}

    def _states(self, group_ids: Sequence[str]) -> Mapping[str, Sequence[tuple[int, str]]]:
        """Return offset and state of these groups, the newest first."""
        where = f"{of_groups(self._options.cluster, group_ids)} AND kind = 'state' AND {NOT_VOID}"
        changes = self._writer.table("group_events").select('group_id, "offset", new', where).to_pylist()
        found = defaultdict[str, list[tuple[int, str]]](list)
        for row in sorted(changes, key=itemgetter("offset"), reverse=True):
            found[row["group_id"]].append((row["offset"], row["new"]))
        return found

    def _retention(self) -> Sequence[int]:
        """Return `offsets.retention.minutes` of the brokers that are known, in microseconds."""
        values = self._writer.table("broker_facts").select("value", _RETENTION)["value"].to_pylist()
        return [int(one) * _MICROSECONDS for one in values]


def _why_gone(act: Row, before: Row | None, retention: Sequence[int], *, is_with_group: bool) -> str:
    """Return the cause of a tombstone. Brokers let an offset expire once its commit is older than the retention."""
    if before is None or before["committed_at"] is None or not retention:
        return DELETED_OR_EXPIRED
    age = act["recorded_at"] - before["committed_at"]
    if age < min(retention):
        return GROUP_DELETED if is_with_group else DELETED
    return EXPIRED if age >= max(retention) and not is_with_group else DELETED_OR_EXPIRED
