"""Small files next to the tables by which people ask a running job for something: it alone writes the tables.

The requests of one kind are in the directory `_jobs/CLUSTER.KIND`. A command writes each as a file of its own, which is
never changed: commands of several people at the same time cannot undo each other, and the job need not read one twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streaming_app.errors import WarehouseError, reason_of
from streaming_app.tables.location import Location
from streaming_app.text import digest

_SUFFIX = ".group"


class RequestFiles:
    """The requests of one kind to the jobs of one cluster. Every method raises WarehouseError, which names the file."""

    def __init__(self, warehouse: Location | Path, cluster: str, kind: str) -> None:
        location = Location.of(warehouse)
        self.directory = location / "_jobs" / f"{cluster}.{kind}"
        self._pause = location.pause
        self._look_at = 0.0

    def names(self) -> set[str] | None:
        """Return the names of the files; None if the last look was less than `Location.pause` ago."""
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + self._pause
        with _errors("read", self.directory):
            return set(self.directory.names())

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if it was removed since it was listed."""
        file = self.directory / name
        with _errors("read", file), suppress(FileNotFoundError):
            return file.read_text()
        return None

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        file = self.directory / name
        with _errors("write", file):
            file.write_text(text)

    def remove(self, name: str) -> None:
        """Remove a file; it may be missing."""
        file = self.directory / name
        with _errors("remove", file):
            file.remove()


class ReleaseRequests:
    """Requests of operators to try groups of a cluster again that are set aside. Every method raises WarehouseError.

    The name of a group's file is a hash, as an id may hold any character.
    """

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
    return f"{digest(group_id)}{_SUFFIX}"


@contextmanager
def _errors(verb: str, place: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarehouseError(f"Cannot {verb} {place}: {reason_of(error)}") from None
