"""The tables that only the lag service writes, and its queries of the tables that the streams write."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import timedelta
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.lag.ends import EndSamples, TopicPartition
from streaming_app.lag.model import NO_TASKS, Commit, CommitKey, GroupTasks, LagRow, Owner
from streaming_app.tables.arrow import (
    TIMESTAMP,
    intern_strings,
    keep_fields,
    to_array,
    to_seconds,
    to_values,
    with_plain_types,
)
from streaming_app.tables.definitions import table
from streaming_app.tables.fence import Fence
from streaming_app.tables.kept_table import KNOWN_SECONDS
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, of_groups, time_literal
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import host_of

T = TypeVar("T", bound=Sized)

Owners = Mapping[tuple[str, int], Owner]
"""As in `GroupTasks`."""
TABLES = ("lag", "lag_history", "log_ends", "inputs")
READ_UNCOMMITTED = "read_uncommitted"
"""The `input` of rows about groups that read records of open transactions. Releases before 0.3.1 ignore such rows."""
_GROUP_COLUMNS = (
    "group_id, group_type, protocol, source_partition, state, state_since, member_count, members_since, deleted_at, "
    "updated_at, topology_hash, undecoded_members, tasks_moving, subtopologies, members, assignments"
)
_FIELDS = {
    "members": ("member_id", "process_id", "client_host", "joined_at"),
    "assignments": ("subtopology_id", "partition", "member_id", "role", "current"),
}
"""The fields to read of the nested columns: they become Python objects for all groups."""
_ROWS_AT_ONCE = 200
_CONSUMER_MEMBER, _ASSIGNED = 5, (2, 8)
"""Types of records: with the host of a member of a consumer group, and those with assignments."""
_NOT_STREAMS = "AND coalesce(protocol, '') <> 'stream'"  # `groups` has their tasks
_FEW = 200  # the most groups that a query names; for more groups it reads all
_REPEATED = timedelta(hours=1)
_KEPT_ROWS = 100_000  # at most, of what was read
_HISTORY = [name for name in table("lag_history").names if name != "cluster"]


class KnownUntil(NamedTuple):
    """Up to when the inputs of a lag pass are known: seconds by the job's clock; None: not known yet."""

    commits: float | None
    of_groups: Mapping[str, float]
    """Commits of the groups whose coordinators were asked, because the job reads the log late."""
    log_ends: Mapping[int, float]
    """Log ends, by the id of the broker that leads the logs."""
    read_uncommitted: Mapping[str, float] = MappingProxyType({})
    """Group -> the newest commit that proves that it reads records of open transactions."""


class LagTables:
    """The tables of one cluster. Methods that read raise WarehouseError; methods that write raise OSError."""

    def __init__(self, warehouse: Location | Path, cluster: str, fence: Fence | None = None) -> None:
        self._warehouse = Location.of(warehouse)
        self._cluster = cluster
        self._tables = {name: RustTable(self._warehouse / name, cluster, fence) for name in TABLES}
        # The streams check that nobody has set this table back: see `own_files`.
        self._events = RustTable(self._warehouse / "group_events", cluster, fence, is_checked=True)
        self._mine = of_groups(cluster, None)
        self._owners: dict[str, tuple[int, Owners]] = {}
        self._known_for = KNOWN_SECONDS if fence else 0.0
        self._read: dict[str, tuple[object, Any]] = {}
        """By name: the versions of the tables that were read, and what was in them."""

    def reader(self) -> WarehouseReader:
        """Return a reader of the newest versions of the tables, for the methods below."""
        return WarehouseReader(self._warehouse, known_for=self._known_for)

    def _unless_same(self, reader: WarehouseReader, name: str, read: Callable[[WarehouseReader], T]) -> T:
        """Return what a table or view has: what was read before, the same object, if the tables have the same versions.

        It must not be changed. What has many rows is not kept.
        """
        versions, (known, rows) = reader.versions(name), self._read.pop(name, (None, None))
        found: T = rows if known == versions else read(reader)
        if len(found) <= _KEPT_ROWS:
            self._read[name] = versions, found
        return found

    def commits(self, reader: WarehouseReader) -> Mapping[CommitKey, Commit]:
        """Return the committed offsets in the log."""
        return self._unless_same(reader, "offsets", self._read_commits)

    def _read_commits(self, reader: WarehouseReader) -> dict[CommitKey, Commit]:
        times = ("committed_at", "partition_time")
        names = ("group_id", "topic", "partition", "committed_offset", "topic_id", "leader_epoch")
        found, known = dict[CommitKey, Commit](), dict[str, str]()
        for rows in reader.slices(f"SELECT {', '.join(names + times)} FROM offsets WHERE {self._mine}"):  # noqa: S608 - quoted
            groups, topics, partitions, *values = (rows[name].to_pylist() for name in names)
            values += (to_seconds(rows[name]) for name in times)
            keys = zip(intern_strings(groups, known), intern_strings(topics, known), partitions, strict=True)
            found.update(zip(keys, map(Commit, *values), strict=True))
        return found

    def records_of_commits(
        self, reader: WarehouseReader, keys: Collection[CommitKey]
    ) -> dict[CommitKey, tuple[int, int]]:
        """Return the partition and offset in the offsets topic of these commits; not of those that are read again."""
        groups = of_groups(self._cluster, sorted({group_id for group_id, *_ in keys}))
        names = "group_id, topic, partition, source_partition, last_offset"
        rows = reader.rows(f"SELECT {names} FROM offsets WHERE {groups} AND last_offset >= 0")  # noqa: S608 - quoted
        found = {tuple(row.values())[:3]: (row["source_partition"], row["last_offset"]) for row in rows}
        return {key: found[key] for key in keys if key in found}

    def group_versions(self, reader: WarehouseReader) -> pa.Table:
        """Return the id of each existing group of Kafka Streams, and columns that change when its row changes."""
        columns = "group_id, last_offset, updated_at, state"
        query = f"SELECT {columns} FROM groups WHERE {self._mine} AND deleted_at IS NULL"  # noqa: S608 - quoted
        return with_plain_types(reader.query(query))

    def groups(self, reader: WarehouseReader, group_ids: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of these groups: the topology, and who has which task, by members and assignments."""
        if not group_ids:
            return
        named, wanted = of_groups(self._cluster, group_ids if len(group_ids) <= _FEW else None), pa.array([*group_ids])
        slices = reader.slices(f"SELECT {_GROUP_COLUMNS} FROM groups WHERE {named}")  # noqa: S608 - quoted
        found = (rows.filter(pc.is_in(rows["group_id"], wanted)) for rows in map(with_plain_types, slices))
        for batch in chain.from_iterable(rows.to_batches(max_chunksize=_ROWS_AT_ONCE) for rows in found):
            columns = {name: batch[name] for name in batch.schema.names}
            columns |= {name: keep_fields(batch[name], fields) for name, fields in _FIELDS.items()}
            for row in zip(*map(to_values, columns.values()), strict=True):
                yield dict(zip(columns, row, strict=True))

    def other_groups(self, reader: WarehouseReader) -> tuple[dict[str, GroupTasks], Counter[str]]:
        """Return by group of another type whether it has members, and who has which partition, as far as the log says.

        Also return the number of groups by type.

        Groups that only commit offsets are omitted: a consumer that assigns partitions itself is not a member.
        """
        return self._unless_same(reader, "all_groups", self._other_groups)

    def _other_groups(self, reader: WarehouseReader) -> tuple[dict[str, GroupTasks], Counter[str]]:
        query = f"SELECT group_id, group_type, protocol_type, member_count FROM all_groups WHERE {self._mine}"  # noqa: S608 - quoted
        rows = with_plain_types(reader.query(query))
        types = Counter(to_values(rows["group_type"]))
        others = rows.filter((pc.field("group_type") != "streams") & (pc.field("protocol_type") != ""))
        others = others.filter(pc.field("member_count").is_valid())
        pairs = zip(to_values(others["group_id"]), to_values(others["member_count"]), strict=True)
        self._owners = owners = self._read_owners(reader)
        nobody = 0, NO_TASKS.owners
        return {
            one: GroupTasks(owners=owners.get(one, nobody)[1], has_members=members > 0) for one, members in pairs
        }, types

    def _read_owners(self, reader: WarehouseReader) -> dict[str, tuple[int, Owners]]:
        """Return by classic and consumer group the offset of its newest record, and who has which partition.

        As far as the log says it; a consumer group has topics by id. Only groups with new records are read.
        """
        newest, before = dict[str, int](), self._owners
        where = f"{self._mine} AND record_type IN ({_CONSUMER_MEMBER}, {', '.join(map(str, _ASSIGNED))}) {_NOT_STREAMS}"
        query = f"SELECT group_id, max(last_offset) AS newest FROM group_records WHERE {where} GROUP BY group_id"  # noqa: S608 - quoted
        for rows in reader.slices(query):
            newest.update(zip(to_values(rows["group_id"]), to_values(rows["newest"]), strict=True))
        changed = {one for one, offset in newest.items() if one not in before or before[one][0] != offset}
        named = of_groups(self._cluster, changed if len(changed) <= _FEW else None)
        columns = "group_id, record_type, member_id, deleted, group_members"
        query = f"SELECT {columns} FROM group_records WHERE {where} AND {named} ORDER BY last_offset"  # noqa: S608 - quoted
        records = dict[tuple[str, str, int], list[dict[str, Any]]]()
        for rows in reader.slices(query) if changed else ():
            for row in rows.to_pylist():
                if row["group_id"] in changed:
                    key = row["group_id"], row["member_id"], row["record_type"]
                    records[key] = [] if row["deleted"] else row["group_members"] or []
        found = defaultdict[str, dict[tuple[str, int], Owner]](dict)
        for (group_id, member_id, kind), members in records.items():
            for one in members if kind in _ASSIGNED else ():
                (known,) = records.get((group_id, member_id, _CONSUMER_MEMBER)) or [one]
                owner = Owner(one["member_id"] or member_id, None, host_of(known["client_host"]))
                topics = ((it["topic"] or it["topic_id"], it["partitions"]) for it in one["assignment"] or ())
                found[group_id] |= {(topic, number): owner for topic, numbers in topics for number in numbers or ()}
        return {one: (at, found[one]) if one in changed else before[one] for one, at in newest.items()}

    def rows(self, reader: WarehouseReader) -> list[LagRow]:
        """Return the stored rows of `lag`, sorted by group, topic and partition."""
        columns, found = ", ".join(LagRow._fields), list[LagRow]()
        query = f"SELECT {columns} FROM lag WHERE {self._mine} ORDER BY group_id, topic, partition"  # noqa: S608 - quoted
        for rows in reader.slices(query):
            values = (
                to_seconds(rows[name]) if pa.types.is_timestamp(rows[name].type) else rows[name].to_pylist()
                for name in LagRow._fields
            )
            found += map(LagRow, *values)
        return found

    def samples(self, reader: WarehouseReader) -> list[tuple[str, int, str | None, list[tuple[int, float]]]]:
        """Return rows of topic, partition, topic id, and pairs of end offset and time."""
        slices = reader.slices(
            f"SELECT topic, partition, topic_id, end_offsets, times FROM log_ends WHERE {self._mine}"  # noqa: S608 - quoted
        )
        names, found = ("topic", "partition", "topic_id", "end_offsets"), []
        for rows in slices:
            times = rows["times"].cast(pa.list_(TIMESTAMP)).cast(pa.list_(pa.int64())).to_pylist()  # datetimes are slow
            columns = zip(*(rows[name].to_pylist() for name in names), times, strict=True)
            found += [(*key, [(o, t / 1e6) for o, t in zip(offsets, at, strict=True)]) for *key, offsets, at in columns]
        return found

    def read_uncommitted(self, reader: WarehouseReader) -> dict[str, float]:
        """Return the groups that were seen to read records of open transactions -> the commit that proves it."""
        query = f"SELECT group_id, known_until FROM inputs WHERE {self._mine} AND input = '{READ_UNCOMMITTED}'"  # noqa: S608 - quoted
        rows = reader.query(query)
        return dict(zip(to_values(rows["group_id"]), to_seconds(rows["known_until"]), strict=True))

    def replace_lag(self, rows: Sequence[LagRow]) -> None:
        """Replace the rows of `lag`."""
        self._tables["lag"].replace(self._rows("lag", _columns(rows, LagRow._fields)))

    def replace_inputs(self, known: KnownUntil) -> None:
        """Replace the rows of `inputs`."""
        rows: list[tuple[str, int | None, str | None, float | None]] = [("commits", None, None, known.commits)]
        rows += [("commits", None, group_id, at) for group_id, at in known.of_groups.items()]
        rows += [("log_ends", broker, None, at) for broker, at in known.log_ends.items()]
        rows += [(READ_UNCOMMITTED, None, group_id, at) for group_id, at in known.read_uncommitted.items()]
        columns = zip(("input", "broker", "group_id", "known_until"), zip(*rows, strict=True), strict=True)
        self._tables["inputs"].replace(self._rows("inputs", dict(columns)))

    def append_history(self, rows: Sequence[LagRow]) -> None:
        """Add rows to `lag_history`."""
        if rows:
            self._tables["lag_history"].append(self._rows("lag_history", _columns(rows, _HISTORY)))

    def append_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add events about topics to `group_events`, but for those that a run which died has written before."""
        if not rows:
            return
        same = ("group_id", "kind", "topic", "old", "new")
        recent = f'"offset" IS NULL AND at > {time_literal(rows[0]["at"] - _REPEATED)}'
        written = {tuple(one.values()) for one in self._events.select(", ".join(same), recent).to_pylist()}
        new = [row for row in rows if tuple(row[name] for name in same) not in written]
        if new:
            self._events.append(self._events.to_table({**row, "void": False} for row in new))

    def replace_samples(self, samples: Mapping[TopicPartition, EndSamples]) -> None:
        """Replace the rows of `log_ends`."""
        pairs = [one.pairs() for one in samples.values()]
        columns: dict[str, list[Any]] = {
            "topic": [topic for topic, _ in samples],
            "partition": [partition for _, partition in samples],
            "topic_id": [one.topic_id for one in samples.values()],
            "end_offsets": [[offset for offset, _ in one] for one in pairs],
            "times": [[round(time * 1e6) for _, time in one] for one in pairs],
        }
        self._tables["log_ends"].replace(self._rows("log_ends", columns))

    def _rows(self, name: str, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
        count = len(next(iter(columns.values())))
        values = {"cluster": [self._cluster] * count, **columns}
        schema = self._tables[name].schema()
        arrays = [_array(values.get(one.name, [None] * count), one.type) for one in schema]
        return pa.Table.from_arrays(arrays, schema=schema)


def _columns(rows: Sequence[LagRow], names: Iterable[str]) -> dict[str, Sequence[Any]]:
    by_name = dict(zip(LagRow._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    return {name: by_name.get(name, ()) for name in names if name in LagRow._fields}


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array. Times are in seconds; within lists, in microseconds."""
    if pa.types.is_timestamp(kind):
        values = [None if one is None else round(one * 1e6) for one in values]
    return to_array(values, kind)
