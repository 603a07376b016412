"""The sample warehouse of the page with more of something: groups, members, partitions, or history."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.support.sample_groups import NOW, RICH, WRITTEN, beat, write_sample
from tests.support.warehouses import append, make_warehouse

Row = dict[str, Any]


def write_scaled(path: Path, what: str, times: int) -> Path:
    """Write the rows of the sample with `times` as much of `what`."""
    source = write_sample(path / "sample", WRITTEN, hostile=False)
    target = make_warehouse(path / "warehouse")
    for directory in sorted(one for one in source.iterdir() if (one / "_delta_log").exists()):
        rows: list[Row] = DeltaTable(directory).to_pyarrow_table().to_pylist()
        if rows:
            append(
                target, directory.name, *(copy for row in rows for copy in _SCALED[what](directory.name, row, times))
            )
    beat(target, NOW)
    return target


def _groups(_: str, row: Row, times: int) -> Iterable[Row]:
    for n in range(times):
        ids = {"group_id": n and row.get("group_id") and f"{row['group_id']}-{n}"}
        if "alert_id" in row:
            ids["alert_id"] = n and row["alert_id"] and f"{row['alert_id']}-{n}"
        yield row | {key: value for key, value in ids.items() if value and key in row}


def _members(name: str, row: Row, times: int) -> Iterable[Row]:
    if name == "groups" and row["members"]:
        members = [_renamed(one, n) for one in row["members"] for n in range(times)]
        tasks = [
            _renamed(one, n) | {"partition": one["partition"] + 1_000 * n}
            for one in row["assignments"] or ()
            for n in range(times)
        ]
        yield row | {"members": members, "assignments": tasks, "member_count": len(members)}
    elif name == "task_copies":
        for n in range(times):
            yield _renamed(row, n) | {"partition": row["partition"] + 1_000 * n}
    else:
        yield row


def _partitions(name: str, row: Row, times: int) -> Iterable[Row]:
    if name in {"lag", "lag_history", "offset_commits"}:
        for n in range(times):
            yield row | {"partition": row["partition"] + 1_000 * n}
    elif name == "groups" and row["assignments"]:
        tasks = [one | {"partition": one["partition"] + 1_000 * n} for one in row["assignments"] for n in range(times)]
        yield row | {"assignments": tasks}
    else:
        yield row


_TIMES = {"topologies": "first_seen_at", "alerts": "opened_at"}


def _history(name: str, row: Row, times: int) -> Iterable[Row]:
    if name in {"group_events", "group_health_history", *_TIMES} and row["group_id"] == RICH:
        column = _TIMES.get(name, "at")
        for n in range(times):
            earlier = {column: row[column] and row[column] - timedelta(seconds=n)}
            yield row | earlier | ({"alert_id": f"{row['alert_id']}-{n}"} if "alert_id" in row else {})
    else:
        yield row


def _renamed(one: Mapping[str, Any], n: int) -> Row:
    return {**one, "member_id": f"{one['member_id']}-{n}" if n and one.get("member_id") else one.get("member_id")}


_SCALED = {"groups": _groups, "members": _members, "partitions": _partitions, "history": _history}
