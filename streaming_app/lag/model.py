"""What a pass takes in, and what it says. Only data, and the tasks of a group from its row of `groups`.

A task is a subtopology and a partition; it reads that partition of each source topic and repartition topic of the
subtopology. A topic belongs to one subtopology: Kafka Streams refuses to register it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streaming_app.groups.snapshot import REBALANCING
from streaming_app.groups.state_rules import STABLE
from streaming_app.lag.status import UNKNOWN
from streaming_app.text import host_of

CommitKey = tuple[str, str, int]
"""Group, topic and partition."""
Row = Mapping[str, Any]
MatchTopics = Callable[[str], Collection[str]]
"""Returns the topics that match a regular expression of a topology as a whole."""
HISTORY_REST_SECONDS = 3_600.0
"""Between two rows of `lag_history` of a partition to which nothing happens."""
_STREAMS = "streams"


class Commit(NamedTuple):
    """The newest committed offset of a group for a partition; `offset` is None if a task of the group has none."""

    offset: int | None
    topic_id: str | None = None
    """Id of the topic at that time, as Kafka prints ids; None if it is not known."""
    leader_epoch: int | None = None
    committed_at: float | None = None
    """By the broker's clock; None if only OffsetFetch returned the offset."""
    partition_time: float | None = None
    """Of its input, as Kafka Streams commits it, see `partition_time`; None if it is not known."""


class ReadUntil(NamedTuple):
    """Up to which times, by the job's clock, it is known what a group did."""

    commits: float
    """All commits until then are known."""
    members: float
    """The same of members, tasks and topology."""


class Owner(NamedTuple):
    """The member that has a task as active; all None: there is none."""

    member_id: str | None
    process_id: str | None
    client_host: str | None


NOBODY = Owner(None, None, None)


class Node(NamedTuple):
    """A topic of a topology, or the pattern of some."""

    subtopology_id: str
    name: str
    is_internal: bool
    """It is a changelog or a repartition topic."""


@dataclass(frozen=True, slots=True)
class GroupTasks:
    """What a group reads, and who does. The default is that of a group of which only commits are known."""

    subtopology_of: Mapping[str, str] | None = None
    """Topic to subtopology, for all topics that the topology reads; None if the group has no known topology."""
    owners: Mapping[tuple[str, int], Owner] = field(default_factory=dict)
    """Subtopology and partition to the member that has the task as active."""
    rebalancing_since: float | None = None
    """By the broker's clock; None while the group does not rebalance."""
    has_members: bool | None = None
    """None: not known, as of most classic groups."""
    stateful: frozenset[str] = frozenset()
    """The subtopologies that have changelogs: their tasks may have to restore state before they process."""
    stable_since: float | None = None
    """By the broker's clock; None unless the group is Stable."""
    source_partition: int | None = None
    """The partition of the offsets topic that has the group's records."""
    content: frozenset[Node] = frozenset()
    """What the topology is made of, without the group's own prefix of internal topics."""


NO_TASKS = GroupTasks()


class GroupPass(NamedTuple):
    """What of a pass is the same for all partitions of a group. Times are seconds, by the job's clock."""

    now: float
    until: ReadUntil
    tasks: GroupTasks
    allowed: int
    """Offsets that are no lag."""
    patience: float
    """For how many seconds no offset may move while records wait."""
    late_seconds: float
    """When what a group did is known only up to so long ago, its status is held, and its lag is not known."""


class LagRow(NamedTuple):
    """A row of the table `lag`, without `cluster`; its columns say what the fields mean. Times are seconds."""

    group_id: str
    topic: str
    partition: int
    subtopology_id: str | None = None
    task_id: str | None = None
    member_id: str | None = None
    process_id: str | None = None
    client_host: str | None = None
    committed_offset: int | None = None
    leader_epoch: int | None = None
    committed_at: float | None = None
    partition_time: float | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    last_stable_offset: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    lag_seconds_is_lower_bound: bool | None = None
    lost_offsets: int | None = None
    status: str = UNKNOWN
    status_since: float | None = None
    held_since: float | None = None
    behind_since: float | None = None
    catch_up_seconds: float | None = None
    commit_interval_seconds: float | None = None
    rewound_from: int | None = None
    leader: int | None = None
    observed_at: float = 0.0
    known_until: float | None = None

    @property
    def is_unowned(self) -> bool:
        """Whether it belongs to a task that no member has as active."""
        return self.task_id is not None and self.member_id is None

    @property
    def is_unknown(self) -> bool:
        """Whether the lag is not known, and may not be 0: it is of a log without records."""
        is_empty = self.committed_offset is None and self.log_end_offset is not None
        return self.lag is None and not (is_empty and self.log_end_offset == self.log_start_offset)


def group_tasks(group: Row, match_topics: MatchTopics) -> GroupTasks:
    """Return the tasks of a row of `groups`; none if it is deleted or another type of group has taken the id over."""
    if group["deleted_at"] is not None or group["group_type"] != _STREAMS:
        return NO_TASKS
    since = group["state_since"].timestamp() if group["state_since"] else None
    is_rebalancing = group["state"] in REBALANCING
    subtopologies = group["subtopologies"] or ()
    return GroupTasks(
        subtopology_of=_subtopologies(subtopologies, match_topics),
        owners=_owners(group["members"] or (), group["assignments"] or ()),
        rebalancing_since=(since or 0.0) if is_rebalancing else None,
        has_members=bool(group["member_count"]),
        stateful=frozenset(one["subtopology_id"] for one in subtopologies if one["state_changelog_topics"]),
        stable_since=since if group["state"] == STABLE else None,
        source_partition=group.get("source_partition"),
        content=_content(group["group_id"], subtopologies),
    )


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


def _content(group_id: str, subtopologies: Iterable[Row]) -> frozenset[Node]:
    prefix, found = f"{group_id}-", set[Node]()
    for one in subtopologies:
        subtopology_id, sources = one["subtopology_id"], {*one["source_topics"], *one["source_topic_regex"]}
        internal = {*_names(one["repartition_source_topics"]), *_names(one["state_changelog_topics"])} - sources
        found.update(Node(subtopology_id, name, is_internal=False) for name in sources)
        found.update(Node(subtopology_id, name.removeprefix(prefix), is_internal=True) for name in internal)
    return frozenset(found)


def _names(topics: Iterable[Row]) -> list[str]:
    return [topic["name"] for topic in topics]


def _owners(members: Iterable[Row], assignments: Iterable[Row]) -> dict[tuple[str, int], Owner]:
    by_id = {
        member["member_id"]: Owner(member["member_id"], member["process_id"], host_of(member["client_host"]))
        for member in members
    }
    return {
        (task["subtopology_id"], task["partition"]): by_id[task["member_id"]]
        for task in assignments
        if task["current"] and task["role"] == "active" and task["member_id"] in by_id
    }
