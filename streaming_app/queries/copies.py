"""The rows of `describe --copies`: the copies of tasks, what each process restores, and which processes may be stopped.

A process may be stopped if each of its stateful tasks can continue elsewhere without a restore: another process has the
task active, or a copy that is at most `acceptable.recovery.lag` behind. Copies of static members that left temporarily
do not count: nobody runs them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from streaming_app.groups import task_copies
from streaming_app.groups.group import ACTIVE
from streaming_app.groups.snapshot import AWAY_EPOCH
from streaming_app.groups.state_rules import STABLE
from streaming_app.groups.task_copies import TaskCopy, TaskId
from streaming_app.tables.reader import Row, WarehouseReader, of_groups
from streaming_app.tables.task_copies_table import read_copies
from streaming_app.text import first_of, rank

_OBSTACLES = 3  # that are named; further ones are only counted


def check_stops(
    copies: Iterable[TaskCopy], acceptable_lag: int = task_copies.DEFAULT_ACCEPTABLE_LAG, away: Collection[str] = ()
) -> list[Row]:
    """Return for each process of a group whether it may be stopped now without a restore, by host and process.

    `restoring` is the number of its tasks that restore their state; `lag`, `rate` and `ready_at` are of these, as in
    `CopiesSum`. `obstacles` has a text for each task that would need a restore; empty if the process may be stopped.
    `away`: members that left temporarily.
    """
    by_process: defaultdict[tuple[str, str], list[TaskCopy]] = defaultdict(list)
    by_task: defaultdict[TaskId, list[TaskCopy]] = defaultdict(list)
    for copy in copies:
        by_process[copy.client_host or "", copy.process_id or ""].append(copy)
        if copy.member_id not in away:
            by_task[copy.task].append(copy)
    return [
        {
            "process_id": own[0].process_id,
            "client_host": own[0].client_host,
            "copies": len(own),
            "restoring": restores.copies,
            "lag": restores.lag,
            "rate": restores.rate,
            "ready_at": restores.ready_at,
            "obstacles": [*_obstacles(own, by_task, acceptable_lag)],
        }
        for _, own in sorted(by_process.items())
        for restores in [task_copies.sum_copies(own)[task_copies.RESTORING]]
    ]


def _obstacles(own: Iterable[TaskCopy], by_task: Mapping[TaskId, list[TaskCopy]], acceptable: int) -> Iterator[str]:
    for task, copy in sorted(
        {copy.task: copy for copy in own if copy.stateful and copy.role != task_copies.DORMANT}.items()
    ):
        others = [one for one in by_task.get(task, ()) if one.process_id != copy.process_id]
        name, lags = task_copies.format_task(task), [one.lag for one in others if one.lag is not None]
        if (
            any(one.role in {ACTIVE, task_copies.RESTORING} for one in others)
            or min(lags, default=acceptable + 1) <= acceptable
        ):
            continue
        if not others:
            yield f"{name} has no other copy"
        elif lags:
            yield f"{name}: the best other copy is {min(lags):,} behind, more than {acceptable:,}"
        else:
            yield f"{name}: the lag of the other {'copies' if len(others) > 1 else 'copy'} is not known"


def read_reports(warehouse: WarehouseReader, cluster: str, groups: Sequence[Row]) -> list[Row]:
    """Return what `describe --copies --json` prints of these rows of `groups`: their copies, by task, and processes.

    `may_stop` is null while the group rebalances: its tasks do not stay where they are.
    """
    by_group: defaultdict[str, list[TaskCopy]] = defaultdict(list)
    for copy in read_copies(warehouse, of_groups(cluster, [group["group_id"] for group in groups])):
        by_group[copy.group_id].append(copy)
    return [_report(group, by_group[group["group_id"]]) for group in groups]


def _report(group: Row, known: list[TaskCopy]) -> Row:
    members = group["members"] or ()
    copies = task_copies.with_offsets(
        task_copies.copies_of_row(group), known, {member["member_id"] for member in members}
    )
    copies.sort(key=lambda one: (one.task, rank(one.role, task_copies.ROLE_ORDER), one.process_id or ""))
    own = next((copy.acceptable_lag for copy in known if copy.acceptable_lag is not None), None)
    acceptable = task_copies.DEFAULT_ACCEPTABLE_LAG if own is None else own
    away = {member["member_id"] for member in members if member["member_epoch"] == AWAY_EPOCH}
    tags = {member["process_id"]: dict(member["client_tags"] or ()) for member in members}
    return {
        "group_id": group["group_id"],
        "state": group["state"],
        "acceptable_recovery_lag": acceptable,
        "acceptable_recovery_lag_is_default": own is None,
        "copies": [copy._asdict() for copy in copies],
        "processes": [
            {
                **check,
                "client_tags": tags.get(check["process_id"], {}),
                "may_stop": not check["obstacles"] if group["state"] == STABLE else None,
            }
            for check in check_stops(copies, acceptable, away)
        ],
    }


def lacks_offsets(report: Row) -> bool:
    """Return whether a group has stateful copies, and the lag of every one is unknown."""
    stateful = [copy for copy in report["copies"] if copy["stateful"]]
    return bool(stateful) and all(copy["task_offset"] is None for copy in stateful)


def copy_rows(report: Row) -> list[Row]:
    """Return a row for each copy, by task, the active copy first."""
    return [
        {
            "GROUP": copy["group_id"],
            "TASK": task_copies.format_task((copy["subtopology_id"], copy["partition"])),
            "ROLE": copy["role"].upper(),
            "STATEFUL": "yes" if copy["stateful"] else "no",
            "HOST": copy["client_host"],
            "PROCESS": copy["process_id"],
            "MEMBER": copy["member_id"],
            "LAG": copy["lag"],
            "END": copy["task_end_offset"],
            "DONE": _share(copy),
            "RATE": _rounded(copy["rate"]),
            "REPORTED": copy["reported_at"],
            "READY": copy["ready_at"],
        }
        for copy in report["copies"]
    ]


def process_rows(report: Row) -> list[Row]:
    """Return a row for each process: what it restores, and why it may not be stopped now without a restore."""
    not_now = f"the group is {report['state']}"
    return [
        {
            "PROCESS": one["process_id"],
            "HOST": one["client_host"],
            "TAGS": ",".join(f"{name}={value}" for name, value in one["client_tags"].items()),
            "COPIES": one["copies"],
            "RESTORING": one["restoring"],
            "LAG": one["lag"],
            "RATE": _rounded(one["rate"]),
            "READY": one["ready_at"],
            "MAY-STOP": {True: "yes", False: "no", None: "not now"}[one["may_stop"]],
            "WHY": not_now if one["may_stop"] is None else first_of(one["obstacles"], _OBSTACLES, separator="; "),
        }
        for one in report["processes"]
    ]


def _share(copy: Row) -> str | None:
    """Return the share of its changelogs that a copy has; 100 % only if it has everything."""
    offset, end = copy["task_offset"], copy["task_end_offset"]
    return None if copy["lag"] is None or offset is None or not end else f"{100 * min(offset, end) // end}%"


def _rounded(rate: float | None) -> int | None:
    return None if rate is None else round(rate)
