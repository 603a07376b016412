"""What `status` shows: the job, what it found, what fires, and how big the tables are. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.table_definitions import tables
from streaming_app.serve.place import Place
from streaming_app.serve.running import read_running
from streaming_app.serve.warehouse import Warehouse, WarehouseError, opened_table, quoted

Row = dict[str, Any]


def status(warehouse: Place | Path, cluster: str, now: datetime) -> dict[str, Any]:
    """Everything about one cluster, as JSON has it. Raises WarehouseError."""
    place = Place.of(warehouse)
    opened = Warehouse(place)
    mine = f"WHERE cluster = {quoted(cluster)}"
    running = read_running(place, cluster)
    by_state = f"SELECT state, count(*) AS n FROM groups {mine} GROUP BY state ORDER BY n DESC, state"  # noqa: S608 - quoted
    firing = f"{mine} AND state = 'firing' ORDER BY opened_at"
    return {
        "cluster": cluster,
        "job": None if running is None else {"running": running.alive(now), **running.model_dump()},
        "groups": {row["state"]: row["n"] for row in opened.rows(by_state)},
        "firing": opened.rows(f"SELECT severity, rule, group_id, opened_at, summary FROM alerts {firing}"),  # noqa: S608
        "tables": [_size(place / definition.name) for definition in tables()],
    }


def _size(place: Place) -> Row:
    """Rows, files and bytes of a table as it is now, and files on the disk, those of past versions included."""
    opened = opened_table(place)
    files = pa.table(opened.get_add_actions(flatten=True))
    try:
        present = place.count_files()
    except OSError as error:
        raise WarehouseError(f"Cannot read {place}: {error.strerror or error}") from None
    return {
        "table": place.name,
        "version": opened.version(),
        "files": files.num_rows,
        "bytes": pc.sum(files["size_bytes"]).as_py() or 0,
        "files_with_history": present,
    }


def lines(told: dict[str, Any], now: datetime) -> Iterator[str]:
    """The same for people."""
    yield f"cluster   {told['cluster']}"
    yield f"job       {_job(told['job'], now)}"
    counts = ", ".join(f"{count:,} {state}" for state, count in told["groups"].items())
    yield f"groups    {counts or 'none'}"
    yield f"alerts    {len(told['firing'])} firing"


def _job(job: dict[str, Any] | None, now: datetime) -> str:
    if job is None:
        return "has never run here"
    facts = job["facts"]
    where = f"process {job['pid']} on {job['host']}, since {facts['started_at']:%Y-%m-%d %H:%M:%SZ}"
    if not job["running"]:
        how = "stopped" if job["stopped"] else "died"
        return f"not running: {how}, last heard of {_ago(job['at'], now)} ({where})"
    troubles = [
        f"no broker answers since {facts['brokers_away_since']:%H:%M:%SZ}" if facts["brokers_away_since"] else "",
        f"the stream fails: {facts['failure']}" if facts["failure"] else "",
        "still catching up" if not facts["caught_up"] else "",
        f"{job['notifications_waiting']} notifications wait" if job["notifications_waiting"] else "",
    ]
    behind = f"{facts['behind']:,} offsets behind"
    success = f"last success {_ago(facts['last_success_at'], now)}" if facts["last_success_at"] else "no batch yet"
    return "; ".join(["running", behind, success, *filter(None, troubles), where])


def _ago(then: datetime, now: datetime) -> str:
    seconds = max(0, int((now - then).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    return (
        f"{days} d ago"
        if days
        else f"{hours} h ago"
        if hours
        else f"{minutes} min ago"
        if minutes
        else f"{seconds} s ago"
    )
