"""Requests of operators to try groups again that are set aside: small files next to the tables, which the job removes.

A file for each group, in `_jobs/CLUSTER.releases`; its name is a hash, as an id may hold any character.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from streaming_app.errors import WarehouseError, reason_of
from streaming_app.tables.location import Location

_SUFFIX = ".group"


class ReleaseRequests:
    """The requests of one cluster. Every method raises WarehouseError when the files cannot be read or written."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._directory = Location.of(warehouse) / "_jobs" / f"{cluster}.releases"

    def add(self, group_id: str) -> None:
        """Ask the job to try a group again."""
        file = self._file(group_id)
        try:
            file.write_text(json.dumps({"group": group_id}))
        except OSError as error:
            raise WarehouseError(f"Cannot write {file}: {reason_of(error)}") from None

    def group_ids(self) -> list[str]:
        """Return the groups that are to be tried again."""
        try:
            names = [name for name in self._directory.names() if name.endswith(_SUFFIX)]
            return sorted(filter(None, (self._read(name) for name in names)))
        except OSError as error:
            raise WarehouseError(f"Cannot read {self._directory}: {reason_of(error)}") from None

    def remove(self, group_id: str) -> None:
        """Remove the request for a group, if there is one."""
        file = self._file(group_id)
        try:
            file.remove()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise WarehouseError(f"Cannot remove {file}: {reason_of(error)}") from None

    def _read(self, name: str) -> str:
        try:
            return str(json.loads((self._directory / name).read_text())["group"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # removed since it was listed, or not ours
            return ""

    def _file(self, group_id: str) -> Location:
        return self._directory / f"{hashlib.sha256(group_id.encode('utf-8', 'surrogatepass')).hexdigest()}{_SUFFIX}"
