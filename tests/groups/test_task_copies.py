"""Copies of tasks: which there are, how far behind, since when, and when a restore ends."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.groups.task_copies import (
    CopiesSum,
    GroupCopies,
    TaskCopy,
    copies_of_description,
    copies_of_row,
    next_status,
    sum_copies,
    with_offsets,
)

NOW = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)


def copy(process: str, role: str, partition: int = 0, lag: int | None = None, **values: Any) -> TaskCopy:
    made = TaskCopy("g", f"m-{process}", process, f"host-{process}", role, "0", partition, stateful=True, lag=lag)
    return made._replace(**values)


def described(*members: dict[str, Any], changelogs: tuple[str, ...] = ("c",)) -> dict[str, Any]:
    subtopology = {"subtopology_id": "0", "state_changelog_topics": [{"name": name} for name in changelogs]}
    return {"group_id": "g", "topology": {"epoch": 0, "subtopologies": [subtopology]}, "members": list(members)}


def member(name: str, offsets: dict[int, int], ends: dict[int, int], **roles: list[int]) -> dict[str, Any]:
    def reported(values: dict[int, int]) -> list[dict[str, Any]]:
        return [{"subtopology_id": "0", "partition": key, "offset": value} for key, value in values.items()]

    def tasks(role: str) -> list[dict[str, Any]]:
        return [{"subtopology_id": "0", "partitions": roles[role]}] if role in roles else []

    return {
        "member_id": name,
        "process_id": f"p-{name}",
        "client_host": "/10.0.0.1",
        "task_offsets": reported(offsets),
        "task_end_offsets": reported(ends),
        "assignment": {f"{role}_tasks": tasks(role) for role in ("active", "standby", "warmup")},
    }


def copies_of(group: dict[str, Any], acceptable_lag: int | None = None) -> list[TaskCopy]:
    return [one._replace(reported_at=None) for one in copies_of_description(group, acceptable_lag, (), NOW)]


def test_the_copies_of_a_description_have_what_clients_reported_and_null_for_the_rest() -> None:
    group = described(
        member("a", {0: 100, 1: -1}, {0: 100, 1: -1}, active=[0, 1]), member("b", {0: 40}, {0: 100}, standby=[0])
    )
    found = {(one.member_id, one.role, one.partition): one for one in copies_of(group, 50)}
    expected = TaskCopy("g", "b", "p-b", "10.0.0.1", "standby", "0", 0, stateful=True, acceptable_lag=50)
    assert found["b", "standby", 0] == expected._replace(task_offset=40, task_end_offset=100, lag=60)
    assert (found["a", "active", 0].lag, found["a", "active", 1].task_offset) == (0, None)
    assert len(found) == 3


def test_an_active_task_below_the_end_of_its_changelogs_restores_and_state_without_a_task_is_dormant() -> None:
    group = described(
        member("a", {0: 40, 1: 100, 2: 0}, {0: 100, 1: 100, 2: 100}, active=[0, 1, 2]),
        member("b", {0: 70, 1: -1, 3: (1 << 63) - 1}, {0: 100, 1: 100}, standby=[2]),
    )
    copies = copies_of(group)
    assert [(one.member_id, one.role, one.partition, one.lag) for one in copies] == [
        ("a", "restoring", 0, 60),
        ("a", "active", 1, 0),
        ("a", "restoring", 2, 100),  # it has not begun; or one of its changelogs is not known, then it is less
        ("b", "standby", 2, None),
        ("b", "dormant", 0, 30),
    ]
    assert copies[-1].task_end_offset == 100
    status = next_status(copies, 1, None, NOW)
    assert set(status.uncopied) == {("0", 0), ("0", 1)}  # nobody keeps the dormant copy up to date
    assert {task: one.lag for task, one in status.restoring.items()} == {"0_0": 60, "0_2": 100}
    assert (sum_copies(copies)["restoring"].copies, sum_copies(copies)["restoring"].lag) == (2, 160)


def test_what_a_thread_reports_of_the_tasks_of_its_process_is_not_dormant_there() -> None:
    first, second = member("a", {0: 40, 1: 70}, {0: 100, 1: 100}, active=[2]), member("b", {1: 70}, {}, standby=[0])
    group = described(first, second | {"process_id": "p-a"}, member("c", {0: 30}, {0: 100}))
    copies = copies_of(group)
    assert [(one.process_id, one.role, one.partition) for one in copies] == [
        *(("p-a", "active", 2), ("p-a", "standby", 0)),
        *(("p-a", "dormant", 1), ("p-c", "dormant", 0)),
    ]


def test_roles_follow_the_log_where_it_is_newer_than_the_offsets() -> None:
    known = [copy("a", "restoring", 0, 60), copy("b", "dormant", 0, 30), copy("gone", "dormant", 0, 10)]
    held = [copy("a", "active", 0), copy("b", "active", 1)]
    assert [(one.process_id, one.role, one.lag) for one in with_offsets(held, known, {"m-a", "m-b"})] == [
        ("a", "restoring", 60),
        ("b", "active", None),
        ("b", "dormant", 30),
    ]
    moved = [copy("a", "standby", 0), copy("b", "active", 0)]
    assert [(one.process_id, one.role, one.lag) for one in with_offsets(moved, known, {"m-a", "m-b"})] == [
        ("a", "standby", 60),
        ("b", "restoring", 30),
    ]


def test_a_task_is_stateful_by_its_changelogs_or_by_a_copy_that_has_an_offset() -> None:
    (one,) = copies_of(described(member("a", {}, {}, active=[0])))
    assert one.stateful
    stateless = copies_of(described(member("a", {}, {}, active=[0, 1]), changelogs=()))
    assert {one.stateful for one in stateless} == {False}
    group = described(member("a", {}, {}, active=[0, 1]), member("b", {0: 4}, {0: 4}, standby=[0]), changelogs=())
    assert [one.partition for one in copies_of(group) if one.stateful] == [0, 0]


def test_a_report_keeps_its_time_while_its_offsets_stay() -> None:
    earlier = NOW - timedelta(hours=1)
    same = copy("x", "standby", task_offset=4, task_end_offset=9, reported_at=earlier)._replace(member_id="a")
    before = [same, same._replace(partition=1)]
    one = member("a", {0: 4, 1: 5, 2: -1, 3: 4}, {0: 9, 1: 9, 3: 9}, standby=[0, 1, 2, 3])
    copies = copies_of_description(described(one), None, before, NOW)
    assert [one.reported_at for one in copies] == [earlier, NOW, None, NOW]


def test_the_log_has_the_copies_and_the_brokers_their_offsets() -> None:
    row = {
        "group_id": "g",
        "members": [
            {"member_id": "m-a", "process_id": "a", "client_host": "/host-a", "member_epoch": 5},
            {"member_id": "m-b", "process_id": "b", "client_host": "/host-b", "member_epoch": -2},
        ],
        "subtopologies": [{"subtopology_id": "0", "state_changelog_topics": [{"name": "c"}]}],
        "assignments": [
            {"member_id": "m-a", "role": "active", "subtopology_id": "0", "partition": 0, "current": True},
            {"member_id": "m-a", "role": "active", "subtopology_id": "0", "partition": 1, "current": False},
            {"member_id": "m-b", "role": "standby", "subtopology_id": "0", "partition": 0, "current": True},
            {"member_id": "gone", "role": "standby", "subtopology_id": "0", "partition": 0, "current": True},
        ],
    }
    copies = copies_of_row(row)
    assert copies == [copy("a", "active"), copy("b", "standby")]
    stored = [copy("b", "warmup", lag=7, task_offset=1, task_end_offset=8)]
    assert with_offsets(copies, stored, {"m-a"}) == [copy("a", "active"), stored[0]._replace(role="standby")]


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
        ([100, 60, None, 20], NOW + 4 * MINUTE),
        ([1_001, 1_000, 800, 600], NOW + 6 * MINUTE),
        ([1 << 62, (1 << 62) - 1], None),  # clients report what they like
        ([10_000, 9_990, 9_980, 9_970, 9_960, 9_000, 8_000, 7_000, 6_000, 5_000], NOW + 14 * MINUTE),
    ],
)
def test_a_restore_ends_when_its_pace_says_and_begins_again_where_more_is_left_than_at_first(
    lags: list[int | None], ends: Any
) -> None:
    status = statuses(*([copy("a", "restoring", lag=lag)] for lag in lags))
    restore = status.restoring["0_0"]
    assert restore.ends_at == ends
    assert restore.lag == lags[-1]


def test_tasks_of_one_thread_end_with_all_of_it_as_each_goes_faster_once_another_is_done() -> None:
    def restores(*lags: int) -> list[TaskCopy]:
        return [copy("a", "restoring", n, lag) if lag else copy("a", "active", n) for n, lag in enumerate(lags)]

    status = statuses(restores(100, 300), restores(80, 280), restores(60, 260))
    ends = {task: one.ends_at for task, one in status.restoring.items()}
    assert ends == {"0_0": NOW + 5 * MINUTE, "0_1": NOW + 10 * MINUTE}  # not after 15
    assert [one.rate for one in status.restoring.values()] == [20 / 60, 20 / 60]
    assert statuses(*[restores(n, 300) for n in (100, 60, 20, 0)]).restoring["0_1"].ends_at == NOW + 13 * MINUTE


def test_a_clock_that_was_set_back_gives_no_end_of_a_restore() -> None:
    first = next_status([copy("a", "restoring", lag=100)], 1, None, NOW)
    restore = next_status([copy("a", "restoring", lag=60)], 1, first, NOW - MINUTE).restoring["0_0"]
    assert (restore.rate, restore.ends_at) == (None, None)


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
    restores = [copy("a", "restoring", n, 9, rate=n + 0.5, ready_at=NOW + n * MINUTE) for n in range(2)]
    assert sum_copies(restores)["restoring"] == CopiesSum(2, 18, 0, 0, 2.0, NOW + MINUTE)
    unknown = [*restores, copy("b", "restoring", 2, 9)]
    assert sum_copies(unknown)["restoring"] == CopiesSum(3, 27, 0, 0, 2.0, None)  # not known of each
