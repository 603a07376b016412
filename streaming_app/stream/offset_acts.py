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

A batch without such records costs two comparisons of columns. Groups of plain consumers have no events: all of their
commits may look like those of a tool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.groups.events import OFFSETS_DELETED, OFFSETS_RESET
from streaming_app.groups.group import READ_AGAIN
from streaming_app.groups.state_rules import DEAD, EMPTY
from streaming_app.stream.batch_rows import BatchRows, schema_of
from streaming_app.stream.truncation import NOT_VOID
from streaming_app.tables.arrow import microseconds
from streaming_app.tables.newest_tables import COMMITS
from streaming_app.tables.reader import of_groups

if TYPE_CHECKING:
    from streaming_app.stream.group_result import FoldOptions
    from streaming_app.tables.newest_tables import NewestTables
    from streaming_app.tables.writer import TableWriter

WHILE_EMPTY, WHILE_RUNNING = "while_empty", "while_running"
EXPIRED, DELETED, GROUP_DELETED, DELETED_OR_EXPIRED = "expired", "deleted", "group_deleted", "deleted_or_expired"
"""The causes of the events."""
_STREAMS_METADATA = 17  # the type of the record
_MICROSECONDS = 60_000_000  # of a minute
_KEY, _OFFSET = itemgetter("group_id", "topic", "partition"), itemgetter("last_offset")
_KNOWN = ("group_id", "topic", "partition", "committed_offset", "committed_at", "last_offset")
_OF_BATCH = pa.schema(
    [
        schema_of(COMMITS).field(name)
        for name in (*_KNOWN, "metadata", "partition_time", "expire_at", "recorded_at", "source_partition", "log_epoch")
    ]
)
_RETENTION = "kind = 'broker_config' AND name = 'offsets.retention.minutes'"

Row = dict[str, Any]
"""Times are in microseconds since 1970."""


class _Groups(NamedTuple):
    """What the tables know of groups: of each, the newest first."""

    commits: Mapping[tuple[str, str, int], Sequence[Row]]
    metadata: Mapping[str, Sequence[int]]
    """The offsets of records that tell the group's type: each change of its members writes one."""
    read_to: Mapping[str, int]
    """The offset of the last record that the query of the groups has folded."""
    states: Mapping[str, Sequence[tuple[int, str]]]
    """Offset and state."""


class OffsetActs:
    """Makes the events of the batches of one run of the query, in their order."""

    def __init__(self, writer: TableWriter, tables: NewestTables, options: FoldOptions) -> None:
        self._writer, self._tables, self._options = writer, tables, options
        self._began = datetime.now(timezone.utc).timestamp() * 1e6
        self._first: dict[int, int] = {}  # partition of the offsets topic -> the lowest offset that this run has read
        self._by_streams: set[str] | None = None  # the groups that have committed Streams' metadata
        self._metadata: dict[str, int] = {}  # streams group -> the offset of its newest record that tells its type
        self._by_members: dict[str, int] = {}  # the same, after which its commits without metadata are by its members

    def find(self, rows: BatchRows, metadata: Sequence[Row]) -> list[Row]:
        """Return the events of a batch. `metadata` has its records that tell the types of groups."""
        known = self._load() if self._by_streams is None else self._by_streams
        for part in rows.parts(COMMITS, self._options.cluster, _OF_BATCH):
            known.update(pc.unique(part.filter(pc.is_valid(part["partition_time"]))["group_id"]).to_pylist())
            lowest = part.group_by("source_partition").aggregate([("last_offset", "min")])
            for partition, offset in zip(*(one.to_pylist() for one in lowest.columns), strict=True):
                self._first.setdefault(partition, offset)
        for row in metadata:
            if row["record_type"] == _STREAMS_METADATA or row["group_id"] in known:
                self._metadata[row["group_id"]] = _OFFSET(row)
        parts = rows.parts(COMMITS, self._options.cluster, _OF_BATCH)
        acts = sorted((row for part in parts for row in self._candidates(part, known)), key=_OFFSET)
        return [*self._events(acts, rows, metadata, known)] if acts else []

    def _load(self) -> set[str]:
        """Note what the tables know of all groups, and return those that have committed Streams' metadata."""
        groups = self._writer.table("group_records").select(
            "group_id, max(last_offset) AS last_offset",
            f"record_type = {_STREAMS_METADATA} AND last_offset > {READ_AGAIN}",
            "GROUP BY 1",
        )
        self._metadata = dict(zip(*(one.to_pylist() for one in groups.columns), strict=True))
        sources = ((COMMITS, "partition_time IS NOT NULL"), ("group_events", f"kind = '{OFFSETS_RESET}'"))
        found = (self._writer.table(name).select("DISTINCT group_id", where)["group_id"] for name, where in sources)
        self._by_streams = {group_id for some in found for group_id in some.to_pylist()}
        return self._by_streams

    def _candidates(self, part: pa.Table, known: Collection[str]) -> list[Row]:
        """Return the rows that may be acts."""
        gone = pc.is_null(part["committed_offset"])
        part = part.filter(pc.or_(gone, pc.fill_null(pc.equal(part["metadata"], ""), False)))  # noqa: FBT003 - Arrow's
        groups = pc.unique(part["group_id"]).to_pylist() if part.num_rows else []
        chosen = [one for one in groups if one in known or one in self._metadata]
        may_reset = {one for one in chosen if self._metadata.get(one, -1) != self._by_members.get(one)}
        rows = microseconds(part.filter(pc.is_in(part["group_id"], pa.array(chosen, pa.string())))).to_pylist()
        return [row for row in rows if row["committed_offset"] is None or row["group_id"] in may_reset]

    def _events(
        self, acts: Sequence[Row], rows: BatchRows, metadata: Sequence[Row], known: Collection[str]
    ) -> Iterator[Row]:
        groups = self._read({row["group_id"] for row in acts}, rows, metadata)
        ended = {(row["group_id"], row["recorded_at"]) for row in metadata if row["deleted"]}
        retention = self._retention() if any(row["committed_offset"] is None for row in acts) else ()
        for act in acts:
            group_id, new = act["group_id"], act["committed_offset"]
            before, state = self._before(act, groups.commits[_KEY(act)]), _state_at(_OFFSET(act), group_id, groups)
            if new is not None and state != EMPTY and (state == DEAD or group_id not in known):
                if state:
                    self._by_members[group_id] = self._metadata.get(group_id, -1)
                continue  # a member of another client library, or of a group of another type, may have committed it
            old = before and before["committed_offset"]
            if new is None and before and old is None:
                continue  # a tombstone after another one
            is_with_group = (group_id, act["recorded_at"]) in ended
            causes = [_why_gone(act, before, retention, is_with_group=is_with_group)] if new is None else []
            causes += [WHILE_EMPTY if state == EMPTY else WHILE_RUNNING] if state not in {None, DEAD} else []
            yield {
                "cluster": self._options.cluster,
                "group_id": group_id,
                "at": act["recorded_at"],
                "kind": OFFSETS_DELETED if new is None else OFFSETS_RESET,
                "old": None if old is None else str(old),
                "new": None if new is None else str(new),
                "source_partition": act["source_partition"],
                "offset": _OFFSET(act),
                "log_epoch": act["log_epoch"],
                "void": False,
                "cause": ",".join(causes) or None,
                "topic": act["topic"],
                "partition": act["partition"],
            }

    def _before(self, act: Row, commits: Sequence[Row]) -> Row | None:
        """Return the commit or tombstone before an act; None if it is not known."""
        found = next((row for row in commits if _OFFSET(row) < _OFFSET(act)), None)
        is_of_run = found and _OFFSET(found) >= self._first[act["source_partition"]]
        return found if is_of_run or act["recorded_at"] >= self._began else None

    def _read(self, group_ids: Collection[str], rows: BatchRows, metadata: Sequence[Row]) -> _Groups:
        of = of_groups(self._options.cluster, sorted(group_ids))
        times = "CAST(committed_at AS bigint) AS committed_at, last_offset"
        stored = self._writer.table(COMMITS).select(f"{', '.join(_KNOWN[:4])}, {times}", f"{of} AND last_offset >= 0")
        wanted = pa.array(sorted(group_ids), pa.string())
        parts = rows.parts(COMMITS, self._options.cluster, _OF_BATCH)
        own = [microseconds(part.filter(pc.is_in(part["group_id"], wanted))).to_pylist() for part in parts]
        commits = _newest_first(_KEY, [*stored.to_pylist(), *(row for some in own for row in some)])
        known = [*self._tables.find_metadata_records(sorted(group_ids)), *metadata]
        offsets = _newest_first(itemgetter("group_id"), [row for row in known if row["group_id"] in group_ids])
        folded = self._writer.groups.find("group_id", sorted(group_ids)).select(["group_id", "last_offset"]).to_pylist()
        changes = self._writer.table("group_events").select(
            'group_id, "offset" AS last_offset, new', f"{of} AND kind = 'state' AND {NOT_VOID}"
        )
        states = _newest_first(itemgetter("group_id"), changes.to_pylist())
        return _Groups(
            commits,
            {group_id: [*map(_OFFSET, some)] for group_id, some in offsets.items()},
            {row["group_id"]: _OFFSET(row) for row in folded},
            {group_id: [(_OFFSET(row), row["new"]) for row in some] for group_id, some in states.items()},
        )

    def _retention(self) -> list[int]:
        """Return the shortest and the longest `offsets.retention.minutes` of the brokers, in microseconds."""
        values = self._writer.table("broker_facts").select("value", _RETENTION)["value"].to_pylist()
        minutes = [int(one) for one in values]
        return [one * _MICROSECONDS for one in (min(minutes), max(minutes))] if minutes else []


def _newest_first(key: Any, rows: Iterable[Row]) -> defaultdict[Any, list[Row]]:  # noqa: ANN401 - what `itemgetter` returns
    found = defaultdict[Any, list[Row]](list)
    for row in sorted(rows, key=_OFFSET, reverse=True):
        found[key(row)].append(row)
    return found


def _state_at(offset: int, group_id: str, groups: _Groups) -> str | None:
    """Return the state of a group at a place of the log; None if the query of the groups has not read up to there.

    Each change of members writes a record that tells the type. So the state is known if the newest of these before the
    place was folded.
    """
    records = groups.metadata.get(group_id, ())
    # Of several such records in a batch only the newest is known: one after the place may hide one before it.
    is_sure = bool(records) and records[0] < offset
    if groups.read_to.get(group_id, -1) < (records[0] if is_sure else offset):
        return None
    return next((state for at, state in groups.states.get(group_id, ()) if at < offset), None)


def _why_gone(act: Row, before: Row | None, retention: Sequence[int], *, is_with_group: bool) -> str:
    """Return the cause of a tombstone. Brokers let an offset expire once its commit is older than the retention."""
    committed_at = before["committed_at"] if before else None
    if committed_at is None or not retention:
        return DELETED_OR_EXPIRED
    shortest, longest = (committed_at + one for one in retention)
    if act["recorded_at"] < shortest:
        return GROUP_DELETED if is_with_group else DELETED
    return EXPIRED if act["recorded_at"] >= longest and not is_with_group else DELETED_OR_EXPIRED
