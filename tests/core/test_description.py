"""The stored topology description (KIP-1331): its status, since when, and the pushes that nobody asked for."""

from __future__ import annotations

from typing import Any

import pytest

from streaming_app.core.row import from_row, to_row
from tests.core.records import FIRST_JOIN, GROUP, TOPOLOGY, at, fold, log, member, metadata


# A push writes stored = -2, then stored = E (broker 4.4.0).
@pytest.mark.parametrize(
    ("stored", "unsolicited"),
    [
        pytest.param([-2, 0], 0, id="asked for"),
        pytest.param([-2, 0, -2, 0], 1, id="pushed again"),
        pytest.param([-2, 0, -2, 0, -2, 0], 2, id="and again"),
    ],
)
def test_pushes_that_nobody_asked_for_are_counted(stored: list[int], unsolicited: int) -> None:
    pushes = [(at(10 + i), 17, GROUP, metadata(stored=epoch)) for i, epoch in enumerate(stored)]
    folded = fold(log(*FIRST_JOIN, *pushes))
    assert folded.life.unsolicited_pushes == unsolicited
    assert sum(event.kind == "unsolicited_push" for event in folded.events) == unsolicited


def test_a_clean_up_of_an_empty_group_is_no_push() -> None:
    empty = [
        (at(0), 23, GROUP, TOPOLOGY),
        (at(0), 17, GROUP, metadata(stored=0)),
        (at(9), 17, GROUP, metadata(stored=-2)),
    ]
    assert fold(log(*empty)).life.unsolicited_pushes == 0


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
def test_the_description_has_a_status(stored: int, failed: int, status: str, solicitable: bool) -> None:
    row = to_row("c", fold(log(*FIRST_JOIN, (at(9), 17, GROUP, metadata(stored=stored, failed=failed)))).life)
    assert (row["description_status"], row["solicitable"]) == (status, solicitable)


def test_nobody_is_asked_when_every_member_is_stale() -> None:
    newer = (at(9), 23, GROUP, TOPOLOGY | {"epoch": 1})
    row = to_row("c", fold(log(*FIRST_JOIN, newer)).life)
    assert (row["stale_member_count"], row["solicitable"]) == (1, False)


def test_since_when_a_description_holds_does_not_depend_on_where_an_operation_is_cut() -> None:
    stored = fold(log(*FIRST_JOIN, (at(5), 17, GROUP, metadata(stored=0)))).life
    assert (stored.description_status, stored.description_since) == ("CURRENT", at(5))
    there = fold(log((at(9), 17, GROUP, metadata(stored=-2)), first=8), stored)
    assert (there.life.description_status, there.life.description_since) == ("UNCERTAIN", at(9))
    back = fold(log((at(9), 17, GROUP, metadata(stored=0)), first=9), from_row(to_row("c", there.life))).life
    assert (back.description_status, back.description_since) == ("CURRENT", at(5))


@pytest.mark.parametrize(
    ("records", "since"),
    [
        pytest.param([], at(0), id="the epoch was never stored: since it was seen"),
        pytest.param([(at(5), metadata(stored=-2))], at(0), id="a push is under way: still since then"),
        pytest.param([(at(5), metadata(stored=0))], None, id="stored"),
        pytest.param([(at(5), metadata(stored=0)), (at(9), metadata(stored=-2))], at(9), id="stored no more"),
    ],
)
def test_a_description_is_stale_for_as_long_as_its_epoch_has_been_without_one(
    records: list[tuple[Any, Any]], since: Any
) -> None:
    life = fold(log(*FIRST_JOIN, *((when, 17, GROUP, value) for when, value in records))).life
    assert to_row("c", life)["description_stale_since"] == since


def test_a_new_epoch_makes_a_stored_description_stale() -> None:
    newer = (at(9), 23, GROUP, TOPOLOGY | {"epoch": 1})
    life = fold(log(*FIRST_JOIN, (at(5), 17, GROUP, metadata(stored=0)), newer)).life
    assert (life.description_status, to_row("c", life)["description_stale_since"]) == ("STALE", at(9))


def test_members_are_there_since_the_first_of_them_joined_whatever_the_group_does() -> None:
    second = (at(7), 19, {**GROUP, "member_id": "later"}, member())
    rebalanced = (at(8), 17, GROUP, metadata(epoch=9))
    assert to_row("c", fold(log(*FIRST_JOIN, second, rebalanced)).life)["members_since"] == at(0)
    assert to_row("c", fold(log((at(0), 17, GROUP, metadata()))).life)["members_since"] is None
