"""The rows of `describe`, group search, set-aside groups. Column names are as in Kafka's tools (4.3.1)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from streaming_app.errors import WarehouseError
from streaming_app.groups import snapshot
from streaming_app.groups.classic import RELEASES
from streaming_app.groups.group import ROLES
from streaming_app.queries.group_list import OTHERS, TYPES, overview_sql
from streaming_app.queries.topics import format_partitions, tasks_of_members
from streaming_app.tables.reader import Row, WarehouseReader, of_groups, quote
from streaming_app.text import and_more, host_of

_NONE = "-"

_STREAMS_GROUP = "coalesce(protocol, 'streams') = 'streams'"
_CLASSIC_STREAMS = "(protocol = 'classic' AND deleted_at IS NULL)"
_OF_OTHERS = ("cluster", "group_id", "group_type", "protocol_type", "protocol", "state", "member_count", "group_epoch",
              "offset_count", "kafka_streams", "updated_at")  # fmt: skip


def other_groups(warehouse: WarehouseReader, cluster: str, group_ids: Iterable[str]) -> dict[str, Row]:
    """Return the rows of `group_overview` for those of these groups that are not streams groups, by id."""
    some = {"group_id": [*group_ids]}
    rows = warehouse.rows(overview_sql(cluster, _OF_OTHERS, [OTHERS], some)) if some["group_id"] else []
    return {row["group_id"]: row for row in rows}


def with_tasks(warehouse: WarehouseReader, cluster: str, others: Mapping[str, Row]) -> set[str]:
    """Return which of `other_groups` have rows of members and tasks: Kafka Streams with the classic protocol."""
    if not any(row["kafka_streams"] for row in others.values()):
        return set()
    where = f"{of_groups(cluster, others)} AND {_CLASSIC_STREAMS}"
    return {row["group_id"] for row in warehouse.rows(f"SELECT group_id FROM groups WHERE {where}")}


def other_state_rows(others: Iterable[Row]) -> list[Row]:
    """Return a row for each of `other_groups`, with its coordinator; the epoch of a classic group is its generation."""
    return [
        {
            "GROUP": row["group_id"],
            "COORDINATOR (ID)": row["coordinator"],
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


def other_members(warehouse: WarehouseReader, cluster: str, types: Iterable[tuple[str, str]]) -> list[Row]:
    """Return a row for each member of classic, consumer and share groups; `types` are their ids and types.

    From the log: members of a classic group as of its last rebalance; of a member of a share group only the id.
    """
    type_of = dict(types)
    mine = of_groups(cluster, None)
    topics = warehouse.rows(f"SELECT DISTINCT topic_id, topic FROM offsets WHERE {mine} AND topic_id IS NOT NULL")
    names = {row["topic_id"]: row["topic"] for row in topics}
    newest: dict[tuple[str, int, str], Row] = {}
    for row in warehouse.rows(
        "SELECT group_id, record_type, member_id, deleted, leader, group_members FROM group_records "
        f"WHERE {of_groups(cluster, type_of)} AND record_type IN (2, 5, 8, 10) ORDER BY last_offset"
    ):
        newest[row["group_id"], row["record_type"], row["member_id"]] = row
    found = []
    for (group_id, kind, member_id), row in sorted(newest.items()):
        if row["deleted"] or kind != _RECORD_OF[type_of[group_id]]:
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
        "SUBSCRIPTION": ",".join(member.get("subscription") or ()) or None,
        "ASSIGNMENT": format_partitions(by_topic),
    }


def find_groups(
    warehouse: WarehouseReader, cluster: str, group_ids: Iterable[str] | None, *, with_classic: bool = False
) -> list[Row]:
    """Return rows of `groups`: those with the given ids, or all that are not deleted.

    They are streams groups, and `with_classic` also groups of Kafka Streams with the classic protocol. Raises
    WarehouseError if a given id does not exist, or belongs to a group of another type.
    """
    wanted = None if group_ids is None else list(dict.fromkeys(group_ids))
    condition = (
        f"{of_groups(cluster, wanted)} AND ({_STREAMS_GROUP}{f' OR {_CLASSIC_STREAMS}' if with_classic else ''})"
    )
    condition += " AND deleted_at IS NULL" if wanted is None else ""
    rows = warehouse.rows(f"SELECT * FROM groups WHERE {condition} ORDER BY group_id")
    missing = set(wanted or ()) - {row["group_id"] for row in rows}
    if others := other_groups(warehouse, cluster, missing):
        name, row = next(iter(others.items()))
        how = "describe it by itself, with --state, --members or --offsets"
        raise WarehouseError(f"{name!r} is a {row['group_type']} group, not a streams group: {how}")
    if missing:
        names = ", ".join(repr(name) for name in sorted(missing))
        raise WarehouseError(f"No group {names} in cluster {cluster!r}: `streams-groups list --type all` shows all")
    return rows


_STATE = {
    "GROUP": "group_id",
    "STATE": "state",
    "#MEMBERS": "member_count",
    "TOPOLOGY-DESCRIPTION": "description_status",
}
_REASON = {"NOT-READY-REASON": "not_ready_reason"}
_ASSIGNOR = "streams.assignor.name"
_EPOCHS = {
    "STATE-SINCE": "state_since",
    "GROUP-EPOCH": "group_epoch",
    "TARGET-ASSIGNMENT-EPOCH": "assignment_epoch",
    "TOPOLOGY-EPOCH": "topology_epoch",
    "VALIDATED-TOPOLOGY-EPOCH": "validated_topology_epoch",
    "STORED-DESCRIPTION-EPOCH": "stored_description_epoch",
    "FAILED-DESCRIPTION-EPOCH": "failed_description_epoch",
    "UNSOLICITED-PUSHES": "unsolicited_pushes",
}


def state_rows(groups: Sequence[Row], facts: Mapping[str, Row], *, verbose: bool) -> list[Row]:
    """Return a row per group, as Kafka's tool prints it: its state, with its `read_group_facts`.

    With `verbose` also its epochs, and the time of the last state change.
    """
    reason = _REASON if any(group["not_ready_reason"] for group in groups) else {}
    titles = {**_STATE, **reason, **(_EPOCHS if verbose else {})}
    return [
        {"GROUP": group["group_id"], "COORDINATOR (ID)": known["coordinator"], "ASSIGNOR": configs.get(_ASSIGNOR)}
        | {title: group[name] for title, name in titles.items()}
        for group in groups
        for known in [facts[group["group_id"]]]
        for configs in [{one["name"]: one["value"] for one in known["configs"]}]
    ]


def waits_for(group: Row) -> list[dict[str, object]]:
    """Return the members, at most 20, that keep a group from being Stable, for JSON."""
    return [snapshot.member_details(member) for member in snapshot.awaited_members(snapshot.group_snapshot(group))]


def awaited_rows(groups: Iterable[Row]) -> list[Row]:
    """Return a row for each member, at most 20 of a group, that keeps its group from being Stable."""
    return [
        {"GROUP": group["group_id"], **dict.fromkeys(_AWAITED), **row} for group in groups for row in _awaited(group)
    ]


_AWAITED = ("WAITS-FOR", "MEMBER", "PROCESS", "HOST", "INSTANCE-ID", "WHY", "SINCE")


def _awaited(group: Row) -> Iterator[Row]:
    if group["state"] == "Assigning":
        why = (
            f"group epoch {group['group_epoch']} has no assignment yet; the newest one has epoch "
            f"{group['assignment_epoch']}. The broker waits for group.streams.initial.rebalance.delay.ms after the "
            "first member joins, or for group.streams.assignment.interval.ms after the assignment before"
        )
        yield {"WAITS-FOR": "broker", "WHY": why, "SINCE": group["state_since"]}
        return
    for member in snapshot.awaited_members(snapshot.group_snapshot(group)):
        yield {
            "WAITS-FOR": member.client_id or member.member_id,
            "MEMBER": member.member_id,
            "PROCESS": member.process_id,
            "HOST": member.client_host,
            "INSTANCE-ID": member.instance_id,
            "WHY": snapshot.describe_obligation(member),
            "SINCE": member.updated_at,
        }


def not_named(groups: Iterable[Row]) -> Iterator[tuple[str, int]]:
    """Yield each group that waits for more members than `awaited_rows` has, and how many more."""
    for group in groups:
        found = snapshot.group_snapshot(group)
        if group["state"] != "Assigning" and found.unsettled_count > len(found.unsettled):
            yield group["group_id"], found.unsettled_count - len(found.unsettled)


def member_rows(groups: Iterable[Row], *, verbose: bool) -> list[Row]:
    """Return a row per member: its tasks; with `verbose` also its host, its epochs and its target assignment."""
    return [
        _member_row(group, member, tasks.get(member["member_id"], ()), verbose=verbose)
        for group in groups
        for tasks in [tasks_of_members(group)]
        for member in group["members"]
    ]


def missing_tags(group: Mapping[str, Any], member: Mapping[str, Any]) -> list[str]:
    """Return the client tags that a member lacks to have standbys elsewhere: its status is MISSING_CLIENT_TAGS.

    The broker wants the tags of the group's `streams.rack.aware.assignment.tags` (`StreamsGroupHeartbeat`, Kafka 4.4).
    """
    wanted = dict(group["assignment_configs"] or ()).get(_RACK_TAGS, "").split(",")
    return [tag.strip() for tag in wanted if tag.strip() and tag.strip() not in dict(member["client_tags"] or ())]


_RACK_TAGS = "rack.aware.assignment.tags"


def _member_row(group: Row, member: Row, tasks: Sequence[Row], *, verbose: bool) -> Row:
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
            "CLIENT-TAGS": ",".join(
                [f"{name}={value}" for name, value in dict(member["client_tags"] or ()).items()]
                + [f"{name}(missing)" for name in missing_tags(group, member)]
            ),
            "MEMBER-EPOCH": member["member_epoch"],
            # The record of a static member that left temporarily still has its earlier state.
            "MEMBER-STATE": snapshot.AWAY if member["member_epoch"] == snapshot.AWAY_EPOCH else member["member_state"],
            "TOPOLOGY-EPOCH": member["topology_epoch"],
            "CLIENT-VERSION": RELEASES.get(member.get("client_version") or 0),
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
        "SOURCE-TOPICS": _names([*subtopology["source_topics"], *(subtopology["source_topic_regex"] or ())]),
        "REPARTITION-SOURCE-TOPICS": _internal(subtopology["repartition_source_topics"]),
        "REPARTITION-SINK-TOPICS": _names(subtopology["repartition_sink_topics"] or ()),
    }
    if verbose:
        copartition = subtopology["copartition_groups"]
        row |= {
            "STATE-CHANGELOG-TOPICS": _internal(subtopology["state_changelog_topics"]),
            "COPARTITION-GROUPS": None if copartition is None else "; ".join(map(_names, copartition)) or _NONE,
        }
    return row


def _names(names: Iterable[str]) -> str:
    return ",".join(names) or _NONE


def _internal(topics: Iterable[Row] | None) -> str | None:
    """Return the names of internal topics; None if they are not known, as with the classic protocol."""
    return None if topics is None else _names(topic["name"] for topic in topics)


_SEARCH_FROM = 3  # characters: fewer occur in nearly every name
_CHANGELOGS = "SELECT cluster, group_id, unnest(state_changelog_topics)['name'] AS name FROM subtopologies"
_SEARCHED = (
    ("topic", "lag", "topic"),
    ("client", "members", "client_id"),
    ("task", "lag", "task_id"),
    ("host", "members", "client_host"),
    ("instance", "members", "instance_id"),
    ("member", "members", "member_id"),
    ("store", "(SELECT * FROM description_nodes WHERE kind = 'store' AND is_newest) AS stores", "node"),
    ("changelog", f"({_CHANGELOGS}) AS changelogs", "name"),
)
"""What is searched besides group ids, in the order in which a match is named: its name, table and column."""


def search_groups(reader: WarehouseReader, cluster: str, text: str) -> dict[str, str]:
    """Return by group what matches: a topic, member, host or store whose name contains it, or a task with this id.

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
    """Return the records in quarantine by group and error, the newest record first; none of unknown types."""
    return reader.rows(
        'SELECT group_id AS "group", error_kind AS error, count(*) AS records, max(timestamp) AS newest, '
        f"min(message) AS message FROM quarantine WHERE cluster = {quote(cluster)} "
        "AND void IS NOT TRUE AND error_kind <> 'UnknownRecordType' GROUP BY group_id, error_kind "
        "ORDER BY newest DESC NULLS LAST, group_id, error_kind"
    )
