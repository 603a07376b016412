"""Small files next to the tables by which people ask a running job for something: it alone writes the tables.

The requests of one kind are in the directory `_jobs/CLUSTER.KIND`. A command writes each as a file of its own, which is
never changed: commands of several people at the same time cannot undo each other, and the job need not read one twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streaming_app.errors import WarehouseError, reason_of
from streaming_app.tables.location import Location


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


@contextmanager
def _errors(verb: str, place: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarehouseError(f"Cannot {verb} {place}: {reason_of(error)}") from None
