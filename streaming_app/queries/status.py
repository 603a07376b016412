"""The answer of `status`: the job, the groups by state, the open alerts and the sizes of the tables."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming_app.job_status import inputs
from streaming_app.kafka.releases import ABILITIES, config_gaps, describe_releases
from streaming_app.queries.broker_releases import read_brokers
from streaming_app.queries.clusters import check_cluster
from streaming_app.queries.described import groups_set_aside, quarantined_records
from streaming_app.queries.group_list import count_groups
from streaming_app.tables.alerts_table import OPEN, read_alerts
from streaming_app.tables.arrow import to_arrow
from streaming_app.tables.definitions import tables
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.location import Location, warehouse_errors
from streaming_app.tables.reader import Row, WarehouseReader, quote
from streaming_app.text import ago, count, utc, utc_clock

_OF_ALERT = ("severity", "rule", "group_id", "since", "opened_at", "summary")


def read_status(warehouse: Location, cluster: str, now: datetime) -> tuple[dict[str, Any], HeartbeatRecord | None]:
    """Return the status of one cluster, as `status --json` prints it, and its heartbeat. Raises WarehouseError."""
    reader, stored = WarehouseReader(warehouse, copies=True), [one.name for one in tables()]
    reader.open_ahead("groups", "alerts", "group_health", "broker_facts", "quarantine", without_rows=stored)
    heartbeat = read_heartbeat(warehouse, cluster)
    check_cluster(reader, warehouse, cluster)
    by_state, by_verdict = count_groups(reader, cluster)
    brokers = read_brokers(reader, cluster)
    firing = read_alerts(reader, f"cluster = {quote(cluster)} AND {OPEN}")
    status = {
        "cluster": cluster,
        "job": None
        if heartbeat is None
        else {
            "running": heartbeat.is_alive(now),
            "evaluates": heartbeat.evaluates,
            "known_until": {one.name: one.at for one in inputs(heartbeat.facts)},
            **heartbeat.model_dump(),
        },
        "groups": by_state,
        "verdicts": by_verdict,
        "alerts": [
            {name: getattr(alert, name) for name in _OF_ALERT} for alert in sorted(firing, key=lambda one: one.urgency)
        ],
        "set_aside": groups_set_aside(reader, cluster),
        "quarantined": quarantined_records(reader, cluster),
        "brokers": {
            "releases": [one._asdict() for one in brokers.releases],
            "text": describe_releases(brokers.releases)
            or "not asked yet: the running job asks them once it has caught up",
            "observed_at": brokers.observed_at,
            "unknown": [*filter(None, map(brokers.why_unknown, ABILITIES)), *config_gaps(brokers.configs)],
        },
        "tables": _table_sizes(warehouse, {name: reader.opened(name) for name in stored}),
    }
    return status, heartbeat


def _table_sizes(warehouse: Location, opened: Mapping[str, DeltaTable]) -> list[Row]:
    """Return version, files and bytes of the newest version of each table, and the files on disk of all versions."""
    with warehouse_errors("read", warehouse):
        files_on_disk = warehouse.count_files()
    files = {name: to_arrow(table.get_add_actions(flatten=True)) for name, table in opened.items()}
    return [
        {
            "table": name,
            "version": table.version(),
            "files": files[name].num_rows,
            "bytes": pc.sum(files[name]["size_bytes"]).as_py() or 0,
            "files_with_history": files_on_disk[name],
        }
        for name, table in opened.items()
    ]


def format_status(status: dict[str, Any], now: datetime) -> Iterator[str]:
    """Yield the lines about the cluster, the job, the groups and the alerts."""
    yield f"cluster   {status['cluster']}"
    yield f"job       {_format_job(status['job'], now)}"
    by_state = ", ".join(f"{number:,} {state}" for state, number in status["groups"].items())
    yield f"groups    {by_state or 'none'}"
    if status["verdicts"]:
        yield "verdicts  " + ", ".join(f"{number:,} {verdict}" for verdict, number in status["verdicts"].items())
    yield f"alerts    {len(status['alerts'])} open"
    if status["job"]:
        known_until = status["job"]["known_until"].items()
        yield "inputs    " + ", ".join(f"{name} {ago(at, now) if at else 'not yet'}" for name, at in known_until)
        yield f"offsets   {_format_offsets(status['job']['facts']['offsets'], now)}"
        for kind, (number, since, newest) in status["job"]["facts"]["unknown_types"].items():
            records = f"{count(number, 'record')} from {utc(since)} to {utc(newest)}"
            yield f"type {kind:<5}{records}, not read: this release does not know the type"
    brokers = status["brokers"]
    asked = f", as of {ago(brokers['observed_at'], now)}" if brokers["observed_at"] else ""
    yield f"brokers   {brokers['text']}{asked}"
    yield from (f"unknown   {reason}" for reason in brokers["unknown"])


def _format_job(job: dict[str, Any] | None, now: datetime) -> str:
    if job is None:
        return "has never run here"
    facts = job["facts"]
    process = f"process {job['pid']} on {job['host']}, since {utc(facts['started_at'])}"
    if not job["running"]:
        reason = f"ended by an error: {job['ended_by'].rstrip('.')}" if job["ended_by"] else "stopped"
        reason = reason if job["stopped"] else "died"
        return f"not running: {reason}, last heartbeat {ago(job['at'], now)} ({process})"
    waiting = job["notifications_waiting"]
    problems = [
        f"no broker answers since {utc_clock(facts['brokers_away_since'])}" if facts["brokers_away_since"] else "",
        f"no such topic since {utc_clock(facts['topic_missing_since'])}" if facts["topic_missing_since"] else "",
        f"the stream fails: {facts['failure']}" if facts["failure"] else "",
        "still catching up" if not facts["caught_up"] else "",
        f"{count(waiting, 'notification')} waiting" if waiting else "",
        "" if job["evaluates"] else "alerts are not evaluated",
        f"maintenance failed {count(failures, 'time')}" if (failures := facts["maintenance_failures"]) else "",
    ]
    behind = f"{count(facts['behind'], 'offset')} behind"
    success = f"last success {ago(facts['last_success_at'], now)}" if facts["last_success_at"] else "no batch yet"
    return "; ".join(["running", behind, success, *filter(None, problems), process])


def _format_offsets(offsets: dict[str, Any] | None, now: datetime) -> str:
    if offsets is None:
        return "not read: offsets.enabled is false"
    parts = [
        f"{count(offsets['behind'], 'offset')} behind",
        f"last success {ago(offsets['last_success_at'], now)}" if offsets["last_success_at"] else "no batch yet",
        f"the stream fails since {utc_clock(offsets['failing_since'])}: {offsets['failure']}"
        if offsets["failing_since"]
        else "",
        "still catching up" if not offsets["caught_up"] else "",
    ]
    return "; ".join(filter(None, parts))
