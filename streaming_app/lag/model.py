"""The input and output of a lag pass. Only data, and the tasks of a group from its row of `groups`.

A task is a subtopology and a partition. It reads this partition of each source topic and repartition topic of the
subtopology. A topic belongs to one subtopology, because Kafka Streams does not register a topic twice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.groups.group import CLASSIC
from streaming_app.groups.snapshot import REBALANCING
from streaming_app.groups.state_rules import NOT_READY, STABLE
from streaming_app.groups.topology import topology_hash
from streaming_app.lag.statuses import UNKNOWN, WAITS
from streaming_app.text import host_of

CommitKey = tuple[str, str, int]
Row = Mapping[str, Any]
MatchTopics = Callable[[str], Collection[str]]
"""Regular expression of a topology -> the topics whose whole name matches."""
HISTORY_REST_SECONDS = 3_600.0
"""The time between two rows of `lag_history` for a partition without changes."""
_STREAMS = "streams"


class Commit(NamedTuple):
    """The newest committed offset of a group in a partition; `offset` is None if the group has committed none."""

    offset: int | None
    topic_id: str | None = None
    """The id of the topic at the commit, as Kafka prints ids; None if it is not known."""
    leader_epoch: int | None = None
    committed_at: float | None = None
    """The time of the commit by the broker's clock; None if only OffsetFetch returned the offset."""
    partition_time: float | None = None
    """The highest timestamp that the task has seen, see `lag.partition_time`; None if it is not known."""
    is_known: bool = True
    """Whether it is known that this is the newest commit. If not, `offset` is that of the log: see `lag.committed`."""


class ReadUntil(NamedTuple):
    """Up to which times, by the job's clock, the records of a group are known."""

    commits: float
    """All commits up to this time are known."""
    members: float
    """All changes of members, tasks and topology up to this time are known."""


class Owner(NamedTuple):
    """The member that has a task as active; all fields are None if no member has it."""

    member_id: str | None
    process_id: str | None
    client_host: str | None


NOBODY = Owner(None, None, None)


class TopicNode(NamedTuple):
    """A topic of a topology, or a pattern for topics."""

    subtopology_id: str
    name: str
    is_internal: bool
    """Whether it is a changelog or repartition topic."""


@dataclass(frozen=True, slots=True)
class GroupTasks:
    """The topics that a group reads, and its members. The default is for a group of which only commits are known."""

    subtopology_of: Mapping[str, str] | None = None
    """Topic -> subtopology, for all topics that the topology reads; None if the group has no known topology."""
    owners: Mapping[tuple[str, int], Owner] = field(default_factory=dict)
    """(subtopology, partition) -> the member that has the task as active. Of a group without tasks: (name or id of a
    topic, partition) -> the member that has the partition."""
    is_whole: bool = True
    """Whether it reads no other topics. With the classic protocol the log may lack some until a rebalance is over."""
    knows_owners: bool = True
    """False: a member may have a task that is not in `owners`. With the classic protocol tasks that change hands are in
    no member, nor are those of members that cannot be decoded."""
    rebalancing_since: float | None = None
    """Since when the group rebalances, by the broker's clock; None if it does not."""
    has_members: bool | None = None
    """None: not known. For most classic groups it is not."""
    stateful: frozenset[str] = frozenset()
    """The subtopologies with changelogs: their tasks may have to restore state before they process."""
    stable_since: float | None = None
    """Since when the group is Stable, by the broker's clock; None in other states."""
    source_partition: int | None = None
    """The partition of the offsets topic with the group's records."""
    content: frozenset[TopicNode] = frozenset()
    """The topics and patterns of the topology. Names of internal topics are without the prefix of the group."""
    is_ready: bool = True
    """False while the group is NotReady: then its members have no tasks."""
    members_since: float | None = None
    """When the longest-standing member joined, by the broker's clock; None if it is not known."""
    joined: Sequence[float] = ()
    """When its members joined, likewise; only of groups with stateful tasks."""
    repartition: frozenset[str] = frozenset()
    """The group's own repartition topics. Kafka Streams reads them from their start, if it has committed nothing."""

    def owner_of(self, topic: str, topic_id: str | None, partition: int) -> Owner:
        """Return the member that has a partition; `NOBODY` if none has it, or it is not known."""
        if not self.owners:  # as in most groups
            return NOBODY
        part = topic if self.subtopology_of is None else self.subtopology_of.get(topic)
        return self.owners.get((part or "", partition)) or self.owners.get((topic_id or "", partition), NOBODY)


NO_TASKS = GroupTasks()


class GroupPass(NamedTuple):
    """The values of a pass that are the same for all partitions of a group. Times are seconds, by the job's clock."""

    now: float
    until: ReadUntil
    tasks: GroupTasks
    patience: float
    """How many seconds an offset may stay the same while records wait."""
    late_seconds: float
    """If the commits of a group are known only up to so many seconds ago, its lag is unknown."""
    reads_uncommitted: bool = False
    """Whether the group has proven that it reads records of open transactions."""


class LagRow(NamedTuple):
    """A row of the table `lag`, without `cluster`. The descriptions of the columns explain the fields."""

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
    offset_status: str = UNKNOWN
    offset_status_since: float | None = None
    waits_since: float | None = None
    unmoved_since: float | None = None
    late_since: float | None = None
    slow_since: float | None = None
    catch_up_seconds: float | None = None
    rewound_from: int | None = None
    owner_since: float | None = None
    leader: int | None = None
    observed_at: float = 0.0
    known_until: float | None = None

    @property
    def is_unowned(self) -> bool:
        """Whether the partition belongs to a task that no member has as active. If it WAITS, one may have it."""
        return self.task_id is not None and self.member_id is None and self.offset_status != WAITS

    @property
    def is_unknown(self) -> bool:
        """Whether the lag is unknown. A group without a commit in an empty log has no lag, so this is false."""
        is_empty = self.committed_offset is None and self.log_end_offset is not None
        return self.lag is None and not (is_empty and self.log_end_offset == self.log_start_offset)


def group_tasks(group: Row, match_topics: MatchTopics) -> GroupTasks:
    """Return the tasks in a row of `groups`; none if the group is deleted or a group of another type has its id."""
    is_classic = group.get("protocol") == CLASSIC
    if group["deleted_at"] is not None or (group["group_type"] != _STREAMS and not is_classic):
        return NO_TASKS
    prefix, subtopologies = f"{group['group_id']}-", group["subtopologies"] or ()
    named, matched = dict[str, str](), dict[str, str]()
    stateful, repartition, content = set[str](), set[str](), set[TopicNode]()
    for one in subtopologies:
        subtopology_id, patterns = one["subtopology_id"], one["source_topic_regex"] or ()
        read, changelogs = (
            {topic["name"] for topic in one[name] or ()}
            for name in ("repartition_source_topics", "state_changelog_topics")
        )
        named |= dict.fromkeys((*one["source_topics"], *read), subtopology_id)
        matched |= {topic: subtopology_id for pattern in patterns for topic in match_topics(pattern)}
        stateful |= {subtopology_id} if changelogs or one.get("has_state") else set()
        repartition |= {name for name in read if name.startswith(prefix)}
        sources = {*one["source_topics"], *patterns}
        content |= {TopicNode(subtopology_id, name, is_internal=False) for name in sources}
        internal = (read | changelogs) - sources
        content |= {TopicNode(subtopology_id, name.removeprefix(prefix), is_internal=True) for name in internal}
    since = group["state_since"].timestamp() if group["state_since"] else None
    is_rebalancing = group["state"] in REBALANCING
    joined = (one.get("joined_at") for one in (group["members"] or () if stateful else ()))
    return GroupTasks(
        subtopology_of=matched | named if subtopologies else None,  # a name wins over a pattern that matches the topic
        owners=_owners(group["members"] or (), group["assignments"] or ()),
        rebalancing_since=(since or 0.0) if is_rebalancing else None,
        has_members=bool(group["member_count"]),
        stateful=frozenset(stateful),
        stable_since=settled_at.timestamp() if (settled_at := _settled_at(group)) else None,
        source_partition=group.get("source_partition"),
        content=frozenset() if is_classic else frozenset(content),  # without changelogs it proves no successor
        is_ready=group["state"] != NOT_READY,
        members_since=members_since.timestamp() if (members_since := group.get("members_since")) else None,
        joined=[at.timestamp() for at in joined if at],
        repartition=frozenset(repartition),
        is_whole=not is_classic or _is_whole(group),
        knows_owners=not (is_classic and (group["tasks_moving"] or group["undecoded_members"])),
    )


def _settled_at(group: Row) -> datetime | None:
    """Return since when members have their tasks; None while tasks move. A classic record is written at that time."""
    if group.get("protocol") != CLASSIC:
        return group["state_since"] if group["state"] == STABLE else None
    return None if group["tasks_moving"] or not group["member_count"] else group["updated_at"]


def _is_whole(group: Row) -> bool:
    """Return whether the log has all topics that a classic group reads: the hash is that of the last whole topology."""
    return not group["undecoded_members"] and group["topology_hash"] == topology_hash(group["subtopologies"] or ())


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
