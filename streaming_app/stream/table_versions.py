"""To which versions of the tables the checkpoint belongs, so that a table that was lost or restored is recognized.

Theory of operation
-------------------
The checkpoint says up to where records are in the tables. A table that is then restored, from a copy or by Delta's
RESTORE, lacks some of them, and the job would never read these again. The same holds for a history table that was
deleted and created again. So after each batch that wrote something, and before Spark commits the batch, the versions of
the tables are stored next to the checkpoint. A table with a lower version was created again, or replaced by an older
copy. RESTORE adds a version; it is found in the table's log.

A table that is ahead of the checkpoint needs nothing: its rows skip the records that they contain.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from schemas.table_definitions import history_tables
from streaming_app.tables.location import Location

if TYPE_CHECKING:
    from streaming_app.tables.delta_writer import DeltaWriter

_RESTORE = "RESTORE"


class TableVersions:
    """The versions of `groups` and of the history tables, stored next to a checkpoint."""

    def __init__(self, writer: DeltaWriter, checkpoint: Location) -> None:
        self._writer, self._file = writer, Location(f"{checkpoint}.tables.json")

    def write(self) -> None:
        """Store the versions that the tables have now. Raises JobError or OSError when that fails."""
        versions = {name: self._writer.version(name) for name in _names()}
        self._writer.files.write(self._file, json.dumps(versions))

    def forget(self) -> None:
        """Remove what was stored: the tables no longer belong to a checkpoint."""
        self._writer.files.remove(self._file)

    def restored(self) -> list[str]:
        """Return the names of the tables that are from before the checkpoint, or do not hold what was written then."""
        known = self._read()
        return [name for name in _names() if name in known and self._is_restored(name, known[name])]

    def _is_restored(self, name: str, known: int) -> bool:
        table = (self._writer.location / name).delta_table()
        since = table.version() - known
        if since <= 0:
            return since < 0
        return any(
            commit.get("operation") == _RESTORE and commit["version"] > known for commit in table.history(limit=since)
        )

    def _read(self) -> dict[str, int]:
        try:
            known = json.loads(self._writer.files.read(self._file) or "")
            return {str(name): int(version) for name, version in known.items()}
        except (ValueError, TypeError, AttributeError):
            return {}  # there is none, or its file is damaged


def _names() -> list[str]:
    return ["groups", *(one.name for one in history_tables())]
