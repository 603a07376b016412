"""The verdicts and alerts as text for users: one line, ten lines, or rows of a table."""

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from streaming_app.alerts.alert import BY_EVIDENCE, Alert, severity_rank
from streaming_app.alerts.catalog import GROUP_ID, HEALTH_RULES, MISSING_TOPIC, RULE_OF_VERDICT, rules
from streaming_app.groups.events import DEPLOYMENT, JOINED, LEFT, PROCESSES, PROTOCOL_CHANGED
from streaming_app.health.verdict import BAD, EARLIER, PLANNED, PROTOCOL, VERDICTS, WORST_FIRST
from streaming_app.queries.history import FOLDED
from streaming_app.tables.alerts_table import read_alerts
from streaming_app.tables.definitions import table
from streaming_app.tables.reader import Row, WarehouseReader, of_group, of_groups, quote, time_literal
from streaming_app.text import ago, lasted, rank, utc

_LINES = 2  # of a timeline, and of earlier verdicts, in `why`
_OF_CLASSIC = " Classic protocol: members and tasks as of the last rebalance; alerts only with `alerts.protocols: all`."
_KNOWN_UNTIL, _STREAM_TIMES = "known_until", ("min_partition_time", "max_partition_time")
_OF_HEALTH = f"rule IN ({', '.join(quote(rule) for rule in HEALTH_RULES)}) AND opened_at IS NOT NULL"


def read_verdicts(reader: WarehouseReader, cluster: str, group_ids: Collection[str] | None = None) -> dict[str, Row]:
    """Return the rows of `group_health` by group, with the evidence as JSON has it."""
    columns = ", ".join(name for name in table("group_health").names if name != "cluster")
    where = of_groups(cluster, group_ids)
    rows = reader.rows(f"SELECT {columns} FROM group_health WHERE {where} ORDER BY group_id")  # noqa: S608 - quoted
    return {
        row["group_id"]: {**row, "evidence": json.loads(row["evidence"] or "{}"), "labels": row["labels"] or {}}
        for row in rows
    }


def to_line(row: Row) -> str:
    """Return the verdict in one line, with what will be lost."""
    lost = f" Retention deletes the oldest record that waits at {utc(row['losing_at'])}." if row["losing_at"] else ""
    why = row["why"] if row["why"].endswith(".") else f"{row['why']}."
    return f"{row['group_id']} is {row['verdict']} since {utc(row['since'])}: {why}{lost}"


def lines(rows: Iterable[Row], deployments: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each verdict, the worst first, followed by the group's line of `deployment_lines`."""
    worst = sorted(rows, key=lambda row: (severity_rank(row["severity"]), rank(row["verdict"], WORST_FIRST)))
    for row in worst:
        yield to_line(row)
        yield from filter(None, [deployments.get(row["group_id"])])


def deployment_lines(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> dict[str, str]:
    """Return by group a line about its last deployment in `group_events`: its end, duration, and what was replaced.

    The records of a group whose processes were restarted are those of one that was deployed again.
    """
    if not group_ids:
        return {}
    newest = "ORDER BY at, e.offset"
    rows = reader.rows(
        f'SELECT group_id, max(at) AS at, last_value("old" {newest}) AS begin, last_value("new" {newest}) AS what '  # noqa: S608 - quoted
        f"FROM group_events e WHERE {of_groups(cluster, group_ids)} AND kind = '{DEPLOYMENT}' AND void IS NOT TRUE "
        "AND at IS NOT NULL GROUP BY group_id"
    )
    return {
        row["group_id"]: f"  {_REPLACED.get(row['what'], 'Its last deployment ended')} at {utc(row['at'])}, within "
        f"{lasted(row['at'] - datetime.fromisoformat(row['begin']))}: {row['what']}."
        for row in rows
    }


_REPLACED = {PROCESSES: "All its processes were last replaced, by a restart or a deployment,"}
_CHANGES = (DEPLOYMENT, PROTOCOL_CHANGED, "topology", "config_changed", "log_truncated", "created", LEFT, JOINED)
_DEPLOYS, _NAMED_CHANGES = timedelta(minutes=15), 4


def changes_before(reader: WarehouseReader, cluster: str, group_id: str, time: datetime) -> list[Row]:
    """Return the last changes of a group up to a time, newest first: they may have caused what began then.

    A deployment is noted at its end, so deployments that ended up to a quarter of an hour later also count.
    """
    changes = f"(topic IS NOT NULL OR kind IN ({', '.join(map(quote, _CHANGES))}))"
    until = f"(at <= {time_literal(time)} OR (kind = '{DEPLOYMENT}' AND at <= {time_literal(time + _DEPLOYS)}))"
    found = FOLDED.format(where=f"{of_group(cluster, group_id)} AND {changes} AND {until}")
    columns = 'at, kind, member_id, client_host, "old", "new", cause, topic, partition, places'
    newest = f"ORDER BY at DESC, e.offset DESC LIMIT {_NAMED_CHANGES}"
    return reader.rows(f"SELECT {columns} FROM {found} {newest}")  # noqa: S608 - quoted


MAX_VERDICTS = 2_000
"""Of one group in a time, the newest."""


def verdicts_between(
    reader: WarehouseReader, cluster: str, group_ids: Collection[str], begin: datetime, end: datetime | None = None
) -> dict[str, list[Row]]:
    """Return by group its verdicts from one time to another, oldest first; the first one may be earlier."""
    columns, own = "group_id, at, verdict, severity, since, why", of_groups(cluster, group_ids)
    since, until = time_literal(begin), f"AND at <= {time_literal(end)}" if end else ""
    rows = reader.rows(
        f"SELECT {columns} FROM group_health_history WHERE {own} AND at >= {since} {until} "  # noqa: S608 - quoted
        f"UNION ALL SELECT {columns} FROM ("
        f"SELECT {columns}, row_number() OVER (PARTITION BY group_id ORDER BY at DESC) AS number "
        f"FROM group_health_history WHERE {own} AND at < {since}) AS before WHERE number = 1 "
        f"ORDER BY at DESC LIMIT {MAX_VERDICTS * len(group_ids)}"
    )
    found: dict[str, list[Row]] = {}
    for row in reversed(rows):
        found.setdefault(row["group_id"], []).append(row)
    return found


def alert_with(reader: WarehouseReader, cluster: str, group_id: str) -> Alert | None:
    """Return the open alert about the verdict on a group; if none is open, the last one."""
    found = read_alerts(reader, f"{of_group(cluster, group_id)} AND {_OF_HEALTH}")
    return max(found, key=lambda one: (one.ended_at is None, one.opened_at), default=None)


def deletion(reader: WarehouseReader, cluster: str, group_id: str) -> Row | None:
    """Return when a group was deleted, and its last verdicts; None for a group that is not known as deleted."""
    own = of_group(cluster, group_id)
    rows = reader.rows(f"SELECT deleted_at FROM groups WHERE {own} AND deleted_at IS NOT NULL")  # noqa: S608 - quoted
    last = reader.rows(
        "SELECT at, verdict, why FROM (SELECT *, lead(concat(verdict, why)) OVER (ORDER BY at DESC) AS before "  # noqa: S608 - quoted
        f"FROM group_health_history WHERE {own}) AS changes WHERE before IS DISTINCT FROM concat(verdict, why) "
        f"ORDER BY at DESC LIMIT {_LINES}"
    )
    return {**rows[0], "last_verdicts": last[::-1]} if rows else None


def explain_deleted(group_id: str, deleted: Row, alert: Alert | None) -> Iterator[str]:
    """Yield the lines about a deleted group without a verdict. `deleted` is from `deletion`."""
    yield f"{group_id} was deleted at {utc(deleted['deleted_at'])}."
    yield from (f"  {utc(one['at'])} {one['verdict']}: {one['why']}" for one in deleted["last_verdicts"])
    if alert and alert.ended_at and alert.opened_at:
        yield _last_alert(alert, alert.opened_at, alert.ended_at)


def lag_times(reader: WarehouseReader, cluster: str, group_id: str) -> Row:
    """Return up to when the lag of a group is known, and how far it has read its input; None if it is not known.

    Its input are the lowest and the highest stream time.
    """
    columns, where = (_KNOWN_UNTIL, *_STREAM_TIMES), of_group(cluster, group_id)
    found = reader.rows(f"SELECT {', '.join(columns)} FROM lag_sums WHERE summed_by = 'group' AND {where}")  # noqa: S608 - quoted
    return found[0] if found else dict.fromkeys(columns)


def explain(row: Row, alert: Alert | None, happened: Iterable[str | None], now: datetime, times: Row) -> Iterator[str]:
    """Yield at most ten lines: the verdict of a group, since when and why, what will be lost, and what to do.

    `row` is from `read_verdicts`, `times` from `lag_times`; `happened` are lines about what was done to the group.
    """
    yield to_line(row)
    classic = _OF_CLASSIC if row["evidence"].get(PROTOCOL) else ""
    yield f"  {VERDICTS.get(row['verdict'], '')} Severity: {row['severity'] or 'none'}.{classic}"
    if row["evidence"].get(PLANNED):
        yield "  Somebody ended its alert. Another bad verdict opens a new alert."
    for one in row["evidence"].get(EARLIER, ())[-_LINES:]:
        yield f"  Before, it was {one['verdict']} since {utc(datetime.fromisoformat(one['since']))}: {one['why']}."
    if row["evidence"].get("not_over"):
        yield f"  It is not over: {row['evidence']['not_over']}."
    if row["caught_up_at"]:
        yield f"  At this rate it has caught up at {utc(row['caught_up_at'])}."
    known_at = times[_KNOWN_UNTIL]
    known = f"was known {ago(known_at, now)}" if known_at else "is not known"
    read = " to ".join(dict.fromkeys(utc(one) for name in _STREAM_TIMES if (one := times[name])))
    stream_time = f" Stream time: {read}, the highest timestamps that the application had read." if read else ""
    yield f"  Its lag {known}.{stream_time}"
    yield from filter(None, happened)
    if alert and alert.opened_at and alert.ended_at:
        yield _last_alert(alert, alert.opened_at, alert.ended_at)
        return
    if alert and alert.opened_at:
        cause = f", cause {alert.cause}" if alert.cause else ""
        yield f"  Alert {alert.alert_id}, {alert.severity}, open since {utc(alert.opened_at)}{cause}."
        yield from (f"  {utc(line.at)} {line.verdict or line.rule}" for line in alert.timeline[-_LINES:])
    elif row["verdict"] not in BAD:
        return
    name, step = next_step(alert, row)
    group = shlex.quote(row["group_id"])
    more = f"More: the runbook, {name}; evidence: `streams-groups why --group {group} --json`."
    yield f"  What to do: {step} {more}".replace(":  ", ": ")


def _last_alert(alert: Alert, opened_at: datetime, ended_at: datetime) -> str:
    by = "" if alert.ended_by == BY_EVIDENCE else f" ({alert.ended_by})"
    lines = f"  Its last alert, {alert.alert_id}, {alert.rule}, ended at {utc(ended_at)} after "
    return f"{lines}{lasted(ended_at - opened_at)}{by}: {alert.summary}"


def next_step(alert: Alert | None, row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the rule whose runbook applies, and its first step that fits the verdict; empty for an unknown rule.

    While the verdict is a good one, the open alert may not be over yet: then the step fits its last bad verdict.
    """
    now = [(row["verdict"], row["why"])] if row["severity"] or alert is None else []
    before = [(line.verdict, line.why) for line in reversed(alert.timeline) if line.verdict in BAD] if alert else []
    verdict, why = next(iter(now + before), ("", alert.summary if alert else ""))
    name = RULE_OF_VERDICT.get(verdict, alert.rule if alert else "")
    rule = rules().get(name)
    step = rule.step_for(why).text.strip() if rule else ""  # none for a rule of a later release
    kind, _, topic = (alert.cause or "" if alert else "").partition(":")
    if kind == "missing_topic":
        step = step.replace(MISSING_TOPIC, shlex.quote(topic))
    step = step.replace(" ID ", f" {alert.alert_id} ") if alert else step
    return name, step.replace(GROUP_ID, shlex.quote(row["group_id"]))
