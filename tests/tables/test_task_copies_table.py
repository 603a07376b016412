"""The table `task_copies`: the rows of a cluster are replaced, and old files are removed."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from streaming_app.groups.task_copies import TaskCopy
from streaming_app.tables.task_copies_table import TaskCopiesTable
from tests.long.hostile import STORED
from tests.support.warehouses import make_warehouse

NOW = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
FULL = TaskCopy("g", "m", "p", "10.0.0.1", "standby", "0", 3, True, 40, 100, 60, 10_000, NOW)  # noqa: FBT003 - a tuple
UNKNOWN = TaskCopy(STORED, STORED, STORED, None, "active", STORED, 0)


def test_the_rows_of_a_cluster_are_replaced_and_those_of_others_stay(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    one, other = TaskCopiesTable(tmp_path, "it's"), TaskCopiesTable(tmp_path, "other")
    one.replace([FULL, UNKNOWN])
    other.replace([FULL])
    assert sorted(one.read()) == sorted([FULL, UNKNOWN])
    one.replace([UNKNOWN])
    assert one.read() == [UNKNOWN]
    one.replace([])
    assert (one.read(), other.read()) == ([], [FULL])
