"""The answers of `lag` and `describe --offsets`, from the tables `lag` and `offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from streaming_app.errors import WarehouseError
from streaming_app.queries.output import title
from streaming_app.tables.definitions import sums_sql
from streaming_app.tables.reader import Row, WarehouseReader, of_groups, quote
from streaming_app.text import ago, utc_iso

_OFFSETS = {
    "GROUP": "group_id",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "CURRENT-OFFSET": "committed_offset",
    "LEADER-EPOCH": "leader_epoch",
    "LOG-END-OFFSET": "log_end_offset",
    "OFFSET-LAG": "lag",
}
_ONLY_VERBOSE = {"CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET"}
_VERBOSE = {"TASK": "task_id", "MEMBER": "member_id", "PROCESS": "process_id", "HOST": "client_host"}
_FROM_LOG = "group_id, topic, partition, committed_offset, leader_epoch, committed_at, partition_time"


_OF_TASKS = frozenset({"subtopology_id", "task_id", "member_id", "process_id", "client_host"})
"""Sums by these columns omit rows without a task. For a task without an owner, member, process and host are null."""
_LARGEST = ", ".join(
    f"CASE WHEN max(lag) IS NOT NULL THEN first_value({name} ORDER BY coalesce(lag, -1) DESC, topic, partition) END "
    f"AS max_lag_{name}"
    for name in ("topic", "partition")
)
"""The partition with the largest lag, in the dialect of DataFusion."""


def find_lag(warehouse: WarehouseReader, cluster: str, group_ids: Sequence[str], by: Sequence[str]) -> list[Row]:
    """Return the lag of these groups, or of all, summed by these columns, largest first: rows as in `group_lag`.

    Raises WarehouseError if a group does not exist, or if the table has no lag at all.
    """
    _require_groups(warehouse, cluster, group_ids)
    mine = f"cluster = {quote(cluster)}"
    if not warehouse.rows(f"SELECT 1 FROM lag WHERE {mine} LIMIT 1"):  # noqa: S608 - quoted
        raise WarehouseError(
            f"The lag of cluster {cluster!r} is not known: the running job computes it, unless lag.enabled is false, "
            "once a group has committed offsets"
        )
    where = of_groups(cluster, group_ids or None) + (" AND task_id IS NOT NULL" if _OF_TASKS.intersection(by) else "")
    order = ", ".join(("coalesce(lag, -1) DESC", "coalesce(lag_seconds, 0) DESC", *by))
    sums = sums_sql("lag", by, where, f", {_LARGEST}")
    return warehouse.rows(f"SELECT * FROM ({sums}) AS sums ORDER BY {order}")  # noqa: S608 - quoted


def to_row(one: Row, by: Sequence[str], now: datetime) -> Row:
    """Return a sum as a row of text."""
    names = {title(name): one[name] for name in by}
    known_until = one["known_until"]
    known = {"KNOWN": ago(known_until, now) if known_until else None, "STREAM-TIME": _stream_times(one)}
    seconds = _seconds(one["lag_seconds"], is_lower_bound=one["is_lower_bound"])
    if "partition" in by:
        return {**names, "LAG": one["lag"], "LAG-SECONDS": seconds, "OFFSET-STATUS": one["offset_status"], **known}
    largest = f"{one['max_lag_topic']}-{one['max_lag_partition']} {one['max_lag']}" if one["max_lag"] else None
    return {
        **names,
        "LAG": None if one["lag"] is None else f"{'>=' if one['unknown_partitions'] else ''}{one['lag']}",
        "LAG-SECONDS": seconds,
        "OFFSET-STATUS": one["offset_status"],
        "PARTITIONS": one["partitions"],
        "WITHOUT-COMMIT": one["partitions_without_commit"],
        "UNKNOWN": one["unknown_partitions"],
        "LARGEST": largest,
        **known,
    }


def to_json(one: Row) -> Row:
    """Return a sum as a JSON object."""
    found = {name: value for name, value in one.items() if name not in {"is_lower_bound", "observed_at"}}
    bounds = {"lag_seconds_is_lower_bound": one["is_lower_bound"], "lag_is_lower_bound": one["unknown_partitions"] > 0}
    return found | bounds


def find_offsets(warehouse: WarehouseReader, cluster: str, group_ids: Iterable[str] | None) -> list[Row]:
    """Return the rows of `lag` for these groups, or for all; for a group without rows, its commits from the log.

    Raises WarehouseError if a group does not exist.
    """
    wanted = list(dict.fromkeys(group_ids or ()))
    _require_groups(warehouse, cluster, wanted)
    where, order = of_groups(cluster, wanted or None), "ORDER BY group_id, topic, partition"
    rows = warehouse.rows(f"SELECT * FROM lag WHERE {where} {order}")  # noqa: S608 - quoted
    known = {row["group_id"] for row in rows}
    in_log = warehouse.rows(f"SELECT {_FROM_LOG} FROM offsets WHERE {where} {order}")  # noqa: S608 - quoted
    rows += [{"cluster": cluster, **row} for row in in_log if row["group_id"] not in known]
    return rows


def offset_rows(offsets: Iterable[Row], *, verbose: bool) -> list[Row]:
    """Return a row per partition as kafka-streams-groups.sh prints it; with `verbose` also task, owner and age."""
    return [_offset_row(one, verbose=verbose) for one in offsets]


def _offset_row(one: Row, *, verbose: bool) -> Row:
    row = {title: one.get(name) for title, name in _OFFSETS.items() if verbose or title not in _ONLY_VERBOSE}
    if row["OFFSET-LAG"] is None and one.get("is_unknown") is False:  # for an empty log Kafka's tool prints 0
        row["OFFSET-LAG"] = 0
    if not verbose:
        return row
    seconds = _seconds(one.get("lag_seconds"), is_lower_bound=one.get("lag_seconds_is_lower_bound"))
    owner = {title: one.get(name) for title, name in _VERBOSE.items()}
    time = one.get("partition_time")
    of_time = {"STREAM-TIME": None if time is None else utc_iso(time, "seconds")}
    return {**row, **owner, "LAG-SECONDS": seconds, "OFFSET-STATUS": one.get("offset_status"), **of_time}


def _stream_times(one: Row) -> str | None:
    """Return the stream time; if the partitions differ, the lowest and the highest."""
    times = filter(None, (one["min_partition_time"], one["max_partition_time"]))
    return "..".join(dict.fromkeys(utc_iso(time, "seconds") for time in times)) or None


def _seconds(seconds: float | None, *, is_lower_bound: bool | None) -> str | None:
    return None if seconds is None else f"{'>=' if is_lower_bound else ''}{seconds:.0f}"


def _require_groups(warehouse: WarehouseReader, cluster: str, group_ids: Sequence[str]) -> None:
    if not group_ids:
        return
    where = of_groups(cluster, group_ids)
    known = {
        row["group_id"]
        for table in ("groups", "all_groups", "lag")
        for row in warehouse.rows(f"SELECT DISTINCT group_id FROM {table} WHERE {where}")  # noqa: S608 - quoted
    }
    if missing := set(group_ids) - known:
        names = ", ".join(repr(name) for name in sorted(missing))
        raise WarehouseError(f"No group {names} in cluster {cluster!r}: `streams-groups list` shows the streams groups")
