"""What `lag` says of several partitions, and what the view of groups says of the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from streaming_app.lag.model import KEYS, LagRow
from streaming_app.lag.status import BY_RANK
from streaming_app.metrics.lag_metrics import lag_sums
from streaming_app.queries.lag import find_lag
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.reader import WarehouseReader
from tests.support.lag_harness import row
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow

UNKNOWN = {"partition": 1, "lag": None, "lag_seconds": None, "lag_seconds_is_lower_bound": None, "status": "UNKNOWN"}
WITHOUT = {**UNKNOWN, "committed_offset": None}
COUNTED = {
    "end": ({**UNKNOWN, "log_end_offset": None}, 1),
    "recreated": ({**UNKNOWN, "status": "RECREATED"}, 1),
    "recreated empty": ({**UNKNOWN, "status": "RECREATED", "log_start_offset": 9, "log_end_offset": 9}, 1),
    "no commit, no end": ({**WITHOUT, "log_end_offset": None}, 1),
    "no commit": ({**WITHOUT, "log_start_offset": 5, "log_end_offset": 9}, 1),
    "no commit, empty": ({**WITHOUT, "log_start_offset": 9, "log_end_offset": 9}, 0),
    "left over": ({**UNKNOWN, "status": "LEFT_OVER"}, 0),
}
"""What lies beside a partition with a lag of 10, and of how many the lag is not known then."""


@pytest.fixture
def reader(tmp_path: Path) -> WarehouseReader:
    path = make_warehouse(tmp_path / "w")
    LagTables(path, "default").replace_lag([one for those in GROUPS.values() for one in those])
    return WarehouseReader(path)


GROUPS: dict[str, list[LagRow]] = {
    **{name: [row(group_id=name), row(group_id=name, **fields)] for name, (fields, _) in COUNTED.items()},
    "bound": [
        row(group_id="bound", lag_seconds=100.0, lag_seconds_is_lower_bound=False),
        row(group_id="bound", partition=1, lag_seconds=50.0, lag_seconds_is_lower_bound=True),
    ],
    "nothing": [row(group_id="nothing", **WITHOUT)],
    **{
        f"{better} {worse}": [
            row(group_id=f"{better} {worse}", status=better, lag=3),
            row(group_id=f"{better} {worse}", status=worse, topic="a"),
        ]
        for worse, better in pairwise(BY_RANK[:-1])
    },
}


def test_a_sum_counts_what_is_not_known_and_is_as_bad_as_the_worst_with_a_commit(reader: WarehouseReader) -> None:
    found = {one["group_id"]: one for one in find_lag(reader, "default", (), "group")}
    view = {one["group_id"]: one for one in reader.rows("SELECT * FROM group_lag")}
    metrics = {one.key[0]: one for those in GROUPS.values() for one in lag_sums(those, "group")}

    assert found.keys() == view.keys() == metrics.keys() == GROUPS.keys()
    for name, one in found.items():
        of_view, of_metrics = view[name], metrics[name]
        same = ("lag", "max_lag", "lag_seconds", "status", "partitions", "unknown_partitions")
        assert [one[key] for key in same] == [of_view[key] for key in same]
        assert one["lag_seconds_is_lower_bound"] == of_view["is_lower_bound"]
        assert (of_metrics.lag, of_metrics.unknown_partitions) == (one["lag"], one["unknown_partitions"])
        assert one["lag_is_lower_bound"] == (one["unknown_partitions"] > 0)
    for name, (_, unknown) in COUNTED.items():
        assert (found[name]["lag"], found[name]["unknown_partitions"]) == (10, unknown)
        assert found[name]["lag_seconds_is_lower_bound"] == (unknown > 0)
    assert (found["bound"]["lag_seconds"], found["bound"]["lag_seconds_is_lower_bound"]) == (100.0, True)
    assert (found["bound"]["max_lag_topic"], found["bound"]["max_lag_partition"]) == ("orders", 0)
    names = ("lag", "status", "partitions_without_commit", "max_lag", "max_lag_topic")
    assert [found["nothing"][key] for key in names] == [None, "UNKNOWN", 1, None, None]
    assert [found["no commit"][key] for key in names[:3]] == [10, "OK", 1]
    for worse, better in pairwise(BY_RANK[:-1]):
        one = found[f"{better} {worse}"]
        assert (one["status"], one["max_lag_topic"]) == (worse, "a")
        assert one["partitions_not_ok"] == 2 - (better == "OK")


@pytest.mark.parametrize("by", KEYS)
def test_every_sum_is_over_the_same_lag_and_the_largest_comes_first(reader: WarehouseReader, by: str) -> None:
    found = find_lag(reader, "default", (), by)
    expected = [one for those in GROUPS.values() for one in those if one.status != "LEFT_OVER"]
    if by not in {"group", "topic", "partition"}:
        expected = [one for one in expected if one.task_id is not None]
    assert sum(one["lag"] or 0 for one in found) == sum(one.lag or 0 for one in expected)
    assert sum(one["partitions"] for one in found) == len(expected)
    lags = [-1 if one["lag"] is None else one["lag"] for one in found]
    assert lags == sorted(lags, reverse=True)
