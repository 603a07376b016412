"""Compares one row of `groups` with the broker's StreamsGroupDescribe of the group. Pure: no clock, no I/O.

Theory of operation
-------------------
Both sides are turned into facts under the same names, and facts of one name must be equal. What only one side can know
is left out: tasks' offsets and where endpoints are (the broker keeps them in memory), the partition count that a
topology leaves to the broker, and on the other side everything that Describe does not show. Two releases keep more to
themselves:

- A 4.1 broker does not write down whether a group is ready (its state is Unknown, see `tells_state`), and shows no
  topology while it has not looked at the topics.
- Before the first assignment there is no record of its epoch; 4.2 says 0 then, later releases say 1, and their logs
  are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streaming_app.core.group import ROLES
from streaming_app.core.states import NONE

Row = Mapping[str, Any]
"""A row of `groups`; maps may be dicts or lists of pairs."""
Described = Mapping[str, Any]
"""A group of a StreamsGroupDescribe response, in snake_case."""
Facts = dict[str, Any]

NO_ERROR, GROUP_ID_NOT_FOUND = 0, 69
ABSENT = "absent"
_PRESENT = "present"
_SUBTOPOLOGIES = "subtopologies["
_BEFORE_ASSIGNMENT = (0, 1)
_MEMBER_FIELDS = ("instance_id", "rack_id", "client_id", "client_host", "topology_epoch", "process_id")


class Difference(NamedTuple):
    """One field of a group about which the tables and the broker do not agree."""

    group_id: str
    field: str
    tables: Any
    broker: Any

    def __str__(self) -> str:
        return f"{self.group_id} {self.field}: tables say {_text(self.tables)}, broker says {_text(self.broker)}"


def differences(group_id: str, row: Row | None, described: Described | None) -> list[Difference]:
    """Everything that differs; nothing when the broker does not know a group that is Dead or not in the tables."""
    ours, theirs = facts_of_row(row), facts_of_described(described)
    if row is not None and ours and theirs and not tells_state(row):
        for facts in (ours, theirs):
            facts["state"] = _UNSAID
        if not any(name.startswith(_SUBTOPOLOGIES) for name in theirs):
            ours = {name: value for name, value in ours.items() if not name.startswith(_SUBTOPOLOGIES)}
            ours["topology_epoch"] = _UNSAID
    return differing(group_id, ours, theirs)


def differing(group_id: str, ours: Facts, theirs: Facts) -> list[Difference]:
    """The fields in which two sets of facts differ; what is on one side only is one difference, not one per field."""
    if not ours or not theirs:
        ours, theirs = ({"group": facts["state"]} if facts else {} for facts in (ours, theirs))
    one_sided = set(_parts(ours)) ^ set(_parts(theirs))
    return [
        Difference(group_id, name, ours.get(name, ABSENT), theirs.get(name, ABSENT))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name, ABSENT) != theirs.get(name, ABSENT) and name.rpartition(".")[0] not in one_sided
    ]


def tells_state(row: Row) -> bool:
    """Whether the log tells the group's state: a 4.1 broker does not write down whether a group is ready."""
    return bool(row["readiness_recorded"] or row["state"] != "Unknown")


def facts_of_row(row: Row | None) -> Facts:
    """What the tables say of a group that lives as a streams group; no facts otherwise."""
    if row is None or row["state"] == "Dead":
        return {}
    facts: Facts = {name: row[name] for name in ("state", "group_epoch", "assignment_epoch", "topology_epoch")}
    if row["assigned_at"] is None and row["assignment_epoch"] in _BEFORE_ASSIGNMENT:
        facts["assignment_epoch"] = _AnyOf(_BEFORE_ASSIGNMENT)
    for part in row["subtopologies"] or ():
        facts |= _subtopology_facts(part, known=not part["source_topic_regex"])
    current, target = _tasks_of_row(row, "current"), _tasks_of_row(row, "target")
    for member in row["members"]:
        name = f"members[{member['member_id']}]"
        facts[name] = _PRESENT
        facts |= {f"{name}.{field}": member[field] for field in _MEMBER_FIELDS}
        facts[f"{name}.member_epoch"] = member["member_epoch"] or 0  # 0 is the broker's, before record 22
        facts[f"{name}.user_endpoint"] = member["user_endpoint"]
        facts[f"{name}.client_tags"] = dict(member["client_tags"] or ())
        for role in ROLES:
            facts[f"{name}.{role}"] = current.get((member["member_id"], role), {})
            facts[f"{name}.target_{role}"] = target.get((member["member_id"], role), {})
    return facts


def facts_of_described(described: Described | None) -> Facts:
    """What the broker says; no facts for a group that it does not know."""
    if described is None or described["error_code"] == GROUP_ID_NOT_FOUND:
        return {}
    facts: Facts = {"state": described["group_state"]}
    facts |= {name: described[name] for name in ("group_epoch", "assignment_epoch")}
    topology = described["topology"]
    facts["topology_epoch"] = None if topology is None or topology["epoch"] == NONE else topology["epoch"]
    for part in (topology or {}).get("subtopologies") or ():
        facts |= _subtopology_facts(part, known=True)
    for member in described["members"]:
        name, endpoint = f"members[{member['member_id']}]", member["user_endpoint"]
        facts[name] = _PRESENT
        facts |= {f"{name}.{field}": member[field] for field in (*_MEMBER_FIELDS, "member_epoch")}
        facts[f"{name}.user_endpoint"] = endpoint and f"{endpoint['host']}:{endpoint['port']}"
        facts[f"{name}.client_tags"] = _pairs(member["client_tags"])
        for role in ROLES:
            facts[f"{name}.{role}"] = _tasks(member["assignment"][f"{role}_tasks"])
            facts[f"{name}.target_{role}"] = _tasks(member["target_assignment"][f"{role}_tasks"])
    return facts


class _AnyOf(frozenset[Any]):
    """Equal to each of several values."""

    def __eq__(self, other: object) -> bool:
        return other in self

    def __ne__(self, other: object) -> bool:
        return other not in self

    __hash__ = frozenset.__hash__


class _Unsaid:
    """Equal to everything: this side cannot know."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "any"


_UNSAID = _Unsaid()


def _subtopology_facts(part: Mapping[str, Any], *, known: bool) -> Facts:
    """`known` is false where patterns stand for topics: the broker then names those that match."""
    name = f"subtopologies[{part['subtopology_id']}]"
    return {
        name: _PRESENT,
        f"{name}.source_topics": sorted(part["source_topics"]) if known else _UNSAID,
        f"{name}.repartition_sink_topics": sorted(part["repartition_sink_topics"]),
        f"{name}.repartition_source_topics": _internal_topics(part["repartition_source_topics"]),
        f"{name}.state_changelog_topics": _internal_topics(part["state_changelog_topics"]),
    }


def _internal_topics(topics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Where a topology asks for no count, the broker works one out."""
    return {
        topic["name"]: {
            "partitions": topic["partitions"] or _UNSAID,
            "replication_factor": topic["replication_factor"],
            "topic_configs": _pairs(topic["topic_configs"]),
        }
        for topic in topics
    }


def _pairs(entries: Any) -> dict[str, str]:  # noqa: ANN401 - a map in any of its spellings
    if isinstance(entries, Mapping):
        return dict(entries)
    return dict((entry["key"], entry["value"]) if isinstance(entry, Mapping) else entry for entry in entries or ())


def _tasks_of_row(row: Row, which: str) -> dict[tuple[str, str], dict[str, list[int]]]:
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for task in sorted(row["assignments"], key=lambda task: int(task["partition"])):
        if task[which]:
            by_subtopology = found.setdefault((task["member_id"], task["role"]), {})
            by_subtopology.setdefault(task["subtopology_id"], []).append(task["partition"])
    return found


def _tasks(listed: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    return {ids["subtopology_id"]: sorted(ids["partitions"]) for ids in listed if ids["partitions"]}


def _parts(facts: Facts) -> Iterable[str]:
    return (name for name in facts if name.endswith("]"))


def _text(value: object) -> str:
    if isinstance(value, (dict, list)):
        return str(value) if value else "none"
    return "none" if value is None else str(value)
