"""The append-only tables that a batch of groups writes. To add one, add its name here, its rows in `group_result`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from streaming_app.stream.batch_rows import BatchRows
from streaming_app.tables.arrow import schema_of
from streaming_app.tables.definitions import table

EVENTS, TOPOLOGIES, QUARANTINE = "group_events", "topologies", "quarantine"
APPENDED = (EVENTS, QUARANTINE, TOPOLOGIES)
"""In the order in which they are written. The table `groups` comes after all of them: its rows say up to which offset
records are folded. So after a crash in between, the batch is repeated, and nothing is lost."""
RETRACTED = "retracted"
"""The name of the events to delete: an earlier batch wrote them for the first part of an operation (`groups.fold`)."""

RowsByTable = Mapping[str, list[dict[str, Any]]]
"""By table, or `RETRACTED`."""
HistoryOffsets = Mapping[str, Mapping[int, int]]
"""By history table and partition, the offset up to which it has rows: a batch adds only rows beyond it."""


def to_tables(parts: Iterable[RowsByTable], reached: HistoryOffsets) -> BatchRows:
    """Return these rows, without those that the history already has; the counts are those of all rows, by table.

    Raises the errors of Arrow if it cannot hold a value.
    """
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for part in parts:
        for name, some in part.items():
            rows[name] += some
    tables = {
        name: pa.Table.from_pylist(new, schema_of(EVENTS if name == RETRACTED else name))
        for name, some in rows.items()
        if (new := _beyond(name, some, reached.get(name)))
    }
    return BatchRows(tables, Counter({name: len(some) for name, some in rows.items()}))


def _beyond(name: str, rows: list[dict[str, Any]], offsets: Mapping[int, int] | None) -> list[dict[str, Any]]:
    if not offsets:
        return rows
    partition = str(table(name).partition_column)
    return [row for row in rows if row["offset"] > offsets.get(row[partition], -1)]
