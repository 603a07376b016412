"""Compares one row of `groups` with the broker's StreamsGroupDescribe of the group. Pure: no clock, no I/O.

Theory of operation
-------------------
The row and the description are converted to fields with the same names, and fields with the same name must be equal.
What only one of the two contains is not compared: task offsets and task end offsets (the broker keeps them in memory),
partition counts that a topology leaves to the broker, and everything in the row that StreamsGroupDescribe does not
return. Some releases make less available:

- A 4.1 broker does not write whether a group is ready (its state is Unknown, see `has_known_state`), and returns no
  topology until it has checked the topics.
- Before the first assignment no record contains the assignment epoch; 4.2 returns 0 then, later releases return 1, and
  their logs are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streaming_app.groups.group import ROLES
from streaming_app.groups.state_rules import DEAD, NONE

Row = Mapping[str, Any]
"""A row of `groups`; maps may be dicts or lists of pairs."""
GroupDescription = Mapping[str, Any]
"""A group of a StreamsGroupDescribe response, in snake_case."""
ComparableFields = dict[str, Any]
"""What is compared of a group, by path, such as `members[m].client_id`; a subtopology or member itself is `present`."""

NO_ERROR, GROUP_ID_NOT_FOUND = 0, 69
ABSENT = "absent"
_PRESENT = "present"
_SUBTOPOLOGIES = "subtopologies["
_INITIAL_ASSIGNMENT_EPOCHS = (0, 1)
_MEMBER_FIELDS = ("instance_id", "rack_id", "client_id", "client_host", "topology_epoch", "process_id")


class Difference(NamedTuple):
    """One field of a group that differs between the tables and the broker."""

    group_id: str
    field: str
    tables: Any
    broker: Any

    @property
    def values_as_text(self) -> tuple[str, str]:
        """The value in the tables, and that of the broker."""
        return _to_text(self.tables), _to_text(self.broker)

    def __str__(self) -> str:
        tables, broker = self.values_as_text
        return f"{self.group_id} {self.field}: {tables} in the tables, {broker} on the broker"


def differences(group_id: str, row: Row | None, description: GroupDescription | None) -> list[Difference]:
    """Return every field that differs; none if the group is unknown to the broker, and Dead or not in the tables."""
    ours, theirs = fields_of_row(row), fields_of_description(description)
    if row is not None and ours and theirs and not has_known_state(row):
        for fields in (ours, theirs):
            fields["state"] = _ANY_VALUE
        if not any(name.startswith(_SUBTOPOLOGIES) for name in theirs):
            ours = {name: value for name, value in ours.items() if not name.startswith(_SUBTOPOLOGIES)}
            ours["topology_epoch"] = _ANY_VALUE
    return _compare_fields(group_id, ours, theirs)


def _compare_fields(group_id: str, ours: ComparableFields, theirs: ComparableFields) -> list[Difference]:
    """Return the fields that differ; a group, subtopology or member on one side only is one difference."""
    if not ours or not theirs:
        ours, theirs = ({"group": fields["state"]} if fields else {} for fields in (ours, theirs))
    one_sided = set(_element_names(ours)) ^ set(_element_names(theirs))
    return [
        Difference(group_id, name, ours.get(name, ABSENT), theirs.get(name, ABSENT))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name, ABSENT) != theirs.get(name, ABSENT) and name.rpartition(".")[0] not in one_sided
    ]


def has_known_state(row: Row) -> bool:
    """Return whether the log determines the group's state: a 4.1 broker does not write whether a group is ready."""
    return bool(row["readiness_recorded"] or row["state"] != "Unknown")


def fields_of_row(row: Row | None) -> ComparableFields:
    """Return the fields of a group in the tables; none for a group that is Dead or not there."""
    if row is None or row["state"] == DEAD:
        return {}
    fields: ComparableFields = {
        name: row[name] for name in ("state", "group_epoch", "assignment_epoch", "topology_epoch")
    }
    if row["assigned_at"] is None and row["assignment_epoch"] in _INITIAL_ASSIGNMENT_EPOCHS:
        fields["assignment_epoch"] = _AnyOf(_INITIAL_ASSIGNMENT_EPOCHS)
    for part in row["subtopologies"] or ():
        fields |= _subtopology_fields(part, has_all_sources=not part["source_topic_regex"])
    current, target = _tasks_of_row(row, "current"), _tasks_of_row(row, "target")
    for member in row["members"]:
        name = f"members[{member['member_id']}]"
        fields[name] = _PRESENT
        fields |= {f"{name}.{field}": member[field] for field in _MEMBER_FIELDS}
        fields[f"{name}.member_epoch"] = member["member_epoch"] or 0  # the broker returns 0 before record 22
        fields[f"{name}.user_endpoint"] = member["user_endpoint"]
        fields[f"{name}.client_tags"] = dict(member["client_tags"] or ())
        for role in ROLES:
            fields[f"{name}.{role}"] = current.get((member["member_id"], role), {})
            fields[f"{name}.target_{role}"] = target.get((member["member_id"], role), {})
    return fields


def fields_of_description(description: GroupDescription | None) -> ComparableFields:
    """Return the fields of a group as the broker describes it; none for a group that the broker does not know."""
    if description is None or description["error_code"] == GROUP_ID_NOT_FOUND:
        return {}
    fields: ComparableFields = {"state": description["group_state"]}
    fields |= {name: description[name] for name in ("group_epoch", "assignment_epoch")}
    topology = description["topology"]
    fields["topology_epoch"] = None if topology is None or topology["epoch"] == NONE else topology["epoch"]
    for part in (topology or {}).get("subtopologies") or ():
        fields |= _subtopology_fields(part, has_all_sources=True)
    for member in description["members"]:
        name, endpoint = f"members[{member['member_id']}]", member["user_endpoint"]
        fields[name] = _PRESENT
        fields |= {f"{name}.{field}": member[field] for field in (*_MEMBER_FIELDS, "member_epoch")}
        fields[f"{name}.user_endpoint"] = endpoint and f"{endpoint['host']}:{endpoint['port']}"
        fields[f"{name}.client_tags"] = _to_dict(member["client_tags"])
        for role in ROLES:
            fields[f"{name}.{role}"] = _tasks_of_description(member["assignment"][f"{role}_tasks"])
            fields[f"{name}.target_{role}"] = _tasks_of_description(member["target_assignment"][f"{role}_tasks"])
    return fields


class _AnyOf(frozenset[Any]):
    """Equal to each of several values, and to the same several values."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) if isinstance(other, _AnyOf) else other in self

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = frozenset.__hash__


class _AnyValue:
    """Equal to everything, for a field whose value is not available."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "any"


_ANY_VALUE = _AnyValue()


def _subtopology_fields(part: Mapping[str, Any], *, has_all_sources: bool) -> ComparableFields:
    """Return the fields of a subtopology.

    `has_all_sources` is false if it has patterns, which only the broker resolves to the matching topics.
    """
    name = f"subtopologies[{part['subtopology_id']}]"
    return {
        name: _PRESENT,
        f"{name}.source_topics": sorted(part["source_topics"]) if has_all_sources else _ANY_VALUE,
        f"{name}.repartition_sink_topics": sorted(part["repartition_sink_topics"]),
        f"{name}.repartition_source_topics": _internal_topics(part["repartition_source_topics"]),
        f"{name}.state_changelog_topics": _internal_topics(part["state_changelog_topics"]),
    }


def _internal_topics(topics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return internal topics by name; the broker computes a partition count that the topology does not set."""
    return {
        topic["name"]: {
            "partitions": topic["partitions"] or _ANY_VALUE,
            "replication_factor": topic["replication_factor"],
            "topic_configs": _to_dict(topic["topic_configs"]),
        }
        for topic in topics
    }


def _to_dict(entries: Any) -> dict[str, str]:  # noqa: ANN401 - a dict, pairs, or the entries of a response
    if isinstance(entries, Mapping):
        return dict(entries)
    return dict((entry["key"], entry["value"]) if isinstance(entry, Mapping) else entry for entry in entries or ())


def _tasks_of_row(row: Row, which: str) -> dict[tuple[str, str], dict[str, list[int]]]:
    tasks: dict[tuple[str, str], dict[str, list[int]]] = {}
    for task in sorted(row["assignments"], key=lambda task: int(task["partition"])):
        if task[which]:
            by_subtopology = tasks.setdefault((task["member_id"], task["role"]), {})
            by_subtopology.setdefault(task["subtopology_id"], []).append(task["partition"])
    return tasks


def _tasks_of_description(task_ids: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    return {ids["subtopology_id"]: sorted(ids["partitions"]) for ids in task_ids if ids["partitions"]}


def _element_names(fields: ComparableFields) -> Iterable[str]:
    """Return the names of subtopologies and members themselves, without those of their fields."""
    return (name for name in fields if name.endswith("]"))


def _to_text(value: object) -> str:
    if isinstance(value, (dict, list)):
        return str(value) if value else "none"
    return "none" if value is None else str(value)
