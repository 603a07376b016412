"""The table `task_copies`, read and written by delta-rs: the rows of a cluster are replaced whenever one has changed.

Replacing them is one commit, so a job that dies leaves the old rows or the new ones. Each commit leaves the files of
the rows before: they are removed at the first commit after a start and at every hundredth one, once no reader needs
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from streaming_app.groups.task_copies import TaskCopy
from streaming_app.tables.definitions import table
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.reader import WarehouseReader, quote

NAME = "task_copies"
_MAINTENANCE_EVERY = 100  # commits


class TaskCopiesTable:
    """The rows of one cluster. Only the job of that cluster writes them."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._warehouse, self._cluster = Location.of(warehouse), cluster
        self._own = f"cluster = {quote(cluster)}"
        self._commits = 0

    def read(self) -> list[TaskCopy]:
        """Return the rows. Raises WarehouseError when the table cannot be read."""
        return read_copies(WarehouseReader(self._warehouse), self._own)

    def replace(self, copies: Sequence[TaskCopy]) -> None:
        """Replace all rows by these. Raises OSError when the table cannot be written."""
        try:
            self._replace([{"cluster": self._cluster, **copy._asdict()} for copy in copies])
            if self._commits % _MAINTENANCE_EVERY == 0:
                target = self._table()
                target.vacuum(dry_run=False)
                target.cleanup_metadata()
            self._commits += 1
        except (DeltaError, OSError) as error:
            raise OSError(f"Cannot write the table {NAME}: {describe_error(error)}") from None

    @retry(
        retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(5), wait=wait_fixed(0.2), reraise=True
    )
    def _replace(self, rows: list[dict[str, Any]]) -> None:
        target = self._table()
        if rows:
            new = pa.Table.from_pylist(rows, pa.schema(target.schema().to_arrow()))
            write_deltalake(target, new, mode="overwrite", predicate=self._own)
        else:
            target.delete(self._own)

    def _table(self) -> DeltaTable:
        return (self._warehouse / NAME).delta_table()


def read_copies(warehouse: WarehouseReader, where: str) -> list[TaskCopy]:
    """Return the rows that match this SQL condition."""
    names = ", ".join(f'"{name}"' for name in table(NAME).names if name != "cluster")
    return [TaskCopy(**row) for row in warehouse.rows(f"SELECT {names} FROM {NAME} WHERE {where}")]  # noqa: S608 - our own names
