"""A batch is paused at one of its lines, a newer job starts and writes the batch, and then the first one goes on.

`tables/test_fence` pauses each write at each point.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

import streaming_app
from streaming_app.errors import OtherOwnerError
from streaming_app.stream.commits_writer import CommitsBatchWriter
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.tables import rust_table
from streaming_app.tables.driver_limits import GROUPS, NEWEST
from streaming_app.tables.fence import Fence
from streaming_app.tables.newest_tables import NewestTables
from streaming_app.tables.writer import TableWriter
from tests.stream import test_commits_writer, test_groups_writer
from tests.support.fencing import CLUSTER, NEW, OLD, assert_fenced, claim, claimed
from tests.support.frames import Row, batch, limit_driver, offsets_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCES = tuple(
    str(Path(streaming_app.__file__).parent / name)
    for name in ("tables", "stream/groups_writer", "stream/commits_writer")
)
"""What reads and writes tables, in which a pause matters."""
_PAUSES = {20_000: 0.6, 0: 0.25}
"""At which part of its lines a batch is paused, by how many records delta-rs writes."""

Write = Callable[["TableWriter", "DataFrame"], None]


def write_groups(writer: TableWriter, records: DataFrame) -> None:
    GroupsBatchWriter(writer, FoldOptions(CLUSTER, "topic"), lambda *_: None)(records, 0)


def write_commits(writer: TableWriter, records: DataFrame) -> None:
    tables, options = NewestTables(writer, CLUSTER, 30), FoldOptions(CLUSTER, "topic")
    CommitsBatchWriter(writer, tables, options, lambda *_: None)(records, 0)


@contextmanager
def line_by_line(on_line: Callable[[int], None]) -> Iterator[None]:
    """Call `on_line` with the number of each line of the project that this thread runs in the block."""
    number = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal number
        if not frame.f_code.co_filename.startswith(_SOURCES):
            return None
        if event == "line":
            number += 1
            sys.settrace(None)
            on_line(number)
            sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("records", [20_000, 0], ids=["delta-rs", "spark"])
@pytest.mark.parametrize(
    ("write", "batch_of", "module", "kind"),
    [(write_groups, batch, test_groups_writer, GROUPS), (write_commits, offsets_batch, test_commits_writer, NEWEST)],
    ids=["groups", "commits"],
)
def test_wherever_a_batch_is_paused_it_commits_nothing_after_that_of_a_newer_job(
    spark: SparkSession,
    create_warehouse: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Write,
    batch_of: Callable[[SparkSession, Iterable[Row]], DataFrame],
    module: Any,
    kind: str,
    records: int,
) -> None:
    limit_driver(monkeypatch, kind, records=records)
    frame = batch_of(spark, [(n, module.START, *pair) for n, pair in enumerate(module.history())])

    def attempt(name: str, pause_at: int) -> tuple[int, bool, Any]:
        """Return how many lines a batch has, whether it was refused once a newer job has written it, and the tables."""
        path = create_warehouse(tmp_path / name)
        old = TableWriter(spark, str(path), CLUSTER, claimed(path, OLD))
        lines = 0

        def on_line(number: int) -> None:
            nonlocal lines
            lines = number
            if number == pause_at:
                fence = Fence(CLUSTER, NEW)
                claim(path, fence)
                with monkeypatch.context() as context:  # another process waits for no lock of this one
                    context.setattr(rust_table, "_LOCKS", defaultdict(Lock))
                    write(TableWriter(spark, str(path), CLUSTER, fence), frame)

        refused = False
        try:
            with line_by_line(on_line):
                write(old, frame)
        except OtherOwnerError:
            refused = True
        assert_fenced(path)
        return lines, refused, module.content(path)

    attempt("first", 0)  # the first batch of a process has more lines: it fills caches
    total, refused, expected = attempt("undisturbed", 0)
    assert not refused
    assert total > 100
    _, refused, found = attempt("paused", int(total * _PAUSES[records]))
    assert refused
    assert found == expected
