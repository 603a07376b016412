"""The input and output of a fold: a log record, an event of the history, and a group with its times. Only data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.groups.group import Group


class LogRecord(NamedTuple):
    """A decoded record of a group; `timestamp` is None where the record has none."""

    offset: int
    timestamp: datetime | None
    record_type: int
    key: dict[str, Any]
    value: dict[str, Any] | None


class Event(NamedTuple):
    """A row of `group_events`, without the columns that are the same for the whole group."""

    at: datetime | None
    kind: str
    member_id: str | None
    old: str | None
    new: str | None
    offset: int
    cause: str | None = None
    """Of a new group epoch or assignment: why, see `groups.causes`."""
    client_host: str | None = None
    """Of a member that joined or left."""
    instance_id: str | None = None
    """The same."""


class TopologyVersion(NamedTuple):
    """A row of `topologies`, without the columns that are the same for the whole group."""

    topology_hash: str
    topology_epoch: int
    first_seen_at: datetime | None
    subtopologies: list[dict[str, Any]]
    offset: int


class Change(NamedTuple):
    """One change made by the newest operation: enough to retract its event and to emit the operation's events again.

    `since` is when the old state, or the old description status, was entered; None for other changes.
    """

    what: str
    member_id: str | None
    old: str | None
    offset: int
    since: datetime | None = None


@dataclass(slots=True)
class GroupState:
    """A group with its times: everything that a row of `groups` contains."""

    group: Group
    source_partition: int
    last_offset: int = -1
    first_seen_at: datetime | None = None
    updated_at: datetime | None = None
    deleted_at: datetime | None = None
    state: str | None = None
    state_since: datetime | None = None
    description_status: str | None = None
    description_since: datetime | None = None
    not_ready_reason: str | None = None
    topology_hash: str | None = None
    """Of the newest topology known under this group id; it stays when the group is deleted and created again."""
    unsolicited_pushes: int = 0
    last_unsolicited_push_at: datetime | None = None
    last_changes: list[Change] = field(default_factory=list)
