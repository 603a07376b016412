"""The content of data files: Parquet, and the statistics of each file for the Delta log.

The process that folds rows also encodes them: the job, or a Spark worker, which returns the content of its files. Only
the job writes into the warehouse (see `writer`). So workers need no credentials of the store, and a task that Spark
runs twice leaves no file. Spark's workers import this module.

The statistics are the number of rows and the bounds of `group_id`: queries filter by it, so that readers can skip
files. Bounds are whole values, never shortened, in Delta's order of UTF-8 bytes.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction

    from streaming_app.tables.location import Location

CLUSTER = "cluster"
"""The column by which tables are partitioned. The log and the path of a file have its value; the file has no such
column."""
BOUNDED = "group_id"
"""The column with statistics."""


class EncodedFile(NamedTuple):
    """The content of a file that is not written yet."""

    content: bytes
    stats: str
    """The statistics as JSON, as the log has them."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(json.loads(self.stats)["numRecords"])


class StoredFile(NamedTuple):
    """A file that a table has."""

    path: str
    """Below the table. The log has it URI-encoded."""
    size: int
    rows: int = 0
    """Only known of a file of `groups`, as the range of its group ids: None where a bound is not known."""
    first: str | None = None
    last: str | None = None


def encode_file(rows: pa.Table) -> EncodedFile:
    """Return a file with these rows; there must be at least one."""
    stored = rows.drop_columns([CLUSTER]) if CLUSTER in rows.column_names else rows
    bounded = [BOUNDED] if BOUNDED in stored.column_names else []
    sink = pa.BufferOutputStream()
    # `store_schema=False` omits Arrow's copy of the schema, a fifth of a small file: the table has the types.
    pq.write_table(stored, sink, compression="snappy", write_statistics=bounded or False, store_schema=False)
    stats: dict[str, object] = {"numRecords": rows.num_rows}
    if bounded:
        bounds = pc.min_max(rows[BOUNDED]).as_py()
        stats["nullCount"] = {BOUNDED: rows[BOUNDED].null_count}
        if bounds["min"] is not None:
            stats |= {"minValues": {BOUNDED: bounds["min"]}, "maxValues": {BOUNDED: bounds["max"]}}
    # Without pairs of surrogates, which delta-rs does not read (deltalake 1.6).
    return EncodedFile(sink.getvalue().to_pybytes(), json.dumps(stats, ensure_ascii=False))


def decode_file(content: bytes, cluster: str, schema: pa.Schema) -> pa.Table:
    """Return the columns of a file of this cluster that `schema` names. Raises KeyError and Arrow's errors."""
    stored = pq.ParquetFile(pa.BufferReader(content))
    rows = stored.read([name for name in schema.names if name != CLUSTER], use_threads=False)
    if CLUSTER in schema.names:
        rows = rows.append_column(CLUSTER, pa.repeat(cluster, rows.num_rows))
    return rows.select(schema.names).cast(schema)


def write_file(table: Location, cluster: str, encoded: EncodedFile) -> AddAction:
    """Write a file below a table. Its rows are in the table once the returned action is committed. Raises OSError."""
    from deltalake.transaction import AddAction  # noqa: PLC0415 - Spark's workers have no delta-rs

    # As delta-rs names its files: some readers, polars for one, take the value of the partition from the path. Delta
    # escapes it there, but no character of a cluster's name (`text.is_name`) needs that.
    name = f"{CLUSTER}={cluster}/part-{uuid.uuid4()}.snappy.parquet"
    (table / name).write_bytes(encoded.content)
    now = int(time.time() * 1000)
    return AddAction(name, len(encoded.content), {CLUSTER: cluster}, now, data_change=True, stats=encoded.stats)


def remove_action(cluster: str, file: StoredFile) -> RemoveAction:
    """Return the action that removes a file with rows of this cluster from a table."""
    from deltalake.transaction import RemoveAction  # noqa: PLC0415 - as above

    now = int(time.time() * 1000)
    of: dict[str, str | None] = {CLUSTER: cluster}
    return RemoveAction(file.path, data_change=True, deletion_timestamp=now, size=file.size, partition_values=of)
