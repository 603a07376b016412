"""What a fold takes and gives: a record of the log, an event of the history, and a group with its times. Only data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.core.group import Group


class LogRecord(NamedTuple):
    """A decoded record of a group; `timestamp` is None where the log has none."""

    offset: int
    timestamp: datetime | None
    record_type: int
    key: dict[str, Any]
    value: dict[str, Any] | None


class Event(NamedTuple):
    """A row of `group_events`, without the columns that the group gives."""

    at: datetime | None
    kind: str
    member_id: str | None
    old: str | None
    new: str | None
    offset: int


class Change(NamedTuple):
    """What the newest operation changed: enough to take its event back and to tell the operation anew.

    `since` is since when the old state, or description status, had held.
    """

    what: str
    member_id: str | None
    old: str | None
    offset: int
    since: datetime | None = None


@dataclass(slots=True)
class Life:
    """A group with its times: everything that a row of `groups` holds."""

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
    unsolicited_pushes: int = 0
    last_unsolicited_push_at: datetime | None = None
    last_changes: list[Change] = field(default_factory=list)
