"""What `copies` prints: the copies of a group's tasks, and which of its processes may be stopped without a restore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming_app.groups.state_rules import STABLE
from streaming_app.groups.task_copies import (
    ROLE_ORDER,
    StopCheck,
    TaskCopy,
    away_members,
    check_stops,
    copies_of_row,
    effective_acceptable_lag,
    format_task,
    with_offsets,
)
from streaming_app.queries.brokers import Brokers, read_brokers
from streaming_app.queries.groups import find_groups
from streaming_app.tables.reader import Row, WarehouseReader, of_group
from streaming_app.tables.task_copies_table import read_copies
from streaming_app.text import first_of

_OBSTACLES = 3  # named; of more, the number is printed


@dataclass(frozen=True)
class CopiesReport:
    """The copies of the tasks of one group."""

    group_id: str
    state: str
    acceptable_lag: int
    is_default_lag: bool
    """The group's own value is not known."""
    copies: list[TaskCopy]
    checks: list[StopCheck]
    brokers: Brokers

    @property
    def is_settled(self) -> bool:
        """Whether tasks are where they stay. Otherwise nothing is said of processes."""
        return self.state == STABLE

    @property
    def lacks_offsets(self) -> bool:
        """Whether nothing is known of how far behind any stateful copy is."""
        stateful = [copy for copy in self.copies if copy.stateful]
        return bool(stateful) and all(copy.task_offset is None for copy in stateful)

    def copy_rows(self) -> list[Row]:
        """Return a row for each copy: by task, the active one first."""
        ordered = sorted(self.copies, key=lambda one: (one.task, _role_order(one.role), one.process_id or ""))
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
                "REPORTED": copy.reported_at,
            }
            for copy in ordered
        ]

    def process_rows(self) -> list[Row]:
        """Return a row for each process: whether it may be stopped now without a restore, and why not."""
        return [
            {
                "PROCESS": check.process_id,
                "HOST": check.client_host,
                "COPIES": check.tasks,
                "MAY-STOP": ("yes" if check.may_stop else "no") if self.is_settled else "not now",
                "WHY": self._why_not(check),
            }
            for check in self.checks
        ]

    def _why_not(self, check: StopCheck) -> str:
        if not self.is_settled:
            return f"the group is {self.state}"
        return first_of(check.obstacles, _OBSTACLES, separator="; ")

    def to_json(self) -> dict[str, Any]:
        """Return what `copies --json` prints; `may_stop` is null while the group rebalances."""
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
                    "copies": check.tasks,
                    "may_stop": check.may_stop if self.is_settled else None,
                    "obstacles": list(check.obstacles),
                }
                for check in self.checks
            ],
        }


def _role_order(role: str) -> int:
    """Return the place of a role in the list; of one of a later release after the others."""
    return ROLE_ORDER.index(role) if role in ROLE_ORDER else len(ROLE_ORDER)


def read_report(warehouse: WarehouseReader, cluster: str, group_id: str) -> CopiesReport:
    """Return the report about a group. Raises WarehouseError if there is no such group."""
    (group,) = find_groups(warehouse, cluster, [group_id])
    known = read_copies(warehouse, of_group(cluster, group_id))
    copies = with_offsets(copies_of_row(group), known)
    own = next((copy.acceptable_lag for copy in known if copy.acceptable_lag is not None), None)
    acceptable = effective_acceptable_lag(own)
    checks = check_stops(copies, acceptable, away_members(group))
    brokers = read_brokers(warehouse, cluster)
    return CopiesReport(group_id, group["state"], acceptable, own is None, copies, checks, brokers)
