"""Requests of operators to try groups again that are set aside: small files next to the tables, which the job removes.

The name of a group's file is a hash, as an id may hold any character.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from streaming_app.tables.location import Location
from streaming_app.tables.request_files import RequestFiles

_SUFFIX = ".group"


class ReleaseRequests:
    """The requests of one cluster. Every method raises WarehouseError when the files cannot be read or written."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._files = RequestFiles(warehouse, cluster, "releases")

    def add(self, group_id: str) -> None:
        """Ask the job to try a group again."""
        self._files.write(_name(group_id), json.dumps({"group": group_id}))

    def group_ids(self) -> list[str]:
        """Return the groups that are to be tried again, of those that can be found out by now."""
        names = [name for name in self._files.names() or () if name.endswith(_SUFFIX)]
        return sorted(filter(None, (self._read(name) for name in names)))

    def remove(self, group_id: str) -> None:
        """Remove the request for a group, if there is one."""
        self._files.remove(_name(group_id))

    def _read(self, name: str) -> str:
        try:
            return str(json.loads(self._files.read(name) or "")["group"])
        except (ValueError, KeyError, TypeError):  # removed since it was listed, or not ours
            return ""


def _name(group_id: str) -> str:
    return f"{hashlib.sha256(group_id.encode('utf-8', 'surrogatepass')).hexdigest()}{_SUFFIX}"
