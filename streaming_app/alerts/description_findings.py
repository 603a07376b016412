"""When each of the rules about topology descriptions (KIP-1331) fires, and what it says then.

If the description of a group with members is not stored, at most one rule fires:

| | the broker would ask a member | it would ask none |
|---|---|---|
| NEVER_STORED, STALE | StreamsGroupDescriptionMissing | StreamsGroupDescriptionMissing, unless members are stale |
| UNCERTAIN | StreamsGroupDescriptionFailed | as above |
| FAILED | | StreamsGroupDescriptionFailed |

Clients before Kafka 4.4 are never asked, and the log does not contain the version of a client. So a group that never
had a description is not expected to have one while clients are being upgraded, one application after the other. It is
once nearly all others have theirs, none got its first for a week, and a broker was still asking after this group needed
one. `descriptions: always` expects one of every group.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming_app.alerts.problem import Finding, ProblemKey
from streaming_app.alerts.rule import (
    EvaluationContext,
    format_time,
    is_recent,
    latest,
    since_or_fallback,
    to_iso,
)
from streaming_app.alerts.survey import LostDescription, had_description
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import NONE
from streaming_app.text import count

_NEARLY_ALL = 0.9  # of the groups
_PUSH_SHOWN = timedelta(hours=1)  # after an unsolicited push
_UPGRADED_FOR = timedelta(days=7)  # since a group of the cluster got its first description
_ASKED_TWICE = timedelta(minutes=70)  # the plugin is asked again once an hour
NOT_RETURNED = {"NOT_STORED": "does not have", "ERROR": "fails to return"}


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


def find_unsolicited(group: GroupSnapshot, context: EvaluationContext) -> Finding | None:
    """A member pushed a description within the window that the broker had not asked for."""
    at = group.last_unsolicited_push_at
    if at is None or not is_recent(at, _PUSH_SHOWN, context.now):
        return None
    descriptions = count(group.unsolicited_pushes, "description")
    return Finding(
        at,
        f"{group.group_id}: a member pushed a topology description that the broker did not ask for; "
        f"{descriptions} in total, the latest at {format_time(at)}",
        {"pushes": group.unsolicited_pushes, "newest": to_iso(at), "topology_epoch": group.topology_epoch or 0},
    )


def find_failed(group: GroupSnapshot, context: EvaluationContext) -> Finding | None:
    """The broker's plugin rejected the description for good, or a call of it was announced and never ended."""
    if group.description_status == "FAILED":
        since = since_or_fallback(group.description_since, group)
        what = f"the broker's plugin rejected the topology description of epoch {group.topology_epoch}"
    elif group.solicitable and group.member_count and context.descriptions_since is not None:
        since = _asked_since(group, context)
        what = f"storing the topology description of epoch {group.topology_epoch} does not complete"
    else:
        return None
    return Finding(since, f"{group.group_id}: {what}", _details(group))


def find_missing(group: GroupSnapshot, context: EvaluationContext) -> Finding | None:
    """The description is expected and not stored: the broker asks a member and gets none, or it asks no member."""
    if not group.member_count or group.stale_member_count or not _is_expected(group, context):
        return None  # of stale members StreamsGroupMembersStale says why none is asked
    if not group.solicitable:
        # The records have no time for the cause; it has held at least since the newest record.
        since = since_or_fallback(group.updated_at, group)
        what = "the broker will ask no member for the topology description: every member is offline"
    elif group.description_status == "UNCERTAIN":
        return None
    else:
        since = _asked_since(group, context)
        stored = group.stored_description_epoch
        has = "none" if stored == NONE else f"only the one of epoch {stored}"
        what = f"no topology description of epoch {group.topology_epoch} arrives; the broker has {has}"
    return Finding(since, f"{group.group_id}: {what}", _details(group))


def _is_expected(group: GroupSnapshot, context: EvaluationContext) -> bool:
    """Tell whether the group's clients are known, or can be expected, to send a description when they are asked."""
    if context.descriptions_required or had_description(group):
        return True
    survey = context.survey
    pushed_at, upgraded_at = survey.newest_push_at, survey.newest_first_description_at
    others = survey.described + survey.undescribed - 1
    return (
        pushed_at is not None
        and upgraded_at is not None
        and (asked_since := _asked_since(group, context)) is not None
        and pushed_at > asked_since
        and survey.described >= others * _NEARLY_ALL
        and context.now - upgraded_at >= _UPGRADED_FOR
    )


def _asked_since(group: GroupSnapshot, context: EvaluationContext) -> datetime | None:
    """Return since when the broker has had a reason and a member to ask.

    Rebalances do not change it; a group that was empty starts again.
    """
    since = latest(group.description_since, group.members_since, context.descriptions_since)
    return since_or_fallback(since, group)


def find_lost(lost: LostDescription, context: EvaluationContext) -> Finding | None:
    """The log says that a description is stored, and the plugin did not return it when it was asked twice."""
    is_open = ProblemKey("StreamsGroupDescriptionFailed", lost.group_id) in context.open_problems
    if context.now - lost.since < _ASKED_TWICE and not is_open:  # `since` begins again with another answer
        return None
    return Finding(
        lost.since,
        f"{lost.group_id}: the brokers' plugin {NOT_RETURNED[lost.status]} the topology description of epoch "
        f"{lost.topology_epoch}, which the log says is stored",
        {"status": lost.status, "topology_epoch": lost.topology_epoch or 0, "asked": to_iso(lost.since)},
    )
