"""The page of one group: the rows that its template shows."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from streaming_app.alerts.alert import FIRING, HEALTH, Alert, severity_rank
from streaming_app.alerts.catalog import rules
from streaming_app.groups.group import ACTIVE
from streaming_app.groups.snapshot import AWAY, AWAY_EPOCH
from streaming_app.groups.task_copies import TaskCopy
from streaming_app.health.verdict import BAD
from streaming_app.lag.statuses import HELD, LEFT_OVER, WAITS
from streaming_app.lag.statuses import OK as NOTHING_WAITS
from streaming_app.queries.behind import behind_series, lag_at, lags_at
from streaming_app.queries.described import find_groups, missing_tags, other_members
from streaming_app.queries.group_facts import read_group_facts
from streaming_app.queries.health import changes_before, next_step, verdicts_between
from streaming_app.queries.history import FOLDED, group_at, parse_tasks, read_events
from streaming_app.queries.lag import lags_by, sum_of
from streaming_app.queries.protocol_changes import read_changes
from streaming_app.queries.topics import BY_PATTERN, read_topics
from streaming_app.queries.topology_diff import topology_at
from streaming_app.tables.alerts_table import read_alerts
from streaming_app.tables.definitions import table
from streaming_app.tables.heartbeat_file import Gap
from streaming_app.tables.reader import WarehouseReader, of_group, quote, time_literal
from streaming_app.tables.task_copies_table import read_copies
from streaming_app.text import host_of
from streaming_app.web import tracks
from streaming_app.web.page_snapshot import NOTHING_KNOWN, Snapshot
from streaming_app.web.task_matrix import task_matrix, with_copies
from streaming_app.web.topology_graph import node_rows, status_text
from streaming_app.web.window import Window

Row = Mapping[str, Any]
MAX_EVENTS = 2_000
"""Of one group in a time, the newest; the page says so where there are more."""
LISTED_EVENTS = 100
SHOWN_MEMBERS = 500
SHOWN_LAG = 200
_READ_LAG = 5_000
"""Partitions of a group whose lag is read, those with the largest; tasks and topics have their sums."""
SHOWN_TAGS = 10
SHOWN_VERDICTS = 50
SHOWN_ALERTS = 50
"""Of one rule: a flood of them does not hide those of another, and the page stays small."""

_COLUMNS = 'at, kind, member_id, old, new, cause, client_host, instance_id, "offset"'
_EVENTS = "FROM group_events WHERE {where} AND void IS NOT TRUE AND {within}"
_DRAWN = f"{_EVENTS} AND at IS NOT NULL AND kind IN ({', '.join(map(quote, tracks.DRAWN_KINDS))})"
_NEWEST = 'ORDER BY at DESC NULLS LAST, "offset" DESC LIMIT {most}'
_JOINED = """
SELECT coalesce(sum(CASE WHEN kind = 'member_joined' THEN 1 ELSE -1 END), 0) AS joined FROM group_events
WHERE {where} AND void IS NOT TRUE AND at > {end} AND kind IN ('member_joined', 'member_left')
"""
_LAG = """
SELECT topic, partition, committed_offset, log_end_offset, lag, is_unknown, lag_seconds, lag_seconds_is_lower_bound,
       offset_status, late_since, subtopology_id, partition_time, task_id, client_host, leader, observed_at
FROM lag WHERE {where} ORDER BY lag DESC NULLS LAST, topic, partition LIMIT {most}
"""


def group_now(reader: WarehouseReader, cluster: str, group_id: str) -> Mapping[str, Any] | None:
    """Return what page and picture show of a group of Kafka Streams now; None if `groups` has no such row.

    Of deleted groups only streams groups are shown.
    """
    own = of_group(cluster, group_id)
    shown = f"{own} AND (coalesce(protocol, 'streams') = 'streams' OR deleted_at IS NULL)"
    row = next(iter(reader.rows(f"SELECT * FROM groups WHERE {shown}")), None)  # noqa: S608 - quoted
    if row is None:
        return None
    described = reader.rows(f"SELECT * FROM descriptions WHERE {own} AND is_newest LIMIT 1")  # noqa: S608 - quoted
    return {
        "row": row,
        "lag": lag_rows(reader, cluster, group_id),
        "lags": lags_by(reader, cluster, group_id),
        "copies": read_copies(reader, own),
        "topics": read_topics(reader, cluster, [row])[group_id],
        "described": next(iter(described), None),
        "facts": read_group_facts(reader, cluster, (group_id,))[group_id],
    }


def lag_rows(reader: WarehouseReader, cluster: str, group_id: str) -> list[Row]:
    """Return the rows of `lag` of a group, the largest lag first."""
    return [*reader.rows(_LAG.format(where=of_group(cluster, group_id), most=_READ_LAG))]


def then_of_group(reader: WarehouseReader, cluster: str, group_id: str, at: datetime) -> Row | None:
    """Return what the tables know of a group at a time; None if no event is that old.

    `row` is as of `groups`, with null for what events do not tell: they do not name processes, and that nobody has a
    task they tell only if somebody had it before. A member also has `tasks_since`. `lag` is the newest sample of each
    partition. `knows_topology` says whether a topology in the tables is so old; if not, the subtopologies are those of
    now.
    """
    events = read_events(reader, cluster, group_id, until=at)
    if not events:
        return None
    known = topology_at(reader, cluster, group_id, at)
    newest = known or find_groups(reader, cluster, [group_id], with_classic=True)[0]
    parts = newest["subtopologies"] or ()
    group = group_at(events, at)
    epochs = {name: value and int(value) for name, value in group.items() if name.endswith("_epoch")}
    members = {
        "member_count": len(group["members"]),
        "members": [{**dict.fromkeys(table("members").names), **one} for one in group["members"].values()],
        "assignments": [*_assignments(group)],
    }
    row = {**dict.fromkeys(table("groups").names), **group, **epochs, **members, "subtopologies": parts}
    lag, lags = (read(reader, cluster, group_id, at) for read in (lag_at, lags_at))
    return {"row": row, "lag": lag, "lags": lags, "knows_topology": known is not None}


def _assignments(group: Row) -> Iterator[Row]:
    """Yield the assignments of a group from `group_at`; `member_id` is None in tasks that nobody had."""
    owned = [(member_id, one["tasks"]) for member_id, one in group["members"].items()]
    for member_id, tasks in [*owned, (None, f"{ACTIVE} {','.join(group['unowned'])}")]:
        for role, subtopology_id, partition in parse_tasks(tasks):
            task = {"role": role, "subtopology_id": subtopology_id, "partition": partition}
            held = {"current": bool(member_id), "target": True, "pending_revocation": False}
            yield {**task, "member_id": member_id, **held}


def _events(
    reader: WarehouseReader, cluster: str, group_id: str, begin: datetime | None, end: datetime | None
) -> tuple[Sequence[Row], int]:
    """Return the events of a period that are drawn, the oldest first, and how many members have joined since."""
    where, within = of_group(cluster, group_id), _within(begin, end)
    drawn = f"SELECT {_COLUMNS} {_DRAWN} {_NEWEST}".format(where=where, within=within, most=MAX_EVENTS)
    joined = reader.rows(_JOINED.format(where=where, end=time_literal(end)))[0]["joined"] if end else 0
    return [*reader.rows(drawn)][::-1], joined


def _listed(
    reader: WarehouseReader, cluster: str, group_id: str, begin: datetime | None, end: datetime | None
) -> list[Row]:
    columns = f"{_COLUMNS}, topic, partition, places"
    sql = f"SELECT {columns}, count(*) OVER () AS found FROM {FOLDED} {_NEWEST}"  # noqa: S608 - quoted
    where = f"{of_group(cluster, group_id)} AND {_within(begin, end)}"
    return [*reader.rows(sql.format(where=where, most=LISTED_EVENTS))]


def _within(begin: datetime | None, end: datetime | None) -> str:
    limits = [f"at >= {time_literal(begin)}"] if begin else []
    limits += [f"at <= {time_literal(end)}"] if end else []
    return " AND ".join(limits) or "true"


def _alerts(reader: WarehouseReader, cluster: str, group_id: str, begin: datetime, end: datetime) -> list[Alert]:
    where = f"since <= {time_literal(end)} AND (ended_at IS NULL OR ended_at >= {time_literal(begin)})"
    return read_alerts(reader, f"{of_group(cluster, group_id)} AND {where}")


def gaps_of(snapshot: Snapshot, now: datetime) -> tuple[Gap, ...]:
    """Return when nothing was known of the groups of a cluster, up to now."""
    return snapshot.heartbeat.gaps_until(now) if snapshot.heartbeat else ()


def group_page(snapshot: Snapshot, known: Row, window: Window, gaps: Sequence[Gap]) -> dict[str, Any]:
    """Return the page of a group of Kafka Streams; `known` is from `group_now`. Raises WarehouseError."""
    row, topics, described = known["row"], known["topics"], known["described"]
    group_id, ask = row["group_id"], snapshot.ask
    begin, end = (None, None) if window.selected else bounds(window)
    one = snapshot.groups.get(group_id, {**NOTHING_KNOWN, "group_id": group_id})
    then = ask(then_of_group, group_id, window.until) if window.until else None
    present = _shown(known, known["copies"])
    return {
        **known,
        **_answers(snapshot, one, known["lag"], one["since"] or row["state_since"]),
        "present": present,
        "then": then,
        "shown": _shown(then) if then else present,
        "events": ask(_listed, group_id, begin, end),
        "described_text": status_text(described) if described else None,
        "nodes": node_rows(described) if described else [],
        "sizes": {(one.subtopology_id, one.name): one.text for one in topics if one.text},
        "by_pattern": [one for one in topics if one.kind == BY_PATTERN],
        **_history(snapshot, one, window, gaps, members=row["member_count"] or 0),
    }


def other_group_page(snapshot: Snapshot, one: Row, window: Window, gaps: Sequence[Gap]) -> dict[str, Any]:
    """Return the page of a group of another type; `one` is its row. Raises WarehouseError."""
    lag = snapshot.ask(lag_rows, one["group_id"])
    return {
        **_answers(snapshot, one, lag, one["since"]),
        "lag": lag[:SHOWN_LAG],
        "lag_partitions": len(lag),
        "coordinator": snapshot.ask(read_group_facts, (one["group_id"],))[one["group_id"]]["coordinator"],
        "members": snapshot.ask(other_members, ((one["group_id"], one["group_type"]),))[:SHOWN_MEMBERS],
        **_history(snapshot, one, window, gaps),
    }


def _answers(snapshot: Snapshot, one: Row, lag: Sequence[Row], since: datetime | None) -> dict[str, Any]:
    return {
        "one": one,
        **_to_do(snapshot, one),
        "behind": behind_tasks(lag),
        "changes": snapshot.ask(changes_before, one["group_id"], since or one["updated_at"] or snapshot.read_at),
        "alerts": alerts_by_rule(alert for alert in snapshot.alerts if alert.group_id == one["group_id"]),
    }


def _to_do(snapshot: Snapshot, one: Row) -> dict[str, Any]:
    """Return the next step about the verdict on a group or its alert, as parts of text and code, and a command.

    The command is the first one in the step, else the one that says why.
    """
    group_id = one["group_id"]
    is_near = one["pending_verdict"] is not None
    own = (it for it in snapshot.alerts if it.group_id == group_id and it.subject == HEALTH)
    alert = next((it for it in own if it.state == FIRING or is_near), None)
    if alert is None and one["verdict"] not in BAD:
        return {"step": (), "command": None}
    _, step = next_step(alert, one)
    parts = step.split("`")  # code is between backticks
    commands = (part for part in parts[1::2] if part.startswith(("streams-groups ", "kafka-")) and " " in part)
    why = f"streams-groups why --group {shlex.quote(group_id)} --cluster {shlex.quote(snapshot.cluster)}"
    return {"step": parts, "command": next(commands, why)}


def _shown(known: Row, copies: Sequence[TaskCopy] = ()) -> dict[str, Any]:
    """Return what the page shows in the same way of a group now and then, from `group_now` or `then_of_group`."""
    row, lag = known["row"], known["lag"]
    tasks = with_copies(row["assignments"] or (), copies)
    return {
        "row": row,
        "matrix": task_matrix(row["members"] or (), tasks, known["lags"]["task_id"]),
        "members": [*islice(_members(row), SHOWN_MEMBERS)],
        "lag": lag[:SHOWN_LAG],
        "lag_partitions": len(lag),
        "lag_sum": sum_of(known["lags"]["topic"].values()),
    }


def _history(
    snapshot: Snapshot, one: Row, window: Window, gaps: Sequence[Gap], members: int | None = None
) -> dict[str, Any]:
    """Return the tracks of a group in a window, and its verdict at the instant; `members` of a streams group."""
    scale, until = tracks.Scale(window.begin, window.end, gaps), window.until
    ask, group_id = snapshot.ask, one["group_id"]
    begin, end = bounds(window)
    verdicts = ask(verdicts_between, (group_id,), begin, end).get(group_id, ())
    judged = tracks.merged_verdicts(verdicts)
    times = begin, end or window.end.replace(second=0, microsecond=0) + timedelta(minutes=1)
    mutes = [one for one in snapshot.mutes if one.pattern.matches(group_id)]
    drawn_tracks = [
        tracks.verdict_track(scale, judged, ask(_alerts, group_id, *times), mutes),
        tracks.behind_track(scale, ask(behind_series, group_id, *times), times),
    ]
    known_from = None
    if members is not None:
        drawn, joined = ask(_events, group_id, begin, end)
        known = [one for one in drawn if scale.has(one["at"])]
        known_from = known[0]["at"] if len(drawn) == MAX_EVENTS and known else None
        drawn_tracks += tracks.event_tracks(scale, known, max(0, members - joined), known_from)
    shown = tracks.stacked(drawn_tracks)
    return {
        "window": window,
        "judged": judged[: -SHOWN_VERDICTS - 1 : -1],
        "then_verdict": next((one for one in reversed(judged) if until and one["at"] <= until), None),
        "then_gap": next((gap for gap in gaps if until and gap[0] <= until < gap[1]), None),
        "tracks": shown,
        "ticks": list(tracks.ticks(scale)),
        "height": shown[-1].y + shown[-1].height if shown else 0,
        "at_x": scale.x(window.at) if window.at and scale.has(window.at) else None,
        "known_from": known_from,
        "protocol_changes": ask(read_changes, group_id),
    }


def bounds(window: Window) -> tuple[datetime, datetime | None]:
    """Return the begin and end of the events to read. For a range up to now they stay the same for a minute."""
    if not window.selected:
        return window.begin, window.end
    return window.begin.replace(second=0, microsecond=0), None


def behind_tasks(lag: Iterable[Row]) -> list[Row]:
    """Return a row of `lag` for each task with a partition that does not keep up, the furthest behind first.

    Each has the `name` of the task, and the `host` that has it.
    """
    found: dict[str, Row] = {}
    late = [
        one for one in lag if one["late_since"] or one["offset_status"] not in {NOTHING_WAITS, HELD, WAITS, LEFT_OVER}
    ]
    for one in sorted(late, key=lambda one: (-(one["lag_seconds"] or 0), -(one["lag"] or 0))):
        name = one["task_id"] or f"{one['topic']}-{one['partition']}"
        found.setdefault(name, {**one, "name": name, "host": host_of(one["client_host"])})
    return list(found.values())


def hosts_of(row: Row) -> list[Row]:
    """Return the assignments of a group, each with the host of its member."""
    hosts = {member["member_id"]: host_of(member["client_host"]) for member in row["members"] or ()}
    return [{**task, "client_host": hosts.get(task["member_id"])} for task in row["assignments"] or ()]


def _members(row: Row) -> Iterator[Row]:
    tasks: dict[str, list[Row]] = {}
    for task in row["assignments"] or ():
        tasks.setdefault(task["member_id"], []).append(task)
    for member in sorted(row["members"] or (), key=lambda one: (one["client_host"] or "", one["member_id"])):
        own = tasks.get(member["member_id"], [])
        held = [task for task in own if task["current"]]
        active = sum(task["role"] == ACTIVE for task in held)
        is_away = member["member_epoch"] == AWAY_EPOCH  # its record keeps the state that it had
        yield {
            **member,
            "state": AWAY if is_away else member["member_state"],
            "host": host_of(member["client_host"]),
            "active": active,
            "standby": len(held) - active,
            "moving": sum(task["current"] != task["target"] or task["pending_revocation"] for task in own),
            "place": list(_place(member | {"missing": ", ".join(missing_tags(row, member))})),
        }


def _place(member: Row) -> Iterator[tuple[str, str]]:
    tags = dict(member.get("client_tags") or ())
    known = {
        "rack": member.get("rack_id"),
        "endpoint": member.get("user_endpoint"),
        "process": member.get("process_id"),
        **{f"tag {name}": value for name, value in islice(tags.items(), SHOWN_TAGS)},
        "missing client tags": member["missing"],
    }
    yield from ((name, value) for name, value in known.items() if value)


def runbook(alert: Alert) -> Row | None:
    """Return meaning, steps and queries of the runbook for an alert; None for a rule of a later release."""
    rule = rules().get(alert.rule)
    if rule is None:
        return None
    queries = rule.queries_for(alert.group_id) if alert.group_id is not None else rule.queries
    return {"meaning": rule.meaning, "steps": [one.text for one in rule.steps], "queries": queries}


def alerts_by_rule(alerts: Iterable[Alert]) -> list[Row]:
    """Return alerts by rule: open alerts first, then the most severe; within a rule the oldest first.

    A rule with one alert has the queries for its group. For several alerts the pages of the groups have them.
    """
    found: dict[tuple[bool, int, str], list[Alert]] = {}
    for alert in sorted(alerts, key=lambda one: (one.opened_at or one.since, one.group_id or "")):
        found.setdefault((alert.state != FIRING, severity_rank(alert.severity), alert.rule), []).append(alert)
    rows: list[Row] = []
    for _, own in sorted(found.items()):
        text = runbook(own[0])
        if text and len(own) > 1:
            text = {**text, "queries": {}}
        rows.append({"first": own[0], "shown": own[:SHOWN_ALERTS], "total": len(own), "text": text})
    return rows


def not_over(one: Row) -> str | None:
    """Return why a verdict is not over yet, from its evidence."""
    found = json.loads(one["evidence"] or "{}").get("not_over") if one.get("evidence") else None
    return None if found is None else str(found)
