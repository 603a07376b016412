"""Members that join and leave again and again, from the member changes of a group.

Theory of operation
-------------------
In a rolling restart each member leaves once and is replaced by one that stays, whatever their number. What flaps leaves
soon after it joined, again and again. So what counts are short stays: from joining to leaving in less than `uptime`.

A process that crashes takes all of its threads with it, each a member of its own, and a new version that is rolled back
takes all instances with it, once. So of the short stays in one place only those count that follow one another: two that
overlap are one. A place is a static instance, or else a host: the address of a pod stays while its container crashes.

Where the place changes each time, as that of pods which an autoscaler creates and deletes, the group as a whole tells
it: more joins than a few deployments per member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.alerts.history import MemberChange


class Stays(NamedTuple):
    """Short stays in one place: how many followed one another, and when the newest ended."""

    number: int
    newest: datetime


def short_stays(changes: Sequence[MemberChange], since: datetime, uptime: timedelta) -> Mapping[str, Stays]:
    """Return by place the short stays that ended after `since`."""
    joined: dict[str, MemberChange] = {}
    stays: defaultdict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for change in changes:
        if change.joined:
            joined[change.member_id] = change
        elif (start := joined.pop(change.member_id, None)) and change.at >= since and change.at - start.at < uptime:
            stays[change.place].append((change.at, start.at))
    return {place: Stays(_one_after_the_other(ends), max(ends)[0]) for place, ends in stays.items()}


def _one_after_the_other(stays: list[tuple[datetime, datetime]]) -> int:
    """Return how many stays, as (end, start), can be chosen so that none overlap."""
    number, last_end = 0, None
    for end, start in sorted(stays):
        if last_end is None or start >= last_end:
            number, last_end = number + 1, end
    return number


def joins_and_members(changes: Sequence[MemberChange], since: datetime, members: int) -> tuple[int, int]:
    """Return how many members joined after `since`, and the most that the group had; it has `members` now."""
    largest, joins = members, 0
    for change in reversed(changes):
        if change.at < since:
            break
        members += -1 if change.joined else 1
        largest = max(largest, members)
        joins += change.joined
    return joins, max(largest, 1)
