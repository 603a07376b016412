"""The rules about topology descriptions (KIP-1331): unsolicited, missing, failed, left behind. Data and conditions.

Of a living group whose description is not stored, one rule speaks, besides StreamsGroupDescriptionFailed, which tells
at once what StreamsGroupDescriptionNotSolicited tells when it stays so:

| | somebody would be asked | nobody would be |
|---|---|---|
| NEVER_STORED, STALE | StreamsGroupDescriptionMissing | StreamsGroupDescriptionNotSolicited |
| UNCERTAIN | StreamsGroupDescriptionUncertain | StreamsGroupDescriptionNotSolicited |
| FAILED | | StreamsGroupDescriptionNotSolicited |
"""

from __future__ import annotations

from datetime import datetime

from streaming_app.core.alert import INFO, Finding
from streaming_app.core.facts import GroupFacts
from streaming_app.core.group_rules import ALIVE
from streaming_app.core.rule import (
    DAY,
    HOUR,
    MINUTE,
    GroupRule,
    Look,
    Threshold,
    Thresholds,
    clock,
    count,
    is_recent,
    iso,
    known_since,
    later,
)
from streaming_app.core.states import NONE, WOULD_BE_ASKED_FOR

_WITH_MEMBERS = ALIVE - {"Empty"}


def _details(group: GroupFacts) -> dict[str, object]:
    told = {
        "description_status": group.description_status,
        "topology_epoch": group.topology_epoch,
        "stored_description_epoch": group.stored_description_epoch,
        "failed_description_epoch": group.failed_description_epoch,
        "members": group.member_count,
        "stale_members": group.stale_member_count,
    }
    return {name: value for name, value in told.items() if value is not None}


def _unsolicited(group: GroupFacts, thresholds: Thresholds, look: Look) -> Finding | None:
    at = group.last_unsolicited_push_at
    if at is None or not is_recent(at, thresholds["window"], look.now):
        return None
    pushes = count(group.unsolicited_pushes, "description")
    return Finding(
        at,
        f"{group.group_id}: a member sent its topology description unasked; {pushes} in all, newest {clock(at)}",
        {"pushes": group.unsolicited_pushes, "newest": iso(at), "topology_epoch": group.topology_epoch or 0},
    )


def _not_solicited(group: GroupFacts, _thresholds: Thresholds, look: Look) -> Finding | None:
    if group.solicitable or not group.member_count:
        return None
    epoch = group.topology_epoch
    since, stale, members = group.updated_at, group.stale_member_count, group.member_count
    if group.description_status == "FAILED":
        since = group.description_since
        why = f"that of topology epoch {epoch} failed for good, so it is not asked for again before the next epoch"
    elif stale >= members:
        why = f"every member runs a topology older than epoch {epoch}, and the broker asks none of these"
    elif not stale:
        why = "every member is away"
    else:
        why = f"{stale:,} of {members:,} members run a topology older than epoch {epoch}, and the others are away"
    # Of the other causes the log gives no time; they hold at least since the newest record.
    return Finding(
        known_since(since, group, look.now),
        f"{group.group_id}: nobody will be asked for the topology description: {why}",
        {**_details(group), "why": why},
    )


def _failed(group: GroupFacts, _thresholds: Thresholds, look: Look) -> Finding:
    return Finding(
        known_since(group.description_since, group, look.now),
        f"{group.group_id}: the broker's plugin rejected the topology description of epoch {group.topology_epoch}",
        _details(group),
    )


def _missing(group: GroupFacts, _thresholds: Thresholds, look: Look) -> Finding | None:
    if not group.solicitable:
        return None
    has = "none" if group.stored_description_epoch == NONE else f"only that of epoch {group.stored_description_epoch}"
    return Finding(
        _asked_since(group, look),
        f"{group.group_id}: no topology description of epoch {group.topology_epoch} arrives; the broker has {has}",
        _details(group),
    )


def _uncertain(group: GroupFacts, _thresholds: Thresholds, look: Look) -> Finding | None:
    if not group.solicitable:
        return None
    return Finding(
        _asked_since(group, look),
        f"{group.group_id}: storing the topology description of epoch {group.topology_epoch} never ends",
        _details(group),
    )


def _asked_since(group: GroupFacts, look: Look) -> datetime:
    """Since when the broker has had reason and somebody to ask: rebalances do not matter, a new start of all does."""
    return known_since(later(group.description_since, group.members_since, look.descriptions_since), group, look.now)


def _not_cleaned_up(group: GroupFacts, _thresholds: Thresholds, look: Look) -> Finding | None:
    if group.stored_description_epoch == NONE:
        return None
    since = known_since(group.state_since, group, look.now)
    return Finding(
        since,
        f"{group.group_id} is Empty since {clock(since)}, and its topology description is still stored",
        _details(group),
    )


_STEPS = (
    "SELECT at, kind, old, new FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('topology_epoch', 'description_status', 'stored_description_epoch',\n"
    "  'failed_description_epoch', 'unsolicited_push')\n"
    "ORDER BY at DESC, e.offset DESC LIMIT 30"
)
_STANDING = (
    "SELECT description_status, description_since, topology_epoch, stored_description_epoch,\n"
    "  failed_description_epoch, solicitable, member_count, stale_member_count\n"
    "FROM groups WHERE group_id = 'GROUP_ID'"
)
_RUNNING = (
    "SELECT member_id, client_id, client_host, member_epoch, topology_epoch, stale_topology\n"
    "FROM members WHERE group_id = 'GROUP_ID' ORDER BY stale_topology DESC, member_id"
)
_PLUGIN_LOG = (
    "Look in the log of the group's coordinator for what the plugin "
    "(`group.streams.topology.description.plugin.class`) says, and whether its store is there and has room."
)

DESCRIPTION_RULES = (
    GroupRule(
        name="StreamsGroupUnsolicitedDescription",
        find=_unsolicited,
        grace=None,
        thresholds={"window": Threshold(HOUR, "how long after the push it is told", seconds=True)},
        states=ALIVE,
        meaning=(
            "A member sent its topology description although the broker had no reason to ask for it: it was stored "
            "already, or had been rejected for good. The broker takes such a push all the same, so it can replace what "
            "is stored by something else, and each one costs a call of the plugin. Kafka's own client sends only when "
            "asked; a push that it repeats because the answer was lost may show here, but no more than one or two."
        ),
        look_at={
            "When were the pushes?": _STEPS,
            "Who was a member, and could have sent them?": _RUNNING,
        },
        to_do=(
            "One push, and none since: leave it; the alert ends by itself.",
            "They go on: find the client. The log names no sender: compare the times with the broker's request log "
            "(`StreamsGroupTopologyDescriptionUpdate`), and ask which application or tool is not Kafka's own client.",
            "Look whether what is stored is still right (`kafka-streams-groups.sh --describe --topology`).",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionNotSolicited",
        find=_not_solicited,
        grace=30 * MINUTE,
        states=_WITH_MEMBERS,
        statuses=WOULD_BE_ASKED_FOR | {"FAILED"},
        of_descriptions=True,
        meaning=(
            "The topology description is not stored, and the broker will ask no member for it: it failed for good, or "
            "every member runs an older topology, or every member that could be asked is away. Waiting does not mend "
            "it. The group itself processes as usual. Half an hour is more than a rolling upgrade usually takes, "
            "during which it may hold for a while."
        ),
        look_at={
            "What stands against it?": _STANDING,
            "Which members run which topology?": _RUNNING,
        },
        to_do=(
            "It failed for good: see StreamsGroupDescriptionFailed. The broker asks again only for a new topology "
            "epoch.",
            "All members are stale: finish the upgrade. The members that brought the new topology have left again.",
            "All are away (epoch -2, static members that are expected back): start them, or wait until "
            "`session.timeout.ms` takes them out.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionFailed",
        find=_failed,
        states=ALIVE,
        statuses=frozenset({"FAILED"}),
        meaning=(
            "The broker's plugin rejected the topology description for good. The broker does not ask for it again "
            "before the topology's next epoch. The group itself processes as usual."
        ),
        look_at={"When, and what was before?": _STEPS, "What stands now?": _STANDING},
        to_do=(
            _PLUGIN_LOG
            + " A rejection for good usually means too large a description, or content that it does not take.",
            "Mend the cause first. Then the group has to come to a new topology epoch, or be deleted while it is empty "
            "and made again, before a description is asked for.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionMissing",
        find=_missing,
        grace=90 * MINUTE,
        states=_WITH_MEMBERS,
        statuses=frozenset({"NEVER_STORED", "STALE"}),
        of_descriptions=True,
        meaning=(
            "The broker has no description of the group's present topology although there is a member that it would "
            "ask. It asks again after 30 seconds, then after twice as long each time, up to an hour, give or take a "
            "fifth. The first seven waits together are 64 minutes, at most 76: after 90 minutes it was asked for and "
            "not sent eight times, and no passing trouble explains it. The group itself processes as usual."
        ),
        look_at={
            "What stands against it?": _STANDING,
            "Which members could be asked?": _RUNNING,
            "Which groups have the same trouble?": (
                "SELECT group_id, state, description_status, description_since FROM groups\n"
                "WHERE solicitable AND description_status IN ('NEVER_STORED', 'STALE') ORDER BY description_since"
            ),
        },
        to_do=(
            "Only this group: its clients are older than Kafka 4.4 and know no descriptions, or fail to send one: see "
            "the log of the application.",
            "Many groups at once: the brokers do not ask. Look whether every broker has the plugin configured; one "
            "that was forgotten asks for nothing for the groups that it coordinates.",
            "The cluster shall not keep descriptions (any more): set `descriptions: never`.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionUncertain",
        find=_uncertain,
        grace=20 * MINUTE,
        states=_WITH_MEMBERS,
        statuses=frozenset({"UNCERTAIN"}),
        of_descriptions=True,
        meaning=(
            "The broker noted that it is about to call its plugin (stored epoch -2), and never noted the end: the "
            "plugin fails again and again, though not for good, or the broker died meanwhile. What the plugin holds "
            "is not known. The broker asks again after 30 seconds, then after twice as long each time; five tries are "
            "over after at most 19 minutes. The group itself processes as usual."
        ),
        look_at={"What happened when?": _STEPS, "What stands now?": _STANDING},
        to_do=(
            _PLUGIN_LOG + " Once it works, the next push mends the group by itself, within an hour or so.",
            "Many groups at once: the plugin's store is down. Compare `streams-group-topology-description-set-error` "
            "among the brokers' metrics.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionNotCleanedUp",
        find=_not_cleaned_up,
        severity=INFO,
        grace=8 * DAY,
        states=frozenset({"Empty"}),
        meaning=(
            "The group is empty, and its topology description is still in the plugin's store. The broker's sweep runs "
            "every `offsets.retention.check.interval.ms` (10 minutes), but takes only groups that have no offsets "
            "left, and offsets stay for `offsets.retention.minutes` (7 days) after the last member left. So nothing "
            "is wrong before a week is over: eight days leave room for the sweep's own retries. With another "
            "retention set `for` to that and a day; where offsets are deleted by hand, half an hour will do."
        ),
        look_at={
            "Since when is it empty, and what is stored?": (
                "SELECT state, state_since, stored_description_epoch, description_status, description_since\n"
                "FROM groups WHERE group_id = 'GROUP_ID'"
            ),
            "Which other groups are left over?": (
                "SELECT group_id, state_since, stored_description_epoch FROM groups\n"
                "WHERE state = 'Empty' AND stored_description_epoch <> -1 ORDER BY state_since"
            ),
        },
        to_do=(
            "Stored epoch -2: the plugin's deletion fails. " + _PLUGIN_LOG,
            "Another stored epoch: the sweep did not take it. Look whether offsets are left "
            "(`kafka-streams-groups.sh --describe --group GROUP_ID --offsets`) or a transaction is open "
            "(`kafka-transactions.sh list`).",
            "Nobody needs the group: `kafka-streams-groups.sh --delete --group GROUP_ID` deletes the description, too.",
        ),
    ),
)
"""In the order of the runbook."""
