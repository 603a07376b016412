"""What one micro-batch writes: a list of tables, the column of the folded rows that holds the rows of each, and counts.

The fold stage fills the columns, the micro-batch writes the tables in this order. A new table of the fold is an entry
here and the rows in `fold_stage`.
"""

from __future__ import annotations

from typing import NamedTuple

from streaming_app.tables.definitions import table


class Output(NamedTuple):
    """An append-only table that a batch writes."""

    table: str
    column: str
    """The array column of the folded rows that holds the table's rows."""
    count_column: str
    """The column of the folded rows that holds how many these are."""

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The table's columns beyond those that every folded row has."""
        return tuple(name for name in table(self.table).names if name not in _OF_EVERY_ROW)

    @property
    def array_type(self) -> str:
        """The type of the array column in Spark SQL."""
        types = {column.name: column.type for column in table(self.table).columns}
        return "array<struct<" + ",".join(f"{name}:{types[name]}" for name in self.row_columns) + ">>"


_OF_EVERY_ROW = ("cluster", "group_id")

EVENTS = Output("group_events", "events", "emitted_events")
TOPOLOGIES = Output("topologies", "topologies", "emitted_topologies")
QUARANTINE = Output("quarantine", "undecodable", "quarantined")
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
