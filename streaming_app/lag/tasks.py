"""Topics to tasks, and tasks to the members that have them, from a row of `groups`.

A task is a subtopology and a partition; it reads that partition of each source topic and repartition topic of the
subtopology. A topic belongs to one subtopology: Kafka Streams refuses to register it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from streaming_app.lag.model import NO_TASKS, GroupTasks, Owner

Row = Mapping[str, Any]
MatchTopics = Callable[[str], Collection[str]]
"""Returns the topics that match a regular expression of a topology as a whole."""

_STREAMS = "streams"
_STABLE = "Stable"
_REBALANCING = ("Assigning", "Reconciling")


def group_tasks(group: Row, match_topics: MatchTopics) -> GroupTasks:
    """Return the tasks of a row of `groups`; none if it is deleted or another type of group has taken the id over."""
    if group["deleted_at"] is not None or group["group_type"] != _STREAMS:
        return NO_TASKS
    since = group["state_since"].timestamp() if group["state_since"] else None
    is_rebalancing = group["state"] in _REBALANCING
    subtopologies = group["subtopologies"] or ()
    return GroupTasks(
        subtopology_of=_subtopologies(subtopologies, match_topics),
        owners=_owners(group["members"] or (), group["assignments"] or ()),
        rebalancing_since=(since or 0.0) if is_rebalancing else None,
        has_members=bool(group["member_count"]),
        stateful=frozenset(one["subtopology_id"] for one in subtopologies if one["state_changelog_topics"]),
        stable_since=since if group["state"] == _STABLE else None,
    )


def source_topics(group: Row) -> set[str]:
    """Return the topics that a topology names as sources, repartition topics included."""
    return {
        name
        for subtopology in group["subtopologies"] or ()
        for name in (*subtopology["source_topics"], *_names(subtopology["repartition_source_topics"]))
    }


def _subtopologies(subtopologies: Iterable[Row], match_topics: MatchTopics) -> dict[str, str] | None:
    """Return topic to subtopology; None without a topology. A topic that is named counts before one that matches."""
    known = list(subtopologies)
    if not known:
        return None
    by_topic = {
        topic: one["subtopology_id"]
        for one in known
        for pattern in one["source_topic_regex"]
        for topic in match_topics(pattern)
    }
    for one in known:
        names = (*one["source_topics"], *_names(one["repartition_source_topics"]))
        by_topic.update(dict.fromkeys(names, one["subtopology_id"]))
    return by_topic


def _names(topics: Iterable[Row]) -> list[str]:
    return [topic["name"] for topic in topics]


def _owners(members: Iterable[Row], assignments: Iterable[Row]) -> dict[tuple[str, int], Owner]:
    by_id = {
        member["member_id"]: Owner(member["member_id"], member["process_id"], _host(member["client_host"]))
        for member in members
    }
    return {
        (task["subtopology_id"], task["partition"]): by_id[task["member_id"]]
        for task in assignments
        if task["current"] and task["role"] == "active" and task["member_id"] in by_id
    }


def _host(client_host: str | None) -> str | None:
    """Return the host without the slash that Java prints before an address."""
    return client_host and client_host.lstrip("/")
