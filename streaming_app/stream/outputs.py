"""What one batch of groups writes: a list of tables, the column of the folded rows that holds the rows of each, counts.

The fold stage fills the columns; the rows of each table are taken out of them here, as Arrow for a few, as a DataFrame
for many; the batch writes the tables in this order. A new table of the fold is an entry here and the rows in `outcome`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.tables.definitions import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Output(NamedTuple):
    """An append-only table that a batch writes."""

    table: str
    column: str
    """The array column of the folded rows that holds the table's rows."""
    count_column: str
    """The column of the folded rows that holds how many these are."""
    of_folded_row: tuple[str, ...] = ("cluster", "group_id")
    """The columns that the rows have from the folded row that they are nested in."""

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The table's columns beyond those of the folded row."""
        return tuple(name for name in table(self.table).names if name not in self.of_folded_row)

    @property
    def array_type(self) -> str:
        """The type of the array column in Spark SQL."""
        types = {column.name: column.type for column in table(self.table).columns}
        return "array<struct<" + ",".join(f"{name}:{types[name]}" for name in self.row_columns) + ">>"


EVENTS = Output("group_events", "events", "emitted_events")
TOPOLOGIES = Output("topologies", "topologies", "emitted_topologies")
QUARANTINE = Output("quarantine", "undecodable", "quarantined", of_folded_row=("cluster",))
"""Its rows name the group themselves: the folded row that holds them is the group's, or one without, as batches end."""
APPENDED = (EVENTS, QUARANTINE, TOPOLOGIES)
"""In the order in which they are written. The table `groups` comes after all of them: its rows hold the offsets up to
which records are folded, so a crash in between repeats the batch and loses nothing."""

RETRACTED = "retracted"
"""The column of events that an earlier batch emitted for the first part of an operation, see `groups.fold`."""
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
"""Columns of the folded rows; `group_id` is null in rows that hold nothing but undecodable records."""


_NONE = -1


def select_rows(folded: DataFrame, output: Output, column: str) -> DataFrame:
    """Return the rows of an appended table that are nested in `column`."""
    exploded = folded.selectExpr(*output.of_folded_row, f"explode({column}) AS row")
    return exploded.select(*output.of_folded_row, "row.*").select(*table(output.table).names)


def take_rows(folded: pa.Table, output: Output, column: str) -> pa.Table:
    """Return what `select_rows` returns, of folded rows in memory."""
    nested = folded[column].combine_chunks()
    of_group = pc.list_parent_indices(nested)
    rows = pa.Table.from_struct_array(pc.list_flatten(nested))
    for name in output.of_folded_row:
        rows = rows.append_column(folded.schema.field(name), folded[name].combine_chunks().take(of_group))
    return rows.select(table(output.table).names)


def select_groups(folded: DataFrame) -> DataFrame:
    """Return the rows of the table `groups`."""
    return folded.where("group_id IS NOT NULL").select(*table("groups").names)


def take_groups(folded: pa.Table) -> pa.Table:
    """Return what `select_groups` returns, of folded rows in memory."""
    return folded.filter(pc.is_valid(folded["group_id"])).select(table("groups").names)


class HistoryEnd:
    """Up to which offset of each partition a history table holds rows already: a batch adds those beyond."""

    def __init__(self, partition_column: str, offsets: Mapping[int, int] | None) -> None:
        self._column, self._offsets = partition_column, offsets or {}

    def select_beyond(self, rows: DataFrame) -> DataFrame:
        """Return the rows that are beyond it."""
        if not self._offsets:
            return rows
        pairs = ", ".join(f"{partition}, {offset}L" for partition, offset in self._offsets.items())
        return rows.where(f"offset > coalesce(map({pairs})[{self._column}], {_NONE})")

    def take_beyond(self, rows: pa.Table) -> pa.Table:
        """Return what `select_beyond` returns, of rows in memory."""
        if not self._offsets:
            return rows
        ends = [self._offsets.get(partition, _NONE) for partition in rows[self._column].to_pylist()]
        return rows.filter(pc.greater(rows["offset"], pa.array(ends, pa.int64())))
