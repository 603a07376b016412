"""The conditions of the rules about groups, except those about verdicts: when each holds, since when, and its summary.

Topology descriptions (KIP-1331): if the description of a group with members is not stored, at most one rule fires:

| status | the broker would ask a member | the broker would ask no member |
|---|---|---|
| NEVER_STORED, STALE | StreamsGroupDescriptionMissing | StreamsGroupDescriptionMissing, unless members are stale |
| UNCERTAIN | StreamsGroupDescriptionFailed | as above |
| FAILED | | StreamsGroupDescriptionFailed |

The broker never asks clients before Kafka 4.4, and the log does not contain the version of a client. So while
applications are upgraded one after the other, no rule expects a description of a group that never had one. A rule
expects it after three things: nearly all other groups have one, no group got its first one for a week, and a broker has
asked a member since this group needed one. With `descriptions: always` the rules expect one of every group.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from streaming_app.alerts.alert import INFO, OVER, AlertKey, Holds, Truth
from streaming_app.alerts.engine_facts import EngineFacts, Observed, latest
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import DEAD, EMPTY, NONE
from streaming_app.groups.task_copies import GroupCopies, TaskCopy, format_task
from streaming_app.health.facts import to_time
from streaming_app.health.group_history import NO_HISTORY, GroupHistory
from streaming_app.lag.model import LagRow
from streaming_app.text import count, first_of, round_down, shorten, utc

SET_ASIDE, DESCRIPTION_FAILED = "StreamsGroupSetAside", "StreamsGroupDescriptionFailed"
DESCRIPTION_MISSING, _REWOUND = "StreamsGroupDescriptionMissing", "StreamsGroupOffsetsRewound"

_IN_SUMMARY, _IN_DETAILS = 3, 20  # how many partitions, tasks and copies are named
_REASON = 300  # characters


def _set_aside(group: GroupSnapshot, _facts: EngineFacts) -> Holds:
    reason = shorten(group.set_aside_reason or "", _REASON)
    text = f"{group.group_id} is set aside, and its row stays as it was: {reason}"
    return Holds(group.set_aside_at, text, {"reason": reason})


def rule_failed(group_id: str, rule: str, error: Exception) -> Holds:
    """Return what holds for a group if the evaluation of a rule for it failed."""
    reason = shorten(f"the rule {rule} failed: {type(error).__name__}: {error}", _REASON)
    return Holds(None, f"{group_id} is set aside for a rule: {reason}", {"reason": reason, "rule": rule})


def not_judged(group_id: str, why: str) -> Holds:
    """Return what holds for a group whose verdict could not be decided."""
    reason = shorten(why, _REASON)
    return Holds(
        None, f"{group_id} is set aside for its verdict, which stays Unknown or as it was: {reason}", {"reason": reason}
    )


_PUSH_SHOWN = timedelta(hours=1)  # how long the rule fires after an unsolicited push
_ASKED_TWICE = timedelta(minutes=70)  # the plugin is asked again once an hour
_OF_PLUGIN = frozenset({"FAILED", "UNCERTAIN"})
_NOT_RETURNED = {"NOT_STORED": "does not have", "ERROR": "fails to return"}
_SHOWN = ("description_status", "topology_epoch", "stored_description_epoch", "failed_description_epoch")


def _unsolicited(group: GroupSnapshot, facts: EngineFacts) -> Holds | None:
    """A member pushed a description in the last hour although the broker did not ask for one."""
    at = group.last_unsolicited_push_at
    if at is None or facts.now - at >= _PUSH_SHOWN:
        return None
    return Holds(
        at,
        f"{group.group_id}: a member pushed a topology description that the broker did not ask for; "
        f"{count(group.unsolicited_pushes, 'description')} in total, the latest at {utc(at)}",
        {"pushes": group.unsolicited_pushes, "newest": at.isoformat(), "topology_epoch": group.topology_epoch or 0},
    )


def _not_stored(rule: str, group: GroupSnapshot, facts: EngineFacts) -> Holds | None:
    """The description is not stored, and by the table above this is the rule for it."""
    status, epoch, stored = group.description_status, group.topology_epoch, group.stored_description_epoch
    shown_at = group.description_since
    if shown_at is None and status in _OF_PLUGIN:
        # Where the log does not prove since when the status holds, the first known record that showed it counts: the
        # record may be written again. A brief status is not as old as the members.
        alert = facts.open.get(AlertKey(rule, group.group_id))
        shown_at = min((at for at in (alert and alert.since, group.metadata_at) if at), default=None)
    # Since then the broker has a reason and a member to ask. This begins again after Empty, but not after a rebalance.
    says, since = DESCRIPTION_MISSING, latest(shown_at, group.members_since, facts.descriptions.since)
    if status == "FAILED":
        says, since = DESCRIPTION_FAILED, shown_at
        what = f"the broker's plugin rejected the topology description of epoch {epoch}"
    elif not group.member_count or facts.descriptions.since is None:
        return None
    elif status == "UNCERTAIN" and group.solicitable:
        says, what = DESCRIPTION_FAILED, f"storing the topology description of epoch {epoch} does not complete"
    elif group.stale_member_count or not facts.descriptions.expects_one(group, since, facts.now):
        return None  # for stale members, StreamsGroupMembersStale fires
    elif not group.solicitable:
        since = group.updated_at  # no record has the time of the cause, but it held at the newest record
        what = "the broker will ask no member for the topology description: every member is offline"
    else:
        has = "none" if stored == NONE else f"only the one of epoch {stored}"
        what = f"no topology description of epoch {epoch} arrives; the broker has {has}"
    if says != rule:
        return None
    shown = {name: value for name in _SHOWN if (value := getattr(group, name)) is not None}
    members = {"members": group.member_count, "stale_members": group.stale_member_count}
    return Holds(since, f"{group.group_id}: {what}", {**shown, **members})


def _lost(group_id: str, facts: EngineFacts) -> Truth:
    """By the log a description is stored, but the plugin did not return it in two requests."""
    known, alert = facts.observed.lost_descriptions, facts.open.get(AlertKey(DESCRIPTION_FAILED, group_id))
    lost = (known or {}).get(group_id)
    if lost is None:
        return OVER if known is not None or not alert or alert.evidence.get("status") not in _NOT_RETURNED else None
    if facts.now - lost.since < _ASKED_TWICE and not alert:  # `since` begins again when the answer changes
        return OVER
    return Holds(
        lost.since,
        f"{group_id}: the brokers' plugin {_NOT_RETURNED[lost.status]} the topology description of epoch "
        f"{lost.topology_epoch}, which the log says is stored",
        {"status": lost.status, "topology_epoch": lost.topology_epoch or 0, "asked": lost.since.isoformat()},
    )


def _stale_members(group: GroupSnapshot, _facts: EngineFacts) -> Holds:
    epoch, stale = group.topology_epoch or 0, group.stale_member_count
    return Holds(
        group.stale_members_since,
        f"{group.group_id}: {count(stale, 'member')} of {group.member_count:,} with a topology older than the group's, "
        f"epoch {epoch}: they get no tasks",
        {"stale_members": stale, "members": group.member_count, "topology_epoch": epoch},
    )


_LOSES_STATE = frozenset({"cleanup.policy", "partitions"})
"""A difference in one of these can lose state, or keep the group from starting."""
_RESET_MINUTES = timedelta(minutes=10)  # from when a group has members again until its first commit


def _owner(one: TaskCopy | LagRow) -> dict[str, str]:
    return {"member_id": one.member_id or "", "process_id": one.process_id or "", "host": one.client_host or ""}


def _misconfigured(group_id: str, facts: EngineFacts) -> Truth:
    """Internal topics differ from what the topology asks for. Brokers log this and change nothing (KIP-1071)."""
    known = facts.observed.topic_differences
    if known is None:
        return None
    found = sorted(known.get(group_id, ()), key=lambda one: (one.name not in _LOSES_STATE, one))
    if not found:
        return OVER
    named = [f"{one.topic} has {one.name} {one.value}" for one in islice(found, _IN_SUMMARY)]
    return Holds(
        min(one.since for one in found),
        f"{group_id}: {count(len({one.topic for one in found}), 'internal topic')} different from the topology: "
        f"{first_of(named, _IN_SUMMARY, len(found), separator='; ')}",
        {"topics": [{"topic": one.topic, one.name: one.value} for one in islice(found, _IN_DETAILS)]},
        severity=None if found[0].name in _LOSES_STATE else INFO,
    )


def _standbys(group_id: str, facts: EngineFacts) -> Truth:
    """Standbys do not catch up, or tasks have fewer copies in other processes than configured."""
    if facts.observed.copies is None:
        return None
    copies = facts.observed.copies.get(group_id, GroupCopies())
    if late := copies.behind:
        since = late[0].fell_at
        places = [
            f"{format_task(one.task)} at {one.client_host or 'unknown host'}, process {one.process_id}"
            for one, *_ in islice(late, _IN_SUMMARY)
        ]
        named = [
            {"task": format_task(one.copy.task), **_owner(one.copy), "least_lag": one.lag}
            for one in islice(late, _IN_DETAILS)
        ]
        summary = (
            f"{group_id}: {count(len(late), 'standby')} not caught up since {utc(since)}: "
            f"{first_of(places, _IN_SUMMARY, len(late), separator='; ')}"
        )
        return Holds(since, summary, {"standbys": named, "acceptable_lag": late[0].copy.known_acceptable_lag})
    alone = {task: one for task, one in copies.uncopied.items() if one.processes == 1}
    if not (which := alone or copies.uncopied):
        return OVER
    tasks = [format_task(task) for task in which]
    wrong = "without a copy in another process" if alone else "with fewer copies, though other processes could have one"
    return Holds(
        min(one.since for one in which.values()),
        f"{group_id} has streams.num.standby.replicas {copies.standby_replicas}, but "
        f"{count(len(tasks), 'task')} {wrong}: {first_of(tasks, _IN_SUMMARY)}",
        {"tasks": tasks[:_IN_DETAILS], "task_count": len(tasks), "num_standby_replicas": copies.standby_replicas},
        severity=None if alone else INFO,
    )


def _rewound(group_id: str, facts: EngineFacts) -> Truth:
    if facts.observed.work is None:
        return None
    work = facts.observed.work.get(group_id)
    if work is None:
        return OVER
    wrong, history = work.rewound, facts.observed.histories.get(group_id, NO_HISTORY)
    # for a group of another type it is not known whether somebody reset its offsets
    if wrong is None or wrong.tasks <= {None} or _was_reset(history, to_time(wrong.since)):
        alert = facts.open.get(AlertKey(_REWOUND, group_id))
        places = alert.evidence.get("partitions", ()) if alert else ()
        is_hidden = any((one["topic"], one["partition"]) in work.without_status for one in places)
        return None if work.is_blind or is_hidden else OVER
    since = to_time(wrong.since)
    offsets = (f"{one.topic}-{one.partition} from {one.rewound_from}" for one in islice(wrong.named, _IN_SUMMARY))
    named = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset_status": one.offset_status,
            "task": one.task_id or "",
            **_owner(one),
            **({} if one.committed_offset is None else {"committed_offset": one.committed_offset}),
        }
        for one in wrong.named
    ]
    return Holds(
        since,
        f"{group_id} committed lower offsets than before in {count(wrong.count, 'partition')} while it had members, at "
        f"{utc(since)}: "
        f"{'; '.join(offsets)}",
        # without numbers that change at every pass
        {"partition_count": wrong.count, "lag_at_least": round_down(wrong.offsets), "partitions": named},
    )


def _was_reset(history: GroupHistory, at: datetime) -> bool:
    """Return whether the group had no members shortly before: Kafka's tools reset offsets only of an empty group."""
    changes = history.states
    is_empty = bool(changes) and changes[-1].new == EMPTY
    return is_empty or any(change.old == EMPTY and at - change.at <= _RESET_MINUTES for change in changes)


class Condition(NamedTuple):
    """When a rule about groups holds: by the records of a group, by other facts about it, or by either."""

    by_records: Callable[[GroupSnapshot, EngineFacts], Holds | None] = lambda _group, _facts: None
    about: Callable[[GroupSnapshot], object] = lambda _group: False
    """Whether the condition may hold by these records of a group, now or later."""
    statuses: frozenset[str] | None = None
    """The statuses of descriptions for which it may hold by records; None: any."""
    by_others: Callable[[str, EngineFacts], Truth] = lambda _group_id, _facts: OVER
    others: Callable[[Observed], Iterable[str] | None] = lambda _observed: ()
    """The groups for which it may hold by other facts; None: not known."""

    def is_about(self, group: GroupSnapshot) -> bool:
        """Return whether the condition may hold by the records of a group."""
        is_status = self.statuses is None or group.description_status in self.statuses
        return is_status and not group.is_of_other_type and group.state != DEAD and bool(self.about(group))

    def truth(self, group_id: str, group: GroupSnapshot | None, facts: EngineFacts) -> Truth:
        """Return whether the condition holds for a group. `group` is None if the group is deleted."""
        found = self.by_records(group, facts) if group and self.is_about(group) else None
        return found or self.by_others(group_id, facts)


CONDITIONS: dict[str, Condition] = {
    SET_ASIDE: Condition(_set_aside, attrgetter("set_aside_reason")),
    "StreamsGroupUnsolicitedDescription": Condition(_unsolicited, attrgetter("last_unsolicited_push_at")),
    DESCRIPTION_FAILED: Condition(
        partial(_not_stored, DESCRIPTION_FAILED),
        attrgetter("description_status"),
        _OF_PLUGIN,
        _lost,
        attrgetter("lost_descriptions"),
    ),
    DESCRIPTION_MISSING: Condition(
        partial(_not_stored, DESCRIPTION_MISSING),
        attrgetter("member_count"),
        frozenset({"NEVER_STORED", "STALE", "UNCERTAIN"}),
    ),
    "StreamsGroupMembersStale": Condition(_stale_members, attrgetter("stale_member_count")),
    "StreamsGroupInternalTopicMisconfigured": Condition(
        by_others=_misconfigured, others=attrgetter("topic_differences")
    ),
    "StreamsGroupStandbyBehind": Condition(
        by_others=_standbys,
        others=lambda observed: [one for one, of in (observed.copies or {}).items() if of.behind or of.uncopied],
    ),
    _REWOUND: Condition(
        by_others=_rewound, others=lambda observed: [one for one, work in (observed.work or {}).items() if work.rewound]
    ),
}
"""Rule -> its condition. The first one also fires if the evaluation of another rule failed (`rule_failed`)."""
