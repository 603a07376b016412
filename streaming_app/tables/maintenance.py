"""Maintains the tables that a stream writes, see `rust_table`: each when that is due, and between two batches.

While a batch writes, a maintenance would conflict with its commits; as a part of a batch it would delay records. So a
service of `job.streams` runs it, and the next batch does not need its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from streaming_app.report import Report
from streaming_app.tables.rust_table import RustTable


class MaintainedTable(NamedTuple):
    """A table of a stream."""

    own: RustTable
    maintain: Callable[[], int]
    """Calls `RustTable.maintain` of it, and returns what that returns."""


def maintain_due(
    tables: Iterable[MaintainedTable],
    between_batches: AbstractContextManager[Any],
    is_stopping: Callable[[], bool],
    report: Report,
) -> bool:
    """Maintain the tables for which that is due, each in `between_batches`, which batches wait for; return if any was.

    Nothing begins while `is_stopping`. A failure keeps no other table from its maintenance, and is raised after that.
    """
    failure: Exception | None = None
    was_due = False
    for table in tables:
        try:
            if table.own.is_due():
                with between_batches:
                    if is_stopping():
                        return was_due
                    was_due = True
                    deleted = table.maintain()
                if deleted:
                    report(f"maintenance: {deleted:,} expired rows of {table.own.location.name} deleted")
        except Exception as error:  # noqa: BLE001, PERF203 - Delta and stores raise many kinds
            failure = failure or error
    if failure:
        raise failure
    return was_due
