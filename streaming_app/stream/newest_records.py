"""The newest record of each key in a batch, found in the JVM: of millions of commits, only these are ever decoded.

Kafka keys of offset commits name group, topic and partition, and their newest record holds all that there is to know.
So do those of the records that tell the types, epochs and members of groups. Of types in `KEY_ONLY` the key says
enough, and their values, which hold subscriptions and user data, stay in the JVM.

Spark groups by a sort, as a value has no fixed size. By one column of 8 bytes that is a radix sort. The keys of a topic
begin alike, so that each comparison of two would read both: of 10,000,000 commits in any order that took twice as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streaming_app.stream.source import type_condition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
"""The type of the group that a record of its metadata proves."""
KEY_ONLY = frozenset({CONSUMER_MEMBER, SHARE_MEMBER, STREAMS_METADATA})
"""Types of which only the key is read, and whether the record is a tombstone."""
_GROUP_RECORDS = frozenset(
    {*GROUP_TYPES, *KEY_ONLY, CONSUMER_ASSIGNMENT_EPOCH, CONSUMER_CURRENT_ASSIGNMENT, SHARE_ASSIGNMENT_EPOCH}
)
WANTED = type_condition(COMMITS | _GROUP_RECORDS)
"""The SQL condition for the records that this reads. All others are of no use here, or the groups' query reads them."""

# Keys of both types of commits have the same fields, and brokers read them as the same key.
_ENTITY = f"IF({type_condition({LEGACY_COMMIT})}, concat(X'{COMMIT:04X}', substring(key, 3)), key)"
_VALUE = f"IF(value IS NOT NULL AND ({type_condition(KEY_ONLY)}), X'', value)"
COLUMNS = ("partition", "offset", "timestamp", "key", "value")
_NEWEST = "max_by(struct(offset, timestamp, value), offset) AS newest"
HASH = "xxhash64(partition, key)"
"""What `find_newest` groups by, in SQL."""
HASH_OF_ONE_KEY = "hash_of_one_key"


def find_newest(batch: DataFrame) -> DataFrame:
    """Return the newest record of each hash of partition and key, with `COLUMNS` and `HASH_OF_ONE_KEY`.

    As long as that is true in all rows they are what `find_newest_by_key` returns.
    """
    of_hash = wanted_records(batch).selectExpr("*", f"{HASH} AS hash").groupBy("hash")
    ends = [f"{end}({column}) AS {end}_{column}" for column in ("partition", "key") for end in ("min", "max")]
    return of_hash.agg(_expr(_NEWEST), *map(_expr, ends)).selectExpr(
        "min_partition AS partition",
        "newest.offset",
        "newest.timestamp",
        "min_key AS key",
        "newest.value",
        f"min_partition = max_partition AND min_key = max_key AS {HASH_OF_ONE_KEY}",
    )


def find_newest_by_key(batch: DataFrame) -> DataFrame:
    """Return the newest record of each key, with `COLUMNS`; the value of a record in `KEY_ONLY` is empty or null.

    The key of a group that is in two partitions, since the topic was given more, counts in each of them.
    """
    of_key = wanted_records(batch).groupBy("partition", "key").agg(_expr(_NEWEST))
    return of_key.selectExpr("partition", "newest.offset", "newest.timestamp", "key", "newest.value")


def _expr(text: str) -> Column:
    from pyspark.sql.functions import expr  # noqa: PLC0415 - Spark is loaded by those who need it

    return expr(text)


def wanted_records(batch: DataFrame) -> DataFrame:
    """Return the records that this reads, with `COLUMNS` as `find_newest` has them."""
    return batch.where(WANTED).selectExpr("partition", "offset", "timestamp", f"{_ENTITY} AS key", f"{_VALUE} AS value")


def take_newest(records: pa.Table) -> pa.Table:
    """Return what `find_newest_by_key` returns, of few `wanted_records`."""
    keys = zip(records["partition"].to_pylist(), records["key"].to_pylist(), strict=True)
    newest: dict[tuple[int, bytes], tuple[int, int]] = {}
    for place, (key, offset) in enumerate(zip(keys, records["offset"].to_pylist(), strict=True)):
        newest[key] = max(newest.get(key, (-1, -1)), (offset, place))
    return records.select(COLUMNS).take(pa.array([place for _, place in newest.values()], pa.int64()))
