"""The stored topology description (KIP-1331): its status, since when it has it, and unsolicited pushes."""

from typing import Any

import pytest

from streaming_app.groups.row import to_row
from tests.groups.records import FIRST_JOIN, GROUP, TOPOLOGY, at, fold, log, member, metadata

FAILURE, SUCCESS = [(-2, -1), (-2, 0)], [(0, 0)]  # rejected for good; and a push that nobody solicited
AGAIN = [(-2, 0), (0, 0)]


# A push writes stored = -2, then stored = E (broker 4.4.0).
@pytest.mark.parametrize(
    ("epochs", "unsolicited"),
    [
        pytest.param([(-2, -1), (0, -1), (0, -1)], 0, id="stored, and a rebalance"),
        pytest.param([(-2, -1), (0, -1)] * 3, 2, id="pushed twice again"),
        pytest.param([*FAILURE, *SUCCESS, *AGAIN, *AGAIN], 3, id="failed, then pushed three times"),
    ],
)
def test_unsolicited_pushes_are_counted(epochs: list[tuple[int, int]], unsolicited: int) -> None:
    pushes = [(at(10 + n), 17, GROUP, metadata(stored=one, failed=other)) for n, (one, other) in enumerate(epochs)]
    result = fold(log(*FIRST_JOIN, *pushes))
    assert result.group.unsolicited_pushes == unsolicited
    assert sum(event.kind == "unsolicited_push" for event in result.events) == unsolicited


@pytest.mark.parametrize(
    ("epochs", "stored_before", "unsolicited"),
    [
        pytest.param([3, 3], [], 1, id="a rebalance, and rejected once more"),
        pytest.param([2], [(0, 0), (-2, 0)], 2, id="the end of a push after one that was stored"),
    ],
)
def test_a_push_that_is_rejected_once_more_is_counted_by_the_same_record(
    epochs: list[int], stored_before: list[tuple[int, int]], unsolicited: int
) -> None:
    pairs = [*FAILURE, *stored_before]
    pushes = [metadata(stored=one, failed=other) for one, other in pairs]
    pushes += [metadata(epoch=epoch, stored=-2, failed=0) for epoch in epochs]
    result = fold(log(*FIRST_JOIN, *((at(10 + n), 17, GROUP, value) for n, value in enumerate(pushes))))
    assert result.group.unsolicited_pushes == unsolicited
    assert result.group.description_status == "FAILED"


@pytest.mark.parametrize(
    ("stored", "failed", "status", "solicitable"),
    [
        (0, -1, "CURRENT", False),
        (-2, 0, "FAILED", False),
        (-2, -1, "UNCERTAIN", True),
        (-1, -1, "NEVER_STORED", True),
        (7, -1, "STALE", True),
    ],
)
def test_the_status_of_the_description_is_derived_from_the_epochs(
    stored: int, failed: int, status: str, solicitable: bool
) -> None:
    row = to_row("c", fold(log(*FIRST_JOIN, (at(9), 17, GROUP, metadata(stored=stored, failed=failed)))).group)
    assert (row["description_status"], row["solicitable"]) == (status, solicitable)


@pytest.mark.parametrize(
    ("records", "since"),
    [
        pytest.param([], at(0), id="never stored: since the epoch was first seen"),
        pytest.param([(at(5), metadata(stored=-2))], at(0), id="a push in progress: unchanged"),
        pytest.param([(at(5), metadata(stored=0))], None, id="stored"),
        pytest.param(
            [(at(5), metadata(stored=0)), (at(9), metadata(stored=-2))], at(9), id="no longer stored: since that time"
        ),
    ],
)
def test_a_description_is_stale_for_as_long_as_its_epoch_has_been_without_one(
    records: list[tuple[Any, Any]], since: Any
) -> None:
    group_state = fold(log(*FIRST_JOIN, *((when, 17, GROUP, value) for when, value in records))).group
    assert to_row("c", group_state)["description_stale_since"] == since


def test_members_since_is_when_the_first_member_joined_and_rebalances_do_not_change_it() -> None:
    second = (at(7), 19, {**GROUP, "member_id": "later"}, member())
    rebalanced = (at(8), 17, GROUP, metadata(epoch=9))
    assert to_row("c", fold(log(*FIRST_JOIN, second, rebalanced)).group)["members_since"] == at(0)
    assert to_row("c", fold(log((at(0), 17, GROUP, metadata()))).group)["members_since"] is None


def test_members_are_stale_since_the_newer_topology_or_since_they_joined_if_that_was_later() -> None:
    later = (at(7), 19, {**GROUP, "member_id": "later"}, member(topology_epoch=0))
    newer = (at(5), 23, GROUP, TOPOLOGY | {"epoch": 1})
    upgraded = (at(6), 19, {**GROUP, "member_id": "m1"}, member(topology_epoch=1))

    def since(*records: Any) -> Any:
        return to_row("c", fold(log(*FIRST_JOIN, *records)).group)["stale_members_since"]

    assert since() is None
    assert since(newer) == at(5)
    assert since(newer, upgraded) is None
    assert since(newer, upgraded, later) == at(7)
