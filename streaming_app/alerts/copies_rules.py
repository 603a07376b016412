"""The rules about who has which task: copies, how far behind they are, and members without. Data and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

from streaming_app.alerts.problem import INFO, Finding
from streaming_app.alerts.rule import (
    HOUR,
    MINUTE,
    NOT_DEAD,
    EvaluationContext,
    GroupRule,
    Rule,
    Thresholds,
    format_time,
    since_or_fallback,
)
from streaming_app.groups.copies_status import BehindCopy, GroupCopies
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import EMPTY
from streaming_app.groups.task_copies import effective_acceptable_lag, format_task
from streaming_app.text import count, first_of

_IN_SUMMARY, _IN_DETAILS = 3, 20


def _standby_behind(group: GroupCopies, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    copies = group.behind
    if not copies:
        return None
    since = copies[0].since
    return Finding(
        since,
        f"{group.group_id}: {count(len(copies), 'standby')} not caught up since {format_time(since)}: "
        f"{_copies_in_text(copies)}",
        _copies_in_details(copies),
    )


def _copies_in_text(copies: Sequence[BehindCopy]) -> str:
    places = [
        f"{format_task(one.copy.task)} at {one.copy.client_host or 'unknown host'}, process {one.copy.process_id}"
        for one in islice(copies, _IN_SUMMARY)
    ]
    return first_of(places, _IN_SUMMARY, len(copies), separator="; ")


def _copies_in_details(copies: Sequence[BehindCopy]) -> dict[str, object]:
    return {
        "standbys": [
            {
                "task": format_task(one.copy.task),
                "member_id": one.copy.member_id,
                "host": one.copy.client_host or "",
                "process_id": one.copy.process_id or "",
                "least_lag": one.least_lag,
            }
            for one in islice(copies, _IN_DETAILS)
        ],
        "acceptable_lag": effective_acceptable_lag(copies[0].copy.acceptable_lag),
    }


def _without_copy(group: GroupCopies, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    if not group.uncopied:
        return None
    alone = {task: one for task, one in group.uncopied.items() if one.processes == 1}
    which = alone or group.uncopied
    tasks = [format_task(task) for task in which]
    wrong = "without a copy in another process" if alone else "with fewer, though there are processes for them"
    return Finding(
        min(one.since for one in which.values()),
        f"{group.group_id} has streams.num.standby.replicas {group.standby_replicas}, but "
        f"{count(len(tasks), 'task')} {wrong}: {first_of(tasks, _IN_SUMMARY)}",
        {"tasks": tasks[:_IN_DETAILS], "task_count": len(tasks), "num_standby_replicas": group.standby_replicas},
        severity=None if alone else INFO,
    )


def _stale_members(group: GroupSnapshot, _thresholds: Thresholds, _context: EvaluationContext) -> Finding:
    epoch, stale = group.topology_epoch or 0, group.stale_member_count
    return Finding(
        since_or_fallback(group.stale_members_since, group),
        f"{group.group_id}: {count(stale, 'member')} of {group.member_count:,} with a topology older than the group's, "
        f"epoch {epoch}: they get no tasks",
        {"stale_members": stale, "members": group.member_count, "topology_epoch": epoch},
    )


_COPIES = (
    'SELECT subtopology_id, "partition", role, client_host, process_id, lag, acceptable_lag, reported_at\n'
    "FROM task_copies WHERE group_id = 'GROUP_ID' ORDER BY subtopology_id, \"partition\", role"
)

COPIES_RULES = (
    Rule(
        name="StreamsGroupStandbyBehind",
        find=_standby_behind,
        for_seconds=15 * MINUTE,
        meaning=(
            "A standby is further behind the end of its changelogs than the group's `streams.acceptable.recovery.lag` "
            "(10,000 offsets by default), and has not come nearer to it for 15 minutes. If the process that has the "
            "task active fails, the standby must restore what it lacks first. A new standby that restores is behind, "
            "too, but comes nearer, and fires nothing however long it takes. The job asks the brokers once a minute, "
            "and clients report once a minute."
        ),
        queries={"Which copies are there, and how far behind?": _COPIES},
        steps=(
            "One host or process: its disk or network is too slow, or its restore consumer failed. Search its log for "
            "`restore` and `TaskCorruptedException`, and restart it.",
            "All standbys of a task: more is written to its changelog than a standby restores. Compare the rate at "
            "which the task writes with what the hosts can read.",
            "A changelog was compacted or truncated below the standby: Kafka Streams then restores from the beginning.",
        ),
    ),
    Rule(
        name="StreamsGroupTaskWithoutCopy",
        find=_without_copy,
        for_seconds=15 * MINUTE,
        meaning=(
            "The group's config `streams.num.standby.replicas` asks for standbys, there are two processes or more, "
            "and yet stateful tasks have no copy in another process for 15 minutes in which the group did not "
            "rebalance. If their process fails, all of their state must be restored. It is info if each task has a "
            "copy elsewhere, and only fewer than are asked for, while there are processes without one."
        ),
        queries={
            "Which tasks have few copies?": (
                'SELECT subtopology_id, "partition", count(DISTINCT process_id) AS processes FROM task_copies\n'
                "WHERE group_id = 'GROUP_ID' AND stateful AND role <> 'dormant'\n"
                'GROUP BY subtopology_id, "partition" ORDER BY processes, subtopology_id, "partition" LIMIT 50'
            ),
            "Which copies are there?": _COPIES,
        },
        steps=(
            "Rack-aware assignment (`streams.rack.aware.assignment.tags`) finds no process with other tags: start one "
            "there, or correct the tags of the clients.",
            "The config was changed lately: the next rebalance assigns the standbys.",
            "Otherwise search the log of the group coordinator for warnings of the assignor.",
        ),
    ),
)
"""In the order of the runbook."""
MEMBER_RULES = (
    GroupRule(
        name="StreamsGroupMembersStale",
        find=_stale_members,
        for_seconds=HOUR,
        states=NOT_DEAD - {EMPTY},
        about=attrgetter("stale_member_count"),
        hidden_by=frozenset({"StreamsGroupDescriptionNotSolicited"}),
        meaning=(
            "Members have run a topology that is older than the group's for an hour. The coordinator admits them with "
            "the status STALE_TOPOLOGY, and gives them no tasks: their hosts do nothing. A rolling deployment leaves "
            "such members only until it reaches them."
        ),
        queries={
            "Which members, and where?": (
                "SELECT member_id, client_id, client_host, process_id, topology_epoch, joined_at FROM members\n"
                "WHERE group_id = 'GROUP_ID' AND stale_topology ORDER BY joined_at"
            ),
        },
        steps=(
            "A client of Kafka 4.4 always sends topology epoch 0, and the broker refuses a higher one: such members "
            "do not become current by a deployment. They are of another client, or the group's epoch was written by "
            "one.",
            "Some members are current: stop the stale ones, whose hosts the query names.",
            "All members are stale, and nothing is processed: stop all of them, delete the group once it is Empty "
            "(`kafka-streams-groups.sh --delete --group GROUP_ID`; its offsets go with it), and start one release.",
        ),
    ),
)
"""The same, about members."""
