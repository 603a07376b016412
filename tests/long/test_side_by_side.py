"""The comparison of two source trees finds nothing between one and itself, and finds what differs."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.long.side_by_side import compare, read_recorded
from tests.long.told import HERE
from tests.support.waiting import MINUTES

VERSION = "4.4.0"
_DELETED = "emptied"  # a group of the recorded logs


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(6 * MINUTES)
def test_one_tree_makes_the_same_of_a_log_twice_and_a_row_less_is_a_difference(tmp_path: Path) -> None:
    began, (one, two) = datetime.now(timezone.utc), (tmp_path / "one", tmp_path / "two")
    for warehouse in (one, two):
        read_recorded({HERE: warehouse}, tmp_path / f"of-{warehouse.name}", (VERSION,))
    assert [str(found) for found in compare(one, two, began)] == []
    DeltaTable(two / "groups").delete(f"group_id = '{_DELETED}'")
    (found,) = compare(one, two, began)
    assert (found.what, found.logs) == (
        "groups (rows of the old tree only)",
        {f"{VERSION}-whole": 1, f"{VERSION}-compacted": 1},
    )
