"""The task matrix: a line for each process, a column for each task; cells say what a process does with a task. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from streaming_app.groups.group import ACTIVE, STANDBY, WARMUP
from streaming_app.groups.task_copies import DORMANT, RESTORING, TaskCopy, format_task
from streaming_app.queries.lag import Lag
from streaming_app.text import count, host_of

Row = Mapping[str, Any]
MAX_COLUMNS, MAX_ROWS = 400, 400
_LETTERS = {ACTIVE: "A", RESTORING: "R", STANDBY: "S", WARMUP: "W", DORMANT: "D"}
_OWNS = (ACTIVE, RESTORING)
_HOLDS, _TAKES, _GIVES = "holds", "takes", "gives"
_ROLES = {
    WARMUP: "warm-up",
    RESTORING: "active, restores its state and processes nothing yet",
    DORMANT: "not assigned, its state is left on the disk",
}
_TEXTS = {_HOLDS: "{role}", _TAKES: "will take over as {role}", _GIVES: "{role}, gives it up"}


def with_copies(assignments: Iterable[Row], copies: Iterable[TaskCopy]) -> Iterator[Row]:
    """Yield the assignments, with facts from the brokers: active tasks that restore, and state left on disk."""
    special = {(one.member_id, one.task): one for one in copies if one.role in {RESTORING, DORMANT}}
    for row in assignments:
        copy = special.get((row["member_id"], (row["subtopology_id"], row["partition"])))
        is_restored = copy is not None and copy.role == RESTORING and row["role"] == ACTIVE
        yield {**row, "role": RESTORING, "behind": copy.lag} if copy and is_restored else row
    for (member_id, (subtopology_id, partition)), copy in special.items():
        if copy.role == DORMANT:
            held = {"current": False, "target": False, "pending_revocation": False, "behind": copy.lag}
            task = {"subtopology_id": subtopology_id, "partition": partition}
            yield {"member_id": member_id, "role": DORMANT, **task, **held}


def task_matrix(members: Iterable[Row], assignments: Iterable[Row], lag: Mapping[str, Lag]) -> Row:
    """Return the matrix of the members and assignments of a group; `lag` is by task id.

    `columns` has subtopology and partition of each task, `subtopologies` each subtopology with the number of its
    columns. `processes` are the lines, each the members of one process, or one member without a process; its `cells`
    are by task, as `_cell` returns them. `unowned` are the ids of tasks that have or will have a copy, and no active
    member now; `roles` are all roles in the cells.
    """
    processes: dict[str, list[Row]] = {}
    process_of: dict[str, str] = {}
    for member in members:
        process = str(member["process_id"] or member["member_id"])
        processes.setdefault(process, []).append(member)
        process_of[member["member_id"]] = process
    rows = list(assignments)
    tasks = sorted({(row["subtopology_id"], row["partition"]) for row in rows}, key=task_order)
    columns = tasks[:MAX_COLUMNS]
    largest = max((one.lag or 0 for one in lag.values()), default=0)
    cells: dict[str, dict[tuple[str, int], list[Row]]] = {}
    for row in rows:
        process = str(process_of.get(row["member_id"]) or row["member_id"])
        task = (row["subtopology_id"], row["partition"])
        cells.setdefault(process, {}).setdefault(task, []).append(
            _cell(row, lag.get(format_task(task), Lag()), largest)
        )
    lines = [_process(name, those, cells.get(name, {})) for name, those in processes.items()]
    lines.sort(key=lambda line: (line["host"], line["process_id"]))
    active = {(row["subtopology_id"], row["partition"]) for row in rows if row["role"] in _OWNS and row["current"]}
    return {
        "columns": columns,
        "subtopologies": [(part, len([*same])) for part, same in groupby(columns, key=itemgetter(0))],
        "processes": lines[:MAX_ROWS],
        "hidden_columns": len(tasks) - len(columns),
        "hidden_processes": max(0, len(lines) - MAX_ROWS),
        "unowned": [format_task(task) for task in tasks if task not in active],
        "roles": {row["role"] for row in rows},
    }


def task_order(task: tuple[str, int]) -> tuple[bool, int, str, int]:
    """Return the sort key of a task: numeric subtopologies by number."""
    subtopology_id, partition = task
    is_number = subtopology_id.isascii() and subtopology_id.isdigit() and len(subtopology_id) < 10  # noqa: PLR2004
    return not is_number, int(subtopology_id) if is_number else 0, subtopology_id, partition


def _process(name: str, members: Sequence[Row], cells: Mapping[tuple[str, int], list[Row]]) -> Row:
    held = [cell["role"] in _OWNS for those in cells.values() for cell in those if cell["current"]]
    hosts = dict.fromkeys(host_of(member["client_host"]) for member in members)
    return {
        "process_id": name,
        "host": ", ".join(filter(None, hosts)),
        "client_id": members[0]["client_id"],
        "members": len(members),
        "active": sum(held),
        "standby": len(held) - sum(held),
        "cells": cells,
    }


def _cell(row: Row, lag: Lag, largest: int) -> Row:
    """Return what a process does with a task.

    `movement` is `holds`, `takes` or `gives`. `current`: the task is in the member's assignment, in which it is not
    while its revocation is pending. `lag_level`, 0 to 4, is the lag relative to the largest lag of the group.
    """
    if row["pending_revocation"] or (row["current"] and not row["target"]):
        movement = _GIVES
    elif row["current"] or row["role"] == DORMANT:
        movement = _HOLDS
    else:
        movement = _TAKES
    role = _ROLES.get(row["role"], row["role"])
    task = format_task((row["subtopology_id"], row["partition"]))
    text = f"{task}: {_TEXTS[movement].format(role=role)}"
    if row.get("behind") is not None:
        text += f", {count(row['behind'], 'offset')} behind"
    is_active = row["role"] in _OWNS and movement != _TAKES
    offsets = lag.lag or 0
    level = -(-4 * offsets // largest) if is_active and largest > 0 and offsets > 0 else 0
    if level or (is_active and lag.unknown_partitions):
        text += f", lag {'≥ ' if lag.unknown_partitions else ''}{offsets:,}"
    letter = _LETTERS.get(row["role"], "?")
    kept = {"role": row["role"], "current": row["current"]}
    return {**kept, "letter": letter, "movement": movement, "text": text, "lag_level": level}
