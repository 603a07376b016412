"""The rows of a batch, by table, and its counts; the same whether the driver or Spark's workers fold it.

To add an append-only table that a batch of groups writes, add its name to `APPENDED`, and its rows in `group_result`.

For a large batch Spark's workers make the rows, and return them as files. So neither the driver nor the JVM holds them
as rows (see `tables.data_files`). Spark's workers import this module.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming_app.groups.group import GroupEvent
from streaming_app.tables.arrow import arrow_type, release_memory
from streaming_app.tables.data_files import EncodedFile, decode_file, encode_file
from streaming_app.tables.definitions import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENTS, TOPOLOGIES, QUARANTINE = "group_events", "topologies", "quarantine"
APPENDED = (EVENTS, QUARANTINE, TOPOLOGIES)
"""In the order in which they are written. The table `groups` comes after all of them: its rows say up to which offset
records are folded. So after a crash in between, the batch is repeated, and nothing is lost."""
RETRACTED = "retracted"
"""The name of the events to delete: an earlier batch wrote them for the first part of an operation (`groups.fold`)."""

_DDL = "name string, content binary, stats string, count bigint"
_RETURNED = pa.schema({"name": pa.string(), "content": pa.binary(), "stats": pa.string(), "count": pa.int64()})
_FILE_BYTES = 32 << 20  # of rows as Arrow, which a worker holds until it has encoded them

EVENT_COLUMNS = ("cluster", "group_id", *GroupEvent._fields, "source_partition", "log_epoch", "void")
RowsByTable = Mapping[str, list[Any]]
"""By table, or `RETRACTED`. A row is a dict, but an event is a tuple of `EVENT_COLUMNS`: a group has many."""
HistoryOffsets = Mapping[str, Mapping[int, int]]
"""By history table and partition, the offset up to which it has rows: a batch adds only rows beyond it."""
Make = Callable[[Iterator[pa.RecordBatch]], Iterable["BatchRows"]]
"""Makes rows from records, some records at a time."""


@dataclass(frozen=True)
class BatchRows:
    """The rows of a batch, by table; tables without rows are missing."""

    tables: Mapping[str, pa.Table | Sequence[EncodedFile]]
    """By name, what this process holds, or the files that workers returned."""
    counts: Counter[str] = field(default_factory=Counter)
    """Numbers of records or rows, by name."""

    def read(self, name: str, cluster: str, schema: pa.Schema) -> pa.Table:
        """Return the columns of a table that `schema` names; the rows are of this cluster."""
        return pa.concat_tables([schema.empty_table(), *self.parts(name, cluster, schema)])

    def parts(self, name: str, cluster: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the same in parts: what each file holds."""
        found = self.tables.get(name, ())
        if isinstance(found, pa.Table):
            yield found.select(schema.names)
        else:
            yield from (decode_file(one.content, cluster, schema) for one in found)


def join(parts: Iterable[BatchRows]) -> BatchRows:
    """Return the rows of all parts, which this process holds."""
    held, counts = defaultdict[str, list[pa.Table]](list), Counter[str]()
    for part in parts:
        counts.update(part.counts)
        for name, rows in part.tables.items():
            held[name].append(rows)
    return BatchRows({name: pa.concat_tables(rows) for name, rows in held.items()}, counts)


@cache
def schema_of(name: str) -> pa.Schema:
    """Return the schema of a table."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table(name).columns])


def to_tables(parts: Iterable[RowsByTable], reached: HistoryOffsets) -> BatchRows:
    """Return these rows, without those that the history already has; the counts are those of all rows, by table.

    Raises the errors of Arrow if it cannot hold a value.
    """
    rows = defaultdict[str, list[Any]](list)
    for part in parts:
        for name, some in part.items():
            rows[name] += some
    made = {name: _beyond(name, _to_table(name, some), reached.get(name)) for name, some in rows.items() if some}
    tables = {name: new for name, new in made.items() if new.num_rows}
    return BatchRows(tables, Counter({name: len(some) for name, some in rows.items()}))


def events_of(rows: RowsByTable) -> Iterator[dict[str, Any]]:
    """Yield the events as dicts."""
    return (dict(zip(EVENT_COLUMNS, one, strict=True)) for one in rows.get(EVENTS, ()))


def _to_table(name: str, rows: list[Any]) -> pa.Table:
    if name not in {EVENTS, RETRACTED}:
        return pa.Table.from_pylist(rows, schema_of(name))
    schema, columns = schema_of(EVENTS), dict(zip(EVENT_COLUMNS, zip(*rows, strict=True), strict=True))
    return pa.Table.from_pydict(dict.fromkeys(schema.names, [None] * len(rows)) | columns, schema)


def _beyond(name: str, rows: pa.Table, offsets: Mapping[int, int] | None) -> pa.Table:
    if not offsets:
        return rows
    places = zip(rows[str(table(name).partition_column)].to_pylist(), rows["offset"].to_pylist(), strict=True)
    return rows.filter([offset > offsets.get(partition, -1) for partition, offset in places])


def make_in_workers(records: DataFrame, make: Make, most_rows: Mapping[str, int] = MappingProxyType({})) -> BatchRows:
    """Return the rows that Spark's workers make from records, each worker from its part.

    A file of a table that `most_rows` names has at most so many rows.
    """
    returned = records.mapInArrow(partial(_encode, make, dict(most_rows)), _DDL).toArrow()
    files, counts = defaultdict[str, list[EncodedFile]](list), Counter[str]()
    for name, content, stats, count in zip(*returned.to_pydict().values(), strict=True):
        if content is None:
            counts[name] += count
        else:
            files[name].append(EncodedFile(content, stats))
    return BatchRows(files, counts)


def _encode(make: Make, most_rows: Mapping[str, int], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held, size = list[BatchRows](), 0
    for made in make(batches):
        held.append(made)
        size += sum(rows.nbytes for rows in made.tables.values() if isinstance(rows, pa.Table))
        if size >= _FILE_BYTES:
            yield from _returned(join(held), most_rows)
            held, size = [], 0
    yield from _returned(join(held), most_rows)
    held.clear()
    release_memory()  # the process waits for its next task


def _returned(made: BatchRows, most_rows: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    for name, rows in made.tables.items():
        assert isinstance(rows, pa.Table)  # noqa: S101 - what this process has made
        most = most_rows.get(name, rows.num_rows)
        for start in range(0, rows.num_rows, most):
            encoded = encode_file(rows.slice(start, most))
            yield pa.RecordBatch.from_pylist([{"name": name, **encoded._asdict()}], _RETURNED)
    counts = [{"name": name, "count": count} for name, count in made.counts.items()]
    yield pa.RecordBatch.from_pylist(counts, _RETURNED)
