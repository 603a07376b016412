"""Lets a job that another one has replaced commit nothing more: each commit to a table carries the term of its job.

Theory of operation
-------------------
A job that was paused goes on where it was, whatever it had checked before. So what keeps it from writing is a part of
the commit itself: a transaction of Delta, of an application id that is the same for all jobs of a cluster. A commit is
rejected if another one of the same id came after the version that the writer had opened; and a writer that opens a
version with a later term sees it there. So there is no moment at which the commit of an earlier term gets in.

A new job commits its term to every table before it reads any (see `claim`): from then on the rows are its own, whoever
still runs. Jobs of other clusters have other ids, and do not notice.

Terms are those of `job.owner`. A version of Delta's has the term and, as Spark skips a write whose version it knows, a
number that is different in each commit of the job. What commits no rows (a compaction) is not rejected by Delta; it
is begun only where the table has no later term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NoReturn, Protocol

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError

from streaming_app.errors import JobError, OtherOwnerError
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS

_COMMITS = 1 << 40
"""Of a term."""


class HasTransactions(Protocol):
    """A table of delta-rs, or a `KeptTable`."""

    def transaction_version(self, app_id: str) -> int | None:
        """Return the newest transaction of an application."""


class Fence:
    """The term of one job, in its commits; every method may be called from any thread."""

    def __init__(self, cluster: str, term: int, confirm: Callable[[], None] = lambda: None) -> None:
        """Take the term of the job that owns a cluster. `confirm` raises OtherOwnerError that names another owner."""
        self.application, self.term = application_of(cluster), term
        self._cluster, self._confirm, self._numbers = cluster, confirm, count(1)
        self.is_lost = False
        """Another job is known to have taken over."""

    def transaction(self) -> Transaction:
        """Return what the next commit carries."""
        return Transaction(self.application, self.next_version())

    def next_version(self) -> int:
        """Return its version, which is higher than those before."""
        return self.term * _COMMITS + next(self._numbers)

    def check(self, table: HasTransactions) -> None:
        """Raise OtherOwnerError if a job with a later term has committed to the table."""
        if term_in(table, self.application) > self.term:
            self.refuse()

    def check_owner(self) -> None:
        """Raise OtherOwnerError if another job has taken over, without looking at a table; not if it is not known."""
        try:
            self._confirm()
        except OtherOwnerError:
            self.is_lost = True
            raise
        except JobError:  # e.g. a store that is away
            return

    def refuse(self) -> NoReturn:
        """Raise OtherOwnerError."""
        self.check_owner()
        self.is_lost = True
        raise OtherOwnerError(f"Another job has taken over cluster {self._cluster!r}: this one writes no more batches")

    def claim(self, locations: Iterable[Location]) -> None:
        """Commit the term to these tables. Raises OtherOwnerError, and delta-rs' errors."""
        with ThreadPoolExecutor(REQUESTS) as threads:
            list(threads.map(self._claim, locations))

    def _claim(self, location: Location) -> None:
        while True:
            table = location.delta_table()
            self.check(table)
            properties = CommitProperties(app_transactions=[self.transaction()])
            partitions = table.metadata().partition_columns
            try:
                table.create_write_transaction([], "append", table.schema(), partitions, commit_properties=properties)
            except CommitFailedError:  # of a job that still writes
                continue
            return


def application_of(cluster: str) -> str:
    """Return the id of the transactions that carry terms."""
    return f"owner-{cluster}"


def term_in(table: HasTransactions, application: str) -> int:
    """Return the newest term in a table; 0 if it has none."""
    return (table.transaction_version(application) or 0) // _COMMITS
