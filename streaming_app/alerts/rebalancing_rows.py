"""Reads the unsettled members of rebalancing groups from Arrow: a group has thousands of members, and few are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.groups.snapshot import MEMBER_FIELDS

_READ = 200  # unsettled members of one group, those with the oldest records
_TASK_FIELDS = ("member_id", "subtopology_id", "partition", "current", "target", "pending_revocation")


def rebalancing_members(rows: pa.Table) -> Mapping[str, Mapping[str, Any]]:
    """Return by group id the columns `members`, `assignments` and `unsettled_count` that `group_snapshot` needs.

    `rows` has the columns group_id, assignment_epoch, members and assignments of groups.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for row in range(rows.num_rows):
        members, assignments = rows["members"][row].values, rows["assignments"][row].values
        if members is None:
            continue
        unsettled = _unsettled(_table(members, MEMBER_FIELDS), rows["assignment_epoch"][row].as_py())
        count = unsettled.num_rows
        if count > _READ:
            unsettled = unsettled.sort_by("updated_at").slice(0, _READ)
        found[rows["group_id"][row].as_py()] = {
            "members": unsettled.to_pylist(),
            "assignments": [] if assignments is None else _tasks(_table(assignments, _TASK_FIELDS), unsettled),
            "unsettled_count": count,
        }
    return found


def _table(structs: pa.StructArray, names: Iterable[str]) -> pa.Table:
    """Return these fields as a table, with strings for DataFusion's string views, which Arrow cannot filter."""
    columns = {name: structs.field(name) for name in names}
    return pa.table(
        {
            name: column.cast(pa.string()) if column.type == pa.string_view() else column
            for name, column in columns.items()
        }
    )


def _unsettled(members: pa.Table, assignment_epoch: int | None) -> pa.Table:
    """Return the members that are not STABLE at the assignment epoch, see `groups.snapshot.is_settled`."""
    if assignment_epoch is None:
        return members
    settled = (pc.field("member_state") == "STABLE") & (pc.field("member_epoch") == assignment_epoch)
    return members.filter(~pc.coalesce(settled, pc.scalar(False)))  # noqa: FBT003 - what null counts as


def _tasks(assignments: pa.Table, members: pa.Table) -> list[dict[str, Any]]:
    wanted: list[dict[str, Any]] = assignments.filter(
        pc.is_in(assignments["member_id"], value_set=members["member_id"].combine_chunks())
    ).to_pylist()
    return wanted
