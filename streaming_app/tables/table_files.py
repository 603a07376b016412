"""A table as its maintenance sees it: at one version, of which files are rewritten while others write on.

Nobody waits for the maintenance. It holds no lock, and has its own handle of the table: a writer keeps the one that it
has (see `kept_table`). What it rewrites takes as long as it takes. Only the commit at its end must meet no other: it
replaces files that the table still has by new ones, and is given up if one of them is gone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deltalake import DeltaTable, Transaction
from deltalake.transaction import AddAction

from streaming_app.tables.data_files import CLUSTER, StoredFile, remove_action
from streaming_app.tables.formats import ADVICE
from streaming_app.tables.group_files import stored_files
from streaming_app.tables.kept_table import KeptTable
from streaming_app.tables.location import Location
from streaming_app.tables.rust_table import CommitOptions, RustTable, Write

MAINTAINED_AFTER = 100
"""Commits, each of which leaves a file or two."""


class TableFiles:
    """The rows of one cluster in a table."""

    def __init__(self, own: RustTable, *, has_grown: bool = True) -> None:
        """Open the newest version. Raises as `KeptTable`; the methods raise as those of `RustTable` that write."""
        self._own, self.kept = own, KeptTable(own.location)
        self.has_grown = has_grown
        """Whether there were many commits since the last maintenance."""

    @property
    def table(self) -> DeltaTable:
        """The newest version that is known."""
        return self.kept.table

    def update(self) -> None:
        """Update to the newest version: two requests if that is known."""
        if not self.kept.is_up_to_date():
            self.kept = KeptTable(self._own.location)

    def files(self) -> list[StoredFile]:
        """Return the files with rows of the cluster.

        Raises OSError if another tool has given the table a feature without which a file does not say its rows.
        """
        if self.table.protocol().min_reader_version > 1:
            raise OSError(
                f"another tool has added a table feature that readers need, such as deletion vectors; {ADVICE}"
            )
        return stored_files(self.table, self._own.cluster)

    def change(self, write: Write, transactions: Sequence[Transaction] | None = None) -> None:
        """Commit to the newest version, as `RustTable.change_apart` does."""
        self._own.change_apart(write, self._opened, transactions)

    def replace(self, removed: Sequence[StoredFile], added: Sequence[AddAction]) -> bool:
        """Replace files by others in one commit; return False, and commit nothing, if one of them is gone."""
        paths, is_whole = {one.path for one in removed}, False

        def write(table: DeltaTable, commit: CommitOptions) -> None:
            nonlocal is_whole
            is_whole = paths <= {one.path for one in stored_files(table, self._own.cluster)}
            if is_whole and (removed or added):
                gone = [remove_action(self._own.cluster, one) for one in removed]
                table.create_write_transaction([*gone, *added], "append", table.schema(), [CLUSTER], **commit)
                table.update_incremental()

        self.change(write)
        return is_whole

    @contextmanager
    def _opened(self, _location: Location) -> Iterator[KeptTable]:
        self.update()
        yield self.kept
        self.kept.note_commits()
