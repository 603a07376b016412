"""Reads from a warehouse what `verification` compares with the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_app.tables.checkpoint_offsets import CheckpointOffsets, read_checkpoint_offsets
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.verify.compare import Row

_COLUMNS = (
    "group_id, state, readiness_recorded, group_epoch, assignment_epoch, assigned_at, topology_epoch, "
    "members, assignments, subtopologies"
)

_NAMED_GROUPS = 100  # more are read by their range: ids may be long


class WarehouseTables:
    """One cluster's groups in a warehouse; every call reads the newest version of the tables."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._warehouse = warehouse
        self._cluster = cluster

    def checkpoint_offsets(self) -> CheckpointOffsets | None:
        """Return the offsets that the job has processed; None before its first batch is done."""
        return read_checkpoint_offsets(self._warehouse, self._cluster)

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that are not Dead. Raises WarehouseError if there is no warehouse."""
        return [row["group_id"] for row in self._select("group_id", "state <> 'Dead'")]

    def rows(self, group_ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these groups, sorted by id, by group id; of many groups also of those between them."""
        if len(group_ids) <= _NAMED_GROUPS:
            condition = f"group_id IN ({', '.join(map(quote, group_ids))})"
        else:
            condition = f"group_id BETWEEN {quote(group_ids[0])} AND {quote(group_ids[-1])}"
        return {row["group_id"]: row for row in self._select(_COLUMNS, condition)}

    def _select(self, columns: str, condition: str) -> list[dict[str, Any]]:
        condition = f"cluster = {quote(self._cluster)} AND {condition}"
        return WarehouseReader(self._warehouse).rows(f"SELECT {columns} FROM groups WHERE {condition}")  # noqa: S608 - quoted
