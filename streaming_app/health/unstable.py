"""Who keeps a group from settling: members that hold a rebalance up, that come and go, and needless assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.groups.events import NO_TASK_MOVED, OF_MEMBERS, split_causes
from streaming_app.groups.snapshot import (
    NOT_REVOKING,
    REBALANCING,
    GroupSnapshot,
    UnsettledMember,
    awaited_members,
    describe_obligation,
    member_details,
)
from streaming_app.health.activity import Activity
from streaming_app.health.history import MemberChange
from streaming_app.health.interruptions import joins_and_members, one_after_the_other, stays_of
from streaming_app.text import and_more, utc

_DEFAULT_REBALANCE_TIMEOUT_MS = 300_000  # max.poll.interval.ms of Kafka Streams, which it sends as rebalance timeout
_ASSIGNMENTS, _ASSIGNED_WITHIN = 10, timedelta(minutes=10)
_QUIET_CAUSES = {*OF_MEMBERS, NO_TASK_MOVED}
_SHORT, _SHORT_STAYS = timedelta(minutes=10), 4
_JOINS_PER_MEMBER, _FEW_JOINS = 5, 10
_WITHIN, _QUIET = timedelta(hours=1), timedelta(minutes=10)
_LONGER, _LONGER_STAYS, _LONGER_WITHIN = timedelta(minutes=20), 3, timedelta(minutes=75)
_LONGER_QUIET = timedelta(minutes=25)
_AFTER = timedelta(microseconds=1)  # then something is outside of the time over which it is counted
_SESSION = timedelta(minutes=1)  # a member that is killed leaves only when its session ends: the next one is there
_PLACES_IN_TEXT, _PLACES_IN_DETAILS = 3, 20


class LateMember(NamedTuple):
    """A member that the group waits for, since when it is late, and who it is."""

    since: datetime
    text: str
    details: Mapping[str, Any]


class Restless(NamedTuple):
    """What does not settle."""

    since: datetime
    due: datetime
    """When it became that."""
    text: str
    details: Mapping[str, Any]
    ends_at: datetime
    """When it is over if nothing more happens."""


def not_assigned_since(group: GroupSnapshot, now: datetime) -> datetime | None:
    """Return since when the broker has made no assignment; None if it has."""
    if group.state != "Assigning":
        return None
    times = [time for time in (group.state_since, group.assigned_at) if time]
    return min(max(times), now) if times else None


def late_members(group: GroupSnapshot, longest: timedelta, now: datetime) -> list[LateMember]:
    """Return the members that a rebalance waits for, that which is late first; some may be late only in the future."""
    if group.state not in REBALANCING:
        return []
    found = []
    for member in awaited_members(group):
        # A member that is to revoke tasks got its own record for that; another one is late from the assignment on.
        asked_at = None if member.state == NOT_REVOKING else group.assigned_at
        times = [time for time in (member.updated_at, asked_at) if time]
        started_at = max(times) if times else group.state_since or now
        timeout = timedelta(milliseconds=member.rebalance_timeout_ms or _DEFAULT_REBALANCE_TIMEOUT_MS)
        found.append(LateMember(started_at + min(timeout, longest), _describe(member), member_details(member)))
    return sorted(found, key=lambda one: (one.since, one.text))


def _describe(member: UnsettledMember) -> str:
    """Return who the member is, where it runs, and what it has not done since when."""
    since = f" since {utc(member.updated_at)}" if member.updated_at else ""
    where = f"{member.client_host or 'unknown host'}, process {member.process_id}"
    return f"{member.client_id or member.member_id} ({where}) {describe_obligation(member)}{since}"


def restless(activity: Activity, now: datetime) -> Restless | None:
    """Return what keeps the group from settling."""
    return next((found for kind in (_assigned, _flapping, _ends_soon) if (found := kind(activity, now))), None)


def _assigned(activity: Activity, now: datetime) -> Restless | None:
    """Find many assignments that move tasks, and that no member caused that joined or left."""
    recent = [
        one
        for one in activity.assignments
        if one.at > now - _ASSIGNED_WITHIN and (causes := split_causes(one.cause)) and not causes & _QUIET_CAUSES
    ]
    if len(recent) < _ASSIGNMENTS:
        return None
    found = Counter(cause for one in recent for cause in split_causes(one.cause))
    named = ", ".join(f"{cause} {number}" for cause, number in sorted(found.items()))
    text = f"{len(recent):,} new assignments in {_minutes(_ASSIGNED_WITHIN)} that no member caused: {named}"
    details = {"assignments": len(recent), "causes": dict(found)}
    return Restless(
        recent[0].at, recent[_ASSIGNMENTS - 1].at, text, details, recent[-_ASSIGNMENTS].at + _ASSIGNED_WITHIN
    )


def _flapping(activity: Activity, now: datetime) -> Restless | None:
    """Find members that join and leave again and again, and have not stopped."""
    changes = activity.members
    newest = _newest_leave(changes, now, _QUIET)
    if newest is None:
        return None
    since = now - _WITHIN
    places = {
        place: number
        for place, stays in stays_of(changes, since, _SHORT).items()
        if (number := one_after_the_other(stays)) >= _SHORT_STAYS and now - max(stays)[0] < _QUIET
    }
    details: dict[str, Any]
    if places:
        worst = sorted(places, key=lambda place: (-places[place], place))
        named = ", ".join(f"{place} ({places[place]} times)" for place in worst[:_PLACES_IN_TEXT])
        more = and_more(len(worst) - _PLACES_IN_TEXT)
        what = f"members at {named}{more and f'{more} places'} joined and left"
        details = {"places": {place: places[place] for place in worst[:_PLACES_IN_DETAILS]}}
    else:
        joins, largest = joins_and_members(changes, since, activity.group.member_count)
        if joins < max(_FEW_JOINS, _JOINS_PER_MEMBER * largest):
            return None
        what, details = f"{joins:,} members joined, and it never had more than {largest:,}", {"joins": joins}
    first = next(change.at for change in changes if change.at >= since)
    return Restless(
        first, newest, f"assigned again and again: {what}, in {_minutes(_WITHIN)}", details, newest + _QUIET
    )


def _ends_soon(activity: Activity, now: datetime) -> Restless | None:
    """Find members that each stay for some minutes and are followed by others, such as one that runs out of memory."""
    newest = _newest_leave(activity.members, now, _LONGER_QUIET)
    if newest is None:
        return None
    stays = [one for of_place in stays_of(activity.members, now - _LONGER_WITHIN, _LONGER).values() for one in of_place]
    number = one_after_the_other([(end - _SESSION, start) for end, start in stays])
    if number < _LONGER_STAYS:
        return None
    first = min(start for _, start in stays)
    text = f"{number} times one after the other, members left after less than {_minutes(_LONGER)}"
    oldest = min(end for end, _ in stays)
    ends_at = min(newest + _LONGER_QUIET, oldest + _LONGER_WITHIN + _AFTER)
    return Restless(first, newest, text, {"stays": number}, ends_at)


def _newest_leave(changes: Sequence[MemberChange], now: datetime, quiet: timedelta) -> datetime | None:
    at = next((change.at for change in reversed(changes) if not change.joined), None)
    return at if at is not None and now - at < quiet else None


def _minutes(time: timedelta) -> str:
    return f"{time.total_seconds() / 60:g} minutes"
