"""Lets a job that another one has replaced commit nothing more: each commit to a table carries the term of its job.

Theory of operation
-------------------
A job that was paused goes on where it was, whatever it had checked before. So what keeps it from writing is a part of
the commit itself: a transaction of Delta, of an application id that is the same for all jobs of a cluster. A commit is
rejected if another one of the same id came after the version that the writer had opened; and a writer that opens a
version with a later term sees it there. So there is no moment at which the commit of an earlier term gets in.

A new job, whose term is the highest one and one more (see `job.owner`), commits it to every table before it reads any:
from then on the rows are its own, whoever still runs. Jobs of other clusters have other ids, and do not notice.

A version of Delta's has the term and, as Spark skips a write whose version it knows, a number that is different in each
commit of the job. What commits no rows (a compaction) is not rejected by Delta; it is begun only where the table has no
later term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NoReturn, Protocol

from deltalake import CommitProperties, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from streaming_app.errors import OtherOwnerError
from streaming_app.tables.kept_table import KeptTable, table_to_write
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS

_COMMITS = 1 << 40
"""Of a term."""
HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""After a commit: none. Who writes a table makes its checkpoints and cleans its log up at times."""


class HasTransactions(Protocol):
    """A table of delta-rs, or a `KeptTable`."""

    def transaction_version(self, app_id: str) -> int | None:
        """Return the newest transaction of an application."""


class Fence:
    """The term of one job, in its commits; every method may be called from any thread."""

    def __init__(self, cluster: str, term: int) -> None:
        """Take the term of the job that owns a cluster."""
        self.application, self.term = application_of(cluster), term
        self.cluster, self._numbers = cluster, count(1)
        self.is_lost = False
        """Another job is known to have taken over."""

    def transaction(self) -> Transaction:
        """Return what the next commit carries, with a higher version than those before."""
        return Transaction(self.application, self.term * _COMMITS + next(self._numbers))

    def check(self, table: HasTransactions) -> None:
        """Raise OtherOwnerError if a job with a later term has committed to the table."""
        if term_in(table, self.application) > self.term:
            self._refuse()

    def check_owner(self) -> None:
        """Raise OtherOwnerError if another job is known to have taken over, without looking at a table."""
        if self.is_lost:
            self._refuse()

    def _refuse(self) -> NoReturn:
        self.is_lost = True
        raise OtherOwnerError(
            f"Another job has taken over cluster {self.cluster!r}{self._successor()}; this one was paused, or cut off "
            "from the warehouse, and writes no more batches"
        )

    def _successor(self) -> str:
        """Return who that is, after a colon; empty if it is not known."""
        return ""

    def claim(self, locations: Iterable[Location]) -> None:
        """Commit the term to these tables. Raises OtherOwnerError, and delta-rs' errors."""
        with ThreadPoolExecutor(REQUESTS) as threads:
            list(threads.map(self._claim, locations))

    def _claim(self, location: Location) -> None:
        while True:
            with table_to_write(location) as kept:
                self.check(kept)
                if self.commit(kept):
                    return

    def commit(self, kept: KeptTable, metadata: Mapping[str, str] | None = None) -> bool:
        """Commit the term and no rows; return whether no other job has committed one since the table was opened."""
        table, own = kept.table, CommitProperties(dict(metadata or {}), app_transactions=[self.transaction()])
        partitions = table.metadata().partition_columns
        try:
            table.create_write_transaction(
                [], "append", table.schema(), partitions, commit_properties=own, post_commithook_properties=HOOKS
            )
        except CommitFailedError:
            return False
        table.update_incremental()
        return True


def application_of(cluster: str) -> str:
    """Return the id of the transactions that carry terms."""
    return f"owner-{cluster}"


def term_in(table: HasTransactions, application: str) -> int:
    """Return the newest term in a table; 0 if it has none."""
    return (table.transaction_version(application) or 0) // _COMMITS


def newest_term(cluster: str, locations: Iterable[Location]) -> int:
    """Return the newest term in those of these tables that exist; 0 if there is none. Raises delta-rs' errors."""

    def term(location: Location) -> int:
        try:
            return term_in(location.delta_table(), application_of(cluster))
        except TableNotFoundError:
            return 0

    with ThreadPoolExecutor(REQUESTS) as threads:
        return max(threads.map(term, locations), default=0)
