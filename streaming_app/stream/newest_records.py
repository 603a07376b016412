"""Finds the newest record of each key of a batch, and makes rows of these records: here, or in Spark's workers.

Among millions of commits, Python decodes only the newest of each key; Arrow finds them. All records of a key are in one
partition of the topic, and a worker reads whole partitions.

The key of an offset commit names group, topic and partition, and its newest record has all that is needed. The same is
true for the records about the types, epochs and members of groups. For the types in `KEY_ONLY` the key is enough: their
values hold subscriptions and user data, and stay in the JVM. Large values of members of consumer groups also stay
there. For a classic group without members, the newest record with members is also read (see `LAST_PROTOCOL`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsets_decoder import DecodeError, Record, decode
from offsets_decoder.streams_protocol import decode_consumer_assignment, decode_consumer_subscription
from streaming_app.groups.partition import partition_of
from streaming_app.lag.partition_time import LAST_MS, partition_time_ms
from streaming_app.stream.batch_rows import BatchRows, schema_of
from streaming_app.stream.group_result import FoldOptions, quarantine_row
from streaming_app.stream.source import SIZE, type_condition
from streaming_app.tables.arrow import microseconds, to_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEGACY_COMMIT, COMMIT = 0, 1
CLASSIC_METADATA = 2
CONSUMER_METADATA, CONSUMER_MEMBER, CONSUMER_ASSIGNMENT_EPOCH, CONSUMER_CURRENT_ASSIGNMENT = 3, 5, 6, 8
SHARE_MEMBER, SHARE_METADATA, SHARE_ASSIGNMENT_EPOCH = 10, 11, 12
STREAMS_METADATA = 17

COMMITS = frozenset({LEGACY_COMMIT, COMMIT})
GROUP_TYPES = {
    CLASSIC_METADATA: "classic",
    CONSUMER_METADATA: "consumer",
    SHARE_METADATA: "share",
    STREAMS_METADATA: "streams",
}
"""By record type: the type of a group that has such a metadata record."""
LAST_PROTOCOL = -2
"""Not a type of Kafka's: a second row of a classic group, with the protocol on which its members last agreed. The
newest record of a group without members no longer has it, so it would not show whether the group was Kafka Streams."""
KEY_ONLY = frozenset({SHARE_MEMBER, STREAMS_METADATA})
"""Types for which only the key is read, and whether the record is a tombstone."""
_GROUP_RECORDS = frozenset(
    {*GROUP_TYPES, *KEY_ONLY, CONSUMER_MEMBER, CONSUMER_ASSIGNMENT_EPOCH, CONSUMER_CURRENT_ASSIGNMENT}
    | {SHARE_ASSIGNMENT_EPOCH}
)
WANTED = type_condition(COMMITS | _GROUP_RECORDS)
"""SQL condition for the records that this query reads. The others are not needed, or the groups' query reads them."""

# Keys of both types of commits have the same fields; brokers treat them as the same key.
ENTITY = f"IF({type_condition({LEGACY_COMMIT})}, concat(X'{COMMIT:04X}', substring(key, 3)), key)"
"""The key of a record in SQL; the same for both types of commits."""
_LARGE = 4_096  # bytes of a member record, most of them a subscription
_STAYS = f"{type_condition(KEY_ONLY)} OR ({type_condition({CONSUMER_MEMBER})} AND length(value) > {_LARGE})"
_VALUE = f"IF(value IS NOT NULL AND ({_STAYS}), X'', value)"
COLUMNS = ("partition", "offset", "timestamp", "key", "value")
# The positions hold for every version that brokers have written (0 to 3): protocol type, generation, protocol length.
_TYPE_BYTES, _PROTOCOL_BYTES = (2, 12), (16, 18)
# Of a value of a commit, by its version (the first two bytes): where the length of the metadata is and what it is for
# none, and where their text begins. Brokers since 4.1 write version 4, and did write 3 before.
_METADATA_BYTES = ((b"\0\4", (14, 15), b"\1", (15, 17)), (b"\0\3", (14, 16), b"\0\0", (16, 18)))
_STREAMS_BEGIN = pa.array([b"Ag", b"AQ"])
_OF_CONSUMERS, _NO_PROTOCOL = b"\x00\x08consumer", b"\xff\xff"


def wanted_records(batch: DataFrame) -> DataFrame:
    """Return the records to read, with `COLUMNS` and `size`; the value of a `KEY_ONLY` type is empty or null."""
    columns = "partition", "offset", "timestamp", f"{ENTITY} AS key", f"{_VALUE} AS value"
    return batch.where(WANTED).selectExpr(*columns).selectExpr("*", f"{SIZE} AS size")


def find_newest(records: pa.Table) -> pa.Table:
    """Return the newest record of each key among `wanted_records`, and of classic groups also the `LAST_PROTOCOL`.

    If partitions were added, a group may be in two partitions: its keys then count in each of them.
    """
    ordered = records.select(COLUMNS).sort_by("offset")
    placed = ordered.select(("partition", "key")).append_column("place", pa.array(range(ordered.num_rows), pa.int64()))
    kinds = (placed, placed.filter(_have_protocol(ordered)))
    newest = [one.group_by(["partition", "key"]).aggregate([("place", "max")])["place_max"] for one in kinds]
    chosen = [*newest[0].chunks, *newest[1].chunks, pa.array(_acts(ordered, placed), pa.int64())]
    return ordered.take(pc.unique(pa.chunked_array(chosen, pa.int64())))


def _acts(records: pa.Table, placed: pa.Table) -> list[int]:
    """Return the places of acts on offsets that Kafka Streams also commits in these records, and of what was before.

    An act is a tombstone, or a commit without metadata: see `offset_acts`. A later commit of its key is newer.
    """
    values, is_commit = records["value"], pc.starts_with(records["key"], pattern=COMMIT.to_bytes(2, "big"))
    acts, by_streams = pc.is_null(values), pa.scalar(value=False)
    for version, length, nothing, text in _METADATA_BYTES:
        is_of = pc.starts_with(values, pattern=version)
        acts = pc.or_(acts, pc.and_(is_of, pc.equal(pc.binary_slice(values, *length), nothing)))
        is_begin = pc.is_in(pc.binary_slice(values, *text), value_set=_STREAMS_BEGIN)
        by_streams = pc.or_(by_streams, pc.and_(is_of, is_begin))
    acts, by_streams = (pc.fill_null(pc.and_(is_commit, one), False) for one in (acts, by_streams))  # noqa: FBT003 - Arrow's
    own, others = (pc.unique(placed.filter(one)["key"]) for one in (acts, by_streams))
    both = own.filter(pc.is_in(own, value_set=others))
    if not len(both):
        return []
    found, before = list[int](), dict[tuple[int, bytes], int]()
    of_both = placed.append_column("is_act", acts).filter(pc.is_in(placed["key"], value_set=both))
    rows = of_both.select(["partition", "key", "place", "is_act"])
    for partition, key, place, is_act in zip(*(one.to_pylist() for one in rows.columns), strict=True):
        if is_act:
            found += {place, before.get((partition, key), place)}
        before[partition, key] = place
    return found


def _have_protocol(records: pa.Table) -> pa.ChunkedArray:
    """Return whether the members of a classic group have agreed on a protocol, for each record."""
    is_classic = pc.starts_with(records["key"], pattern=CLASSIC_METADATA.to_bytes(2, "big"))
    is_of_consumers = pc.equal(pc.binary_slice(records["value"], *_TYPE_BYTES), _OF_CONSUMERS)
    has_one = pc.not_equal(pc.binary_slice(records["value"], *_PROTOCOL_BYTES), _NO_PROTOCOL)
    return pc.fill_null(pc.and_(pc.and_(is_classic, is_of_consumers), has_one), fill_value=False)


Row = dict[str, Any]
TABLES = ("offset_commits", "group_records", "quarantine")
"""The tables that get rows."""
DRIFTED = "drifted"
"""The name of a further count: records with unknown tagged fields."""
_NO_TOPIC_ID = "A" * 22  # all zeros
_CONSUMER = "consumer"
_MOST_MEMBERS, _MOST_TOPICS, _MOST_PARTITIONS = 1_000, 100, 2_000  # kept of a record
_LONGEST_NAME = 500  # characters, likewise
_MICROSECONDS = 1_000
_HELD, _ROWS = 200_000, 20_000  # records that a worker holds to find the newest of their keys, and makes rows of


class Rows(NamedTuple):
    """The rows of each table, and the number of records with unknown tagged fields."""

    offset_commits: list[Row]
    group_records: list[Row]
    quarantine: list[Row]
    drifted: int = 0


def to_rows(records: Iterable[Row], options: FoldOptions) -> Rows:
    """Return the rows of records with the columns `newest_records.COLUMNS`; times are in microseconds since 1970.

    If the topic got more partitions, a record may be in a partition that no longer holds its group: it gives no row.
    """
    rows, drifted = Rows([], [], []), 0
    partitions = options.partitions if options.partitions_grew else None
    for raw in records:
        value = raw["value"]
        try:
            record = _decode(raw["key"], value)
        except DecodeError as error:
            columns = (raw[name] for name in ("offset", "partition", "timestamp", "key", "value"))
            rows.quarantine.append(quarantine_row(error, options, *columns))
            continue
        group_id = record.key["group"] if "group" in record.key else record.key["group_id"]
        if partitions is not None and partition_of(group_id, partitions) != raw["partition"]:
            continue
        drifted += record.drift
        row = {
            "cluster": options.cluster,
            "group_id": group_id,
            "recorded_at": raw["timestamp"],
            "source_partition": raw["partition"],
            "last_offset": raw["offset"],
            "log_epoch": options.log_epoch(raw["partition"], raw["offset"]),
        }
        if record.record_type == COMMIT:
            rows.offset_commits.append(row | _commit(record))
        else:
            of_group = row | _group_record(record, is_deleted=value is None)
            rows.group_records.append(of_group)
            if record.record_type == CLASSIC_METADATA and (value is None or of_group["protocol"] is not None):
                rows.group_records.append(of_group | {"record_type": LAST_PROTOCOL, "group_members": None})
    return rows._replace(drifted=drifted)


def make_rows(batches: Iterable[pa.RecordBatch], *, options: FoldOptions) -> Iterator[BatchRows]:
    """Yield the rows of the newest record of each key, for some records at a time.

    Where a worker reads very many keys, a key may come more than once, each time with a later record.
    """
    for newest in _find_newest_of_all(batches):
        for start in range(0, newest.num_rows, _ROWS):
            rows = to_rows(microseconds(newest.slice(start, _ROWS)).to_pylist(), options)
            own: dict[str, list[Row]] = {name: listed for name in TABLES if (listed := getattr(rows, name))}
            counts = Counter({DRIFTED: rows.drifted, **{name: len(listed) for name, listed in own.items()}})
            yield BatchRows({name: to_table(listed, schema_of(name)) for name, listed in own.items()}, counts=counts)


def _find_newest_of_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held, count = list[pa.Table](), 0
    for batch in batches:
        held.append(pa.table(batch).select(COLUMNS))
        count += batch.num_rows
        if count >= _HELD:
            newest = find_newest(pa.concat_tables(held))
            held, count = [newest], newest.num_rows
            if count > _HELD // 2:
                yield newest
                held, count = [], 0
    if held:
        yield find_newest(pa.concat_tables(held))


def _commit(record: Record) -> Row:
    value = record.value
    row = {"topic": record.key["topic"], "partition": record.key["partition"]}
    if value is None:
        return row
    topic_id, leader_epoch = value.get("topic_id"), value.get("leader_epoch", -1)
    partition_time = partition_time_ms(value["metadata"])
    return row | {
        "topic_id": None if topic_id == _NO_TOPIC_ID else topic_id,
        "committed_offset": value["offset"],
        "leader_epoch": None if leader_epoch < 0 else leader_epoch,
        "metadata": value["metadata"],
        "partition_time": None if partition_time is None else partition_time * _MICROSECONDS,
        "committed_at": _time(value["commit_timestamp"]),
        "expire_at": _time(value.get("expire_timestamp", -1)),
    }


def _time(milliseconds: int) -> int | None:
    """Return a time in microseconds; None for -1 and for a time outside the supported years."""
    return milliseconds * _MICROSECONDS if 0 <= milliseconds <= LAST_MS else None


def _decode(key: bytes, value: bytes | None) -> Record:
    """Return the record. If the key is enough, the value is not decoded and may be invalid."""
    kind = int.from_bytes(key[:2], "big")
    if kind in KEY_ONLY or (kind == CONSUMER_MEMBER and not value):
        return decode(key, None)
    try:
        return decode(key, value)
    except DecodeError:
        if kind != CONSUMER_MEMBER:
            raise
        return decode(key, None)


def _group_record(record: Record, *, is_deleted: bool) -> Row:
    row = {"record_type": record.record_type, "member_id": record.key.get("member_id", ""), "deleted": is_deleted}
    return row if record.value is None else row | _VALUES[record.record_type](record.value)


def _classic(value: Mapping[str, Any]) -> Row:
    return {
        "protocol_type": value["protocol_type"],
        "protocol": value["protocol"],
        "epoch": value["generation"],
        "member_count": len(value["members"]),
        "leader": value["leader"],
        "group_members": [
            _place(one["member_id"], one["group_instance_id"], one)
            | (_read_of_member(one) if value["protocol_type"] == _CONSUMER else {"assignment": []})
            for one in value["members"][:_MOST_MEMBERS]
        ],
    }


def _place(member_id: str, instance_id: str | None, value: Mapping[str, Any]) -> Row:
    names = {"client_id": value["client_id"], "client_host": value["client_host"], "instance_id": instance_id or None}
    return {"member_id": member_id} | {name: one and one[:_LONGEST_NAME] for name, one in names.items()}


def _read_of_member(member: Mapping[str, Any]) -> Row:
    """Return what a consumer subscribes to, and what it got: brokers keep the bytes that clients write."""
    subscription = decode_consumer_subscription(member["subscription"])
    topics = None if subscription is None else [name[:_LONGEST_NAME] for name in subscription.topics[:_MOST_TOPICS]]
    return {"subscription": topics, "assignment": _assigned(member["assignment"])}


def _assigned(data: bytes) -> list[Row]:
    assignment = decode_consumer_assignment(data)
    if assignment is None:
        return []  # another client library may use another format
    found, left = [], _MOST_PARTITIONS
    for topic, partitions in assignment.partitions.items():
        found.append({"topic": topic, "partitions": partitions[:left]})
        left -= len(partitions)
        if left <= 0:
            break
    return found


def _member(value: Mapping[str, Any]) -> Row:
    return {
        "epoch": value["member_epoch"],
        "member_state": value["state"],
        "group_members": [
            {
                "assignment": [
                    {"topic_id": one["topic_id"], "partitions": one["partitions"][:_MOST_PARTITIONS]}
                    for one in value["assigned_partitions"][:_MOST_MEMBERS]
                ]
            }
        ],
    }


_VALUES: Mapping[int, Callable[[Mapping[str, Any]], Row]] = {
    CLASSIC_METADATA: _classic,
    CONSUMER_METADATA: lambda value: {"epoch": value["epoch"]},
    CONSUMER_MEMBER: lambda value: {
        "group_members": [
            _place("", value["instance_id"], value) | {"subscription": value["subscribed_topic_names"][:_MOST_TOPICS]}
        ]
    },
    CONSUMER_ASSIGNMENT_EPOCH: lambda value: {"epoch": value["assignment_epoch"]},
    CONSUMER_CURRENT_ASSIGNMENT: _member,
    SHARE_METADATA: lambda value: {"epoch": value["epoch"]},
    SHARE_ASSIGNMENT_EPOCH: lambda value: {"epoch": value["assignment_epoch"]},
}
"""By record type, the function that makes columns from its value."""
