"""The rules about whether a group processes at all: not ready, unavailable, empty. Data and their conditions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

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
    since_or_fallback,
    to_iso,
)
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.history import EMPTY, NO_HISTORY, GroupHistory, StateChange, empty_spells
from streaming_app.health.interruptions import Outage, current_outage
from streaming_app.text import count, format_duration

_OBSERVED_AT_LEAST = timedelta(days=1)  # before it is known whether a group is empty regularly
_OFTEN_EMPTY = 0.25  # of the time
_MANY = 2  # times `starts`: then the share does not matter
_PATIENCE = 1.25  # times the longest spell of a group that is often empty
_TAKEOVER = timedelta(hours=1)  # between the start of a group and the end of one of another name that it replaces
_BRIDGED = timedelta(minutes=15)  # a restart; the run of the application goes on
_COLOURS = ("blue", "green", "old", "new", "next", "canary")
_NAMES_KEPT = 10_000


def _not_ready(group: GroupSnapshot, _thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    reason = group.not_ready_reason or "the reason is not in the group's records"
    details = {"reason": reason, "topology_epoch": group.topology_epoch, "members": group.member_count}
    return Finding(
        since_or_fallback(group.state_since, group, context.now),
        f"{group.group_id} is NotReady and processes nothing: {reason}",
        {name: value for name, value in details.items() if value is not None},
    )


def _unavailable(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    history = context.histories[group.group_id]
    window, uptime, gap = (timedelta(seconds=thresholds[name]) for name in ("window", "uptime", "gap"))
    recent = [
        change for change in history.states if change.at >= context.now - window
    ]  # of older ones some are missing
    if sum(change.old == EMPTY for change in recent) < thresholds["starts"]:
        return None
    outage = current_outage(recent, context.now, uptime=uptime, gap=gap)
    if outage is None or outage.starts < thresholds["starts"]:
        return None
    if outage.processed_share * 100 >= thresholds["share"] and outage.starts < _MANY * thresholds["starts"]:
        return None
    processed, lasted = (_rounded(duration) for duration in (outage.processed, outage.lasted))
    in_between = ", ".join(f"{state} {_rounded(down)}" for state, down in sorted(outage.down.items()))
    reason = _newest_reason(history, outage)
    summary = (
        f"{group.group_id} does not stay up: since {format_time(outage.since)} it was started "
        f"{count(outage.starts, 'time')} and processed {processed} of {lasted}; in between it was {in_between}"
    )
    details: dict[str, object] = {
        "starts": outage.starts,
        "processed_seconds": round(outage.processed.total_seconds()),
        "seconds": round(outage.lasted.total_seconds()),
        "newest_start": to_iso(outage.since + outage.lasted),
        "down_seconds": {state: round(down.total_seconds()) for state, down in outage.down.items()},
    }
    if reason:
        details["reason"] = reason
        summary += f" ({reason})"
    return Finding(outage.since, summary, details)


def _rounded(duration: timedelta) -> str:
    return format_duration(round(duration.total_seconds()))


def _newest_reason(history: GroupHistory, outage: Outage) -> str | None:
    return next((reason.text for reason in reversed(history.reasons) if reason.at >= outage.since), None)


def _empty(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    since, first_seen = group.state_since, group.first_seen_at
    if since is None or first_seen is None or since <= first_seen:
        return None  # as far as its records show, it never had a member
    history = context.histories.get(group.group_id, NO_HISTORY)
    changes, gave_up = history.states, _gave_up(history, since)
    ran = _ran_for(changes, since, first_seen)
    patience = _usual_patience(changes, since, first_seen)
    if ran < timedelta(seconds=thresholds["established"]) and not gave_up:
        patience = max(patience, timedelta(seconds=thresholds["short_run"]))
    if context.now - since < patience or _is_replaced(group, since, context):
        return None
    after = f", after it had members for {_rounded(ran)}" if ran < _OBSERVED_AT_LEAST else ""
    details = {}
    if gave_up:
        after, details = f": its members gave up, as it was NotReady ({gave_up})", {"reason": gave_up}
    return Finding(since, f"{group.group_id} has had no members since {format_time(since)}{after}", details)


def _gave_up(history: GroupHistory, since: datetime) -> str | None:
    """Return why the group was NotReady when its last members left; None if it was not."""
    if not any(change.at == since and change.old == "NotReady" for change in reversed(history.states)):
        return None
    return next((reason.text for reason in reversed(history.reasons) if reason.at <= since), "unknown reason")


def _ran_for(changes: Sequence[StateChange], since: datetime, first_seen: datetime) -> timedelta:
    """Return how long the group had members before it became empty, restarts included."""
    started = first_seen
    for emptied, filled in empty_spells(changes):
        if filled <= since and filled - emptied > _BRIDGED:
            started = filled
    return since - started


def _usual_patience(changes: Sequence[StateChange], since: datetime, first_seen: datetime) -> timedelta:
    """Return how long a group that is often empty is usually empty, and a quarter more; 0 for any other group."""
    spells = [filled - emptied for emptied, filled in empty_spells(changes) if filled <= since]
    observed = since - max(first_seen, changes[0].at) if changes else timedelta(0)
    if observed < _OBSERVED_AT_LEAST or sum(spells, timedelta(0)) < observed * _OFTEN_EMPTY:
        return timedelta(0)
    return max(spells) * _PATIENCE


def _is_replaced(group: GroupSnapshot, since: datetime, context: EvaluationContext) -> bool:
    """Tell whether the application runs under another id now: a newer group reads the same topics.

    It started when this one ended, or its id differs only in the version.
    """
    name, newer_than = _base_name(group.group_id), (group.first_seen_at or since) + _TAKEOVER
    for created_at, other in context.survey.new_groups.get(group.sources_hash or "", ()):
        if created_at < newer_than:
            return False
        if created_at >= since - _TAKEOVER or _base_name(other) == name:
            return True
    return False


@lru_cache(_NAMES_KEPT)
def _base_name(group_id: str) -> str:
    """Return an id without versions, dates and colours at its end: `payments` for `payments-v2-blue`.

    From the end, each place is looked at once: a tenant chooses the id, so no pattern that backtracks may meet it.
    """
    length = len(group_id)
    is_suffix = [False] * length + [True]  # from this place on there are only such parts
    reaches = [False] * length + [True]  # a number that goes on here may end where such parts begin
    for start in range(length - 1, -1, -1):
        after = start + (group_id[start] in "-_.")
        number = after + group_id.startswith("v", after)
        is_suffix[start] = (number < length and group_id[number].isdecimal() and reaches[number + 1]) or any(
            group_id.startswith(word, after) and is_suffix[after + len(word)] for word in _COLOURS
        )
        goes_on = group_id[start].isalnum() or group_id[start] in "_."
        reaches[start] = is_suffix[start] or (goes_on and reaches[start + 1])
    return group_id[: is_suffix.index(True)] or group_id


_MEMBERS_LEFT = (
    "SELECT at, kind, member_id, client_host, old FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('member_joined', 'member_left')\n"
    "ORDER BY at DESC, e.offset DESC LIMIT 20"
)
_STATE_HISTORY = (
    "SELECT at, kind, old, new FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('state', 'not_ready_reason') ORDER BY at DESC, e.offset DESC LIMIT 40"
)
_REFUSED_TOPOLOGY = (
    "It was deployed with another topology: Kafka 4.4 refuses a changed topology, even for an empty group. Its members "
    "get `INVALID_REQUEST` (`Topology updates are not supported yet`) before they join, so the group's records do not "
    "show them. Deploy the former version again, or give the new one another `application.id`, or delete the group "
    "first. `streams-groups diff --group GROUP_ID` shows which earlier deployments changed the topology."
)

GROUP_RULES = (
    GroupRule(
        name="StreamsGroupNotReady",
        find=_not_ready,
        severity=CRITICAL,
        for_seconds=5 * MINUTE,
        states=frozenset({"NotReady"}),
        meaning=(
            "The broker assigns no tasks to the group, because topics that its topology needs are missing or have "
            "partition counts that do not match. The group processes nothing until that is fixed. A new application is "
            "NotReady for a moment while the broker creates its internal topics, hence the five minutes. Clients that "
            "give up and are started again make StreamsGroupUnavailable fire instead."
        ),
        queries={
            "Why, and since when?": (
                "SELECT state, state_since, not_ready_reason, topology_epoch, validated_topology_epoch\n"
                "FROM groups WHERE group_id = 'GROUP_ID'"
            ),
            "Which topics does the topology need?": (
                "SELECT subtopology_id, source_topics, source_topic_regex, repartition_source_topics,\n"
                "  state_changelog_topics, copartition_groups\n"
                "FROM subtopologies WHERE group_id = 'GROUP_ID' ORDER BY subtopology_id"
            ),
        },
        steps=(
            "`MISSING_SOURCE_TOPICS`: create the named topics, or correct the topic names in the application. Members "
            "that are still running find new topics within a heartbeat or two. But Kafka's own client gives up after "
            "about two heartbeats: its threads end with `MissingSourceTopicException`, and an application that nothing "
            "starts again must be restarted once the topics exist.",
            "`MISSING_INTERNAL_TOPICS`: the broker could not create them. Search the log of the group coordinator for "
            "the error: a missing `Create` ACL of the application, a replication factor larger than the number of "
            "brokers, or a create-topic policy.",
            "`INCORRECTLY_PARTITIONED_TOPICS`: give the named topics the same number of partitions. Partitions can be "
            "added, but not removed. If an internal topic has the wrong number, reset the application "
            "(`kafka-streams-application-reset.sh`). Kafka's own client gives up at once: restart the application.",
            "`TOPICS_NOT_VALIDATED`: the job is not authorized to see the topics, and the group's records contain no "
            "more. Grant the job's principal `Describe` on the topics, or read the status in the application's log.",
        ),
    ),
    GroupRule(
        name="StreamsGroupUnavailable",
        find=_unavailable,
        for_seconds=10 * MINUTE,
        thresholds={
            "starts": Threshold(3, "how often the application was started since the group last stayed up"),
            "share": Threshold(50, "it processed less than this percentage of the time, or was started twice as often"),
            "window": Threshold(HOUR, "the time over which it is judged", seconds=True),
            "uptime": Threshold(
                10 * MINUTE, "how long it must process without interruption to be up again", seconds=True
            ),
            "gap": Threshold(10 * MINUTE, "after being empty for longer, nothing starts it any more", seconds=True),
        },
        states=NOT_DEAD,
        requires_history=True,
        meaning=(
            "The application is started again and again, and does not stay up: it crashes, or gives up because its "
            "topics are missing, and Kubernetes or systemd starts it after a pause. Each spell of Empty or NotReady is "
            "too short for an alert of its own; together they have lasted for ten minutes, and the group processed "
            "less than half of the time, or was started six times. A job that runs for a few minutes out of every ten "
            "looks the same: add an entry with `enabled: false` under `overrides` for it."
        ),
        queries={
            "When was it up, and why not?": _STATE_HISTORY,
            "Which members joined and left?": _MEMBERS_LEFT,
        },
        steps=(
            "The alert has a reason in parentheses: the group is NotReady each time it is started, see "
            "StreamsGroupNotReady.",
            "It processes for a while each time: search the application's log for the exception that stopped the "
            "stream threads, and its host or pod for an out-of-memory kill. Often it is one record that cannot be "
            "processed: the committed offsets then stay the same.",
            _REFUSED_TOPOLOGY,
        ),
    ),
    GroupRule(
        name="StreamsGroupEmpty",
        find=_empty,
        for_seconds=15 * MINUTE,
        thresholds={
            "established": Threshold(HOUR, "the application had run for at least this long", seconds=True),
            "short_run": Threshold(
                25 * HOUR, "how long one that had not may be away: until its next run", seconds=True
            ),
        },
        states=frozenset({EMPTY}),
        meaning=(
            "The group had members and now has none: nothing is processed, and its lag grows. Fifteen minutes are "
            "longer than a deployment takes. An application that only runs from time to time, such as a nightly job, "
            "becomes empty as expected: one that had run for less than an hour has 25 hours to come back, and one that "
            "was empty for a quarter of the last 15 days has as long as it usually needs, and a quarter more. No "
            "alert fires either if a new group reads the same topics: the application was deployed under another id. "
            "The alert resolves when a member joins, or when the group is deleted."
        ),
        queries={
            "Which members left last, and when?": _MEMBERS_LEFT,
            "Is it usual that it is empty?": _STATE_HISTORY,
        },
        steps=(
            "Check whether the application should run: was it scaled to zero or undeployed? If it is no longer needed, "
            "delete the group (`kafka-streams-groups.sh --delete --group GROUP_ID`) or let it expire.",
            "All members left within seconds: they have one common cause, such as a bad deployment, a lost host, "
            "expired credentials or a network partition.",
            _REFUSED_TOPOLOGY,
            "The members left one after the other: each instance failed by itself, often at the same record. Search "
            "the application's log for the exception that stopped the stream threads.",
        ),
    ),
)
"""In the order of the runbook."""
