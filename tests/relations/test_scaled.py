"""Relation G: ten and a hundred times the members cost the commands at most ten and a hundred times as much."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streaming_app.queries.groups import member_rows
from streaming_app.queries.topics import endpoint_rows
from streaming_app.tables.reader import Row
from tests.relations.scaled import is_in_proportion


def _group(members: int) -> Row:
    """Return a row of `groups` with so many members, of which each has five tasks."""
    return {
        "group_id": "orders",
        "assignment_epoch": 7,
        "members": [
            dict.fromkeys(_MEMBER) | {"member_id": f"m-{n}", "member_epoch": 7, "user_endpoint": f"h:{n}"}
            for n in range(members)
        ],
        "assignments": [
            {"member_id": f"m-{n}", "role": "active", "subtopology_id": "0", "partition": n * 5 + one}
            | {"current": True, "target": True, "pending_revocation": False}
            for n in range(members)
            for one in range(5)
        ],
    }


_MEMBER = (
    *("process_id", "client_id", "client_host", "instance_id", "rack_id", "user_endpoint"),
    *("client_tags", "topology_epoch", "member_state"),
)


def _members(size: int) -> Callable[[], object]:
    groups = [_group(size)]
    return lambda: member_rows(groups, verbose=True)


def _endpoints(size: int) -> Callable[[], object]:
    groups = [_group(size)]
    return lambda: endpoint_rows(groups, {"orders": []})


@pytest.mark.parametrize("times", [10, 100])
@pytest.mark.parametrize("rows", [_members, _endpoints])
def test_members_are_described_in_proportion_to_their_number(
    rows: Callable[[int], Callable[[], object]], times: int
) -> None:
    assert is_in_proportion(rows, times=times)


def test_the_relation_sees_work_that_is_quadratic() -> None:
    assert not is_in_proportion(lambda size: lambda: [[b for b in range(size) if b == a] for a in range(size)])
