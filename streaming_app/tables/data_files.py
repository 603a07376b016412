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
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

    from streaming_app.tables.location import Location

CLUSTER = "cluster"
"""The column by which tables are partitioned. The log has its value; the files do not contain the column."""
ENCODED_DDL = "content binary, stats string"
"""The columns that `encode_files` yields."""
_BOUNDED = "group_id"
_ENCODED = pa.schema([("content", pa.binary()), ("stats", pa.string())])
_FILE_BYTES = 32 << 20  # of Arrow rows: a worker holds them until it encodes them


class EncodedFile(NamedTuple):
    """The content of a file that is not written yet."""

    content: bytes
    stats: str
    """The statistics as JSON, as the log has them."""


def encode_file(rows: pa.Table) -> EncodedFile:
    """Return a file with these rows; there must be at least one."""
    stored = rows.drop_columns([CLUSTER]) if CLUSTER in rows.column_names else rows
    bounded = [_BOUNDED] if _BOUNDED in stored.column_names else []
    sink = pa.BufferOutputStream()
    # `store_schema=False` omits Arrow's copy of the schema, a fifth of a small file: the table has the types.
    pq.write_table(stored, sink, compression="snappy", write_statistics=bounded or False, store_schema=False)
    return EncodedFile(sink.getvalue().to_pybytes(), _statistics(stored))


def decode_file(encoded: EncodedFile, cluster: str, schema: pa.Schema) -> pa.Table:
    """Return the columns of a file of this cluster that `schema` names."""
    stored = pq.ParquetFile(pa.BufferReader(encoded.content))
    rows = stored.read([name for name in schema.names if name != CLUSTER], use_threads=False)
    if CLUSTER in schema.names:
        rows = rows.append_column(CLUSTER, pa.repeat(cluster, rows.num_rows))
    return rows.select(schema.names).cast(schema)


def encode_files(batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield files with the rows of these batches, in their order; columns: `ENCODED_DDL`.

    A file has at most `most_rows` rows; 0: no limit.
    """
    for part in _parts(batches, most_rows):
        encoded = encode_file(part)
        yield pa.RecordBatch.from_pylist([encoded._asdict()], _ENCODED)


def write_file(table: Location, cluster: str, encoded: EncodedFile) -> AddAction:
    """Write a file below a table. Its rows are in the table once the returned action is committed. Raises OSError."""
    from deltalake.transaction import AddAction  # noqa: PLC0415 - Spark's workers have no delta-rs

    name = f"part-{uuid.uuid4()}.snappy.parquet"
    (table / name).write_bytes(encoded.content)
    now = int(time.time() * 1000)
    return AddAction(name, len(encoded.content), {CLUSTER: cluster}, now, data_change=True, stats=encoded.stats)


def _parts(batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
    some, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        for piece in _pieces(batch, most_rows):
            if some and ((most_rows and rows + piece.num_rows > most_rows) or size >= _FILE_BYTES):
                yield pa.Table.from_batches(some)
                some, rows, size = [], 0, 0
            some.append(piece)
            rows += piece.num_rows
            size += batch.get_total_buffer_size() * piece.num_rows // batch.num_rows
    if some:
        yield pa.Table.from_batches(some)


def _pieces(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, most_rows or max(1, batch.num_rows)):
        yield batch.slice(start, most_rows or None)


def _statistics(rows: pa.Table) -> str:
    found: dict[str, object] = {"numRecords": rows.num_rows}
    if _BOUNDED in rows.column_names:
        ids = rows[_BOUNDED]
        bounds = pc.min_max(ids).as_py()
        found["nullCount"] = {_BOUNDED: ids.null_count}
        if bounds["min"] is not None:
            found |= {"minValues": {_BOUNDED: bounds["min"]}, "maxValues": {_BOUNDED: bounds["max"]}}
    return json.dumps(found, ensure_ascii=False)  # delta-rs does not read pairs of surrogates (deltalake 1.6)
