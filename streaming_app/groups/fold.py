"""Folds the records of one group, in log order, into its row and into events that describe the changes.

Theory of operation
-------------------
The broker writes the records of one operation (a join, a heartbeat, ...) with one timestamp. A change that is reverted
within the same operation is not an event, so changes are determined between operations: before the first record of an
operation, and after its last.

A batch can end in the middle of an operation. The row therefore keeps the changes made by the first part of it
(`last_changes`). When the next batch continues the operation, with the same timestamp, the events of the first part
are retracted (`retracted`) and the events of the whole operation are emitted. So the events do not depend on where the
log is cut into batches.

Records at or below the row's `last_offset` are skipped: reading a part of the log twice has no effect.

A compacted log holds only the newest record of each key, in any order. Its first records of a group, such as a topology
of months ago, say nothing of the state then, and the group's creation is in the log only if its first operation holds
record 17. Without it, times that the log does not prove are None, and values appear in events as new, not as changed.

A group can be created again without tombstones: compaction removed them, or a JoinGroup dropped an empty group in the
coordinator's memory. A record 17 with a lower epoch is such a new group. Other records of it may have come before, see
`Group.create_again`.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.groups import budget as budgets
from streaming_app.groups.budget import Budget, OverBudgetError, check_size
from streaming_app.groups.deployments import DEPLOYMENT, note_deployment
from streaming_app.groups.events import (
    CAUSES,
    EVENTS_LEFT_OUT,
    NOT_COMPARED,
    NOT_READY_REASON,
    REPLACING,
    UNKNOWN_STATE,
    Subject,
    collect_causes,
    group_values,
    make_events,
    member_values,
    retract,
    values_changed,
)
from streaming_app.groups.group import Change, Event, Group, GroupState, LogRecord, TopologyVersion
from streaming_app.groups.replay import RECORD_TYPES, apply
from streaming_app.groups.state_rules import NOT_READY, is_unsolicited
from streaming_app.groups.topology import topology_hash
from streaming_app.text import megabytes

CLASSIC_GROUP = 2  # record type of a classic group's metadata: a group id has one type at a time
CLASSIC = "classic"
GROUP_METADATA = 17
MEMBER_METADATA = 19
MEMBER_ASSIGNMENT = 22
TOPOLOGY = 23
_TOPOLOGIES = 20  # of a group in one batch: each may have a megabyte


class PassedNotReady(NamedTuple):
    """What the group was like when it became NotReady."""

    at: datetime | None
    offset: int
    group: Group
    """Its own values; its members may have changed since."""


@dataclass(slots=True)
class Fold:
    """Folds records into `group_state`; appends to `events` and `retracted` after each operation.

    `topologies` gets each topology that differs from the last one known under the group's id.

    Call `close` after the last record. `touched` is set once a record changed, or could have changed, the row.
    """

    group_state: GroupState
    exists: bool
    touched: bool = False
    events: list[Event] = field(default_factory=list)
    retracted: list[Event] = field(default_factory=list)
    topologies: list[TopologyVersion] = field(default_factory=list)
    budget: Budget = budgets.DEFAULT
    size: int = 0
    """Bytes of the group, roughly, as of the last `close`."""
    steps: int = 0
    """How many were taken, see `count_steps`."""
    _unchecked: int = 0
    """Bytes of records since the size of the group was looked at."""
    _event_bytes: int = 0
    _events_left_out: int = 0
    _values: dict[Subject, str | None] | None = None
    """The values of the group after the last operation; None before the first."""
    _before: dict[Subject, str | None] = field(default_factory=dict)
    _since: dict[str, datetime | None] = field(default_factory=dict)
    _kept_before: dict[str, str | None] = field(default_factory=dict)
    """What the row keeps for later operations, as it was before the current one, see `_KEPT`."""
    _saved: set[str] = field(default_factory=set)
    """Members whose values before the current operation are in `_before`."""
    _not_ready: PassedNotReady | None = None
    """Of the newest time that the group became NotReady, if nothing says yet why."""
    passed_not_ready: list[PassedNotReady] = field(default_factory=list)
    """Of the times that it no longer is: without them the batch would lose why it was."""
    _in_operation: bool = False
    _is_continuation: bool = False

    @classmethod
    def of(
        cls, group_id: str, source_partition: int, stored: GroupState | None, budget: Budget = budgets.DEFAULT
    ) -> Fold:
        """Start from a stored state, or from an unknown group."""
        state = stored or GroupState(Group(group_id), source_partition)
        fold = cls(state, exists=stored is not None, budget=budget)
        if state.state == NOT_READY and state.not_ready_reason is None:  # the fold before could not find out why
            fold._not_ready = fold._not_ready_now(state.state_since)
        return fold

    def add(self, records: Iterable[LogRecord]) -> None:
        """Fold records in offset order. Raises OverBudgetError if the group needs too much for that."""
        for record in records:
            if record.offset > self.group_state.last_offset:
                self._add(record)

    def copy(self) -> Fold:
        """Return a copy, which changes no more when this fold goes on."""
        return replace(
            self,
            group_state=self.group_state.copy(),
            **{name: copy(getattr(self, name)) for name in _COPIED},
        )

    def close(self) -> None:
        """Complete the current operation. The next batch may still continue it. Raises OverBudgetError."""
        if self._in_operation:
            self._emit_events()
            self._in_operation = False
            self._report_events_left_out()
            self._check_size()

    def count_steps(self, steps: int) -> None:
        """Count steps that were done for the group. Raises OverBudgetError."""
        self.steps += steps
        if self.steps > self.budget.steps:
            raise OverBudgetError(f"it takes more than {self.budget.steps:,} steps to fold its records of one batch")

    def _check_size(self) -> None:
        self._unchecked = 0
        self.size = check_size(self.group_state.group, self.budget)

    def set_not_ready_reason(self, reason: str | None) -> None:
        """Set why the group is NotReady, None in other states; call it after `close`. A changed reason is an event.

        Only the first change after an operation is an event. A later one, without a record in between, only updates
        the row: it has no offset of its own in the log.
        """
        group_state = self.group_state
        if reason == group_state.not_ready_reason:
            return
        if not any(change.what == NOT_READY_REASON for change in group_state.last_changes):
            old, offset = group_state.not_ready_reason, group_state.last_offset
            group_state.last_changes.append(Change(NOT_READY_REASON, None, old, offset))
            if reason is not None:
                self.events.append(Event(group_state.updated_at, NOT_READY_REASON, None, old, reason, offset))
        group_state.not_ready_reason = reason
        self.touched = True

    def _not_ready_now(self, since: datetime | None) -> PassedNotReady:
        return PassedNotReady(since, self.group_state.last_offset, copy(self.group_state.group))

    def add_passed_reason(self, passed: PassedNotReady, reason: str) -> None:
        """Add the event that says why the group was NotReady."""
        self._add_events([Event(passed.at, NOT_READY_REASON, None, None, reason, passed.offset)])

    def _add(self, record: LogRecord) -> None:
        is_known = self.exists and not self.group_state.group.deleted
        if record.record_type == CLASSIC_GROUP:
            self._add_classic(record, is_known=is_known)
            return
        if record.record_type not in RECORD_TYPES or (record.value is None and not is_known):
            return  # a tombstone for an unknown group has no effect
        self._start_operation(record.timestamp)
        self._count(record)
        self._keep_topology_of_older_release()
        if not is_known:
            self._create_group(record)
        self._save_members_of(record)
        if record.record_type == GROUP_METADATA and record.value is not None:
            self._set_metadata(record, record.value)
        else:
            apply(self.group_state.group, record.record_type, record.key, record.value, record.timestamp)
        if record.record_type == TOPOLOGY and record.value is not None:
            self._compare_topology(record)
        self.group_state.last_offset = record.offset
        self.touched = True

    def _count(self, record: LogRecord) -> None:
        self.count_steps(1)
        self._unchecked += record.size
        if self._unchecked > self.budget.operation_bytes:
            raise OverBudgetError(f"one operation has more than {megabytes(self.budget.operation_bytes)} of records")

    def _set_metadata(self, record: LogRecord, value: dict[str, Any]) -> None:
        """Apply a value of record 17, which may be that of a group created again."""
        epoch = self.group_state.group.group_epoch
        if epoch is not None and value["epoch"] < epoch:
            self._create_again(record)
        group = self.group_state.group
        before = (group.stored_description_epoch, group.failed_description_epoch)
        was_stored_once = group.was_description_stored(group.topology_epoch)
        is_first_known = epoch is None and self.group_state.first_seen_at != record.timestamp
        at = None if is_first_known else record.timestamp
        apply(group, record.record_type, record.key, value, at)
        group.metadata_at = record.timestamp
        stored = group.stored_description_epoch
        if is_unsolicited(
            group.topology_epoch,
            before,
            stored,
            has_members=group.has_members,
            was_stored_once=was_stored_once,
        ):
            self._count_unsolicited_push(record)

    def _start_operation(self, at: datetime | None) -> None:
        """Start the operation of this time, unless it is the current one."""
        group_state = self.group_state
        same_time = at is not None and at == group_state.updated_at  # a record without a time is its own operation
        if self._in_operation and same_time:
            return
        if self._in_operation:
            self._emit_events()
            if self._unchecked > self.budget.bytes:
                self._check_size()
        self._is_continuation = same_time
        self._in_operation = True
        self._saved = set()
        if not self._is_continuation and group_state.group.group_epoch is None:
            group_state.first_seen_at = None  # an operation without record 17 is not the creation
        if self._values is None:
            self._values = group_values(group_state.group, group_state.topology_hash, exists=self.exists)
        self._before = dict(self._values)
        self._kept_before = {what: getattr(group_state.group, name) for what, name in _KEPT.items()}
        if self._is_continuation:  # the previous batch ended within this operation, or within its millisecond
            changes = [change for change in group_state.last_changes if change.what not in NOT_COMPARED]
            self._before.update({(change.what, change.member_id): change.old for change in changes})
            # not what `_revert_last_changes` leaves: a group that was deleted and created again begins without them
            self._kept_before |= {one.what: one.old for one in group_state.last_changes if one.what in _KEPT}
            _revert_last_changes(group_state)
        self._since = {"state": group_state.state_since, "description_status": group_state.description_since}
        group_state.updated_at = at

    def _create_group(self, record: LogRecord) -> None:
        """Start a new group; nothing is kept of a deleted group with the same id."""
        self._since = {}
        self.group_state = GroupState(
            Group(self.group_state.group.group_id),
            self.group_state.source_partition,
            last_offset=self.group_state.last_offset,
            first_seen_at=record.timestamp,
            updated_at=self.group_state.updated_at,
            last_changes=self.group_state.last_changes,
            topology_hash=self.group_state.topology_hash,
        )
        self.exists = True

    def _create_again(self, record: LogRecord) -> None:
        """Start a new group; of what is known only that is kept which is of the new one."""
        self.count_steps(len(self.group_state.group.members))
        old = self.group_state.group
        for member_id in old.members:
            self._save_member(old, member_id)
        self._before["group", None] = None
        at = record.timestamp  # as in the row, which knows of its operation also where a batch ended within it
        joined = {one.member_id for one in old.members.values() if at is not None and one.updated_at == at}
        self._create_group(record)
        self.group_state.group = old.create_again(joined)

    def _add_classic(self, record: LogRecord, *, is_known: bool) -> None:
        if is_known:
            self._start_operation(record.timestamp)
            self._replace_with_classic_group(record)
        elif record.value is not None and self.exists and self.group_state.group.group_type != CLASSIC:
            # The broker's own conversion writes the tombstones first, in the same operation.
            if record.timestamp is not None and record.timestamp == self.group_state.updated_at:
                self._start_operation(record.timestamp)
            else:
                self.close()
            self.group_state.group.group_type = CLASSIC
            self.group_state.last_offset = record.offset
            self.touched = True

    def _replace_with_classic_group(self, record: LogRecord) -> None:
        """Delete the group: a classic group now has this id, or its tombstone removes any group with this id."""
        group = self.group_state.group
        for member_id in group.members:
            self._save_member(group, member_id)
        apply(group, GROUP_METADATA, {}, None, record.timestamp)
        if record.value is not None:
            group.group_type = CLASSIC
        self.group_state.last_offset = record.offset
        self.touched = True

    def _save_members_of(self, record: LogRecord) -> None:
        """Save the values that the members named by the record had before the operation."""
        group = self.group_state.group
        if record.record_type in {MEMBER_METADATA, MEMBER_ASSIGNMENT}:
            self._save_member(group, record.key["member_id"], with_identity=record.record_type == MEMBER_METADATA)
        elif record.record_type == GROUP_METADATA and record.value is None:
            self.count_steps(len(group.members))
            for removed in group.members:
                self._save_member(group, removed)

    def _save_member(self, group: Group, member_id: str, *, with_identity: bool = True) -> None:
        if member_id in self._saved and not with_identity:
            return
        self._saved.add(member_id)
        member = group.members.get(member_id)
        for subject, value in member_values(member_id, member, with_identity=with_identity).items():
            self._before.setdefault(subject, value)

    def _compare_topology(self, record: LogRecord) -> None:
        """Keep the topology of this record if it is another one than the last one known under the group's id.

        The event is of this record and not of its operation, so it does not depend on where a batch ends.
        """
        group_state = self.group_state
        old, new = group_state.topology_hash, topology_hash(group_state.group.subtopologies)
        if new == old:
            return
        if old is not None:
            self._add_events([Event(record.timestamp, "topology", None, old, new, record.offset)])
        self._add_topology(new, record.timestamp, record.offset)

    def _keep_topology_of_older_release(self) -> None:
        """Keep the topology of a row without a hash, as releases wrote it that kept only the newest topology."""
        group = self.group_state.group
        if self.group_state.topology_hash is None and group.topology_epoch is not None:
            first_seen_at = group.topology_epochs.get(group.topology_epoch, {}).get("first_seen_at")
            self._add_topology(topology_hash(group.subtopologies), first_seen_at, self.group_state.last_offset)

    def _add_topology(self, own_hash: str, first_seen_at: datetime | None, offset: int) -> None:
        group = self.group_state.group
        epoch = group.topology_epoch or 0
        if len(self.topologies) < _TOPOLOGIES:
            self.topologies.append(TopologyVersion(own_hash, epoch, first_seen_at, group.subtopologies, offset))
        else:
            self._events_left_out += 1
        self.group_state.topology_hash = own_hash

    def _count_unsolicited_push(self, record: LogRecord) -> None:
        group_state = self.group_state
        group_state.unsolicited_pushes += 1
        group_state.last_unsolicited_push_at = record.timestamp
        epoch = str(group_state.group.topology_epoch)
        self._add_events([Event(record.timestamp, "unsolicited_push", None, None, epoch, record.offset)])

    def _emit_events(self) -> None:
        """Emit an event for each value that the operation changed, and update the times."""
        group_state, group = self.group_state, self.group_state.group
        self._values = group_values(group, group_state.topology_hash, exists=self.exists)
        after = dict(self._values)
        for member_id in {member_id for _, member_id in self._before if member_id is not None}:
            after.update(member_values(member_id, group.members.get(member_id), with_identity=True))
        if self._is_continuation:
            self.retracted += retract(group_state.updated_at, group_state.last_changes)
        changes = values_changed(self._before, after)
        causes = collect_causes(group, changes)
        self._add_events(make_events(group_state.updated_at, group_state.last_offset, changes, causes))
        if deployment := note_deployment(group, changes, group_state.updated_at, group_state.last_offset):
            self._add_events([deployment])
            changes = {**changes, (DEPLOYMENT, None): (deployment.old, deployment.new)}
        kept = {what: (self._kept_before[what], getattr(group, name)) for what, name in _KEPT.items()}
        changes = {**changes, **{(what, None): pair for what, pair in kept.items() if pair[0] != pair[1]}}
        group_state.last_changes = [
            Change(*subject, old, group_state.last_offset, self._since.get(subject[0]))
            for subject, (old, _) in changes.items()
        ]
        _update_times(group_state)
        old, new = changes.get(("state", None), (None, None))
        if new == NOT_READY:
            self._not_ready = self._not_ready_now(group_state.updated_at)
        elif old == NOT_READY and self._not_ready:
            self.passed_not_ready.append(self._not_ready)
            self._not_ready = None

    def _add_events(self, events: Iterable[Event]) -> None:
        """Add events as far as the budget goes, and count the others."""
        for event in events:
            self._event_bytes += len(event.old or "") + len(event.new or "")
            if len(self.events) < self.budget.events and self._event_bytes <= self.budget.event_bytes:
                self.events.append(event)
            else:
                self._events_left_out += 1

    def _report_events_left_out(self) -> None:
        """Say in the history that, and how many, events are missing."""
        if self._events_left_out:
            at, offset = self.group_state.updated_at, self.group_state.last_offset
            self.events.append(Event(at, EVENTS_LEFT_OUT, None, None, str(self._events_left_out), offset))
            self._events_left_out = 0


_KEPT = {CAUSES: "causes_since_assignment", REPLACING: "replacing"}
"""`what` of a change to the field of `Group` that later operations need."""
_COPIED = (
    "events",
    "retracted",
    "topologies",
    "passed_not_ready",
    "_values",
    "_before",
    "_since",
    "_kept_before",
    "_saved",
)
"""The collections of a fold, whose elements never change."""


def _update_times(group_state: GroupState) -> None:
    """Take over the state and the status of the description, after an operation, and since when the new ones hold."""
    group = group_state.group
    was_known = group_state.state not in (None, UNKNOWN_STATE) or group_state.first_seen_at == group_state.updated_at
    at = group_state.updated_at if was_known and group.state != UNKNOWN_STATE else None
    if group_state.state != group.state:
        group_state.state, group_state.state_since = group.state, at
    if group_state.description_status != group.description_status:
        group_state.description_status, group_state.description_since = group.description_status, at
    group_state.deleted_at = group_state.updated_at if group.deleted else None


def _revert_last_changes(group_state: GroupState) -> None:
    """Restore the states and times from before the operation: its second part may undo changes of the first."""
    if group_state.first_seen_at == group_state.updated_at:  # the group was created in the first part
        group_state.state = group_state.state_since = None
        group_state.description_status = group_state.description_since = None
        group_state.not_ready_reason = None
        for name in _KEPT.values():
            setattr(group_state.group, name, None)
    for change in group_state.last_changes if group_state.state else ():
        if change.what == "state":
            group_state.state = change.old or UNKNOWN_STATE
            group_state.state_since = change.since
        elif change.what == "description_status":
            group_state.description_status, group_state.description_since = change.old, change.since
        elif change.what == NOT_READY_REASON:
            group_state.not_ready_reason = change.old
        elif change.what in _KEPT:
            setattr(group_state.group, _KEPT[change.what], change.old)
