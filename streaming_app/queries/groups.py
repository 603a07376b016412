"""The rows of `list` and `describe`, group search, set-aside groups. Column names are as in Kafka's tools (4.3.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from streaming_app.errors import WarehouseError
from streaming_app.groups.group import ROLES
from streaming_app.groups.snapshot import (
    AWAY,
    AWAY_EPOCH,
    COLUMNS,
    GroupSnapshot,
    awaited_members,
    describe_obligation,
    group_snapshot,
    member_details,
)
from streaming_app.groups.state_rules import STATES
from streaming_app.kafka import GROUP_STATE
from streaming_app.queries.topics import format_partitions
from streaming_app.tables.reader import Row, WarehouseReader, of_groups, quote
from streaming_app.text import and_more, host_of

_OF_CLASSIC = ("PreparingRebalance", "CompletingRebalance")
"""The states that only classic groups have."""
_NONE = "-"
_NO_VERDICT = "Unknown"  # health.verdict.UNKNOWN, which `list` does not load


def parse_state(text: str, states: Iterable[str] = STATES) -> str:
    """Return the one of `states` with this name, in any letter case; `_` (as in NOT_READY) and blanks are accepted.

    Raises WarehouseError.
    """
    by_name = {state.lower(): state for state in states}
    state = by_name.get(text.strip().replace("_", "").replace(" ", "").lower())
    if state is None:
        raise WarehouseError(f"No such state: {text}. Valid states are: {', '.join(by_name.values())}")
    return state


def list_groups(warehouse: WarehouseReader, cluster: str, states: Iterable[str] = ()) -> list[Row]:
    """Return GROUP, STATE and HEALTH (the verdict) of every group that is not deleted, or that is in one of `states`.

    Deleted groups are returned only for the state Dead. Raises WarehouseError for an unknown state.
    """
    wanted = {parse_state(state) for state in states}
    condition = f"g.state IN ({', '.join(map(quote, sorted(wanted)))})" if wanted else "g.deleted_at IS NULL"
    rows = warehouse.rows(
        "SELECT g.group_id, g.state, h.verdict FROM groups g "
        "LEFT JOIN group_health h ON h.cluster = g.cluster AND h.group_id = g.group_id "
        f"WHERE g.cluster = {quote(cluster)} AND {condition} ORDER BY g.group_id"
    )
    return [{"GROUP": row["group_id"], "STATE": row["state"], "HEALTH": row["verdict"] or _NO_VERDICT} for row in rows]


TYPES = {name.lower(): name for name in ("Streams", "Consumer", "Classic", "Share")}
"""The types as in the table, and as `kafka-groups.sh --list` prints them."""


def other_groups(warehouse: WarehouseReader, cluster: str, group_ids: Iterable[str]) -> dict[str, Row]:
    """Return the rows of `all_groups` for those of these groups that are not streams groups.

    If the log does not prove the state, it is the one that the brokers returned last.
    """
    ids = ", ".join(map(quote, group_ids))
    rows = warehouse.rows(
        f"SELECT * FROM ({_WITH_STATE} WHERE a.cluster = {quote(cluster)} AND a.group_id IN ({ids or 'NULL'}) "
        "AND a.group_type <> 'streams') AS others ORDER BY group_id"
    )
    return {row["group_id"]: row | {"state": row.pop("known_state")} for row in rows}


_WITH_STATE = (
    "SELECT a.*, coalesce(a.state, f.value) AS known_state FROM all_groups a LEFT JOIN broker_facts f "
    f"ON f.cluster = a.cluster AND f.kind = {quote(GROUP_STATE)} AND f.subject = a.group_id"
)


def other_state_rows(others: Iterable[Row]) -> list[Row]:
    """Return a row for each of `other_groups`; the epoch of a classic group is its generation."""
    return [
        {
            "GROUP": row["group_id"],
            "TYPE": TYPES[row["group_type"]],
            "PROTOCOL": row["protocol_type"],
            "STATE": row["state"],
            "#MEMBERS": row["member_count"],
            "GROUP-EPOCH": row["group_epoch"],
            "ASSIGNOR": row["protocol"],
            "OFFSETS": row["offset_count"],
        }
        for row in others
    ]


def list_all_groups(
    warehouse: WarehouseReader, cluster: str, types: Iterable[str], states: Iterable[str] | None = None
) -> list[Row]:
    """Return GROUP, TYPE and PROTOCOL of the groups of these types (`all`: of every type) that are not deleted.

    With `states` also STATE; if `states` has any, only the groups in one of these. STATE is `-` if the log does not
    prove it and the brokers were not asked; the job asks them for classic groups with members.
    Raises WarehouseError for an unknown type or state.
    """
    wanted = {_parse_type(text) for text in types}
    of_type = "" if None in wanted else f"AND a.group_type IN ({', '.join(sorted(quote(str(one)) for one in wanted))})"
    in_state = {parse_state(state, (*STATES, *_OF_CLASSIC)) for state in states or ()}
    of_state = f"WHERE known_state IN ({', '.join(map(quote, in_state))})" if in_state else ""
    rows = warehouse.rows(
        f"SELECT * FROM ({_WITH_STATE} WHERE a.cluster = {quote(cluster)} {of_type}) AS listed {of_state} "
        "ORDER BY group_id"
    )
    return [
        {
            "GROUP": row["group_id"],
            "TYPE": TYPES[row["group_type"]],
            "PROTOCOL": row["protocol_type"],
            **({"STATE": row["known_state"] or _NONE} if states is not None else {}),
        }
        for row in rows
    ]


def _parse_type(text: str) -> str | None:
    """Return the type with this name, in any letter case; None for `all`."""
    name = text.strip().lower()
    if name == "all":
        return None
    if name not in TYPES:
        raise WarehouseError(f"No such type: {text}. Valid types are: all, {', '.join(TYPES)}")
    return name


def other_members(warehouse: WarehouseReader, cluster: str, group_ids: Collection[str]) -> list[Row] | None:
    """Return a row for each member of classic, consumer and share groups; None if any of the groups is a streams group.

    From the log: members of a classic group as of its last rebalance; of a member of a share group only the id.
    """
    others = other_groups(warehouse, cluster, group_ids)
    if set(group_ids) - others.keys():
        return None
    mine = of_groups(cluster, None)
    topics = warehouse.rows(f"SELECT DISTINCT topic_id, topic FROM offsets WHERE {mine} AND topic_id IS NOT NULL")
    names = {row["topic_id"]: row["topic"] for row in topics}
    newest: dict[tuple[str, int, str], Row] = {}
    for row in warehouse.rows(
        "SELECT group_id, record_type, member_id, deleted, leader, group_members FROM group_records "
        f"WHERE {of_groups(cluster, group_ids)} AND record_type IN (2, 5, 8, 10) ORDER BY last_offset"
    ):
        newest[row["group_id"], row["record_type"], row["member_id"]] = row
    found = []
    for (group_id, kind, member_id), row in sorted(newest.items()):
        if row["deleted"] or kind != _RECORD_OF[others[group_id]["group_type"]]:
            continue
        has = newest.get((group_id, _ASSIGNED, member_id))
        for one in row["group_members"] or ([] if kind == _CLASSIC else [{}]):
            assigned = (
                one["assignment"] if kind == _CLASSIC else has and (has["group_members"] or [{}])[0].get("assignment")
            )
            found.append(_other_member(row, one, assigned or (), names))
    return found


_CLASSIC, _ASSIGNED = 2, 8
"""Record types: of a classic group, and of the members of a consumer group."""
_RECORD_OF = {"classic": _CLASSIC, "consumer": 5, "share": 10}
"""By type of group, the type of the record that has the members."""


def _other_member(record: Row, member: Row, assigned: Iterable[Row], names: Mapping[str, str]) -> Row:
    member_id = record["member_id"] or member["member_id"]
    by_topic = {one.get("topic") or names.get(one["topic_id"], one["topic_id"]): one["partitions"] for one in assigned}
    return {
        "GROUP": record["group_id"],
        "MEMBER": member_id,
        "INSTANCE-ID": member.get("instance_id"),
        "CLIENT-ID": member.get("client_id"),
        "HOST": host_of(member.get("client_host")),
        "LEADER": "yes" if record["leader"] == member_id else None,
        "ASSIGNMENT": format_partitions(by_topic),
    }


def find_groups(warehouse: WarehouseReader, cluster: str, group_ids: Iterable[str] | None) -> list[Row]:
    """Return rows of `groups`: those with the given ids, or all that are not deleted.

    Raises WarehouseError if a given id does not exist, or belongs to a group of another type.
    """
    wanted = None if group_ids is None else list(dict.fromkeys(group_ids))
    condition = of_groups(cluster, wanted) + (" AND deleted_at IS NULL" if wanted is None else "")
    rows = warehouse.rows(f"SELECT * FROM groups WHERE {condition} ORDER BY group_id")
    missing = set(wanted or ()) - {row["group_id"] for row in rows}
    if others := other_groups(warehouse, cluster, missing) if missing else None:
        name, row = next(iter(others.items()))
        how = "describe it by itself, with --state, --members or --offsets"
        raise WarehouseError(f"{name!r} is a {row['group_type']} group, not a streams group: {how}")
    if missing:
        names = ", ".join(repr(name) for name in sorted(missing))
        raise WarehouseError(f"No group {names} in cluster {cluster!r}: `streams-groups list --type all` shows all")
    return rows


def state_rows(groups: Iterable[Row], *, verbose: bool) -> list[Row]:
    """Return a row per group: its state; with `verbose` also its epochs and the time of the last state change."""
    all_groups = list(groups)
    reasons = any(group["not_ready_reason"] for group in all_groups)
    return [_state_row(group, reasons=reasons) | (_epochs(group) if verbose else {}) for group in all_groups]


def _state_row(group: Row, *, reasons: bool) -> Row:
    return {
        "GROUP": group["group_id"],
        "STATE": group["state"],
        "#MEMBERS": group["member_count"],
        "TOPOLOGY-DESCRIPTION": group["description_status"],
        **({"NOT-READY-REASON": group["not_ready_reason"]} if reasons else {}),
    }


def _epochs(group: Row) -> Row:
    return {
        "STATE-SINCE": group["state_since"],
        "GROUP-EPOCH": group["group_epoch"],
        "TARGET-ASSIGNMENT-EPOCH": group["assignment_epoch"],
        "TOPOLOGY-EPOCH": group["topology_epoch"],
        "VALIDATED-TOPOLOGY-EPOCH": group["validated_topology_epoch"],
        "STORED-DESCRIPTION-EPOCH": group["stored_description_epoch"],
        "FAILED-DESCRIPTION-EPOCH": group["failed_description_epoch"],
        "UNSOLICITED-PUSHES": group["unsolicited_pushes"],
    }


def waits_for(group: Row) -> list[dict[str, object]]:
    """Return the members, at most 20, that keep a group from being Stable, for JSON."""
    return [member_details(member) for member in awaited_members(_snapshot(group))]


def awaited_rows(groups: Iterable[Row]) -> list[Row]:
    """Return a row for each member, at most 20 of a group, that keeps its group from being Stable."""
    return [row for group in groups for row in _awaited_rows(group)]


def _awaited_rows(group: Row) -> Iterator[Row]:
    if group["state"] == "Assigning":
        why = (
            f"group epoch {group['group_epoch']} has no assignment yet; the newest one has epoch "
            f"{group['assignment_epoch']}. The broker waits for group.streams.initial.rebalance.delay.ms after the "
            "first member joins, or for group.streams.assignment.interval.ms after the assignment before"
        )
        yield _awaited_row(group, "broker", why, group["state_since"])
        return
    for member in awaited_members(_snapshot(group)):
        yield _awaited_row(
            group, member.client_id or member.member_id, describe_obligation(member), member.updated_at
        ) | {
            "MEMBER": member.member_id,
            "PROCESS": member.process_id,
            "HOST": member.client_host,
            "INSTANCE-ID": member.instance_id,
        }


def _awaited_row(group: Row, name: str, why: str, since: datetime | None) -> Row:
    empty = dict.fromkeys(("MEMBER", "PROCESS", "HOST", "INSTANCE-ID"))
    return {"GROUP": group["group_id"], "WAITS-FOR": name, **empty, "WHY": why, "SINCE": since}


def _snapshot(group: Row) -> GroupSnapshot:
    """Return the snapshot of a row; an older release may have written it without the newest columns."""
    return group_snapshot(dict.fromkeys(COLUMNS) | group)


def not_named(groups: Iterable[Row]) -> Iterator[tuple[str, int]]:
    """Yield each group that waits for more members than `awaited_rows` has, and how many more."""
    for group in groups:
        snapshot = _snapshot(group)
        if group["state"] != "Assigning" and snapshot.unsettled_count > len(snapshot.unsettled):
            yield group["group_id"], snapshot.unsettled_count - len(snapshot.unsettled)


def member_rows(groups: Iterable[Row], *, verbose: bool) -> list[Row]:
    """Return a row per member: its tasks; with `verbose` also its host, its epochs and its target assignment."""
    return [_member_row(group, member, verbose=verbose) for group in groups for member in group["members"]]


def _member_row(group: Row, member: Row, *, verbose: bool) -> Row:
    tasks = [task for task in group["assignments"] if task["member_id"] == member["member_id"]]
    row = {
        "GROUP": group["group_id"],
        "MEMBER": member["member_id"],
        "PROCESS": member["process_id"],
        "CLIENT-ID": member["client_id"],
    }
    if verbose:
        row |= {
            "HOST": host_of(member["client_host"]),
            "INSTANCE-ID": member["instance_id"],
            "RACK": member["rack_id"],
            "ENDPOINT": member["user_endpoint"],
            "CLIENT-TAGS": ",".join(f"{name}={value}" for name, value in dict(member["client_tags"] or ()).items()),
            "MEMBER-EPOCH": member["member_epoch"],
            # The record of a static member that left temporarily still has its earlier state.
            "MEMBER-STATE": AWAY if member["member_epoch"] == AWAY_EPOCH else member["member_state"],
            "TOPOLOGY-EPOCH": member["topology_epoch"],
            "TARGET-ASSIGNMENT-EPOCH": group["assignment_epoch"],
            "TARGET-ASSIGNMENTS": format_tasks(task for task in tasks if task["target"]),
            "PENDING-REVOCATION": format_tasks(task for task in tasks if task["pending_revocation"]),
        }
    return row | {"ASSIGNMENTS": format_tasks(task for task in tasks if task["current"])}


def format_tasks(tasks: Iterable[Mapping[str, Any]]) -> str:
    """Return tasks as Kafka's tool prints them: `ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 1:[2]`; no role without tasks."""
    by_role: dict[str, dict[str, list[int]]] = {role: {} for role in ROLES}
    for task in tasks:
        by_role[task["role"]].setdefault(task["subtopology_id"], []).append(task["partition"])
    role_texts = (
        f"{role.upper()}: " + "; ".join(f"{s}:[{','.join(map(str, sorted(p)))}]" for s, p in sorted(parts.items()))
        for role, parts in by_role.items()
        if parts
    )
    return "; ".join(role_texts) or _NONE


def topology_rows(groups: Iterable[Row], *, verbose: bool) -> list[Row]:
    """Return a row per subtopology: its topics; with `verbose` also its changelogs and copartition groups."""
    return [
        _subtopology_row(group, subtopology, verbose=verbose)
        for group in groups
        for subtopology in group["subtopologies"]
    ]


def _subtopology_row(group: Row, subtopology: Row, *, verbose: bool) -> Row:
    row = {
        "GROUP": group["group_id"],
        "TOPOLOGY-EPOCH": subtopology["topology_epoch"],
        "SUBTOPOLOGY": subtopology["subtopology_id"],
        "SOURCE-TOPICS": _names([*subtopology["source_topics"], *subtopology["source_topic_regex"]]),
        "REPARTITION-SOURCE-TOPICS": _names(topic["name"] for topic in subtopology["repartition_source_topics"]),
        "REPARTITION-SINK-TOPICS": _names(subtopology["repartition_sink_topics"]),
    }
    if verbose:
        row |= {
            "STATE-CHANGELOG-TOPICS": _names(topic["name"] for topic in subtopology["state_changelog_topics"]),
            "COPARTITION-GROUPS": "; ".join(_names(topics) for topics in subtopology["copartition_groups"]) or _NONE,
        }
    return row


def _names(names: Iterable[str]) -> str:
    return ",".join(names) or _NONE


ASPECTS: dict[str, Callable[..., list[Row]]] = {
    "state": state_rows,
    "members": member_rows,
    "topology": topology_rows,
}


_SEARCH_FROM = 3  # characters: fewer occur in nearly every name
_SEARCHED = (
    ("topic", "lag", "topic"),
    ("client", "members", "client_id"),
    ("task", "lag", "task_id"),
    ("host", "members", "client_host"),
    ("instance", "members", "instance_id"),
    ("member", "members", "member_id"),
)
"""What is searched besides group ids, in the order in which a match is named: its name, table and column."""


def search_groups(reader: WarehouseReader, cluster: str, text: str) -> dict[str, str]:
    """Return by group what matches: a topic, member or host whose name contains this text, or a task with this id.

    Nothing matches a short text.
    """
    if len(text) < _SEARCH_FROM:
        return {}
    of_each = (
        f"SELECT group_id, {rank} AS rank, '{kind}' AS kind, min({column}) AS name, count(DISTINCT {column}) AS found "
        f"FROM {table} WHERE cluster = {quote(cluster)} AND "
        + (f"{column} = {quote(text)}" if kind == "task" else f"strpos(lower({column}), {quote(text.lower())}) > 0")
        + " GROUP BY group_id"
        for rank, (kind, table, column) in enumerate(_SEARCHED)
    )
    rows = sorted(reader.rows(" UNION ALL ".join(of_each)), key=lambda row: -row["rank"])
    return {row["group_id"]: f"{row['kind']} {row['name']}{and_more(row['found'] - 1)}" for row in rows}


def groups_set_aside(reader: WarehouseReader, cluster: str) -> list[Row]:
    """Return the groups that are set aside, newest first."""
    return reader.rows(
        'SELECT group_id AS "group", set_aside_at AS since, client_host AS host, set_aside_reason AS reason, '
        f"set_aside_release AS release FROM groups WHERE cluster = {quote(cluster)} "
        "AND set_aside_reason IS NOT NULL ORDER BY set_aside_at DESC, group_id"
    )


def quarantined_records(reader: WarehouseReader, cluster: str) -> list[Row]:
    """Return the records in quarantine by group and error, the newest record first."""
    return reader.rows(
        'SELECT group_id AS "group", error_kind AS error, count(*) AS records, max(timestamp) AS newest, '
        f"min(message) AS message FROM quarantine WHERE cluster = {quote(cluster)} "
        "AND void IS NOT TRUE GROUP BY group_id, error_kind ORDER BY newest DESC NULLS LAST, group_id, error_kind"
    )
