"""The table `task_copies`. delta-rs reads it, and replaces the rows of a cluster whenever one has changed.

The replacement is one commit, so if the job dies, the table has either the old rows or the new ones.
"""

from collections.abc import Sequence
from pathlib import Path

from streaming_app.groups.group import STREAMS
from streaming_app.groups.task_copies import TaskCopy
from streaming_app.tables.definitions import table
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable

NAME = "task_copies"


class TaskCopiesTable:
    """The rows of one cluster. Only the job of that cluster writes them."""

    def __init__(self, warehouse: Location | Path, cluster: str, fence: Fence | None = None) -> None:
        self._warehouse = Location.of(warehouse)
        self._table = RustTable(self._warehouse / NAME, cluster, fence)

    def read(self) -> list[TaskCopy]:
        """Return the stored rows. Raises WarehouseError when the table cannot be read."""
        return read_copies(WarehouseReader(self._warehouse), self._table.own_rows)

    def replace(self, copies: Sequence[TaskCopy]) -> None:
        """Replace all rows by these. Raises OSError when the table cannot be written."""
        self._table.replace(self._table.to_table(copy._asdict() for copy in copies))


def read_copies(warehouse: WarehouseReader, where: str) -> list[TaskCopy]:
    """Return the rows that match this SQL condition."""
    names = ", ".join(f'"{name}"' for name in table(NAME).names if name != "cluster")
    rows = warehouse.rows(f"SELECT {names} FROM {NAME} WHERE {where}")  # noqa: S608 - our own names
    return [TaskCopy(**row | {"protocol": row["protocol"] or STREAMS}) for row in rows]
