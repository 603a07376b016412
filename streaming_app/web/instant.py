"""A group at an instant: its topology, who had which task, and how far behind it was. Pure.

Events do not name processes, so a line of the task matrix is a member. Events tell that nobody has a task only if
somebody had it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.groups.task_copies import ACTIVE, format_task
from streaming_app.queries.history import GroupAt, parse_tasks
from streaming_app.queries.topology_diff import KnownTopology
from streaming_app.text import host_of, utc
from streaming_app.web.task_matrix import lag_by_task, task_matrix, task_order

Row = Mapping[str, Any]


class Then(NamedTuple):
    """What the tables know of a group at a time."""

    group: GroupAt
    lag: Sequence[Row]
    """The newest sample of each partition, from `lag_at`."""
    topology: KnownTopology | None = None
    """None if no topology in the tables is so old."""

    def subtopologies(self, row: Row) -> Sequence[Row]:
        """Return the subtopologies of then; if they are not known, those of now from a row of `groups`."""
        return self.topology.subtopologies if self.topology else row["subtopologies"] or ()

    @property
    def tasks(self) -> list[Row]:
        """The tasks as columns of `assignments` with the host; `member_id` is None if nobody had the task."""
        return [*self._owned(), *self._unowned()]

    def _owned(self) -> Iterator[Row]:
        for member in self.group.members.values():
            for role, subtopology_id, partition in parse_tasks(member.tasks):
                task = {"role": role, "subtopology_id": subtopology_id, "partition": partition}
                held = {"current": True, "target": True, "pending_revocation": False}
                yield {**task, **held, "member_id": member.member_id, "client_host": host_of(member.client_host)}

    def _unowned(self) -> Iterator[Row]:
        for role, subtopology_id, partition in parse_tasks(f"{ACTIVE} {','.join(self.group.unowned)}"):
            task = {"role": role, "subtopology_id": subtopology_id, "partition": partition}
            yield {**task, "current": False, "target": True, "pending_revocation": False, "member_id": None}

    @property
    def lag_rows(self) -> list[Row]:
        """The samples as columns of `lag`, the largest first."""
        return sorted(self.lag, key=lambda one: (-(one["lag"] or 0), one["topic"], one["partition"]))


def instant_view(then: Then, at: datetime, row: Row, lag: Iterable[Row]) -> Row:
    """Return what the page shows of a group at a time.

    `row` is its present row of `groups`, `lag` its present rows of that table.
    """
    task_of = {(one["topic"], one["partition"]): one["task_id"] for one in lag if one["task_id"] is not None}
    held = [one for one in then.tasks if one["member_id"] is not None]
    known = [one["lag"] for one in then.lag if one["lag"] is not None]
    of_tasks = [{**one, "task_id": task_of.get((one["topic"], one["partition"]))} for one in then.lag_rows]
    members = [{**vars(one), "process_id": None} for one in then.group.members.values()]
    named = [{**one, "client_id": one["instance_id"] or one["client_id"]} for one in members]
    matrix = task_matrix(named, held, lag_by_task(of_tasks))  # its processes are the members
    counts = Counter((one["member_id"], one["role"] == ACTIVE) for one in held)
    return {
        "at": at,
        "was": then.group.values,
        "deleted_at": then.group.deleted_at,
        "members": [
            {
                **one,
                "host": host_of(one["client_host"]),
                "active": counts[one["member_id"], True],
                "copies": counts[one["member_id"], False],
            }
            for one in members
        ],
        "matrix": matrix,
        "unowned": sorted({*matrix.unowned, *then.group.unowned}),
        "lag": sum(known) if known else None,
        "unknown_partitions": len(then.lag) - len(known),
        "lag_seconds": max((one["lag_seconds"] for one in then.lag if one["lag_seconds"] is not None), default=None),
        "is_lower_bound": any(one["lag_seconds_is_lower_bound"] or one["lag"] is None for one in then.lag),
        "lag_rows": of_tasks,
        "subtopologies": then.subtopologies(row),
        "knows_topology": then.topology is not None,
        "moved": _moved(held, row["assignments"] or ()),
    }


def notes_of(then: Then, row: Row, at: datetime | None, level: str) -> list[str]:
    """Return sentences: what the picture of a group shows of then, and what of now; `row` is the row of now."""
    notes = [f"As of {utc(at)}: who had which task, and the lag, where they are known."] if at else []
    if then.topology is None:
        notes.append("No topology is known that is so old: subtopologies and topics are those of now.")
    if level == "processors":
        is_same = then.topology is not None and then.topology.subtopologies == row["subtopologies"]
        text = "Processors and stores are those that the broker described since."
        notes.append(text if is_same else f"{text} The topology may have been another one then.")
    return notes


def _moved(then: Iterable[Row], now: Iterable[Row]) -> list[str]:
    """Return the active tasks that now belong to another member, or to none."""
    owners = [
        {
            (row["subtopology_id"], row["partition"]): row["member_id"]
            for row in rows
            if row["role"] == ACTIVE and row["current"]
        }
        for rows in (then, now)
    ]
    return [format_task(task) for task in sorted(owners[0], key=task_order) if owners[0][task] != owners[1].get(task)]
