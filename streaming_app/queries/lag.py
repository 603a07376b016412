"""What `lag` and `describe --offsets` print, from the tables `lag` and `offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from streaming_app.errors import WarehouseError
from streaming_app.lag.sums import KEYS, LagSum, lag_sums
from streaming_app.tables.lag_tables import read_lag
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


MAX_PARTITIONS = 5_000
"""Of one group, whose lag is read."""


def find_lag(warehouse: WarehouseReader, cluster: str, group_ids: Sequence[str], by: str) -> list[LagSum]:
    """Return the sums of these groups, or of all, the largest first.

    Raises WarehouseError if a group does not exist, or if there is no lag in the table at all.
    """
    _require_groups(warehouse, cluster, group_ids)
    mine = f"cluster = {quote(cluster)}"
    if not warehouse.rows(f"SELECT 1 FROM lag WHERE {mine} LIMIT 1"):  # noqa: S608 - quoted
        raise WarehouseError(
            f"No lag is known of cluster {cluster!r}: the job finds it while it runs, unless lag.enabled is false, "
            "once a group has committed offsets"
        )
    return lag_sums(read_lag(warehouse, _where(cluster, group_ids)), by)


def to_row(one: LagSum, by: str, now: datetime) -> Row:
    """Return a sum as a row of text."""
    names = {_TITLES[name]: value for name, value in zip(KEYS[by], one.key, strict=True)}
    known_until = _time(one.known_until)
    known = {"KNOWN": ago(known_until, now) if known_until else None, "STREAM-TIME": _stream_time(one)}
    if by == "partition":
        return {**names, "LAG": one.lag, "LAG-SECONDS": _seconds(one), "STATUS": one.status, **known}
    worst = f"{one.worst[0]}-{one.worst[1]} {one.max_lag}" if one.worst and one.max_lag else None
    return {
        **names,
        "LAG": _lag(one),
        "LAG-SECONDS": _seconds(one),
        "STATUS": one.status,
        "PARTITIONS": one.partitions,
        "NOT-OK": one.partitions_behind,
        "WITHOUT-COMMIT": one.partitions_without_commit,
        "UNKNOWN": one.unknown_partitions,
        "LARGEST": worst,
        **known,
    }


def to_json(one: LagSum, by: str) -> Row:
    """Return a sum as a JSON object."""
    return {
        **dict(zip(KEYS[by], one.key, strict=True)),
        "lag": one.lag,
        "lag_seconds": one.lag_seconds,
        "lag_seconds_is_lower_bound": one.is_lower_bound,
        "status": one.status,
        "partitions": one.partitions,
        "partitions_not_ok": one.partitions_behind,
        "partitions_without_commit": one.partitions_without_commit,
        "unknown_partitions": one.unknown_partitions,
        "lag_is_lower_bound": one.unknown_partitions > 0,
        "known_until": _time(one.known_until),
        "min_partition_time": _time(one.min_partition_time),
        "max_partition_time": _time(one.max_partition_time),
        "max_lag": one.max_lag,
        "max_lag_topic": one.worst[0] if one.worst else None,
        "max_lag_partition": one.worst[1] if one.worst else None,
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
    seconds = LagSum((), lag_seconds=one.get("lag_seconds"), is_lower_bound=bool(one.get("lag_seconds_is_lower_bound")))
    owner = {title: one.get(name) for title, name in _VERBOSE.items()}
    time = one.get("partition_time")
    of_time = {"STREAM-TIME": None if time is None else utc_iso(time, "seconds")}
    return {**row, **owner, "LAG-SECONDS": _seconds(seconds), "STATUS": one.get("status"), **of_time}


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)


def _stream_time(one: LagSum) -> str | None:
    """Return the time of the input, or the lowest and the highest of its partitions."""
    times = filter(None, map(_time, (one.min_partition_time, one.max_partition_time)))
    return "..".join(dict.fromkeys(utc_iso(time, "seconds") for time in times)) or None


def _lag(one: LagSum) -> str | None:
    if one.lag is None:
        return None
    return f"{'>=' if one.unknown_partitions else ''}{one.lag}"


def _seconds(one: LagSum) -> str | None:
    if one.lag_seconds is None:
        return None
    return f"{'>=' if one.is_lower_bound else ''}{one.lag_seconds:.0f}"


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
