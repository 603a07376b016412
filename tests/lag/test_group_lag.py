"""What is wrong with the lag of a group, besides what the alerts about it show (`tests/alerts/test_lag_rules.py`)."""

from __future__ import annotations

import pytest

from streaming_app.lag.group_lag import SLOW, group_lags
from tests.lag.lag_harness import GROUP, TOPIC, row

HOUR, NOW = 3600.0, 1_000_000.0


@pytest.mark.parametrize(("catch_up", "catches_up"), [(6 * HOUR, True), (6 * HOUR + 1, False)])
def test_a_lag_that_takes_more_than_six_hours_is_not_caught_up(catch_up: float, *, catches_up: bool) -> None:
    rows = [row(status="CATCHING_UP", status_since=NOW - HOUR, catch_up_seconds=catch_up)]
    found = group_lags(rows, {}, NOW)[GROUP]
    assert found.wrong[SLOW].count == 1
    assert found.catches_up is catches_up


@pytest.mark.parametrize("task", [None, "0_0"])
def test_tasks_of_a_group_are_known_or_not(task: str | None) -> None:
    assert group_lags([row(status="REWOUND", task_id=task)], {}, NOW)[GROUP].has_tasks == (task is not None)


@pytest.mark.parametrize(
    ("status", "committed", "is_unknown"), [("UNKNOWN", 90, True), ("UNKNOWN", None, False), ("OK", 90, False)]
)
def test_a_partition_with_a_commit_whose_status_is_not_known_is_remembered(
    status: str, committed: int | None, *, is_unknown: bool
) -> None:
    found = group_lags([row(status=status, committed_offset=committed)], {}, NOW)
    assert [one.unknown for one in found.values()] == [{(TOPIC, 0)}] * is_unknown


def test_the_lag_of_what_is_wrong_is_summed_where_it_is_known() -> None:
    rows = [row(status="REWOUND", partition=n, lag=lag) for n, lag in enumerate([3, None, 4])]
    assert group_lags(rows, {}, NOW)[GROUP].wrong["REWOUND"].lag == 7
