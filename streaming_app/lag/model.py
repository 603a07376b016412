"""What a pass takes in, and what it says: data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

TopicPartition = tuple[str, int]


class Commit(NamedTuple):
    """The newest committed offset of a group for a partition; `offset` is None if a task of the group has none."""

    offset: int | None
    topic_id: str | None = None
    """Id of the topic at that time, as Kafka prints ids; None if it is not known."""
    leader_epoch: int | None = None
    committed_at: float | None = None
    """By the broker's clock; None if only OffsetFetch returned the offset."""


class LogEnds(NamedTuple):
    """The ends of the log of one partition; what the brokers did not say is None."""

    end: int | None = None
    """The high watermark: the offset after the newest record that consumers may read."""
    start: int | None = None
    stable: int | None = None
    """The last stable offset: where the oldest open transaction begins, else the high watermark."""
    topic_id: str | None = None


NO_ENDS = LogEnds()


class Owner(NamedTuple):
    """The member that has a task as active."""

    member_id: str
    process_id: str | None
    client_host: str | None


NOBODY = Owner("", None, None)


@dataclass(frozen=True)
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


NO_TASKS = GroupTasks()


class LagRow(NamedTuple):
    """A row of the table `lag`, without `cluster`; its columns say what the fields mean. Times are seconds."""

    group_id: str
    topic: str
    partition: int
    subtopology_id: str | None
    task_id: str | None
    member_id: str | None
    process_id: str | None
    client_host: str | None
    committed_offset: int | None
    leader_epoch: int | None
    committed_at: float | None
    log_start_offset: int | None
    log_end_offset: int | None
    last_stable_offset: int | None
    lag: int | None
    lag_seconds: float | None
    lag_seconds_is_lower_bound: bool | None
    lost_offsets: int | None
    status: str
    status_since: float | None
    held_since: float | None
    behind_since: float | None
    catch_up_seconds: float | None
    commit_interval_seconds: float | None
    rewound_from: int | None
    observed_at: float

    @property
    def is_unowned(self) -> bool:
        """Whether it belongs to a task that no member has as active."""
        return self.task_id is not None and self.member_id is None
