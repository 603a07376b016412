"""Which processes of a group may be stopped without a restore."""

import pytest

from streaming_app.groups.task_copies import TaskCopy
from streaming_app.queries.copies import check_stops
from tests.groups.test_task_copies import copy


def test_a_dormant_copy_takes_over_if_it_is_near_enough_and_needs_nobody_itself() -> None:
    restoring = copy("a", "restoring", lag=60)
    for lag, may_stop in ((50, True), (51, False)):
        checks = check_stops([restoring, copy("b", "dormant", lag=lag)], 50)
        assert [not one["obstacles"] for one in checks] == [may_stop, True]
    assert not any(one["obstacles"] for one in check_stops([restoring, copy("b", "standby", lag=0)], 50))
    assert not check_stops([copy("b", "dormant", lag=0)], 50)[0]["obstacles"]


@pytest.mark.parametrize(
    ("copies", "obstacles"),
    [
        ([copy("a", "active")], {"a": ["0_0 has no other copy"]}),
        ([copy("a", "active"), copy("a", "standby", lag=0)], {"a": ["0_0 has no other copy"]}),
        ([copy("a", "active"), copy("b", "standby", lag=10)], {"a": [], "b": []}),
        (
            [copy("a", "active"), copy("b", "standby", lag=11)],
            {"a": ["0_0: the best other copy is 11 behind, more than 10"], "b": []},
        ),
        (
            [copy("a", "active"), copy("b", "standby"), copy("c", "warmup")],
            {"a": ["0_0: the lag of the other copies is not known"], "b": [], "c": []},
        ),
        ([copy("a", "active"), copy("b", "standby"), copy("c", "warmup", lag=1)], {"a": [], "b": [], "c": []}),
        ([copy("a", "active", stateful=False)], {"a": []}),
        ([copy("a", "standby", lag=0)], {"a": ["0_0 has no other copy"]}),
    ],
    ids=["alone", "same process", "near", "far", "unknown", "one is near", "stateless", "no active"],
)
def test_a_process_may_stop_if_every_stateful_task_goes_on_elsewhere_without_a_restore(
    copies: list[TaskCopy], obstacles: dict[str, list[str]]
) -> None:
    found = {check["process_id"]: check["obstacles"] for check in check_stops(copies, 10)}
    assert found == obstacles


def test_a_copy_of_a_member_that_left_temporarily_does_not_count() -> None:
    copies = [copy("a", "active"), copy("b", "standby", lag=0)]
    first, second = check_stops(copies, 10, away={"m-b"})
    assert (bool(first["obstacles"]), second["obstacles"]) == (True, [])


def test_what_would_be_restored_is_said_of_each_task() -> None:
    copies = [copy("a", "active", 0), copy("a", "active", 1), copy("b", "standby", 0, 0), copy("a", "active", 2)]
    assert check_stops(copies, 10)[0]["obstacles"] == ["0_1 has no other copy", "0_2 has no other copy"]
