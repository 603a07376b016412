"""Compares one row of `groups` with the broker's StreamsGroupDescribe of the group. Pure: no clock, no I/O.

Theory of operation
-------------------
Both the row and the description become a mapping from path to value. A subtopology, an internal topic or a member that
only one side has is a difference. A field of these is compared only if both sides have it. So each side leaves out what
it cannot know: the row has no topics that match a pattern, and no partition counts that the broker computes. Task
offsets are left out, because the broker keeps them only in memory. Some releases provide less:

- A 4.1 broker does not write whether a group is ready, so its state is Unknown (`has_known_state`), and returns no
  topology before it has checked the topics.
- Before the first assignment, no record contains the assignment epoch. Kafka 4.2 returns 0 then, and later releases
  return 1. Their logs do not differ.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from streaming_app.groups.group import ROLES
from streaming_app.groups.state_rules import DEAD, NONE

Row = Mapping[str, Any]
"""A row of `groups`; maps may be dicts or lists of pairs."""
GroupDescription = Mapping[str, Any]
"""A group of a StreamsGroupDescribe response, in snake_case."""
Path = tuple[str, ...]
"""A name, or for an element of a list the names and ids: `("state",)`, `("members", "m", "client_id")`."""
Fields = dict[Path, Any]
"""Path -> compared value. An element of a list has itself the value `present`."""

NO_ERROR, GROUP_ID_NOT_FOUND = 0, 69
_ABSENT, _PRESENT = "absent", "present"
_STATE, _ASSIGNMENT_EPOCH = ("state",), ("assignment_epoch",)
_SUBTOPOLOGIES = "subtopologies"
_OF_TOPOLOGY = {"topology_epoch", _SUBTOPOLOGIES}
_INITIAL_ASSIGNMENT_EPOCHS = {0, 1}
_MEMBER_FIELDS = ("instance_id", "rack_id", "client_id", "client_host", "topology_epoch", "process_id")
_TASK_FIELDS = {**{(role, "current"): role for role in ROLES}, **{(role, "target"): f"target_{role}" for role in ROLES}}


class Difference(NamedTuple):
    """One field of a group that differs between the tables and the broker."""

    group_id: str
    field: str
    tables: Any
    broker: Any

    def __str__(self) -> str:
        tables, broker = _to_text(self.tables), _to_text(self.broker)
        return f"{self.group_id} {self.field}: {tables} in the tables, {broker} on the broker"


def differences(group_id: str, row: Row | None, description: GroupDescription | None) -> list[Difference]:
    """Return every difference. A group that the broker does not know may be Dead in the tables, or missing there."""
    ours, theirs = fields_of_row(row), fields_of_description(description)
    if row is None or not ours or not theirs:
        states = ours.get(_STATE, _ABSENT), theirs.get(_STATE, _ABSENT)
        return [Difference(group_id, "group", *states)] if ours or theirs else []
    if not has_known_state(row):
        del ours[_STATE]
        if not any(path[0] == _SUBTOPOLOGIES for path in theirs):
            ours = {path: value for path, value in ours.items() if path[0] not in _OF_TOPOLOGY}
    epochs = {ours[_ASSIGNMENT_EPOCH], theirs[_ASSIGNMENT_EPOCH]}
    if row["assigned_at"] is None and epochs <= _INITIAL_ASSIGNMENT_EPOCHS:
        del ours[_ASSIGNMENT_EPOCH]
    one_sided = {path for path in ours.keys() ^ theirs.keys() if len(path) % 2 == 0}  # elements
    found = {path for path in ours.keys() & theirs.keys() if ours[path] != theirs[path]}
    found |= {path for path in one_sided if path[:-2] not in one_sided}
    return [
        Difference(group_id, _name(path), ours.get(path, _ABSENT), theirs.get(path, _ABSENT)) for path in sorted(found)
    ]


def has_known_state(row: Row) -> bool:
    """Return whether the log shows the group's state: a 4.1 broker does not write whether a group is ready."""
    return bool(row["readiness_recorded"] or row["state"] != "Unknown")


def fields_of_row(row: Row | None) -> Fields:
    """Return the fields of a group in the tables; none if the group is Dead or missing."""
    if row is None or row["state"] == DEAD:
        return {}
    fields: Fields = {(name,): row[name] for name in ("state", "group_epoch", "assignment_epoch", "topology_epoch")}
    for part in row["subtopologies"] or ():
        fields |= _subtopology_fields(part, has_all_sources=not part["source_topic_regex"])
    tasks: dict[Path, dict[str, list[int]]] = {}
    for task in sorted(row["assignments"], key=lambda task: int(task["partition"])):
        for which in ("current", "target"):
            if task[which]:
                of_field = tasks.setdefault(("members", task["member_id"], _TASK_FIELDS[task["role"], which]), {})
                of_field.setdefault(task["subtopology_id"], []).append(task["partition"])
    for member in row["members"]:
        path = ("members", member["member_id"])
        fields |= {(*path, name): member[name] for name in (*_MEMBER_FIELDS, "user_endpoint")}
        fields |= {(*path, name): tasks.get((*path, name), {}) for name in _TASK_FIELDS.values()}
        fields[path] = _PRESENT
        fields[(*path, "member_epoch")] = member["member_epoch"] or 0  # the broker returns 0 before record 22
        fields[(*path, "client_tags")] = _to_dict(member["client_tags"])
    return fields


def fields_of_description(description: GroupDescription | None) -> Fields:
    """Return the fields of a group in the broker's description; none if the broker does not know the group."""
    if description is None or description["error_code"] == GROUP_ID_NOT_FOUND:
        return {}
    fields: Fields = {(name,): description[name] for name in ("group_epoch", "assignment_epoch")}
    topology = description["topology"]
    fields[_STATE] = description["group_state"]
    fields["topology_epoch",] = None if topology is None or topology["epoch"] == NONE else topology["epoch"]
    for part in (topology or {}).get("subtopologies") or ():
        fields |= _subtopology_fields(part, has_all_sources=True)
    for member in description["members"]:
        path, endpoint = ("members", member["member_id"]), member["user_endpoint"]
        fields |= {(*path, name): member[name] for name in (*_MEMBER_FIELDS, "member_epoch")}
        fields[path] = _PRESENT
        fields[(*path, "user_endpoint")] = endpoint and f"{endpoint['host']}:{endpoint['port']}"
        fields[(*path, "client_tags")] = _to_dict(member["client_tags"])
        for (role, which), name in _TASK_FIELDS.items():
            tasks = member["assignment" if which == "current" else "target_assignment"][f"{role}_tasks"]
            fields[(*path, name)] = {
                ids["subtopology_id"]: sorted(ids["partitions"]) for ids in tasks if ids["partitions"]
            }
    return fields


def _subtopology_fields(part: Mapping[str, Any], *, has_all_sources: bool) -> Fields:
    path = (_SUBTOPOLOGIES, part["subtopology_id"])
    fields: Fields = {path: _PRESENT, (*path, "repartition_sink_topics"): sorted(part["repartition_sink_topics"])}
    if has_all_sources:  # only the broker knows the topics that match a pattern
        fields[(*path, "source_topics")] = sorted(part["source_topics"])
    for name in ("repartition_source_topics", "state_changelog_topics"):
        for topic in part[name]:
            of_topic = (*path, name, topic["name"])
            fields[of_topic] = _PRESENT
            fields[(*of_topic, "replication_factor")] = topic["replication_factor"]
            fields[(*of_topic, "topic_configs")] = _to_dict(topic["topic_configs"])
            if topic["partitions"]:  # 0: the broker computes the number
                fields[(*of_topic, "partitions")] = topic["partitions"]
    return fields


def _to_dict(entries: Any) -> dict[str, str]:  # noqa: ANN401 - a dict, pairs, or the entries of a response
    if isinstance(entries, Mapping):
        return dict(entries)
    return dict((entry["key"], entry["value"]) if isinstance(entry, Mapping) else entry for entry in entries or ())


def _name(path: Path) -> str:
    return "".join(f"[{part}]" if number % 2 else f".{part}" for number, part in enumerate(path)).removeprefix(".")


def _to_text(value: object) -> str:
    if isinstance(value, (dict, list)):
        return str(value) if value else "none"
    return "none" if value is None else str(value)
