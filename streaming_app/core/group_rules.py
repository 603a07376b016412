"""The rules about a group's state: not ready, stuck, rebalancing too often, gone empty. Data and their conditions."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice

from streaming_app.core.alert import CRITICAL, Finding
from streaming_app.core.facts import REBALANCING, GroupFacts
from streaming_app.core.rule import MINUTE, GroupRule, Look, Threshold, Thresholds, clock, iso, known_since, later

ALIVE = frozenset({"Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Unknown"})
_DEFAULT_REBALANCE_TIMEOUT_MS = 300_000  # max.poll.interval.ms of Kafka Streams, which it sends as rebalance timeout
_NAMED = 3  # members that a summary names; the details name all


def _not_ready(group: GroupFacts, _thresholds: Thresholds, look: Look) -> Finding | None:
    reason = group.not_ready_reason or "the log does not tell why"
    details = {"reason": reason, "topology_epoch": group.topology_epoch, "members": group.member_count}
    return Finding(
        known_since(group.state_since, group, look.now),
        f"{group.group_id} is NotReady and processes nothing: {reason}",
        {name: value for name, value in details.items() if value is not None},
    )


def _stuck(group: GroupFacts, _thresholds: Thresholds, look: Look) -> Finding | None:
    timeout_ms = group.rebalance_timeout_ms or _DEFAULT_REBALANCE_TIMEOUT_MS
    began = known_since(later(group.state_since, group.assigned_at), group, look.now)
    since = began + timedelta(milliseconds=timeout_ms)
    if look.now < since:
        return None
    why = "no member says that it holds or awaits tasks"
    if group.not_revoking:
        why = f"does not give up its tasks: {_some(group.not_revoking)}"
    elif group.awaiting:
        why = f"waits for tasks that others hold: {_some(group.awaiting)}"
    elif group.state == "Assigning":
        why = f"group epoch {group.group_epoch} has no assignment yet; the newest is of {group.assignment_epoch}"
    details = {
        "state": group.state,
        "rebalance_timeout_ms": timeout_ms,
        "not_revoking": list(group.not_revoking),
        "awaiting": list(group.awaiting),
    }
    return Finding(since, f"{group.group_id} is stuck {group.state} since {clock(began)}: {why}", details)


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return ", ".join(islice(names, _NAMED)) + (f" and {more:,} more" if more > 0 else "")


def _storm(group: GroupFacts, thresholds: Thresholds, look: Look) -> Finding | None:
    times = look.rebalances.get(group.group_id)
    if not times:
        return None
    earliest = look.now - timedelta(seconds=thresholds["window"])
    recent = [time for time in times if time > earliest]
    if len(recent) < thresholds["count"]:
        return None
    return Finding(
        recent[0],
        f"{group.group_id} was assigned anew {len(recent):,} times in {thresholds['window'] / MINUTE:g} minutes",
        {"assignments": len(recent), "first": iso(recent[0]), "newest": iso(recent[-1]), "members": group.member_count},
    )


def _gone_empty(group: GroupFacts, _thresholds: Thresholds, _look: Look) -> Finding | None:
    if group.state_since is None or group.first_seen_at is None or group.state_since <= group.first_seen_at:
        return None  # as far as the log tells, it never had a member
    return Finding(group.state_since, f"{group.group_id} has no members any more since {clock(group.state_since)}")


_MEMBERS_LEFT = (
    "SELECT at, kind, member_id, old FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('member_joined', 'member_left')\n"
    "ORDER BY at DESC, e.offset DESC LIMIT 20"
)

GROUP_RULES = (
    GroupRule(
        name="StreamsGroupNotReady",
        find=_not_ready,
        severity=CRITICAL,
        grace=5 * MINUTE,
        states=frozenset({"NotReady"}),
        meaning=(
            "The broker gives the group no tasks, because topics that its topology needs are missing or have partition "
            "counts that do not fit. Nothing is processed until that changes. A new application is in this state for a "
            "moment while the broker creates its internal topics, hence five minutes of grace."
        ),
        look_at={
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
        to_do=(
            "`MISSING_SOURCE_TOPICS`: create the topics named, or correct the name in the application. The members "
            "find them by themselves within a heartbeat or two; no restart is needed.",
            "`MISSING_INTERNAL_TOPICS`: the broker could not create them. Look for the refusal in the log of the "
            "group's coordinator: a missing `Create` ACL of the application, a replication factor above the number of "
            "brokers, a create-topic policy.",
            "`INCORRECTLY_PARTITIONED_TOPICS`: make the counts of the topics named equal. Partitions can be added, "
            "never taken away; of an internal topic that is wrong, reset the application "
            "(`kafka-streams-application-reset.sh`).",
            "`TOPICS_NOT_VALIDATED`: the job may not see the topics, and the log alone does not tell more. Give the "
            "job's principal `Describe` on them, or read the status in the application's own log.",
        ),
    ),
    GroupRule(
        name="StreamsGroupRebalanceStuck",
        find=_stuck,
        severity=CRITICAL,
        grace=MINUTE,
        states=frozenset(REBALANCING),
        meaning=(
            "A rebalance has taken longer than the longest rebalance timeout of the members (Kafka Streams sends "
            "`max.poll.interval.ms`, 5 minutes by default, which is also taken if the log does not tell). Tasks that "
            "are waited for are processed by nobody. The broker should by then have put out a member that does not "
            "give up its tasks; a minute of grace is for that."
        ),
        look_at={
            "Which members have not settled, and where do they run?": (
                "SELECT member_id, client_id, client_host, member_state, member_epoch, rebalance_timeout_ms\n"
                "FROM members WHERE group_id = 'GROUP_ID' ORDER BY member_state = 'STABLE', member_id"
            ),
            "Which tasks are not where they should be?": (
                "SELECT member_id, role, subtopology_id, partition, current, target, pending_revocation\n"
                "FROM assignments WHERE group_id = 'GROUP_ID' AND (current <> target OR pending_revocation)\n"
                "ORDER BY subtopology_id, partition, role"
            ),
        },
        to_do=(
            "A member is `UNREVOKED_TASKS`: it was told to give tasks up and has not. Take a thread dump on its host: "
            "usually it is inside one long `process()` call, a blocked commit, or closing a large state store. "
            "Restart that instance if it does not come free.",
            "Members are `UNRELEASED_TASKS` and none is `UNREVOKED_TASKS`: what they wait for is with a member that is "
            "away. A static member (epoch -2) keeps its tasks until `session.timeout.ms` is over: bring it back.",
            "The group is `Assigning`: the broker has made no assignment. Look in the log of the group's coordinator "
            "for errors of the assignor, and whether `__consumer_offsets` is below `min.insync.replicas`.",
        ),
    ),
    GroupRule(
        name="StreamsGroupRebalanceStorm",
        find=_storm,
        grace=None,
        thresholds={
            "count": Threshold(10, "new assignments within the window"),
            "window": Threshold(10 * MINUTE, "how far back they count", seconds=True),
        },
        states=ALIVE - {"Empty"},
        meaning=(
            "The group was given a new assignment many times in a short while. Each one may move tasks, and a task "
            "that moves stands still while its state is restored. A rolling restart makes about two assignments for "
            "each instance: set `count` higher for groups of many instances. Ten in ten minutes is one a minute, "
            "which no group settles under."
        ),
        look_at={
            "When, and what preceded each?": (
                "SELECT at, kind, member_id, old, new FROM group_events e\n"
                "WHERE group_id = 'GROUP_ID'\n"
                "  AND kind IN ('assignment_epoch', 'member_joined', 'member_left', 'topology_epoch')\n"
                "ORDER BY at DESC, e.offset DESC LIMIT 60"
            ),
            "Which members come and go most?": (
                "SELECT coalesce(old, new) AS client_id, kind, count(*) AS times, max(at) AS newest FROM group_events\n"
                "WHERE group_id = 'GROUP_ID' AND kind IN ('member_joined', 'member_left')\n"
                "GROUP BY coalesce(old, new), kind ORDER BY times DESC LIMIT 20"
            ),
        },
        to_do=(
            "The same few members leave and join: they crash, or miss `session.timeout.ms` or `max.poll.interval.ms`. "
            "Look at restarts, out-of-memory kills and long pauses of these instances.",
            "All members come and go in turn: a rolling restart or an autoscaler. Wait for its end, or slow it down.",
            "No member comes or goes: the topics change, or a group config (`kafka-configs.sh --entity-type groups`).",
        ),
    ),
    GroupRule(
        name="StreamsGroupEmpty",
        find=_gone_empty,
        grace=15 * MINUTE,
        states=frozenset({"Empty"}),
        meaning=(
            "The group had members and has none: nothing is processed, and the input waits. Fifteen minutes are more "
            "than a deployment takes. Applications that run now and then are expected to go empty: put them under "
            "`overrides` with `enabled: false`. It resolves when a member joins, or when the group is deleted."
        ),
        look_at={
            "Who left last, and when?": _MEMBERS_LEFT,
        },
        to_do=(
            "Find out whether the application should run: was it scaled to zero, undeployed, is its schedule over? "
            "Then delete the group (`kafka-streams-groups.sh --delete --group GROUP_ID`) or leave it to expire.",
            "All left within seconds: one cause for all, such as a bad deployment, expired credentials, a network cut.",
            "They left one after the other: each instance failed by itself, often on the same record. Look for the "
            "exception that ended the stream threads.",
        ),
    ),
)
"""In the order of the runbook."""
