"""What lasts of the copies of a group: who is behind, what is restored and when that ends, and sums of lags."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streaming_app.groups.copies_status import GroupCopies, next_status
from streaming_app.groups.task_copies import CopiesSum, TaskCopy, sum_copies, with_offsets
from tests.groups.test_task_copies import NOW, copy

MINUTE = timedelta(minutes=1)


def statuses(*descriptions: list[TaskCopy]) -> GroupCopies:
    """Return the status after these descriptions, a minute apart."""
    status = None
    for number, copies in enumerate(descriptions):
        status = next_status(copies, 1, status, NOW + number * MINUTE)
    assert status is not None
    return status


@pytest.mark.parametrize(
    ("lags", "ends"),
    [
        ([100], None),
        ([100, 100], None),
        ([100, 100, 60], NOW + 5 * MINUTE),
        ([100, 99], NOW + 100 * MINUTE),
        ([100, 60], NOW + 2.5 * MINUTE),
        ([100, 60, 60], NOW + 2.5 * MINUTE),
        ([100, 120], None),
        ([100, 120, 60], NOW + 3 * MINUTE),
        ([100, 60, None, 20], NOW + 3.75 * MINUTE),
    ],
)
def test_a_restore_ends_when_its_pace_says_and_begins_again_where_more_is_left_than_at_first(
    lags: list[int | None], ends: Any
) -> None:
    status = statuses(*([copy("a", "restoring", lag=lag)] for lag in lags))
    restore = status.restoring["0", 0]
    assert restore.ends_at == ends
    assert restore.lag == lags[-1]


def test_every_copy_that_is_behind_is_found_whatever_stands_before_it() -> None:
    far, near, silent, active = 20_000, 5, None, copy("a", "active", 9)
    copies = [active, *(copy("b", "standby", n, lag) for n, lag in enumerate((near, silent, far, near, silent, far)))]
    assert [one.copy.partition for one in statuses(copies).behind] == [2, 5]
    warm = [copy("c", "warmup", n, lag) for n, lag in enumerate((silent, far, near))]
    assert statuses(warm).behind == ()


def test_the_lags_of_a_group_are_summed_by_role_and_those_that_are_not_known_counted() -> None:
    copies = [
        *(copy("a", "active", 0), copy("a", "dormant", 7, 99), copy("a", "restoring", 8, 99)),
        *(copy("b", "standby", n, lag) for n, lag in enumerate((10, 20_000, None))),
        *(copy("c", "warmup", n, lag) for n, lag in enumerate((5, None, None))),
    ]
    sums = sum_copies(copies)
    assert (sums["standby"], sums["warmup"]) == (CopiesSum(3, 20_010, 1, 1), CopiesSum(3, 5, 0, 2))
    assert sum_copies([copy("b", "standby")])["standby"] == CopiesSum(1, None, 0, 1)
    assert sum_copies([copy("b", "standby", lag=0)])["standby"] == CopiesSum(1, 0)


def test_of_what_is_known_of_tasks_that_a_member_has_no_longer_only_the_state_on_its_disk_stays() -> None:
    known = [copy("a", "standby", 1, 5), copy("a", "dormant", 2, 6)]
    assert [(one.partition, one.role) for one in with_offsets([copy("a", "active", 0)], known, {"m-a"})] == [
        (0, "active"),
        (2, "dormant"),
    ]
