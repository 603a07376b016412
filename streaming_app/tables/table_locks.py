"""One writer of a table at a time in this process.

Both streams write some tables, by Spark or by delta-rs. Each waits for the other anyway where the store lets a commit
fail that another one has overtaken; Spark's commits to S3 exclude each other only within the same JVM.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming_app.tables.location import Location

_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)


@contextmanager
def writing(table: Location) -> Iterator[None]:
    """Run the block while nobody else in this process writes the table."""
    with _LOCKS[str(table)]:
        yield
