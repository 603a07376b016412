"""Takes the rows of each table out of folded rows: as Arrow for a few, as a DataFrame for many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.stream.outputs import Output
from streaming_app.tables.definitions import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NONE = -1


def select_rows(folded: DataFrame, output: Output, column: str) -> DataFrame:
    """Return the rows of an appended table that are nested in `column`."""
    exploded = folded.selectExpr("cluster", "group_id", f"explode({column}) AS row")
    return exploded.select("cluster", "group_id", "row.*").select(*table(output.table).names)


def take_rows(folded: pa.Table, output: Output, column: str) -> pa.Table:
    """Return what `select_rows` returns, of folded rows in memory."""
    nested = folded[column].combine_chunks()
    of_group = pc.list_parent_indices(nested)
    rows = pa.Table.from_struct_array(pc.list_flatten(nested))
    for name in ("cluster", "group_id"):
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
