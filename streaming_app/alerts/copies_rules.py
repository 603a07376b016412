"""The rules about who has which task: copies, how far behind they are, and members without. Data and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

from streaming_app.alerts.alert import INFO, Finding
from streaming_app.alerts.rule import (
    HOUR,
    MINUTE,
    NOT_DEAD,
    EvaluationContext,
    GroupRule,
    Rule,
    Threshold,
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
    return _late_copies(group, group.behind, "standby", "not caught up")


def _warmup_stays(group: GroupCopies, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    return _late_copies(group, group.warmups, "warm-up", "neither nearer to the end nor active")


def _late_copies(group: GroupCopies, copies: Sequence[BehindCopy], name: str, wrong: str) -> Finding | None:
    if not copies:
        return None
    since = copies[0].since
    return Finding(
        since,
        f"{group.group_id}: {count(len(copies), name)} {wrong} since {format_time(since)}: {_copies_in_text(copies)}",
        _copies_in_details(f"{name.replace('-', '')}s", copies),
    )


def _copies_in_text(copies: Sequence[BehindCopy]) -> str:
    places = [
        f"{format_task(one.copy.task)} at {one.copy.client_host or 'unknown host'}, process {one.copy.process_id}"
        for one in islice(copies, _IN_SUMMARY)
    ]
    return first_of(places, _IN_SUMMARY, len(copies), separator="; ")


def _copies_in_details(name: str, copies: Sequence[BehindCopy]) -> dict[str, object]:
    return {
        name: [
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


def _doubled(group: GroupCopies, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    if not group.doubled:
        return None
    places = [f"{format_task(task)} {' and '.join(one.places)}" for task, one in group.doubled.items()]
    return Finding(
        min(one.since for one in group.doubled.values()),
        f"{group.group_id}: {count(len(places), 'task')} in two places at once: "
        f"{first_of(places, _IN_SUMMARY, separator='; ')}",
        {"tasks": places[:_IN_DETAILS], "task_count": len(places)},
    )


def _stale_members(group: GroupSnapshot, _thresholds: Thresholds, _context: EvaluationContext) -> Finding:
    epoch, stale = group.topology_epoch or 0, group.stale_member_count
    return Finding(
        since_or_fallback(group.stale_members_since, group),
        f"{group.group_id}: {count(stale, 'member')} of {group.member_count:,} with a topology older than the group's, "
        f"epoch {epoch}: they get no tasks",
        {"stale_members": stale, "members": group.member_count, "topology_epoch": epoch},
    )


def _skew(group: GroupCopies, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    if len(group.loads) < 2 or group.loads_since is None:  # noqa: PLR2004 - there is nothing to compare
        return None
    most, members = group.loads[0], sum(load.members for load in group.loads)
    fair = sum(load.tasks for load in group.loads) / members
    excess = (most.tasks_per_member - fair) * most.members
    if most.tasks_per_member < fair * thresholds["ratio"] or excess < thresholds["tasks"]:
        return None
    least = group.loads[-1]
    return Finding(
        min(group.loads_since, context.now),
        f"{group.group_id}: {most.tasks:,} of {sum(load.tasks for load in group.loads):,} active tasks are on "
        f"{most.client_host or 'unknown host'}, process {most.process_id}, and {least.tasks:,} on "
        f"{least.client_host or 'unknown host'}, process {least.process_id}",
        {
            "processes": [
                {
                    "process_id": one.process_id,
                    "host": one.client_host or "",
                    "active_tasks": one.tasks,
                    "members": one.members,
                }
                for one in islice(group.loads, _IN_DETAILS)
            ],
        },
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
    Rule(
        name="StreamsGroupWarmupStays",
        find=_warmup_stays,
        severity=INFO,
        for_seconds=30 * MINUTE,
        meaning=(
            "A warm-up, which restores the state of a task so that the task can move there, has come no nearer to the "
            "end of its changelogs for 30 minutes in which the group did not rebalance; or it has been near enough, "
            "within `streams.acceptable.recovery.lag`, and the task has not moved. The task itself goes on where it "
            "is. Kafka 4.4.0 makes no new assignment when a warm-up has caught up."
        ),
        queries={"Which copies are there, and how far behind?": _COPIES},
        steps=(
            "Near enough: the next rebalance moves the task. Nothing needs to be done while the tasks are spread "
            "evenly enough.",
            "Not near: as for StreamsGroupStandbyBehind, search the log of that host for `restore` and "
            "`TaskCorruptedException`.",
        ),
    ),
    Rule(
        name="StreamsGroupTaskTwice",
        find=_doubled,
        for_seconds=5 * MINUTE,
        meaning=(
            "The brokers describe a task as active at two members, or as two copies in one process, for five minutes "
            "in which the group did not rebalance. Two members then process the same records, or one process lost "
            "the protection that a second copy is for. The coordinator should never assign that."
        ),
        queries={"Which copies are there, and where?": _COPIES},
        steps=(
            "Compare with the brokers: `streams-groups verify`.",
            "Active at two members: restart one of the two, so that the group gets a new assignment. Results that are "
            "not written exactly once may be there twice since then.",
            "Twice in one process: the second copy protects nothing, as both are lost with the process.",
            "Report it to the Kafka project, with the events of the group (`streams-groups history --group GROUP_ID`).",
        ),
    ),
    Rule(
        name="StreamsGroupTaskSkew",
        find=_skew,
        severity=INFO,
        for_seconds=30 * MINUTE,
        thresholds={
            "ratio": Threshold(2, "a process has at least so many times the tasks that are fair, for each member"),
            "tasks": Threshold(3, "and at least so many tasks more than are fair"),
        },
        meaning=(
            "One process has had at least twice as many active tasks for each of its members as all together have, for "
            "30 minutes in which the group did not rebalance. It is the first to fall behind. The broker's assignor "
            "spreads tasks evenly over members, so it is rare."
        ),
        queries={
            "How many tasks has each process?": (
                "SELECT process_id, client_host, count(DISTINCT member_id) AS members,\n"
                "  count(*) FILTER (WHERE role = 'active') AS active_tasks\n"
                "FROM task_copies WHERE group_id = 'GROUP_ID'\n"
                "GROUP BY process_id, client_host ORDER BY active_tasks DESC"
            ),
        },
        steps=(
            "The assignor keeps tasks where their state is: a process that was alone for a while keeps more of them. "
            "Restart the process with the most tasks.",
            "Subtopologies differ in load: what counts is the lag of the tasks, not their number. Then raise `ratio` "
            "for the group under `overrides`.",
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
