"""Tables that are deleted, or deleted and created again, while the job writes them.

Spark creates a table that it is told to write and that is not there, with none of the properties that `DeltaWriter`
gives it and only the rows of this batch. The job would go on with it. So a table is recognized by the directory
of its log before and after each batch, and by the id in its log at intervals, in a store, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.tables.definitions import FORMAT_PROPERTY, tables
from streaming_app.tables.location import Location

if TYPE_CHECKING:
    from streaming_app.tables.files import Files

_LOG = "_delta_log"


class LostTableError(Exception):
    """A table was deleted while the job ran; the text is one line."""


class KnownTables:
    """The tables as they were when `remember` was called."""

    def __init__(self, warehouse: Location, files: Files) -> None:
        self._warehouse = warehouse
        self._files = files
        self._logs: dict[str, int] = {}  # descriptors: while one is open, no other directory gets its inode
        self._ids: dict[str, str | None] = {}

    def remember(self) -> None:
        """Remember the tables that exist now."""
        self.close()
        names = [definition.name for definition in tables()]
        self._ids = {name: self._id(name) for name in names}
        if self._warehouse.is_local:
            self._logs = {name: os.open(self._log(name), os.O_RDONLY | os.O_DIRECTORY) for name in names}

    def close(self) -> None:
        """Forget the tables."""
        while self._logs:
            os.close(self._logs.popitem()[1])
        self._ids = {}

    def check_quickly(self) -> None:
        """Raise LostTableError if a table in a local directory is not the same directory as before."""
        _raise_if_any(name for name in self._logs if not self._is_same_log(name))

    def check(self) -> None:
        """Raise LostTableError if a table is not the same as before, by its log."""
        _raise_if_any(name for name, known in self._ids.items() if self._id(name) != known)

    def remove_remains(self) -> list[str]:
        """Remove what a batch wrote in the place of a lost table; return the names of these tables.

        That is a directory with a log that is not the one from before and that does not have the property by which
        tables of this project are marked. In a store there is nothing to tell it from a table of somebody else.
        """
        removed = []
        for name in self._logs:
            if self._log(name).exists() and not self._is_same_log(name) and not self._is_marked(name):
                self._files.remove(self._warehouse / name)
                removed.append(name)
        return removed

    def _log(self, name: str) -> Path:
        return (self._warehouse / name / _LOG).path

    def _is_same_log(self, name: str) -> bool:
        try:
            return os.path.samestat(os.fstat(self._logs[name]), self._log(name).stat())
        except FileNotFoundError:
            return False

    def _id(self, name: str) -> str | None:
        location = self._warehouse / name
        return str(location.delta_table().metadata().id) if location.is_delta_table() else None

    def _is_marked(self, name: str) -> bool:
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - Spark's workers have no delta-rs

        try:
            return FORMAT_PROPERTY in (self._warehouse / name).delta_table().metadata().configuration
        except DeltaError:  # of its log, only what was written after the deletion is left
            return False


def _raise_if_any(lost: Iterable[str]) -> None:
    if names := " and ".join(lost):
        raise LostTableError(f"The table {names} was deleted while the job ran")
