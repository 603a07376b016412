"""The rules about copies of tasks: how far behind they are, and where. Data and their conditions."""

from __future__ import annotations

from itertools import islice

from streaming_app.alerts.alert import INFO, Finding
from streaming_app.alerts.rule import (
    MINUTE,
    EvaluationContext,
    Rule,
    Threshold,
    Thresholds,
    format_time,
)
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.task_copies import effective_acceptable_lag, format_task
from streaming_app.text import count, first_of

_IN_SUMMARY, _IN_DETAILS = 3, 20


def _standby_behind(group: GroupCopies, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    if not group.behind:
        return None
    first = group.behind[0]
    places = [
        f"{format_task(one.copy.task)} at {one.copy.client_host or 'unknown host'}, process {one.copy.process_id}"
        for one in islice(group.behind, _IN_SUMMARY)
    ]
    details = {
        "standbys": [
            {
                "task": format_task(one.copy.task),
                "member_id": one.copy.member_id,
                "host": one.copy.client_host or "",
                "process_id": one.copy.process_id or "",
                "least_lag": one.least_lag,
            }
            for one in islice(group.behind, _IN_DETAILS)
        ],
        "acceptable_lag": effective_acceptable_lag(first.copy.acceptable_lag),
    }
    return Finding(
        first.since,
        f"{group.group_id}: {count(len(group.behind), 'standby')} not caught up since {format_time(first.since)}: "
        f"{first_of(places, _IN_SUMMARY, len(group.behind), separator='; ')}",
        details,
    )


def _without_copy(group: GroupCopies, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    if not group.standby_replicas or not group.uncopied:
        return None
    since, tasks = min(group.uncopied.values()), [format_task(task) for task in group.uncopied]
    return Finding(
        since,
        f"{group.group_id} has streams.num.standby.replicas {group.standby_replicas}, but "
        f"{count(len(tasks), 'task')} without a copy in another process: {first_of(tasks, _IN_SUMMARY)}",
        {"tasks": tasks[:_IN_DETAILS], "task_count": len(tasks), "num_standby_replicas": group.standby_replicas},
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
            "rebalance. If their process fails, all of their state must be restored."
        ),
        queries={
            "Which tasks have only one copy?": (
                'SELECT subtopology_id, "partition", count(DISTINCT process_id) AS processes FROM task_copies\n'
                "WHERE group_id = 'GROUP_ID' AND stateful GROUP BY subtopology_id, \"partition\"\n"
                'HAVING count(DISTINCT process_id) = 1 ORDER BY subtopology_id, "partition"'
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
