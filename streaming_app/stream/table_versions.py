"""Finds lost or restored tables: between two runs, and while the job runs.

Theory of operation
-------------------
The checkpoint says up to which offset records are in the tables. A table that is later restored, from a copy or by
Delta's RESTORE, lacks some of them, and the job would never read these again. The same holds for a history table that
was deleted and created again. So the ids of the tables, and what `own_files` compares, are stored next to the
checkpoint: when the topic will be read from the beginning, after each batch that wrote something, before Spark commits
the batch, and at the end. A table with another id was created again. The maintenance and the other stream also write
the tables. So each check of the running query stores the versions, too, unless a batch is being written: the log still
has the commits in between, of which only those of hours ago are removed.

After a crash the tables hold all or some of the last batch that the checkpoint has started, and Spark repeats exactly
this batch. Rows that are already there are skipped: rows of groups by the offset of their last record, appends by the
number of the batch. If a table has later batches, the checkpoint is older than the table, for example in a copy that
was made while the job ran. Spark would give the numbers of these batches to other batches, which Delta would then skip.

While the job runs, the next write to a deleted or restored table fails. At intervals a table that was deleted and
created again is recognized by the id in its log, and a restored one by its files.
"""

import json
from collections.abc import Sequence

from streaming_app.errors import StreamChangedError
from streaming_app.stream.stream_state import POSITIONS, StateFile, TableVersion
from streaming_app.tables.checkpoint_offsets import newest_batch
from streaming_app.tables.definitions import history_tables, tables
from streaming_app.tables.location import Location
from streaming_app.tables.writer import TableWriter


def batch_writers(cluster: str, query: str) -> tuple[str, str]:
    """Return the names under which a query appends its batches: their rows, and changes that only topics caused."""
    writer = f"{cluster}-{query}"
    return writer, f"{writer}-topics"


class TableVersions:
    """The versions of the tables that a query writes, as its stored state has them."""

    def __init__(
        self,
        writer: TableWriter,
        checkpoint: Location,
        state: StateFile,
        names: Sequence[str] | None = None,
        *,
        shared: Sequence[str] = (),
    ) -> None:
        """Take the tables `names`; by default `groups` and the history tables, and `check` checks all tables.

        `shared` are tables to which another query appends most rows: only their loss or restoration is checked.
        """
        self._writer, self._checkpoint, self._reader = writer, checkpoint, str(checkpoint)
        self._state = state
        self._ids: dict[str, str | None] = {}
        self._has_slices = names is None  # the versions of its appends are versions of slices
        self._appended = [one.name for one in history_tables()] if names is None else names
        self._names = ["groups", *self._appended] if names is None else [*names, *shared]
        self._checked = [one.name for one in tables()] if names is None else self._names

    def write(self) -> None:
        """Store the current versions of the tables. Raises OSError when that fails.

        Of a table that was not written since the start the known version stays: it may have been restored since.
        """
        known = dict(self._state.state.tables)
        for name in self._names:
            own = self._writer.table(name)
            files = own.files.get(self._reader)
            if files or name not in known:
                known[name] = TableVersion(str(self._id(name)), files or own.open_files(self._reader))
        self._state.write(tables=known)

    def refresh(self) -> None:
        """Store the versions after commits that are of no batch of the query, if there were any. Raises OSError."""
        known = self._state.state.tables
        files = {name: self._writer.table(name).files.get(self._reader) for name in self._names if name in known}
        new = {**known, **{name: known[name]._replace(files=now) for name, now in files.items() if now}}
        if new != known:
            self._state.write(tables=new)

    def restored(self) -> list[str]:
        """Return the names of the tables that are older than the checkpoint, or lack rows that were written then."""
        known = self._state.state.tables
        return [name for name in self._names if name in known and self._is_restored(name, known[name])]

    def remember(self) -> None:
        """Remember the ids of the tables that exist now, for `check`."""
        for name in self._checked:
            self._id(name)

    def _id(self, name: str) -> str | None:
        """Return the id that a table had at first: if it is lost, the job restarts its query with a new object."""
        if name not in self._ids:
            self._ids[name] = self._writer.table(name).table_id()
        return self._ids[name]

    def check(self) -> None:
        """Raise StreamChangedError, in one line, if a table is not the one that was remembered."""
        lost = [name for name, known in self._ids.items() if self._writer.table(name).table_id() != known]
        if lost:
            raise StreamChangedError(f"The table {' and '.join(lost)} was deleted while the job ran")
        restored = [name for name in self._ids if self._writer.table(name).is_set_back(self._reader)]
        if restored:
            raise StreamChangedError(f"The table {' and '.join(restored)} was restored while the job ran")

    def beyond(self) -> list[str]:
        """Return the names of the appended tables that have batches which the checkpoint has not started.

        The checkpoint must exist. If it is damaged (it has finished a batch that it has not started), all are returned.
        Raises OSError.
        """
        begun, finished = (newest_batch(self._checkpoint / name) for name in ("offsets", "commits"))
        if finished > begun:
            return list(self._appended)
        return [name for name in self._appended if self._newest_batch(name) > begun]

    def _newest_batch(self, name: str) -> int:
        """Return the newest batch of the checkpoint's query in a table; -1 if there is none."""
        metadata = json.loads((self._checkpoint / "metadata").find_text() or "{}")
        writers = batch_writers(self._writer.cluster, str(metadata.get("id")))
        newest = self._writer.last_append(name, writers)
        return newest // POSITIONS if self._has_slices else newest

    def _is_restored(self, name: str, known: TableVersion) -> bool:
        own = self._writer.table(name)
        own.forget()
        return known.id != own.table_id() or own.was_set_back(self._reader, known.files)
