"""What is wrong with the lag of a group, besides what the alerts about it show (`tests/alerts/test_lag_rules.py`)."""

from __future__ import annotations

import pytest

from streaming_app.lag.group_lag import SLOW, group_lags
from streaming_app.lag.model import GroupTasks
from tests.lag.lag_harness import GROUP, row

HOUR, NOW = 3600.0, 1_000_000.0


@pytest.mark.parametrize(("catch_up", "catches_up"), [(6 * HOUR, True), (6 * HOUR + 1, False)])
def test_a_lag_that_takes_more_than_six_hours_is_not_caught_up(catch_up: float, *, catches_up: bool) -> None:
    rows = [row(status="CATCHING_UP", status_since=NOW - HOUR, catch_up_seconds=catch_up)]
    found = group_lags(rows, {}, {}, NOW)[GROUP]
    assert found.wrong[SLOW].count == 1
    assert found.catches_up is catches_up


def test_only_partitions_without_progress_may_restore() -> None:
    tasks = {GROUP: GroupTasks(stateful=frozenset({"0"}), stable_since=NOW - 60)}
    stopped = row(status="STOPPED", subtopology_id="0", committed_at=NOW - 120)
    assert group_lags([stopped], tasks, {}, NOW)[GROUP].may_restore_since == NOW - 60
    assert group_lags([stopped._replace(status="LOST")], tasks, {}, NOW)[GROUP].may_restore_since is None


def test_a_group_without_known_tasks_has_neither_tasks_nor_owners() -> None:
    lost = row(status="LOST")
    assert not group_lags([lost], {}, {}, NOW)[GROUP].has_tasks
    unowned = group_lags([lost._replace(task_id="0_0")], {}, {}, NOW)[GROUP]
    assert (unowned.has_tasks, unowned.has_owners) == (True, False)
    assert group_lags([lost._replace(task_id="0_0", member_id="m")], {}, {}, NOW)[GROUP].has_owners
