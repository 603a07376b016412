"""The rules about topology descriptions (KIP-1331): unsolicited, missing, failed, not cleaned up. Data and conditions.

If the description of a group with members is not stored, at most one rule fires:

| | the broker would ask a member | it would ask none |
|---|---|---|
| NEVER_STORED, STALE | StreamsGroupDescriptionMissing | StreamsGroupDescriptionNotSolicited |
| UNCERTAIN | StreamsGroupDescriptionUncertain | StreamsGroupDescriptionNotSolicited |
| FAILED | | StreamsGroupDescriptionFailed |

Clients before Kafka 4.4 are never asked, and the log does not contain the version of a client. So a group that never
had a description is not expected to have one while clients are being upgraded, one application after the other. It is
once nearly all others have theirs, none got its first for a week, and a broker was still asking after this group needed
one. `descriptions: always` expects one of every group.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming_app.alerts.rules.alert import INFO, Finding
from streaming_app.alerts.rules.rule import (
    DAY,
    HOUR,
    MINUTE,
    NOT_DEAD,
    EvaluationContext,
    GroupRule,
    Threshold,
    Thresholds,
    format_count,
    format_time,
    is_recent,
    latest,
    since_or_fallback,
    to_iso,
)
from streaming_app.alerts.rules.survey import had_description
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import NONE, SOLICITABLE_STATUSES

_WITH_MEMBERS = NOT_DEAD - {"Empty"}
_NEARLY_ALL = 0.9
_UPGRADED_FOR = {
    "upgraded_for": Threshold(7 * DAY, "for a group that never had one: since no other got its first", seconds=True)
}


def _details(group: GroupSnapshot) -> dict[str, object]:
    details = {
        "description_status": group.description_status,
        "topology_epoch": group.topology_epoch,
        "stored_description_epoch": group.stored_description_epoch,
        "failed_description_epoch": group.failed_description_epoch,
        "members": group.member_count,
        "stale_members": group.stale_member_count,
    }
    return {name: value for name, value in details.items() if value is not None}


def _unsolicited(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    at = group.last_unsolicited_push_at
    if at is None or not is_recent(at, thresholds["window"], context.now):
        return None
    descriptions = format_count(group.unsolicited_pushes, "description")
    return Finding(
        at,
        f"{group.group_id}: a member pushed a topology description that the broker did not ask for; "
        f"{descriptions} in total, the latest at {format_time(at)}",
        {"pushes": group.unsolicited_pushes, "newest": to_iso(at), "topology_epoch": group.topology_epoch or 0},
    )


def _not_solicited(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    if group.solicitable or not group.member_count or not _is_expected(group, thresholds, context):
        return None
    epoch = group.topology_epoch
    stale, members = group.stale_member_count, group.member_count
    if stale >= members:
        why = f"every member runs a topology older than epoch {epoch}, and the broker asks none of these"
    elif not stale:
        why = "every member is offline"
    else:
        why = f"{stale:,} of {members:,} members run a topology older than epoch {epoch}, and the others are offline"
    # The records have no time for the cause; it has held at least since the newest record.
    return Finding(
        since_or_fallback(group.updated_at, group, context.now),
        f"{group.group_id}: the broker will ask no member for the topology description: {why}",
        {**_details(group), "why": why},
    )


def _failed(group: GroupSnapshot, _thresholds: Thresholds, context: EvaluationContext) -> Finding:
    return Finding(
        since_or_fallback(group.description_since, group, context.now),
        f"{group.group_id}: the broker's plugin rejected the topology description of epoch {group.topology_epoch}",
        _details(group),
    )


def _missing(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    if not group.solicitable or not _is_expected(group, thresholds, context):
        return None
    stored = group.stored_description_epoch
    has = "none" if stored == NONE else f"only the one of epoch {stored}"
    return Finding(
        _asked_since(group, context),
        f"{group.group_id}: no topology description of epoch {group.topology_epoch} arrives; the broker has {has}",
        _details(group),
    )


def _uncertain(group: GroupSnapshot, _thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    if not group.solicitable:
        return None
    return Finding(
        _asked_since(group, context),
        f"{group.group_id}: storing the topology description of epoch {group.topology_epoch} does not complete",
        _details(group),
    )


def _is_expected(group: GroupSnapshot, thresholds: Thresholds, context: EvaluationContext) -> bool:
    """Tell whether the group's clients are known, or can be expected, to send a description when they are asked."""
    if context.descriptions_required or had_description(group):
        return True
    survey = context.survey
    pushed_at, upgraded_at = survey.newest_push_at, survey.newest_first_description_at
    others = survey.described + survey.undescribed - 1
    return (
        pushed_at is not None
        and upgraded_at is not None
        and pushed_at > _asked_since(group, context)
        and survey.described >= others * _NEARLY_ALL
        and context.now - upgraded_at >= timedelta(seconds=thresholds["upgraded_for"])
    )


def _asked_since(group: GroupSnapshot, context: EvaluationContext) -> datetime:
    """Return since when the broker has had a reason and a member to ask.

    Rebalances do not change it; a group that was empty starts again.
    """
    since = latest(group.description_since, group.members_since, context.descriptions_since)
    return since_or_fallback(since, group, context.now)


def _not_cleaned_up(group: GroupSnapshot, _thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    if group.stored_description_epoch == NONE:
        return None
    since = since_or_fallback(group.state_since, group, context.now)
    return Finding(
        since,
        f"{group.group_id} has been Empty since {format_time(since)}, and its topology description is still stored",
        _details(group),
    )


_HISTORY = (
    "SELECT at, kind, old, new FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('topology_epoch', 'description_status', 'stored_description_epoch',\n"
    "  'failed_description_epoch', 'unsolicited_push')\n"
    "ORDER BY at DESC, e.offset DESC LIMIT 30"
)
_STATUS = (
    "SELECT description_status, description_since, topology_epoch, stored_description_epoch,\n"
    "  failed_description_epoch, solicitable, member_count, stale_member_count\n"
    "FROM groups WHERE group_id = 'GROUP_ID'"
)
_MEMBERS = (
    "SELECT member_id, client_id, client_host, member_epoch, topology_epoch, stale_topology\n"
    "FROM members WHERE group_id = 'GROUP_ID' ORDER BY stale_topology DESC, member_id"
)
_PLUGIN_LOG = (
    "Search the log of the group coordinator for messages of the plugin "
    "(`group.streams.topology.description.plugin.class`), and check that its store is available and has free space."
)

DESCRIPTION_RULES = (
    GroupRule(
        name="StreamsGroupUnsolicitedDescription",
        find=_unsolicited,
        for_seconds=None,
        thresholds={"window": Threshold(HOUR, "how long it fires after a push", seconds=True)},
        states=NOT_DEAD,
        meaning=(
            "A member pushed its topology description although the broker had no reason to ask for it: it was already "
            "stored, or had been rejected permanently. The broker accepts such a push, so it can replace the stored "
            "description by a different one, and each push costs a call of the plugin. Kafka's own client only sends "
            "when it is asked; if it repeats a push because the response was lost, that may be counted here, but no "
            "more than once or twice."
        ),
        queries={
            "When were the pushes?": _HISTORY,
            "Which members could have sent them?": _MEMBERS,
        },
        steps=(
            "One push, and none since: do nothing; the alert resolves by itself.",
            "They continue: find the client. The records do not name the sender: compare the times with the broker's "
            "request log (`StreamsGroupTopologyDescriptionUpdate`), and find out which application or tool does not "
            "use Kafka's own client.",
            "Check that the stored description is still correct (`kafka-streams-groups.sh --describe --topology`).",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionNotSolicited",
        find=_not_solicited,
        for_seconds=30 * MINUTE,
        thresholds=_UPGRADED_FOR,
        states=_WITH_MEMBERS,
        statuses=SOLICITABLE_STATUSES,
        requires_descriptions=True,
        meaning=(
            "The topology description is not stored, and the broker will ask no member for it: every member runs an "
            "older topology, or every member that could be asked is offline. It does not recover by waiting. The group "
            "itself processes as usual. A rolling upgrade may cause this for a while; half an hour is longer than it "
            "usually takes."
        ),
        queries={
            "Why is no member asked?": _STATUS,
            "Which members run which topology?": _MEMBERS,
        },
        steps=(
            "All members are stale: complete the upgrade. The members that brought the new topology have left again.",
            "All members are offline (epoch -2, static members that are expected to return): start them, or wait until "
            "they are removed after `session.timeout.ms`.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionFailed",
        find=_failed,
        states=NOT_DEAD,
        statuses=frozenset({"FAILED"}),
        meaning=(
            "The broker's plugin rejected the topology description permanently. The broker does not ask for it again "
            "until the next topology epoch. The group itself processes as usual."
        ),
        queries={"When, and what happened before?": _HISTORY, "What is the status now?": _STATUS},
        steps=(
            _PLUGIN_LOG
            + " The usual reasons for a permanent rejection are a description that is too large, or content that the "
            "plugin does not accept.",
            "Fix the cause first. The broker asks again only after a new topology epoch, or after the group was "
            "deleted while it was empty and created again.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionMissing",
        find=_missing,
        for_seconds=90 * MINUTE,
        thresholds=_UPGRADED_FOR,
        states=_WITH_MEMBERS,
        statuses=frozenset({"NEVER_STORED", "STALE"}),
        requires_descriptions=True,
        meaning=(
            "The broker has no description of the group's current topology, although there is a member that it would "
            "ask. It asks again after 30 seconds, then after twice as long each time, up to an hour, with a jitter of "
            "20 %. The first seven waits together take 64 minutes, at most 76: after 90 minutes it was asked for and "
            "not sent eight times, too often for a transient error. It fires for a group that had a description "
            "before. Clients before Kafka 4.4 are never asked, so for another group it fires only once the clients of "
            "the cluster are upgraded: nine of ten groups had a description, none got its first one for a week, and a "
            "broker asked for one since this group has had none. The group itself processes as usual."
        ),
        queries={
            "What is the status now?": _STATUS,
            "Which members could be asked?": _MEMBERS,
            "Which other groups are affected?": (
                "SELECT group_id, state, description_status, description_since FROM groups\n"
                "WHERE solicitable AND description_status IN ('NEVER_STORED', 'STALE') ORDER BY description_since"
            ),
        },
        steps=(
            "Only this group: its clients are older than Kafka 4.4 and do not support descriptions, or fail to send "
            "one: see the log of the application.",
            "Many groups at once: see StreamsGroupsDescriptionsMissing, which then fires instead.",
            "The cluster should not keep descriptions: set `descriptions: never`.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionUncertain",
        find=_uncertain,
        for_seconds=20 * MINUTE,
        states=_WITH_MEMBERS,
        statuses=frozenset({"UNCERTAIN"}),
        requires_descriptions=True,
        meaning=(
            "The broker recorded that it is about to call its plugin (stored epoch -2), but never recorded the result: "
            "the plugin keeps failing, though not permanently, or the broker crashed during the call. It is unknown "
            "what the plugin has stored. The broker asks again after 30 seconds, then after twice as long each time; "
            "five attempts take at most 19 minutes. The group itself processes as usual."
        ),
        queries={"What happened, and when?": _HISTORY, "What is the status now?": _STATUS},
        steps=(
            _PLUGIN_LOG + " Once it works, the next push corrects the status, within about an hour.",
            "Many groups at once: see StreamsGroupsDescriptionsMissing, which then fires instead.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionNotCleanedUp",
        find=_not_cleaned_up,
        severity=INFO,
        for_seconds=8 * DAY,
        states=frozenset({"Empty"}),
        meaning=(
            "The group is empty, and its topology description is still in the plugin's store. The broker's cleanup "
            "runs every `offsets.retention.check.interval.ms` (10 minutes), but only for groups without offsets, and "
            "offsets are kept for `offsets.retention.minutes` (7 days) after the last member left. So this is normal "
            "for a week; eight days leave time for the retries of the cleanup. With another retention, set `for` to "
            "that retention plus one day; where offsets are deleted by hand, half an hour is enough."
        ),
        queries={
            "Since when is it empty, and what is stored?": (
                "SELECT state, state_since, stored_description_epoch, description_status, description_since\n"
                "FROM groups WHERE group_id = 'GROUP_ID'"
            ),
            "Which other empty groups have a description?": (
                "SELECT group_id, state_since, stored_description_epoch FROM groups\n"
                "WHERE state = 'Empty' AND stored_description_epoch <> -1 ORDER BY state_since"
            ),
        },
        steps=(
            "Stored epoch -2: the plugin fails to delete it. " + _PLUGIN_LOG,
            "Another stored epoch: the cleanup skipped the group. Check whether offsets are left "
            "(`kafka-streams-groups.sh --describe --group GROUP_ID --offsets`) or a transaction is open "
            "(`kafka-transactions.sh list`).",
            "The group is no longer needed: `kafka-streams-groups.sh --delete --group GROUP_ID` also deletes the "
            "description.",
        ),
    ),
)
"""In the order of the runbook."""
