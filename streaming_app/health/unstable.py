"""Who keeps a group from settling: members that hold a rebalance up, that come and go, and needless assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
from streaming_app.health.interruptions import one_after_the_other, stays_of
from streaming_app.text import first_of, utc

_DEFAULT_REBALANCE_TIMEOUT_MS = 300_000  # max.poll.interval.ms of Kafka Streams, which it sends as rebalance timeout
_ASSIGNMENTS, _ASSIGNED_WITHIN = 10, timedelta(minutes=10)
_QUIET_CAUSES = {*OF_MEMBERS, NO_TASK_MOVED}
_SHORT, _TIMES, _WITHIN = timedelta(minutes=20), 3, timedelta(minutes=75)
_QUIET = timedelta(minutes=25)
_AFTER = timedelta(microseconds=1)  # then something is outside of the time over which it is counted
_SESSION = timedelta(minutes=1)  # a member that is killed leaves only when its session ends: the next one is there
_IN_TEXT, _PLACES = 3, 20


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
    return next((found for kind in (_assigned, _flapping) if (found := kind(activity, now))), None)


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
    """Find members that leave soon after they joined and are followed by others, again and again, and still do."""
    newest = next((change.at for change in reversed(activity.members) if not change.joined), None)
    if newest is None or now - newest >= _QUIET:
        return None
    stays = stays_of(activity.members, now - _WITHIN, _SHORT)
    number = one_after_the_other([(one.until - _SESSION, one.since) for one in stays])
    if number < _TIMES:
        return None
    counts = Counter(one.place for one in stays)
    places = {place: many for place, many in counts.most_common(_PLACES) if many > 1}
    where = f": {first_of([f'{many} at {place}' for place, many in places.items()], _IN_TEXT)}" if places else ""
    text = f"{number} times one after the other, members left after less than {_minutes(_SHORT)}{where}"
    ends_at = min(newest + _QUIET, min(one.until for one in stays) + _WITHIN + _AFTER)
    return Restless(min(one.since for one in stays), newest, text, {"stays": number, "places": places}, ends_at)


def _minutes(time: timedelta) -> str:
    return f"{time.total_seconds() / 60:g} minutes"
