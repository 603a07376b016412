"""Upgrades the tables of the release before to this one, at the first start of the job.

Theory of operation
-------------------
`STEPS` says what this release changes in the tables of the format before (see `formats`). A step finds in a table
itself what is left to do, and leaves the same rows at each of its commits. The last commit to a table is its new
format. So an upgrade that was killed begins again, and finds less to do.

All commits are conditional. They carry the term of the job (see `fence`), and one that another job has overtaken is
made again on the newest version: nothing of the other one is lost. Jobs of several clusters may upgrade the tables
that they share at the same time. A job of the release before that still runs for another cluster goes on, but for
tables whose columns changed: these it cannot write any more, and says so. What it writes meanwhile, the first start of
its successor upgrades; its own next start refuses the tables in one line.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from deltalake import DeltaTable

from streaming_app.report import Report
from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT, table
from streaming_app.tables.formats import BEFORE, THIS, is_older
from streaming_app.tables.rust_table import CommitOptions, RustTable
from streaming_app.tables.table_creation import schema_of
from streaming_app.tables.upgrade_steps import STEPS, STEPS_TO, UpgradeStep, Work, add_columns, lacks_columns

_PROGRESS_SECONDS = 2.0
_LOCAL, _STORE = Work(tables=80, files=800, size=100_000_000), Work(tables=2, files=35, size=20_000_000)
"""What is done in a second, in a local directory and in a store that answers in 40 ms."""


def work_of(tables: Mapping[str, DeltaTable]) -> Work:
    """Return what an upgrade of these tables, by name, has to do."""
    found = {name: [step.find(one) for step in _steps(name)] for name, one in tables.items()}
    touched = [name for name, one in tables.items() if is_older(one) or any(work.tables for work in found[name])]
    every = [work for of_table in found.values() for work in of_table]
    return Work(len(touched), sum(one.files for one in every), sum(one.size for one in every))


def seconds_of(work: Work, *, is_local: bool) -> float:
    """Return about how long an upgrade takes."""
    a_second = _LOCAL if is_local else _STORE
    return sum(some / rate for some, rate in zip(work, a_second, strict=True))


def upgrade(tables: Mapping[str, DeltaTable], of_name: Callable[[str], RustTable], report: Report) -> None:
    """Upgrade the tables, opened before, that need it. `of_name` returns a table by name.

    Reports what it does if it does more than to add columns; how far it is, if it takes long. Raises StorageError if a
    table has unknown columns, and as `RustTable.change`.
    """
    total, files, began_at = work_of(tables), 0, time.monotonic()
    said_at, say = began_at, report if total.tables else lambda _: None

    def moved(some: int, _size: int) -> None:
        nonlocal files, said_at
        files += some
        if (now := time.monotonic()) - said_at >= _PROGRESS_SECONDS:
            said_at = now
            say(f"Upgrading the warehouse: {files:,} of {total.files:,} files, {now - began_at:.0f} s")

    say(f"Upgrading the warehouse from {BEFORE} to {THIS}, once: {total}")
    for name, opened in tables.items():
        own = of_name(name)
        for step in _steps(name) if total.tables else ():
            if step.find(opened).tables:
                step.do(own, moved)
        newest = own.open() if total.tables else opened
        if lacks_columns(own.location, newest, schema_of(table(name))):
            add_columns(own, schema_of(table(name)))
        if is_older(newest):
            own.change(_set_format)
    say(f"The warehouse is upgraded to {THIS}: {time.monotonic() - began_at:.1f} s")


def _steps(name: str) -> Iterator[UpgradeStep]:
    return (one for one in STEPS if STEPS_TO == WAREHOUSE_FORMAT and one.table in {None, name})


def _set_format(table: DeltaTable, commit: CommitOptions) -> None:
    if is_older(table):  # another job may have done it
        properties = {FORMAT_PROPERTY: str(WAREHOUSE_FORMAT)}
        table.alter.set_table_properties(properties, raise_if_not_exists=False, **commit)
