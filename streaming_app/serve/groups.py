"""What `list` and `describe` tell of groups, as rows under the column names of Kafka's tools (4.3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streaming_app.core.group import ROLES
from streaming_app.core.states import STATES
from streaming_app.serve.warehouse import Warehouse, WarehouseError, quoted

Row = dict[str, Any]
_STATE_BY_SPELLING = {state.lower(): state for state in STATES}
_NONE = "-"


def state_named(spelling: str) -> str:
    """The state that a person means: any letter case, and with `_` as in NOT_READY. Raises WarehouseError."""
    state = _STATE_BY_SPELLING.get(spelling.strip().replace("_", "").lower())
    if state is None:
        raise WarehouseError(f"No such state: {spelling}. Valid states are: {', '.join(STATES)}")
    return state


def listed(warehouse: Warehouse, cluster: str, states: Iterable[str] = ()) -> list[Row]:
    """(GROUP, STATE) of every group that lives; with `states`, of those in one of them, Dead ones when asked for."""
    named = {state_named(state) for state in states}
    wanted = f"state IN ({', '.join(map(quoted, sorted(named)))})" if named else "deleted_at IS NULL"
    rows = warehouse.rows(
        f"SELECT group_id, state FROM groups WHERE cluster = {quoted(cluster)} AND {wanted} ORDER BY group_id"
    )
    return [{"GROUP": row["group_id"], "STATE": row["state"]} for row in rows]


def found(warehouse: Warehouse, cluster: str, group_ids: Iterable[str] | None) -> list[Row]:
    """Whole rows of `groups`: of all that live, or of those named. Raises WarehouseError for a name unknown."""
    wanted = None if group_ids is None else list(dict.fromkeys(group_ids))
    chosen = "deleted_at IS NULL" if wanted is None else f"group_id IN ({', '.join(map(quoted, wanted))})"
    rows = warehouse.rows(f"SELECT * FROM groups WHERE cluster = {quoted(cluster)} AND {chosen} ORDER BY group_id")
    missing = set(wanted or ()) - {row["group_id"] for row in rows}
    if missing:
        names = ", ".join(repr(name) for name in sorted(missing))
        raise WarehouseError(
            f"No streams group {names} in cluster {cluster!r}: `streams-groups list` shows what there is"
        )
    return rows


def state_rows(groups: Iterable[Row], *, verbose: bool) -> list[Row]:
    """A row per group: its state, and with `verbose` its epochs and since when."""
    listed_groups = list(groups)
    reasons = any(group["not_ready_reason"] for group in listed_groups)
    return [_state(group, reasons=reasons) | (_state_more(group) if verbose else {}) for group in listed_groups]


def _state(group: Row, *, reasons: bool) -> Row:
    return {
        "GROUP": group["group_id"],
        "STATE": group["state"],
        "#MEMBERS": group["member_count"],
        "TOPOLOGY-DESCRIPTION": group["description_status"],
        **({"NOT-READY-REASON": group["not_ready_reason"]} if reasons else {}),
    }


def _state_more(group: Row) -> Row:
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


def member_rows(groups: Iterable[Row], *, verbose: bool) -> list[Row]:
    """A row per member: its tasks, and with `verbose` its epochs and its target assignment."""
    return [_member(group, member, verbose=verbose) for group in groups for member in group["members"]]


def _member(group: Row, member: Row, *, verbose: bool) -> Row:
    mine = [task for task in group["assignments"] if task["member_id"] == member["member_id"]]
    row = {
        "GROUP": group["group_id"],
        "MEMBER": member["member_id"],
        "PROCESS": member["process_id"],
        "CLIENT-ID": member["client_id"],
    }
    if verbose:
        row |= {
            "MEMBER-EPOCH": member["member_epoch"],
            "MEMBER-STATE": member["member_state"],
            "TOPOLOGY-EPOCH": member["topology_epoch"],
            "TARGET-ASSIGNMENT-EPOCH": group["assignment_epoch"],
            "TARGET-ASSIGNMENTS": tasks_text(task for task in mine if task["target"]),
            "PENDING-REVOCATION": tasks_text(task for task in mine if task["pending_revocation"]),
        }
    return row | {"ASSIGNMENTS": tasks_text(task for task in mine if task["current"])}


def tasks_text(tasks: Iterable[Mapping[str, Any]]) -> str:
    """Tasks in Kafka's spelling: ``ACTIVE: 0:[0,1]; STANDBY: 1:[2]``; roles without tasks are left out."""
    by_role: dict[str, dict[str, list[int]]] = {role: {} for role in ROLES}
    for task in tasks:
        by_role[task["role"]].setdefault(task["subtopology_id"], []).append(task["partition"])
    told = (
        f"{role.upper()}: " + ", ".join(f"{s}:[{','.join(map(str, sorted(p)))}]" for s, p in sorted(parts.items()))
        for role, parts in by_role.items()
        if parts
    )
    return "; ".join(told) or _NONE


def topology_rows(groups: Iterable[Row], *, verbose: bool) -> list[Row]:
    """A row per subtopology: what it reads and writes, and with `verbose` its changelogs and copartition groups."""
    return [_subtopology(group, part, verbose=verbose) for group in groups for part in group["subtopologies"]]


def _subtopology(group: Row, part: Row, *, verbose: bool) -> Row:
    row = {
        "GROUP": group["group_id"],
        "TOPOLOGY-EPOCH": part["topology_epoch"],
        "SUBTOPOLOGY": part["subtopology_id"],
        "SOURCE-TOPICS": _names([*part["source_topics"], *part["source_topic_regex"]]),
        "REPARTITION-SOURCE-TOPICS": _names(topic["name"] for topic in part["repartition_source_topics"]),
        "REPARTITION-SINK-TOPICS": _names(part["repartition_sink_topics"]),
    }
    if verbose:
        row |= {
            "STATE-CHANGELOG-TOPICS": _names(topic["name"] for topic in part["state_changelog_topics"]),
            "COPARTITION-GROUPS": "; ".join(_names(group) for group in part["copartition_groups"]) or _NONE,
        }
    return row


def _names(names: Iterable[str]) -> str:
    return ",".join(names) or _NONE


ASPECTS: dict[str, Callable[..., list[Row]]] = {
    "state": state_rows,
    "members": member_rows,
    "topology": topology_rows,
}
