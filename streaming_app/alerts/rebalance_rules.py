"""The rules about rebalances: members that hold one up, and too many of them. Data and their conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice

from streaming_app.alerts.alert import CRITICAL, Finding
from streaming_app.alerts.rule import (
    HOUR,
    MINUTE,
    NOT_DEAD,
    EvaluationContext,
    GroupRule,
    Threshold,
    Thresholds,
    format_time,
    latest,
    since_or_fallback,
    to_iso,
)
from streaming_app.groups.events import OF_MEMBERS, split_causes
from streaming_app.groups.snapshot import (
    NOT_REVOKING,
    REBALANCING,
    GroupSnapshot,
    UnsettledMember,
    awaited_members,
    describe_obligation,
    member_details,
)
from streaming_app.health.history import Assignment, GroupHistory
from streaming_app.health.interruptions import joins_and_members, short_stays
from streaming_app.text import and_more, first_of

_DEFAULT_REBALANCE_TIMEOUT_MS = 300_000  # max.poll.interval.ms of Kafka Streams, which it sends as rebalance timeout
_MEMBERS_IN_SUMMARY = 3  # the details name up to 20
_PLACES_IN_SUMMARY, _PLACES_IN_DETAILS = 3, 20
_FEW_JOINS = 10  # what a handful of members does in a few deployments is no storm, however few they are


def _stuck(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    if group.state == "Assigning":
        return _not_assigned(group, context)
    longest = timedelta(seconds=thresholds["longest_timeout"])
    stuck = [(since, member) for since, member in _late_members(group, longest, context.now) if since <= context.now]
    if not stuck:
        return None
    stuck.sort()
    since = stuck[0][0]
    members = [_describe_member(member) for _, member in islice(stuck, _MEMBERS_IN_SUMMARY)]
    described = first_of(members, _MEMBERS_IN_SUMMARY, len(stuck), separator="; ")
    summary = f"{group.group_id} does not complete a rebalance: {described}"
    details = {
        "state": group.state,
        "unsettled_members": group.unsettled_count,
        "members": [member_details(member) for _, member in stuck],
    }
    return Finding(since, summary, details)


def _not_assigned(group: GroupSnapshot, context: EvaluationContext) -> Finding | None:
    started_at = since_or_fallback(latest(group.state_since, group.assigned_at), group, context.now)
    since = started_at + timedelta(milliseconds=_DEFAULT_REBALANCE_TIMEOUT_MS)
    if context.now < since:
        return None
    return Finding(
        since,
        f"{group.group_id} has been stuck in Assigning since {format_time(started_at)}: group epoch "
        f"{group.group_epoch} has no assignment yet; the latest one has epoch {group.assignment_epoch}",
        {"state": group.state, "members": group.member_count},
    )


def _late_members(
    group: GroupSnapshot, longest: timedelta, now: datetime
) -> Iterator[tuple[datetime, UnsettledMember]]:
    """Yield each member that the group waits for, with the time at which it is late."""
    for member in awaited_members(group):
        # A member that is to revoke tasks got its own record for that; another one is late from the assignment on.
        asked_at = None if member.state == NOT_REVOKING else group.assigned_at
        started_at = latest(member.updated_at, asked_at) or since_or_fallback(group.state_since, group, now)
        timeout = timedelta(milliseconds=member.rebalance_timeout_ms or _DEFAULT_REBALANCE_TIMEOUT_MS)
        yield started_at + min(timeout, longest), member


def _describe_member(member: UnsettledMember) -> str:
    """Return who the member is, where it runs, and what it has not done since when."""
    since = f" since {format_time(member.updated_at)}" if member.updated_at else ""
    where = f"{member.client_host or 'unknown host'}, process {member.process_id}"
    return f"{member.client_id or member.member_id} ({where}) {describe_obligation(member)}{since}"


def _storm(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    return _unexplained(group, thresholds, context) or _flapping(group, thresholds, context)


def _unexplained(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    """Find many assignments that no member caused that joined or left."""
    assignments, earliest = _history(group, context).assignments, context.now - timedelta(seconds=thresholds["window"])
    if len(assignments) < thresholds["count"]:
        return None
    recent = [one for one in assignments if one.at > earliest and _is_unexplained(one)]
    if len(recent) < thresholds["count"]:
        return None
    causes = Counter(cause for one in recent for cause in split_causes(one.cause))
    named = ", ".join(f"{cause} {number}" for cause, number in sorted(causes.items()))
    return Finding(
        recent[0].at,
        f"{group.group_id} got {len(recent):,} new assignments in {thresholds['window'] / MINUTE:g} minutes that no "
        f"member caused: {named}",
        {
            "assignments": len(recent),
            "causes": dict(causes),
            "first": to_iso(recent[0].at),
            "newest": to_iso(recent[-1].at),
            "members": group.member_count,
        },
    )


def _is_unexplained(assignment: Assignment) -> bool:
    causes = split_causes(assignment.cause)  # without any, it was written by an older release
    return bool(causes) and not causes & OF_MEMBERS


def _flapping(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    """Find members that join and leave again and again, and have not stopped."""
    changes = _history(group, context).members
    quiet, now = timedelta(seconds=thresholds["quiet"]), context.now
    newest_leave = next((change.at for change in reversed(changes) if not change.joined), None)
    if newest_leave is None or now - newest_leave > quiet:
        return None
    since = now - timedelta(seconds=thresholds["flapping_window"])
    stays = short_stays(changes, since, timedelta(seconds=thresholds["uptime"]))
    places = {
        place: one.number
        for place, one in stays.items()
        if one.number >= thresholds["short_stays"] and now - one.newest <= quiet
    }
    if places:
        what, details = _flapping_places(places)
    else:
        joins, largest = joins_and_members(changes, since, group.member_count)
        if joins < max(_FEW_JOINS, thresholds["joins_per_member"] * largest):
            return None
        what, details = f"{joins:,} members joined, and it never had more than {largest:,}", {"joins": joins}
    first = next(change for change in changes if change.at >= since)
    return Finding(
        first.at,
        f"{group.group_id} is assigned again and again: {what}, in {thresholds['flapping_window'] / MINUTE:g} minutes",
        {**details, "members": group.member_count, "newest": to_iso(changes[-1].at)},
    )


def _flapping_places(places: Mapping[str, int]) -> tuple[str, dict[str, object]]:
    worst = sorted(places, key=lambda place: (-places[place], place))
    named = ", ".join(f"{place} ({places[place]} times)" for place in worst[:_PLACES_IN_SUMMARY])
    more = and_more(len(worst) - _PLACES_IN_SUMMARY)
    what = f"members at {named}{more and f'{more} places'} joined and left"
    return what, {"places": {place: places[place] for place in worst[:_PLACES_IN_DETAILS]}}


def _history(group: GroupSnapshot, context: EvaluationContext) -> GroupHistory:
    return context.histories[group.group_id]


_MEMBERS = (
    "SELECT member_id, client_id, client_host, process_id, member_state, member_epoch, updated_at,\n"
    "  rebalance_timeout_ms\n"
    "FROM members WHERE group_id = 'GROUP_ID' ORDER BY member_state = 'STABLE', updated_at"
)

REBALANCE_RULES = (
    GroupRule(
        name="StreamsGroupRebalanceStuck",
        find=_stuck,
        severity=CRITICAL,
        for_seconds=MINUTE,
        thresholds={
            "longest_timeout": Threshold(15 * MINUTE, "the longest rebalance timeout that is waited for", seconds=True)
        },
        states=frozenset(REBALANCING),
        meaning=(
            "A member does not do its part in a rebalance: it has written no record for longer than its rebalance "
            "timeout, which is `max.poll.interval.ms` of Kafka Streams (5 minutes by default), or for 15 minutes if "
            "that is longer. The alert names it, its host and process, and the tasks that it holds up, which nobody "
            "processes. By then the broker should have removed a member that does not revoke its tasks; the extra "
            "minute is for that. Each member is timed by its own records: in a rolling restart the group as a whole "
            "may rebalance for much longer. In the state Assigning, the broker has made no assignment for 5 minutes."
        ),
        queries={
            "Which members have not finished, and where do they run?": _MEMBERS,
            "Which tasks have not reached their target?": (
                "SELECT member_id, role, subtopology_id, partition, current, target, pending_revocation\n"
                "FROM assignments WHERE group_id = 'GROUP_ID' AND (current <> target OR pending_revocation)\n"
                "ORDER BY subtopology_id, partition, role"
            ),
        },
        steps=(
            "It has not revoked tasks (`UNREVOKED_TASKS`): take a thread dump on its host. Usually the thread is in "
            "one long `process()` call, in a blocked commit, or closing a large state store. Restart the instance if "
            "it does not recover.",
            "It left temporarily (epoch -2) and still owns tasks: a static member keeps them until "
            "`session.timeout.ms` expires. Start it again.",
            "It has not taken the newest assignment, or waits although nobody holds its tasks: the coordinator should "
            "have removed a member that sends no heartbeats. Search the log of the group coordinator.",
            "The group is `Assigning`: the broker has not computed an assignment. Search the log of the group "
            "coordinator for errors of the assignor, and check whether `__consumer_offsets` is below "
            "`min.insync.replicas`.",
        ),
    ),
    GroupRule(
        name="StreamsGroupRebalanceStorm",
        find=_storm,
        for_seconds=None,
        thresholds={
            "count": Threshold(10, "new assignments within the window that no member caused"),
            "window": Threshold(10 * MINUTE, "the time over which they are counted", seconds=True),
            "short_stays": Threshold(4, "how often members of one place joined and left, one after the other"),
            "joins_per_member": Threshold(5, "how many members joined, for each that the group has"),
            "uptime": Threshold(10 * MINUTE, "a member that stays for longer does not flap", seconds=True),
            "quiet": Threshold(10 * MINUTE, "without joins or leaves for so long, it is over", seconds=True),
            "flapping_window": Threshold(HOUR, "the time over which joins and leaves are counted", seconds=True),
        },
        states=NOT_DEAD,
        requires_history=True,
        hidden_by=frozenset({"StreamsGroupUnavailable"}),
        meaning=(
            "The group is assigned anew again and again. Each assignment may move tasks, and a task that moves is not "
            "processed while its state is restored. Either members flap: those at one place, which is a static "
            "instance or a host, joined and left again within ten minutes, four times in an hour, or members as a "
            "whole joined five times as often as the group has any. Or there were ten assignments in ten minutes that "
            "no member caused. A rolling restart is no storm, however large: each member leaves once, and its "
            "successor stays."
        ),
        queries={
            "When, and why?": (
                "SELECT at, kind, cause, member_id, client_host, old, new FROM group_events e\n"
                "WHERE group_id = 'GROUP_ID'\n"
                "  AND kind IN ('assignment_epoch', 'member_joined', 'member_left', 'topology_epoch')\n"
                "ORDER BY at DESC, e.offset DESC LIMIT 60"
            ),
            "Which members join and leave most often?": (
                "SELECT coalesce(instance_id, client_host) AS place, kind, count(*) AS times, max(at) AS newest\n"
                "FROM group_events WHERE group_id = 'GROUP_ID' AND kind IN ('member_joined', 'member_left')\n"
                "GROUP BY coalesce(instance_id, client_host), kind ORDER BY times DESC LIMIT 20"
            ),
        },
        steps=(
            "Members at one place: they crash, or exceed `session.timeout.ms` or `max.poll.interval.ms`. Check this "
            "instance for restarts, out-of-memory kills and long pauses, and stop it until it is repaired: the others "
            "then process without interruption.",
            "All members: an autoscaler that cannot decide, or a network that comes and goes.",
            "No member caused it: topics change (`topics_changed`), or a group config (`config_changed`, "
            "`kafka-configs.sh --entity-type groups`). `unknown`: search the log of the group coordinator.",
        ),
    ),
)
"""In the order of the runbook."""
