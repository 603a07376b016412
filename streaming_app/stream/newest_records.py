"""The newest record of each key in a batch, found in the JVM: of millions of commits, only these are ever decoded.

Kafka keys of offset commits name group, topic and partition, and their newest record holds all that there is to know.
So do those of the records that tell the types, epochs and members of groups. Of types in `KEY_ONLY` the key says
enough, and their values, which hold subscriptions and user data, stay in the JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streaming_app.stream.source import type_condition

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


def find_newest(batch: DataFrame) -> DataFrame:
    """Return the newest record of each key, with `COLUMNS`; the value of a record in `KEY_ONLY` is empty or null.

    The key of a group that is in two partitions, since the topic was given more, counts in each of them.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name; Spark is loaded by those who need it

    newest = F.max_by(F.struct("offset", "timestamp", "value"), "offset").alias("newest")
    of_key = wanted_records(batch).groupBy("partition", "key").agg(newest)
    return of_key.selectExpr("partition", "newest.offset", "newest.timestamp", "key", "newest.value")


def wanted_records(batch: DataFrame) -> DataFrame:
    """Return the records that this reads, with `COLUMNS` as `find_newest` has them."""
    return batch.where(WANTED).selectExpr("partition", "offset", "timestamp", f"{_ENTITY} AS key", f"{_VALUE} AS value")


def take_newest(records: pa.Table) -> pa.Table:
    """Return what `find_newest` returns, of few `wanted_records`."""
    keys = zip(records["partition"].to_pylist(), records["key"].to_pylist(), strict=True)
    newest: dict[tuple[int, bytes], tuple[int, int]] = {}
    for place, (key, offset) in enumerate(zip(keys, records["offset"].to_pylist(), strict=True)):
        newest[key] = max(newest.get(key, (-1, -1)), (offset, place))
    return records.select(COLUMNS).take(pa.array([place for _, place in newest.values()], pa.int64()))
