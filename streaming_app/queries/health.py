"""The verdicts and problems as text for users: one line, ten lines, or rows of a table."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.alerts.catalog import GROUP_ID, HEALTH_RULES, rules
from streaming_app.alerts.problem import BY_EVIDENCE, Problem
from streaming_app.errors import WarehouseError
from streaming_app.groups.deployments import DEPLOYMENT
from streaming_app.health.verdict import PLANNED, UNKNOWN, VERDICTS, Verdict, trouble
from streaming_app.tables.alerts_table import read_problems
from streaming_app.tables.definitions import table
from streaming_app.tables.health_tables import HEALTH, HealthRow, read_health
from streaming_app.tables.reader import Row, WarehouseReader, of_group, of_groups, quote, time_literal
from streaming_app.text import ago, lasted, utc

_BY_LOWER_CASE = {name.lower(): name for name in VERDICTS}
_LINES = 2  # of a timeline, in `why`
_OF_HEALTH = f"rule IN ({', '.join(quote(rule) for rule in HEALTH_RULES)}) AND opened_at IS NOT NULL"


class StreamTime(NamedTuple):
    """The stream time over the partitions of a group; None if it is not known for any."""

    lowest: datetime | None
    highest: datetime | None


def parse_verdicts(text: str) -> list[str]:
    """Return the verdicts in a list such as `Down,Stalled`, in any letter case. Raises WarehouseError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name.lower() not in _BY_LOWER_CASE]
    if unknown:
        raise WarehouseError(f"No such verdict: {unknown[0]}. Valid verdicts are: {', '.join(VERDICTS)}")
    return [_BY_LOWER_CASE[name.lower()] for name in names]


def read_verdicts(
    reader: WarehouseReader, cluster: str, group_ids: Collection[str] | None = None
) -> dict[str, HealthRow]:
    """Return the rows of `group_health` by group."""
    return {row.group_id: row for row in read_health(reader, of_groups(cluster, group_ids))}


def list_by_health(reader: WarehouseReader, cluster: str, groups: Iterable[Row], wanted: Collection[str]) -> list[Row]:
    """Return these groups, and deleted groups with a verdict, with HEALTH and SINCE; with `wanted` only these verdicts.

    A group that was deleted while it was Down has a verdict until its incident ends.
    """
    known = read_verdicts(reader, cluster)
    rows = ((name, known.get(name)) for name in sorted({row["GROUP"] for row in groups} | known.keys()))
    return [
        {"GROUP": name, "HEALTH": _verdict(health), "SINCE": health.verdict.since if health else None}
        for name, health in rows
        if not wanted or _verdict(health) in wanted
    ]


def _verdict(row: HealthRow | None) -> str:
    return row.verdict.verdict if row else UNKNOWN


def to_line(group_id: str, verdict: Verdict) -> str:
    """Return the verdict in one line, with what will be lost."""
    lost = f" Retention deletes the oldest record that waits at {utc(verdict.losing_at)}." if verdict.losing_at else ""
    why = verdict.why if verdict.why.endswith(".") else f"{verdict.why}."
    return f"{group_id} is {verdict.verdict} since {utc(verdict.since)}: {why}{lost}"


def lines(rows: Iterable[HealthRow], deployments: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each verdict, the worst first, followed by the group's line of `deployment_lines`."""
    for row in sorted(rows, key=lambda row: (trouble(row.verdict), row.group_id)):
        yield to_line(row.group_id, row.verdict)
        yield from filter(None, [deployments.get(row.group_id)])


def deployment_lines(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> dict[str, str]:
    """Return by group a line about its last deployment in `group_events`: its end, duration, and what was replaced."""
    if not group_ids:
        return {}
    newest = "ORDER BY at, e.offset"
    rows = reader.rows(
        f'SELECT group_id, max(at) AS at, last_value("old" {newest}) AS begin, last_value("new" {newest}) AS what '  # noqa: S608 - quoted
        f"FROM group_events e WHERE {of_groups(cluster, group_ids)} AND kind = '{DEPLOYMENT}' AND void IS NOT TRUE "
        "AND at IS NOT NULL GROUP BY group_id"
    )
    return {
        row["group_id"]: f"  Its last deployment ended at {utc(row['at'])}, after "
        f"{lasted(row['at'] - datetime.fromisoformat(row['begin']))}: {row['what']}."
        for row in rows
    }


_CHANGES = (DEPLOYMENT, "topology", "config_changed", "log_truncated", "member_left", "member_joined", "created")
_DEPLOYS, _NAMED_CHANGES = timedelta(minutes=15), 4


def changes_before(reader: WarehouseReader, cluster: str, group_id: str, time: datetime) -> list[Row]:
    """Return the last changes of a group up to a time, newest first: they may have caused what began then.

    A deployment is noted at its end, so deployments that ended up to a quarter of an hour later also count.
    """
    kinds = ", ".join(map(quote, _CHANGES))
    return reader.rows(
        'SELECT at, kind, member_id, client_host, "old", "new", cause FROM group_events e '  # noqa: S608 - quoted
        f"WHERE {of_group(cluster, group_id)} AND void IS NOT TRUE AND kind IN ({kinds}) "
        f"AND (at <= {time_literal(time)} OR (kind = '{DEPLOYMENT}' AND at <= {time_literal(time + _DEPLOYS)})) "
        f"ORDER BY at DESC, e.offset DESC LIMIT {_NAMED_CHANGES}"
    )


def verdicts_since(
    reader: WarehouseReader, cluster: str, group_ids: Collection[str], begin: datetime
) -> dict[str, list[tuple[datetime, str]]]:
    """Return by group its verdicts since a time, oldest first, each with its begin; the first one may be earlier."""
    found: dict[str, list[tuple[datetime, str]]] = {}
    if not group_ids:
        return found
    own = of_groups(cluster, group_ids)
    since = time_literal(begin)
    rows = reader.rows(
        f"SELECT group_id, at, verdict FROM group_health_history WHERE {own} AND at >= {since} "  # noqa: S608 - quoted
        "UNION ALL SELECT group_id, at, verdict FROM ("
        "SELECT group_id, at, verdict, row_number() OVER (PARTITION BY group_id ORDER BY at DESC) AS number "
        f"FROM group_health_history WHERE {own} AND at < {since}) AS before WHERE number = 1"
    )
    for row in sorted(rows, key=lambda row: row["at"]):
        found.setdefault(row["group_id"], []).append((row["at"], row["verdict"]))
    return found


def quiet_since(reader: WarehouseReader, cluster: str) -> datetime | None:
    """Return when the last problem with the health of a group ended; None if one is open, or there was none."""
    (row,) = reader.rows(
        "SELECT max(ended_at) AS at, sum(CASE WHEN ended_at IS NULL THEN 1 ELSE 0 END) AS open "  # noqa: S608 - quoted
        f"FROM alerts WHERE cluster = {quote(cluster)} AND {_OF_HEALTH}"
    )
    return None if row["open"] else row["at"]


def counts(reader: WarehouseReader, cluster: str) -> dict[str, int]:
    """Return the number of groups by verdict, in the order of the verdicts."""
    found = [row.verdict.verdict for row in read_verdicts(reader, cluster).values()]
    return {name: found.count(name) for name in VERDICTS if name in found}


def problem_with(reader: WarehouseReader, cluster: str, group_id: str) -> Problem | None:
    """Return the open problem with the health of a group; if none is open, the last one."""
    found = read_problems(reader, f"{of_group(cluster, group_id)} AND {_OF_HEALTH}")
    return max(found, key=lambda one: (one.ended_at is None, one.opened_at), default=None)


def stream_time(reader: WarehouseReader, cluster: str, group_id: str) -> StreamTime:
    """Return how far a group has read its input: the lowest and the highest stream time of its partitions."""
    found = reader.rows(
        f"SELECT min_partition_time, max_partition_time FROM group_lag WHERE {of_group(cluster, group_id)}"  # noqa: S608 - quoted
    )
    return StreamTime(*found[0].values()) if found else StreamTime(None, None)


def explain(
    row: HealthRow, problem: Problem | None, deployment: str | None, now: datetime, times: StreamTime
) -> Iterator[str]:
    """Yield at most ten lines: the verdict of a group, since when and why, what will be lost, and what to do."""
    verdict = row.verdict
    yield to_line(row.group_id, verdict)
    yield f"  {VERDICTS.get(verdict.verdict, '')} Severity: {verdict.severity or 'none'}."
    if verdict.evidence.get(PLANNED):
        yield "  Somebody ended the problem as planned. Another bad verdict opens a new problem."
    if verdict.evidence.get("not_over"):
        yield f"  It is not over: {verdict.evidence['not_over']}."
    if verdict.caught_up_at:
        yield f"  At this rate it has caught up at {utc(verdict.caught_up_at)}."
    known = f"was known {ago(verdict.facts_at, now)}" if verdict.facts_at else "is not known"
    yield f"  Its lag {known}.{_stream_time(times)}"
    yield from filter(None, [deployment])
    if problem is None or problem.opened_at is None:
        return
    if problem.ended_at:
        by = "" if problem.ended_by == BY_EVIDENCE else f" ({problem.ended_by})"
        yield (
            f"  Its last problem, {problem.alert_id}, {problem.rule}, ended at {utc(problem.ended_at)} after "
            f"{lasted(problem.ended_at - problem.opened_at)}{by}: {problem.summary}"
        )
        return
    cause = f", cause {problem.cause}" if problem.cause else ""
    yield f"  Alert {problem.alert_id}, {problem.severity}, open since {utc(problem.opened_at)}{cause}."
    yield from (f"  {utc(line.at)} {line.verdict or line.rule}" for line in problem.timeline[-_LINES:])
    yield f"  What to do: {_to_do(problem, verdict.why)}"


def _to_do(problem: Problem, why: str) -> str:
    """Return the first step of the runbook that fits the verdict's reason, and where to find more."""
    group, rule = shlex.quote(problem.group_id or ""), rules().get(problem.rule)
    step = rule.step_for(why).text if rule else ""  # none for a rule of a later release
    more = f"More: the runbook, {problem.rule}; evidence: `streams-groups why --group {GROUP_ID} --json`."
    return f"{step} {more}".strip().replace(" ID ", f" {problem.alert_id} ").replace(GROUP_ID, group)


def _stream_time(times: StreamTime) -> str:
    if times.lowest is None or times.highest is None:
        return ""
    ends = " to ".join(dict.fromkeys((utc(times.lowest), utc(times.highest))))
    return f" Stream time: {ends}, the highest timestamps that the application had read."


def health_json(row: HealthRow) -> Row:
    """Return a row of `group_health` as JSON."""
    names = {"judged_at": "at", "inputs_at": "facts_at"}
    values: Row = {name: getattr(row, name) for name in ("group_id", "incident_id", "inputs_age", "labels")}
    columns = [name for name in table(HEALTH).names if name not in {*values, "cluster"}]
    return values | {name: getattr(row.verdict, names.get(name, name)) for name in columns}
