"""What `lag` and `describe --offsets` print, from the tables `lag` and `offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from streaming_app.errors import WarehouseError
from streaming_app.lag.model import KEYS
from streaming_app.lag.status import BY_RANK, LEFT_OVER, UNKNOWN
from streaming_app.tables.reader import Row, WarehouseReader, of_groups, quote
from streaming_app.text import ago, utc_iso

_TITLES = {
    "group_id": "GROUP",
    "subtopology_id": "SUBTOPOLOGY",
    "task_id": "TASK",
    "member_id": "MEMBER",
    "process_id": "PROCESS",
    "client_host": "HOST",
    "topic": "TOPIC",
    "partition": "PARTITION",
}
_OFFSETS = {
    "GROUP": "group_id",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "CURRENT-OFFSET": "committed_offset",
    "LEADER-EPOCH": "leader_epoch",
    "LOG-END-OFFSET": "log_end_offset",
    "OFFSET-LAG": "lag",
}
_VERBOSE = {"TASK": "task_id", "MEMBER": "member_id", "PROCESS": "process_id", "HOST": "client_host"}
_FROM_LOG = "group_id, topic, partition, committed_offset, leader_epoch, committed_at, partition_time"

_RANKED = " ".join(f"WHEN '{status}' THEN '{rank:02}{status}'" for rank, status in enumerate(BY_RANK))
_LARGEST = "first_value({} ORDER BY lag DESC, topic, partition) FILTER (WHERE lag IS NOT NULL)"
_SUMS = f"""
sum(lag) AS lag, max(lag_seconds) AS lag_seconds,
bool_or(is_unknown OR coalesce(lag_seconds_is_lower_bound, false)) AS lag_seconds_is_lower_bound,
coalesce(
  substr(min(CASE status {_RANKED} ELSE concat('00', status) END) FILTER (WHERE committed_offset IS NOT NULL), 3),
  '{UNKNOWN}') AS status,
count(*) AS partitions, count(*) FILTER (WHERE committed_offset IS NOT NULL AND status <> 'OK') AS partitions_not_ok,
count(*) FILTER (WHERE committed_offset IS NULL) AS partitions_without_commit,
count(*) FILTER (WHERE is_unknown) AS unknown_partitions, bool_or(is_unknown) AS lag_is_lower_bound,
min(known_until) AS known_until, min(partition_time) AS min_partition_time, max(partition_time) AS max_partition_time,
max(lag) AS max_lag, {_LARGEST.format("topic")} AS max_lag_topic, {_LARGEST.format("partition")} AS max_lag_partition
"""
"""What is known of several partitions; the status is the worst of those with a commit."""

MAX_PARTITIONS = 5_000
"""Of one group, whose lag is read."""


def find_lag(warehouse: WarehouseReader, cluster: str, group_ids: Sequence[str], by: str) -> list[Row]:
    """Return the sums of these groups, or of all, the largest first: by offsets, then by seconds.

    Topics that the topology of the group does not read are in no sum. A sum leaves out partitions whose lag is not
    known, and counts them: it is then a lower bound. It is None if the lag of none is known.

    Raises WarehouseError if a group does not exist, or if there is no lag in the table at all.
    """
    _require_groups(warehouse, cluster, group_ids)
    mine = f"cluster = {quote(cluster)}"
    if not warehouse.rows(f"SELECT 1 FROM lag WHERE {mine} LIMIT 1"):  # noqa: S608 - quoted
        raise WarehouseError(
            f"No lag is known of cluster {cluster!r}: the job finds it while it runs, unless lag.enabled is false, "
            "once a group has committed offsets"
        )
    keys, of_tasks = ", ".join(KEYS[by]), "" if by in {"group", "topic", "partition"} else "AND task_id IS NOT NULL"
    order = ", ".join(f"{name} NULLS LAST" for name in KEYS[by])
    return warehouse.rows(
        f"SELECT {keys}, {_SUMS} FROM lag WHERE {_where(cluster, group_ids)} AND status <> '{LEFT_OVER}' {of_tasks} "  # noqa: S608 - quoted
        f"GROUP BY {keys} ORDER BY lag DESC NULLS LAST, lag_seconds DESC NULLS LAST, {order}"
    )


def to_row(one: Row, by: str, now: datetime) -> Row:
    """Return a sum as a row of text."""
    names = {_TITLES[name]: one[name] for name in KEYS[by]}
    seconds = _seconds(one)
    known = {"KNOWN": ago(one["known_until"], now) if one["known_until"] else None, "STREAM-TIME": _stream_time(one)}
    if by == "partition":
        return {**names, "LAG": one["lag"], "LAG-SECONDS": seconds, "STATUS": one["status"], **known}
    lag = None if one["lag"] is None else f"{'>=' if one['lag_is_lower_bound'] else ''}{one['lag']}"
    worst = "{max_lag_topic}-{max_lag_partition} {max_lag}".format_map(one) if one["max_lag"] else None
    return {
        **names,
        "LAG": lag,
        "LAG-SECONDS": seconds,
        "STATUS": one["status"],
        "PARTITIONS": one["partitions"],
        "NOT-OK": one["partitions_not_ok"],
        "WITHOUT-COMMIT": one["partitions_without_commit"],
        "UNKNOWN": one["unknown_partitions"],
        "LARGEST": worst,
        **known,
    }


def find_offsets(warehouse: WarehouseReader, cluster: str, group_ids: Iterable[str] | None) -> list[Row]:
    """Return the rows of `lag` of these groups, or of all; where there are none, the commits as the log has them.

    Raises WarehouseError if a group does not exist.
    """
    wanted = list(dict.fromkeys(group_ids or ()))
    _require_groups(warehouse, cluster, wanted)
    where, order = _where(cluster, wanted), "ORDER BY group_id, topic, partition"
    rows = warehouse.rows(f"SELECT * FROM lag WHERE {where} {order}")  # noqa: S608 - quoted
    known = {row["group_id"] for row in rows}
    in_log = warehouse.rows(f"SELECT {_FROM_LOG} FROM offsets WHERE {where} {order}")  # noqa: S608 - quoted
    rows += [{"cluster": cluster, **row} for row in in_log if row["group_id"] not in known]
    return rows


def offset_rows(offsets: Iterable[Row], *, verbose: bool) -> list[Row]:
    """Return a row per partition as kafka-streams-groups.sh prints it; with `verbose`, whose task it is and its age."""
    return [_offset_row(one, verbose=verbose) for one in offsets]


def _offset_row(one: Row, *, verbose: bool) -> Row:
    row = {title: one.get(name) for title, name in _OFFSETS.items()}
    if not verbose:
        return row
    owner = {title: one.get(name) for title, name in _VERBOSE.items()}
    time = one.get("partition_time")
    of_time = {"STREAM-TIME": None if time is None else utc_iso(time, "seconds")}
    return {**row, **owner, "LAG-SECONDS": _seconds(one), "STATUS": one.get("status"), **of_time}


def _stream_time(one: Row) -> str | None:
    """Return the time of the input, or the lowest and the highest of its partitions."""
    times = filter(None, (one["min_partition_time"], one["max_partition_time"]))
    return "..".join(dict.fromkeys(utc_iso(time, "seconds") for time in times)) or None


def _seconds(one: Row) -> str | None:
    seconds = one.get("lag_seconds")
    return None if seconds is None else f"{'>=' if one['lag_seconds_is_lower_bound'] else ''}{seconds:.0f}"


def _where(cluster: str, group_ids: Sequence[str]) -> str:
    return of_groups(cluster, group_ids or None)


def _require_groups(warehouse: WarehouseReader, cluster: str, group_ids: Sequence[str]) -> None:
    if not group_ids:
        return
    where = _where(cluster, group_ids)
    known = {
        row["group_id"]
        for table in ("groups", "all_groups", "lag")
        for row in warehouse.rows(f"SELECT DISTINCT group_id FROM {table} WHERE {where}")  # noqa: S608 - quoted
    }
    if missing := set(group_ids) - known:
        names = ", ".join(repr(name) for name in sorted(missing))
        raise WarehouseError(f"No group {names} in cluster {cluster!r}: `streams-groups list` shows the streams groups")
