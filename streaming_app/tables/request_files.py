"""Small files next to the tables with which commands send requests to a running job: only the job writes the tables.

The requests of one kind are in the directory `_jobs/CLUSTER.KIND`. A command writes each request as a new file, and
nobody changes it later. So commands of several people cannot undo each other, and the job reads each file once.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from streaming_app.tables.location import Location, warehouse_errors
from streaming_app.text import digest

_SUFFIX = ".group"


class RequestFiles:
    """The requests of one kind to the job of one cluster. Every method raises WarehouseError, which names the file."""

    def __init__(self, warehouse: Location | Path, cluster: str, kind: str) -> None:
        location = Location.of(warehouse)
        self.directory = location / "_jobs" / f"{cluster}.{kind}"
        self._pause = location.pause
        self._look_at = 0.0

    def names(self) -> set[str] | None:
        """Return the names of the files; None if the last call was less than `Location.pause` ago."""
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + self._pause
        with warehouse_errors("read", self.directory):
            return set(self.directory.names())

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if it was removed after the listing."""
        file = self.directory / name
        with warehouse_errors("read", file), suppress(FileNotFoundError):
            return file.read_text()
        return None

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        file = self.directory / name
        with warehouse_errors("write", file):
            file.write_text(text)

    def remove(self, name: str) -> None:
        """Remove a file; it may be missing."""
        file = self.directory / name
        with warehouse_errors("remove", file):
            file.remove()


class ReleaseRequests:
    """Requests of operators to fold set-aside groups of a cluster again. Every method raises WarehouseError.

    The file name is a hash of the group id, since an id may hold any character.
    """

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._files = RequestFiles(warehouse, cluster, "releases")

    def add(self, group_id: str) -> None:
        """Ask the job to fold a group again."""
        self._files.write(_name(group_id), json.dumps({"group": group_id}))

    def group_ids(self) -> list[str]:
        """Return the requested groups whose files can be read."""
        names = [name for name in self._files.names() or () if name.endswith(_SUFFIX)]
        return sorted(filter(None, (self._read(name) for name in names)))

    def remove(self, group_id: str) -> None:
        """Remove the request for a group, if there is one."""
        self._files.remove(_name(group_id))

    def _read(self, name: str) -> str:
        try:
            return str(json.loads(self._files.read(name) or "")["group"])
        except (ValueError, KeyError, TypeError):  # removed after the listing, or not our file
            return ""


def _name(group_id: str) -> str:
    return f"{digest(group_id)}{_SUFFIX}"
