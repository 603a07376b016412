"""Which groups come first where there is not room for all: those known the longest.

Theory of operation
-------------------
Everything that has a limit, such as series of metrics and notifications, is a place where a flood of groups could push
out others. A tenant chooses the ids of its groups and the text in them, but not when they were first seen. So the
oldest groups keep their places, and newcomers beyond the limits are counted.

A group whose creation the log does not prove was there before, and counts as old. Pure: callers pass the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.text import EPOCH

NEW_FOR = timedelta(days=1)


def is_newcomer(group: GroupSnapshot, now: datetime) -> bool:
    """Return whether a group is known for less than a day."""
    return group.first_seen_at is not None and now - group.first_seen_at < NEW_FOR


def age(group: GroupSnapshot) -> tuple[datetime, str]:
    """Return the key of the order in which groups come: the oldest first."""
    return group.first_seen_at or EPOCH, group.group_id


def select(groups: Iterable[GroupSnapshot], most: int) -> list[GroupSnapshot]:
    """Return so many of the groups at most: the oldest."""
    chosen = list(groups)
    return chosen if len(chosen) <= most else sorted(chosen, key=age)[:most]


def ranks(groups: Mapping[str, GroupSnapshot], group_ids: Iterable[str], now: datetime) -> dict[str, int]:
    """Return the place of each newcomer among these groups, from 1 on; older groups have none."""
    wanted = (groups[one] for one in group_ids if one in groups)
    new = sorted((group for group in wanted if is_newcomer(group, now)), key=age)
    return {group.group_id: place for place, group in enumerate(new, 1)}
