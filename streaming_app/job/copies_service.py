"""The service that asks the brokers for the copies of tasks at intervals, and keeps the table `task_copies`.

Theory of operation
-------------------
The service asks only for running groups, once a minute, since clients report as often. A pass comes ten seconds after
the previous one. It asks for groups that have changed since then, because the copies of members that left are gone. It
also asks for groups that changed within the last two minutes and for groups that restore, so that their reports are
seen soon. A group without state is asked for only when it has changed, so a cluster of stateless groups costs nothing.
Of groups that are at rest, or that the brokers cannot describe, a pass asks for `_AT_REST`, longest unasked first: so
with more than 6,000 of them each has its turn after more than a minute. A pass looks at no other group at rest.
The pause after a pass is at least four times as long as the pass, so that describing many groups does not slow the
stream down. The table is written only if something has changed.

The copies of groups with the classic protocol come from the log: they are read again when their row has changed.

If the principal may not describe a group, its copies come from the log, without offsets. If a group cannot be described
for another reason, its earlier copies stay. The job's first pass waits until it has caught up.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any

from streaming_app.chunks import chunks
from streaming_app.groups.group import CLASSIC, STREAMS
from streaming_app.groups.snapshot import REBALANCING, GroupSnapshot, Versions, changed
from streaming_app.groups.state_rules import DEAD, STABLE
from streaming_app.groups.task_copies import (
    RESTORING,
    CopiesSum,
    GroupCopies,
    TaskCopy,
    copies_of_description,
    copies_of_row,
    next_status,
    sum_copies,
)
from streaming_app.job.service import Job, Poller
from streaming_app.kafka import AUTHORIZATION_CODES
from streaming_app.kafka.client import StreamsGroupClient, describe_each
from streaming_app.kafka.protocol import GroupError
from streaming_app.tables.reader import of_groups
from streaming_app.tables.task_copies_table import TaskCopiesTable
from streaming_app.text import EPOCH, count

_NEEDS = "task copies need Describe on the groups and on their topics"
_GROUPS_PER_QUERY = 1_000
_PASS_SECONDS = 10.0
_PAUSE_FACTOR = 4  # times the duration of the last pass
_ASKED_FOR = timedelta(minutes=1)
_AT_REST = 1_000  # groups without news in a pass
_MOVED_FOR = timedelta(minutes=2)  # within this time each moved task has reported whether it restores
_RUNS = frozenset({*REBALANCING, STABLE})

_KEY = attrgetter("key")

_Version = tuple[int | None, int | None, int | None, int]
"""A value that changes when a group's tasks may have moved."""


@dataclass(slots=True)
class _AskedGroup:
    """The known facts about a group."""

    copies: list[TaskCopy] = field(default_factory=list)
    sums: Mapping[str, CopiesSum] | None = None
    """Those of the copies; None: not computed yet."""
    version: _Version | None = None
    asked: _Version | None = None
    """The version at which the brokers were asked, whatever they answered."""
    asked_at: datetime = EPOCH
    changed_at: datetime = EPOCH
    is_stateless: bool = False
    status: GroupCopies | None = None
    standby_replicas: int | None = None

    def moves(self, now: datetime) -> bool:
        """Return whether its tasks may move."""
        return abs(now - self.changed_at) < _MOVED_FOR or any(copy.role == RESTORING for copy in self.copies)

    def is_due(self, now: datetime) -> bool:
        """Return whether its tasks may move, or it was asked for a minute ago."""
        return self.moves(now) or abs(now - self.asked_at) >= _ASKED_FOR


class TaskCopies(Poller):
    """Polls from `start` to `close`; `statuses` is for the alerts."""

    def __init__(self, job: Job, acceptable_lags: Callable[[], Mapping[str, int]] = dict) -> None:
        """Prepare for the groups of a job, whose health notes when brokers described groups.

        `acceptable_lags` returns by group the config `streams.acceptable.recovery.lag`, where it is known.
        """
        super().__init__("task copies", job, _NEEDS)
        self._acceptable_lags = acceptable_lags
        self._table = TaskCopiesTable(job.config.warehouse, job.config.cluster, job.fence)
        self._known: dict[str, _AskedGroup] = {}
        self._classic: dict[str, list[TaskCopy]] = {}
        self._newest: Mapping[str, GroupSnapshot | None] = {}
        """The groups of the last pass; before the first one, those of the table."""
        self._restless: dict[str, None] = {}
        """Running groups that each pass looks at: they are new, have changed, or their tasks move."""
        self._at_rest: dict[str, None] = {}
        """The other ones that have state, longest unasked first."""
        self._unshown = set[str]()
        self._is_read = self._is_stored = False
        self._statuses: Versions[GroupCopies] | None = None
        self._sums = Versions[Mapping[str, CopiesSum]]()

    def statuses(self) -> Mapping[str, GroupCopies] | None:
        """Return the status of each running group by id, as of the last pass; None before the first one."""
        return self._statuses

    def sums(self) -> Mapping[str, Mapping[str, CopiesSum]]:
        """Return the sums of each running group, as of the last pass."""
        return self._sums

    def pause(self, seconds: float) -> float:
        """Return the time until the next pass."""
        return max(_PASS_SECONDS, _PAUSE_FACTOR * seconds)

    def tick(self) -> None:
        """Make one pass. Raises the errors of brokers and tables."""
        if not self._is_read:
            for copy in sorted(self._table.read(), key=_KEY):
                if copy.protocol == STREAMS:
                    self._known.setdefault(copy.group_id, _AskedGroup()).copies.append(copy)
                else:
                    self._classic.setdefault(copy.group_id, []).append(copy)
            self._is_read = self._is_stored = True
            self._newest = dict.fromkeys((*self._known, *self._classic))
        now, groups = self._now(), self._job.groups()
        differing = [*changed(self._newest, groups)]
        for group_id in differing:
            known, group = self._known.get(group_id), groups.get(group_id)
            if group is None or not _is_asked_for(group):
                self._leave(group_id)
                self._is_stored &= not (known and self._known.pop(group_id).copies)
            elif known is None or known.asked != _version(group):
                self._leave(group_id)
                self._restless[group_id] = None
        self._unshown.update(differing)
        self._read_classic(differing, groups)
        self._newest = groups  # not after an error, so that the next pass sees once more what is new
        self._store()  # without the brokers
        if wanted := self._wanted(groups, now):
            with self._job.connection.use() as client:
                self._ask(client, wanted, groups, now)
            self._take_turns(wanted, groups, now)
            self._job.health.note(descriptions_at=now)
        self._unshown.update(wanted)
        self._show()
        self._store()

    def _leave(self, group_id: str) -> None:
        self._at_rest.pop(group_id, None)
        self._restless.pop(group_id, None)

    def _show(self) -> None:
        group_ids, self._unshown = self._unshown, set()
        statuses, sums = dict[str, GroupCopies](), dict[str, Mapping[str, CopiesSum]]()
        for group_id in group_ids:
            known = self._known.get(group_id, _AskedGroup())
            known.sums = sum_copies(known.copies) if known.sums is None else known.sums
            statuses |= {group_id: known.status} if known.status else {}
            sums |= {group_id: known.sums} if known.copies else {}
        self._statuses = (self._statuses or Versions()).after(statuses, group_ids - statuses.keys())
        self._sums = self._sums.after(sums, group_ids - sums.keys())

    def _store(self) -> None:
        if not self._is_stored and not self.stopping.is_set():
            copies = [*(group.copies for group in self._known.values()), *self._classic.values()]
            self._table.replace([copy for of_group in copies for copy in of_group])
            self._is_stored = True

    def _read_classic(self, differing: Collection[str], groups: Mapping[str, GroupSnapshot]) -> None:
        """Take from the log the copies of those classic groups among the differing ones."""
        living = [one for one in differing if one in groups and _is_living_classic(groups[one])]
        for group_id in set(differing).difference(living):
            self._is_stored &= not self._classic.pop(group_id, [])
        for row in self._rows(living):
            copies = sorted(copies_of_row(row), key=_KEY)
            self._is_stored &= copies == self._classic.get(row["group_id"], [])
            self._classic[row["group_id"]] = copies

    def _wanted(self, groups: Mapping[str, GroupSnapshot], now: datetime) -> list[str]:
        """Return the groups to ask for in this pass."""
        wanted = [
            group_id
            for group_id in self._restless
            if (known := self._known.get(group_id)) is None
            or known.asked != _version(groups[group_id])
            or known.is_due(now)
        ]
        turn = islice(self._at_rest, _AT_REST)
        return [*wanted, *takewhile(lambda group_id: self._known[group_id].is_due(now), turn)]

    def _take_turns(self, asked: Iterable[str], groups: Mapping[str, GroupSnapshot], now: datetime) -> None:
        """Note which of the groups that were asked for are at rest now."""
        for group_id in asked:
            self._leave(group_id)
            known, version = self._known[group_id], _version(groups[group_id])
            is_at_rest = not known.moves(now) and (known.status is None or known.status.is_at_rest)
            if known.asked != version:
                self._restless[group_id] = None
            elif not known.is_stateless or known.version != version:
                (self._at_rest if is_at_rest else self._restless)[group_id] = None

    def _ask(
        self, client: StreamsGroupClient, wanted: Sequence[str], groups: Mapping[str, GroupSnapshot], now: datetime
    ) -> None:
        described = describe_each(client, wanted)
        for group_id in wanted:
            self._known.setdefault(group_id, _AskedGroup()).asked_at = now
        for one in described:  # those of a request that failed as a whole are missing: the next pass asks again
            self._known[one["group_id"]].asked = _version(groups[one["group_id"]])
        denied = {one["group_id"]: one for one in described if one["error_code"] in AUTHORIZATION_CODES}
        known_groups = {one["group_id"]: one for one in described if not one["error_code"]}
        self._read_standbys(known_groups, groups)
        lags = self._acceptable_lags()
        for group_id, group in known_groups.items():
            copies = copies_of_description(group, lags.get(group_id), self._known[group_id].copies, now)
            self._set(group_id, copies, groups[group_id], now)
        self._use_log(denied, groups, now)
        line = None
        if denied:
            first = denied[min(denied)]
            error = GroupError(first["error_code"], first["error_message"])
            which = f"{count(len(denied), 'group')}, such as {first['group_id']!r}: {error}"
            line = f"the lag of the copies is not known of {which}; {_NEEDS}"
        self.report_denied(line)

    def _set(self, group_id: str, copies: list[TaskCopy], snapshot: GroupSnapshot, now: datetime) -> None:
        known, version = self._known[group_id], _version(snapshot)
        copies.sort(key=_KEY)
        if copies == known.copies and version == known.version and known.status and known.status.is_at_rest:
            return
        known.is_stateless = not any(copy.stateful for copy in copies)
        if known.version != version:
            known.version = version
            if self._statuses is not None:  # at the job's first pass it is not known when the tasks moved
                known.changed_at = now
        if snapshot.state == STABLE:  # in other states tasks move, and the earlier status stays
            known.status = next_status(copies, known.standby_replicas, known.status, now)
            copies = _with_estimates(copies, known.status)
        self._is_stored &= copies == known.copies
        known.copies, known.sums = copies, None

    def _read_standbys(self, group_ids: Iterable[str], groups: Mapping[str, GroupSnapshot]) -> None:
        """Read from the log how many standbys groups ask for."""
        versions = {group_id: self._known[group_id].version for group_id in group_ids}
        new = [one for one, known in versions.items() if known is None or known[0] != groups[one].group_epoch]
        for row in self._rows(new):
            replicas = dict(row["assignment_configs"] or {}).get("num.standby.replicas", "")
            self._known[row["group_id"]].standby_replicas = int(replicas) if replicas.isdecimal() else None

    def _use_log(self, group_ids: Collection[str], groups: Mapping[str, GroupSnapshot], now: datetime) -> None:
        """Take the copies from the log, for groups that may not be described."""
        changed = [g for g in group_ids if self._known[g].version != _version(groups[g])]
        for row in self._rows(changed):
            self._set(row["group_id"], copies_of_row(row), groups[row["group_id"]], now)

    def _rows(self, group_ids: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of these groups from the log. Raises WarehouseError when the table cannot be read."""
        for ids in chunks(group_ids, _GROUPS_PER_QUERY):
            yield from self._job.rows(
                "groups",
                "group_id, protocol, assignment_configs, tasks_moving, members, assignments, subtopologies",
                of_groups(self._job.config.cluster, ids),
            )


def _with_estimates(copies: Iterable[TaskCopy], status: GroupCopies) -> list[TaskCopy]:
    """Return the copies; those that make progress with their rate and the estimated time of completion."""
    known = {one.copy.key: one for one in (*status.behind, *status.restoring.values())}
    return [
        copy._replace(rate=one.rate, ready_at=one.ends_at) if (one := known.get(copy.key)) else copy for copy in copies
    ]


def _is_asked_for(group: GroupSnapshot) -> bool:
    """Return whether a streams group runs. One over its budget may be too large for a response with others."""
    runs = group.state in _RUNS and group.member_count
    return bool(runs and group.group_type == "streams" and not group.set_aside_reason)


def _is_living_classic(group: GroupSnapshot) -> bool:
    return group.protocol == CLASSIC and group.state != DEAD


def _version(snapshot: GroupSnapshot) -> _Version:
    return snapshot.group_epoch, snapshot.assignment_epoch, snapshot.topology_epoch, snapshot.last_offset
