"""The append-only tables that a batch of groups writes: the columns of the folded rows that hold their rows and counts.

The fold stage fills the columns; this module extracts the rows of each table; the batch writes the tables in this
order. For a new table of the fold, add an entry here and the rows in `outcome`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.stream.batch_rows import BatchRows
from streaming_app.tables.definitions import table


class Output(NamedTuple):
    """An append-only table that a batch writes."""

    table: str
    column: str
    """The array column of the folded rows that holds the rows of this table."""
    count_column: str
    """The column of the folded rows with the number of these rows."""
    of_folded_row: tuple[str, ...] = ("cluster", "group_id")
    """The columns that the rows take from the folded row in which they are nested."""

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The table's own columns, without those of the folded row."""
        return tuple(name for name in table(self.table).names if name not in self.of_folded_row)

    @property
    def array_type(self) -> str:
        """The type of the array column in Spark SQL."""
        types = {column.name: column.type for column in table(self.table).columns}
        return "array<struct<" + ",".join(f"{name}:{types[name]}" for name in self.row_columns) + ">>"


EVENTS = Output("group_events", "events", "emitted_events")
TOPOLOGIES = Output("topologies", "topologies", "emitted_topologies")
QUARANTINE = Output("quarantine", "undecodable", "quarantined", of_folded_row=("cluster",))
"""Its rows have a group id of their own: a folded row without a group may hold them at the end of a batch."""
APPENDED = (EVENTS, QUARANTINE, TOPOLOGIES)
"""In the order in which they are written. The table `groups` comes after all of them: its rows say up to which offset
records are folded. So after a crash in between, the batch is repeated, and nothing is lost."""

RETRACTED = "retracted"
"""The column of events to delete: an earlier batch emitted them for the first part of an operation (`groups.fold`)."""
COUNTS = ("groups", "decoded", "drifted", "retracted_events", *(output.count_column for output in APPENDED))
"""Columns to sum over all folded rows."""

FOLDED_DDL = ", ".join(
    [
        table("groups").ddl,
        *(f"{output.column} {output.array_type}" for output in APPENDED),
        f"{RETRACTED} {EVENTS.array_type}",
        *(f"{name} bigint" for name in COUNTS),
    ]
)
"""Columns of the folded rows; `group_id` is null in rows that hold only undecodable records."""


_NONE = -1
HistoryOffsets = Mapping[str, Mapping[int, int]]
"""By history table and partition, the offset up to which it has rows: a batch adds only rows beyond it."""


def rows_of(folded: pa.Table, reached: HistoryOffsets) -> BatchRows:
    """Return the rows of all tables that are in folded rows, and under `RETRACTED` the events to delete."""
    tables = {one.table: _beyond(one.table, _unnest(folded, one, one.column), reached) for one in APPENDED}
    tables |= {RETRACTED: _unnest(folded, EVENTS, RETRACTED), "groups": groups_of(folded)}
    counts = Counter({name: pc.sum(folded[name]).as_py() or 0 for name in COUNTS})
    return BatchRows({name: rows for name, rows in tables.items() if rows.num_rows}, counts=counts)


def groups_of(folded: pa.Table) -> pa.Table:
    """Return the rows for the table `groups`."""
    return folded.filter(pc.is_valid(folded["group_id"])).select(table("groups").names)


def _unnest(folded: pa.Table, output: Output, column: str) -> pa.Table:
    nested = folded[column].combine_chunks()
    of_group = pc.list_parent_indices(nested)
    rows = pa.Table.from_struct_array(pc.list_flatten(nested))
    for name in output.of_folded_row:
        rows = rows.append_column(folded.schema.field(name), folded[name].combine_chunks().take(of_group))
    return rows.select(table(output.table).names)


def _beyond(name: str, rows: pa.Table, reached: HistoryOffsets) -> pa.Table:
    offsets = reached.get(name)
    if not offsets:
        return rows
    ends = [offsets.get(partition, _NONE) for partition in rows[str(table(name).partition_column)].to_pylist()]
    return rows.filter(pc.greater(rows["offset"], pa.array(ends, pa.int64())))
