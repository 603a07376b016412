"""Prevents a job that another job has replaced from changing rows: each commit of rows carries the term of its job.

Theory of operation
-------------------
A paused job continues where it stopped, whatever it checked before. So only the commit itself can stop its writes. Each
commit carries a Delta transaction, whose application id is the same for all jobs of a cluster. Delta rejects a commit
if another commit with this id came after the version that the writer opened. A writer that opens a version with a later
term sees that term, and stops. So a job with an earlier term can no longer commit.

A new job takes the highest term plus one (see `job.owner`), and commits it to every table before it reads any. From
then on it owns the rows, even if an earlier job still runs. Jobs of other clusters have other application ids.

The version of the transaction combines the term with a number that increases with each commit of the job, since Spark
skips a write whose version it knows. A commit that changes no rows (files are merged, a note of the maintenance) has no
term, since Delta would then reject what another thread of the job commits meanwhile. The job starts one only if the
table has no later term.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from threading import Event
from typing import NoReturn

from deltalake import CommitProperties, PostCommitHookProperties, Transaction
from deltalake.exceptions import TableNotFoundError

from streaming_app.errors import OtherOwnerError
from streaming_app.tables.kept_table import KeptTable, repeating, table_to_write
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS
from streaming_app.threads import in_parallel

_COMMITS = 1 << 40
HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""After a commit delta-rs does no maintenance. The writer of a table makes checkpoints and cleans up the log itself."""


class Fence:
    """Writes the term of one job into its commits. Every method may be called from any thread."""

    def __init__(self, cluster: str, term: int, stop: Event | None = None) -> None:
        """Take the term of the job that owns the cluster. Once `stop` is set, no commit is repeated."""
        self.application, self.term, self.stop = application_of(cluster), term, stop
        self.cluster, self._numbers = cluster, count(1)
        self.is_lost = False
        """Whether this job knows that another one has taken over."""

    def transaction(self) -> Transaction:
        """Return the transaction for the next commit, with a higher version than the commits before."""
        return Transaction(self.application, self.term * _COMMITS + next(self._numbers))

    def check(self, table: KeptTable) -> None:
        """Raise OtherOwnerError if a job with a later term has committed to the table."""
        if term_in(table, self.application) > self.term:
            self._refuse()

    def maintain_log(self) -> None:
        """Maintain what the job itself commits terms to, if it does."""

    def check_owner(self) -> None:
        """Raise OtherOwnerError if this job already knows that another one has taken over; reads no table."""
        if self.is_lost:
            self._refuse()

    def _refuse(self) -> NoReturn:
        self.is_lost = True
        raise OtherOwnerError(
            f"Another job has taken over cluster {self.cluster!r}{self._successor()}; this one was paused, or cut off "
            "from the warehouse, and writes no more batches"
        )

    def _successor(self) -> str:
        """Return the new owner after a colon; empty if it is not known."""
        return ""

    def claim(self, locations: Iterable[Location]) -> None:
        """Commit the term to these tables. Raises OtherOwnerError, and delta-rs' errors."""

        def claim(location: Location) -> None:
            with table_to_write(location) as kept:
                self.check(kept)
                self.commit(kept)

        in_parallel(lambda location: repeating(self.stop)(claim, location), locations, REQUESTS)

    def commit(self, kept: KeptTable, metadata: Mapping[str, str] | None = None) -> None:
        """Commit the term without rows. Raises ConflictError if another commit came first, and delta-rs' errors."""
        table, own = kept.table, CommitProperties(dict(metadata or {}), app_transactions=[self.transaction()])
        partitions = table.metadata().partition_columns
        with kept.conflicts():
            table.create_write_transaction(
                [], "append", table.schema(), partitions, commit_properties=own, post_commithook_properties=HOOKS
            )
        table.update_incremental()


def application_of(cluster: str) -> str:
    """Return the id of the transactions that carry terms."""
    return f"owner-{cluster}"


def term_in(table: KeptTable, application: str) -> int:
    """Return the newest term in a table; 0 if it has none."""
    return (table.transaction_version(application) or 0) // _COMMITS


def newest_term(cluster: str, locations: Iterable[Location]) -> int:
    """Return the newest term in those of these tables that exist; 0 if none does. Raises delta-rs' errors."""

    def term(location: Location) -> int:
        try:
            return term_in(KeptTable(location, is_kept=False), application_of(cluster))
        except TableNotFoundError:
            return 0

    return max(in_parallel(term, locations, REQUESTS), default=0)
