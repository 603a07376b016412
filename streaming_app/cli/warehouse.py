"""Common parts of commands that read the tables: open those of a known cluster, and report if they are out of date."""

from collections.abc import Collection
from datetime import datetime, timedelta, timezone

from streaming_app.cli.options import duration_option
from streaming_app.cli.printing import echo_error
from streaming_app.groups.events import UNKNOWN_STATE
from streaming_app.kafka.releases import READINESS
from streaming_app.queries.broker_releases import read_brokers
from streaming_app.queries.clusters import check_cluster, find_staleness
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.text import format_duration

_MAX_AGE_SECONDS = 120.0  # a job that writes to an object store writes a heartbeat every 30 s

max_age_option = duration_option(
    "--max-age",
    format_duration(_MAX_AGE_SECONDS),
    "With --check: how old the tables may be. For jobs that run at intervals, longer than an interval.",
)


def open_cluster(warehouse: Location, cluster: str, *tables: str) -> WarehouseReader:
    """Open the tables for a command about one cluster, and print a line on stderr if they are not up to date.

    `tables` are those that the command will read, see `WarehouseReader.open_ahead`. Raises WarehouseError, also if the
    warehouse has other clusters but not this one.
    """
    reader, heartbeat = open_reader(warehouse, cluster, *tables)
    report_staleness(heartbeat, cluster)
    return reader


def open_reader(warehouse: Location, cluster: str, *tables: str) -> tuple[WarehouseReader, HeartbeatRecord | None]:
    """Open the tables as `open_cluster` does, but print nothing; return also the job's heartbeat, if there is one."""
    reader = WarehouseReader(warehouse, copies=True)
    reader.open_ahead(*tables)
    heartbeat = read_heartbeat(warehouse, cluster)
    if heartbeat is None:
        check_cluster(reader, warehouse, cluster)
    return reader, heartbeat


def report_staleness(heartbeat: HeartbeatRecord | None, cluster: str, max_age: float = _MAX_AGE_SECONDS) -> bool:
    """Return whether the tables are not up to date, by the job's heartbeat, and print why on stderr."""
    line = find_staleness(heartbeat, cluster, datetime.now(timezone.utc), timedelta(seconds=max_age))
    if line:
        echo_error(line)
    return line is not None


def explain_unknown(reader: WarehouseReader, cluster: str, states: Collection[str]) -> None:
    """Print on stderr why a state is Unknown, if one is and the brokers' release explains it."""
    if UNKNOWN_STATE in states and (reason := read_brokers(reader, cluster).why_unknown(READINESS)):
        echo_error(reason)
