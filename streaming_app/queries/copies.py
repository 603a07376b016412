"""The rows of `describe --copies`: the copies of tasks, what each process restores, and which processes may be stopped.

A process may be stopped if each of its stateful tasks can continue elsewhere without a restore: another process has the
task active, or a copy that is at most `acceptable.recovery.lag` behind. Copies of static members that left temporarily
do not count: nobody runs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streaming_app.groups.snapshot import AWAY_EPOCH
from streaming_app.groups.state_rules import STABLE
from streaming_app.groups.task_copies import (
    ACTIVE,
    DEFAULT_ACCEPTABLE_LAG,
    DORMANT,
    RESTORING,
    ROLE_ORDER,
    CopiesSum,
    TaskCopy,
    TaskId,
    copies_of_row,
    format_task,
    sum_copies,
    with_offsets,
)
from streaming_app.queries.brokers import Brokers, read_brokers
from streaming_app.tables.reader import Row, WarehouseReader, of_groups
from streaming_app.tables.task_copies_table import read_copies
from streaming_app.text import first_of, rank

_OBSTACLES = 3  # that are named; further ones are only counted


class StopCheck(NamedTuple):
    """Whether a process may be stopped now without a restore."""

    process_id: str | None
    client_host: str | None
    copies: int
    """The number of copies of tasks that it has."""
    obstacles: tuple[str, ...]
    """One text for each task that would need a restore; empty if the process may be stopped."""
    restores: CopiesSum
    """The tasks whose state it is restoring."""


def check_stops(
    copies: Iterable[TaskCopy], acceptable_lag: int = DEFAULT_ACCEPTABLE_LAG, away: Collection[str] = ()
) -> list[StopCheck]:
    """Return a check for each process of a group, sorted by host and process; `away`: members that left temporarily."""
    by_process: defaultdict[tuple[str, str], list[TaskCopy]] = defaultdict(list)
    by_task: defaultdict[TaskId, list[TaskCopy]] = defaultdict(list)
    for copy in copies:
        by_process[copy.client_host or "", copy.process_id or ""].append(copy)
        if copy.member_id not in away:
            by_task[copy.task].append(copy)
    return [
        StopCheck(
            own[0].process_id,
            own[0].client_host,
            len(own),
            tuple(_obstacles(own, by_task, acceptable_lag)),
            sum_copies(own)[RESTORING],
        )
        for _, own in sorted(by_process.items())
    ]


def _obstacles(own: Iterable[TaskCopy], by_task: Mapping[TaskId, list[TaskCopy]], acceptable: int) -> Iterator[str]:
    for task, copy in sorted({copy.task: copy for copy in own if copy.stateful and copy.role != DORMANT}.items()):
        others = [one for one in by_task.get(task, ()) if one.process_id != copy.process_id]
        name, lags = format_task(task), [one.lag for one in others if one.lag is not None]
        if any(one.role in {ACTIVE, RESTORING} for one in others) or min(lags, default=acceptable + 1) <= acceptable:
            continue
        if not others:
            yield f"{name} has no other copy"
        elif lags:
            yield f"{name}: the best other copy is {min(lags):,} behind, more than {acceptable:,}"
        else:
            yield f"{name}: the lag of the other {'copies' if len(others) > 1 else 'copy'} is not known"


@dataclass(frozen=True)
class CopiesReport:
    """The copies of the tasks of one group."""

    group_id: str
    state: str
    acceptable_lag: int
    is_default_lag: bool
    """The group's own `acceptable.recovery.lag` is not known."""
    copies: list[TaskCopy]
    checks: list[StopCheck]
    brokers: Brokers
    tags: Mapping[str | None, Mapping[str, str]]
    """The client tags of each process."""

    @property
    def is_settled(self) -> bool:
        """Whether the tasks stay where they are. If not, the report says nothing about processes."""
        return self.state == STABLE

    @property
    def lacks_offsets(self) -> bool:
        """Whether the lag of every stateful copy is unknown."""
        stateful = [copy for copy in self.copies if copy.stateful]
        return bool(stateful) and all(copy.task_offset is None for copy in stateful)

    def copy_rows(self) -> list[Row]:
        """Return a row for each copy, by task, the active copy first."""
        ordered = sorted(self.copies, key=lambda one: (one.task, rank(one.role, ROLE_ORDER), one.process_id or ""))
        return [
            {
                "GROUP": copy.group_id,
                "TASK": format_task(copy.task),
                "ROLE": copy.role.upper(),
                "STATEFUL": "yes" if copy.stateful else "no",
                "HOST": copy.client_host,
                "PROCESS": copy.process_id,
                "MEMBER": copy.member_id,
                "LAG": copy.lag,
                "END": copy.task_end_offset,
                "DONE": _share(copy),
                "RATE": _rounded(copy.rate),
                "REPORTED": copy.reported_at,
                "READY": copy.ready_at,
            }
            for copy in ordered
        ]

    def process_rows(self) -> list[Row]:
        """Return a row for each process: what it restores, and why it may not be stopped now without a restore."""
        return [
            {
                "PROCESS": check.process_id,
                "HOST": check.client_host,
                "TAGS": ",".join(f"{name}={value}" for name, value in self.tags.get(check.process_id, {}).items()),
                "COPIES": check.copies,
                "RESTORING": check.restores.copies,
                "LAG": check.restores.lag,
                "RATE": _rounded(check.restores.rate),
                "READY": check.restores.ready_at,
                "MAY-STOP": ("no" if check.obstacles else "yes") if self.is_settled else "not now",
                "WHY": self._why_not(check),
            }
            for check in self.checks
        ]

    def _why_not(self, check: StopCheck) -> str:
        if not self.is_settled:
            return f"the group is {self.state}"
        return first_of(check.obstacles, _OBSTACLES, separator="; ")

    def to_json(self) -> dict[str, Any]:
        """Return what `describe --copies --json` prints; `may_stop` is null while the group rebalances."""
        return {
            "group_id": self.group_id,
            "state": self.state,
            "acceptable_recovery_lag": self.acceptable_lag,
            "acceptable_recovery_lag_is_default": self.is_default_lag,
            "copies": [copy._asdict() for copy in self.copies],
            "processes": [
                {
                    "process_id": check.process_id,
                    "client_host": check.client_host,
                    "client_tags": self.tags.get(check.process_id, {}),
                    "copies": check.copies,
                    "restoring": check.restores.copies,
                    "lag": check.restores.lag,
                    "rate": check.restores.rate,
                    "ready_at": check.restores.ready_at,
                    "may_stop": not check.obstacles if self.is_settled else None,
                    "obstacles": list(check.obstacles),
                }
                for check in self.checks
            ],
        }


def _share(copy: TaskCopy) -> str | None:
    """Return the share of its changelogs that a copy has; 100 % only if it has everything."""
    if copy.lag is None or copy.task_offset is None or not copy.task_end_offset:
        return None
    return f"{100 * min(copy.task_offset, copy.task_end_offset) // copy.task_end_offset}%"


def _rounded(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def read_reports(warehouse: WarehouseReader, cluster: str, groups: Sequence[Row]) -> list[CopiesReport]:
    """Return the reports about groups; `groups` are rows of `groups`."""
    by_group: defaultdict[str, list[TaskCopy]] = defaultdict(list)
    for copy in read_copies(warehouse, of_groups(cluster, [group["group_id"] for group in groups])):
        by_group[copy.group_id].append(copy)
    brokers = read_brokers(warehouse, cluster)
    return [_report(group, by_group[group["group_id"]], brokers) for group in groups]


def _report(group: Row, known: list[TaskCopy], brokers: Brokers) -> CopiesReport:
    members = group["members"] or ()
    copies = with_offsets(copies_of_row(group), known, {member["member_id"] for member in members})
    own = next((copy.acceptable_lag for copy in known if copy.acceptable_lag is not None), None)
    acceptable = DEFAULT_ACCEPTABLE_LAG if own is None else own
    away = {member["member_id"] for member in members if member["member_epoch"] == AWAY_EPOCH}
    checks = check_stops(copies, acceptable, away)
    tags = {member["process_id"]: dict(member["client_tags"] or ()) for member in members}
    return CopiesReport(group["group_id"], group["state"], acceptable, own is None, copies, checks, brokers, tags)
