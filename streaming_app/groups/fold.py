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
    EVENTS_LEFT_OUT,
    NOT_READY_REASON,
    OF_OPERATION,
    TOPOLOGY_CONTENT,
    UNKNOWN_STATE,
    Changes,
    MemberValues,
    Values,
    collect_causes,
    group_values,
    make_events,
    member_values,
    retract,
)
from streaming_app.groups.group import SINCE, Change, Event, Group, GroupState, LogRecord, TopologyVersion
from streaming_app.groups.replay import RECORD_TYPES, apply
from streaming_app.groups.state_rules import NOT_READY, is_unsolicited
from streaming_app.groups.topology import topology_hash
from streaming_app.text import megabytes

CLASSIC_GROUP = 2  # record type of a classic group's metadata: a group id has one type at a time
CLASSIC = "classic"
GROUP_METADATA, TOPOLOGY = 17, 23
_OF_MEMBER = frozenset({19, 21, 22})
_TOPOLOGIES = 20  # of a group in one batch: each may have a megabyte

_KEPT = (*SINCE, NOT_READY_REASON, *OF_OPERATION)
"""Fields of `GroupState` that the second part of an operation begins with as they were before the first."""


class PassedNotReady(NamedTuple):
    """What the group was like when it became NotReady."""

    at: datetime | None
    offset: int
    group: Group
    """Its own values; its members may have changed since."""


@dataclass(slots=True)
class _Operation:
    """What the group was like before the operation whose records are being folded."""

    group: Values
    kept: dict[str, Any]
    """Fields of `GroupState`: those in `OF_OPERATION`, and the times that `SINCE` names."""
    is_continuation: bool
    """The batch before ended within the operation, or within its millisecond."""
    members: dict[str, MemberValues] = field(default_factory=dict)
    """Those that the operation may have changed."""

    def save(self, group: Group, member_ids: Iterable[str]) -> None:
        """Save the values of these members, unless they are."""
        for member_id in member_ids:
            if member_id not in self.members:
                self.members[member_id] = member_values(group, member_id)

    def changes(self, group: Group, values: Values) -> Changes:
        """Return what has changed; `values` are the values of the group now."""
        members = ((one, (old, member_values(group, one))) for one, old in self.members.items())
        return Changes(
            {name: (old, values[name]) for name, old in self.group.items() if old != values[name]},
            {member_id: pair for member_id, pair in members if pair[0] != pair[1]},
        )

    def copy(self) -> _Operation:
        """Return a copy, which changes no more when this one does."""
        return replace(self, group=dict(self.group), members=dict(self.members))


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
    passed_not_ready: list[PassedNotReady] = field(default_factory=list)
    """Of the times that it no longer is: without them the batch would lose why it was."""
    _not_ready: PassedNotReady | None = None
    """Of the newest time that the group became NotReady, if nothing says yet why."""
    _unchecked: int = 0
    """Bytes of records since the size of the group was looked at."""
    _event_bytes: int = 0
    _events_left_out: int = 0
    _values: Values | None = None
    """The values of the group after the last operation; None before the first."""
    _operation: _Operation | None = None

    @classmethod
    def of(
        cls, group_id: str, source_partition: int, stored: GroupState | None, budget: Budget = budgets.DEFAULT
    ) -> Fold:
        """Start from a stored state, or from an unknown group."""
        state = stored or GroupState(Group(group_id), source_partition)
        fold = cls(state, exists=stored is not None, budget=budget)
        if state.state == NOT_READY and state.not_ready_reason is None:  # the fold before could not find out why
            fold._not_ready = PassedNotReady(state.state_since, state.last_offset, copy(state.group))
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
            events=list(self.events),
            retracted=list(self.retracted),
            topologies=list(self.topologies),
            passed_not_ready=list(self.passed_not_ready),
            _operation=self._operation and self._operation.copy(),
        )

    def close(self) -> None:
        """Complete the current operation. The next batch may still continue it. Raises OverBudgetError."""
        if self._operation:
            self._end(self._operation)
            if self._events_left_out:
                at, offset = self.group_state.updated_at, self.group_state.last_offset
                self.events.append(Event(at, EVENTS_LEFT_OUT, None, None, str(self._events_left_out), offset))
                self._events_left_out = 0
            self._check_size()

    def count_steps(self, steps: int) -> None:
        """Count steps that were done for the group. Raises OverBudgetError."""
        self.steps += steps
        if self.steps > self.budget.steps:
            raise OverBudgetError(f"it takes more than {self.budget.steps:,} steps to fold its records of one batch")

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

    def add_passed_reason(self, passed: PassedNotReady, reason: str) -> None:
        """Add the event that says why the group was NotReady."""
        self._add_events([Event(passed.at, NOT_READY_REASON, None, None, reason, passed.offset)])

    def _check_size(self) -> None:
        self._unchecked = 0
        self.size = check_size(self.group_state.group, self.budget)

    def _add(self, record: LogRecord) -> None:
        is_known = self.exists and not self.group_state.group.deleted
        kind, value = record.record_type, record.value
        if kind == CLASSIC_GROUP:
            self._add_classic(record, is_known=is_known)
            return
        if kind not in RECORD_TYPES or (value is None and not is_known):
            return  # a tombstone for an unknown group has no effect
        operation = self._start_operation(record.timestamp)
        self._count(record)
        state = self.group_state
        if state.topology_hash is None and (epoch := state.group.topology_epoch) is not None:  # a row of release 0.1.0
            self._keep_topology(state.group.topology_epochs.get(epoch, {}).get("first_seen_at"), state.last_offset)
        if not is_known:
            self._create_group(operation, record)
        group = self.group_state.group
        if kind in _OF_MEMBER:
            operation.save(group, (record.key["member_id"],))
        elif kind == GROUP_METADATA and value is None:
            self.count_steps(len(group.members))
            operation.save(group, group.members)
        if kind == GROUP_METADATA and value is not None:
            self._set_metadata(operation, record)
        else:
            apply(group, kind, record.key, value, record.timestamp)
        if kind == TOPOLOGY and value is not None:
            self._keep_topology(record.timestamp, record.offset)
        self._take(record)

    def _take(self, record: LogRecord) -> None:
        self.group_state.last_offset = record.offset
        self.touched = True

    def _count(self, record: LogRecord) -> None:
        self.count_steps(1)
        self._unchecked += record.size
        if self._unchecked > self.budget.operation_bytes:
            raise OverBudgetError(f"one operation has more than {megabytes(self.budget.operation_bytes)} of records")

    def _set_metadata(self, operation: _Operation, record: LogRecord) -> None:
        """Apply a value of record 17, which may be that of a group created again."""
        value = record.value or {}
        epoch = self.group_state.group.group_epoch
        if epoch is not None and value["epoch"] < epoch:
            self._create_again(operation, record)
        group = self.group_state.group
        before = (group.stored_description_epoch, group.failed_description_epoch)
        was_stored_once = group.was_description_stored(group.topology_epoch)
        is_first_known = epoch is None and self.group_state.first_seen_at != record.timestamp
        apply(group, record.record_type, record.key, value, None if is_first_known else record.timestamp)
        group.metadata_at = record.timestamp
        if is_unsolicited(
            group.topology_epoch,
            before,
            group.stored_description_epoch,
            has_members=group.has_members,
            was_stored_once=was_stored_once,
        ):
            self.group_state.unsolicited_pushes += 1
            self.group_state.last_unsolicited_push_at = record.timestamp
            pushed = str(group.topology_epoch)
            self._add_events([Event(record.timestamp, "unsolicited_push", None, None, pushed, record.offset)])

    def _start_operation(self, at: datetime | None) -> _Operation:
        """Return the operation of this time: the current one, or a new one."""
        state = self.group_state
        same_time = at is not None and at == state.updated_at  # a record without a time is its own operation
        if self._operation:
            if same_time:
                return self._operation
            self._end(self._operation)
            if self._unchecked > self.budget.bytes:
                self._check_size()
        if not same_time and state.group.group_epoch is None:
            state.first_seen_at = None  # an operation without record 17 is not the creation
        before = dict(self._values or group_values(state.group, state.topology_hash, exists=self.exists))
        self._operation = operation = _Operation(before, {}, same_time)
        if same_time:
            for what, member_id, old, *_ in state.last_changes:
                if member_id is None and what in before:
                    before[what] = old
                elif member_id is not None and what in MemberValues._fields:
                    operation.save(state.group, (member_id,))
                    operation.members[member_id] = operation.members[member_id]._replace(**{what: old})
            _revert_last_changes(state)
        operation.kept = {name: getattr(state, name) for name in (*OF_OPERATION, *SINCE.values())}
        state.updated_at = at
        return operation

    def _create_group(self, operation: _Operation, record: LogRecord) -> None:
        """Start a new group; nothing is kept of a deleted group with the same id."""
        operation.kept = dict.fromkeys(operation.kept)
        old = self.group_state
        self.group_state = GroupState(
            Group(old.group.group_id),
            old.source_partition,
            last_offset=old.last_offset,
            first_seen_at=record.timestamp,
            updated_at=old.updated_at,
            last_changes=old.last_changes,
            topology_hash=old.topology_hash,
        )
        self.exists = True

    def _create_again(self, operation: _Operation, record: LogRecord) -> None:
        """Start a new group; of what is known only that is kept which is of the new one."""
        old, at = self.group_state.group, record.timestamp
        self.count_steps(len(old.members))
        operation.save(old, old.members)
        operation.group["group"] = None
        # As in the row, which knows of its operation also where a batch ended within it.
        joined = {one.member_id for one in old.members.values() if at is not None and one.updated_at == at}
        self._create_group(operation, record)
        self.group_state.group = old.create_again(joined)

    def _add_classic(self, record: LogRecord, *, is_known: bool) -> None:
        """Delete the group: a classic group now has this id, or its tombstone removes any group with this id."""
        group = self.group_state.group
        if is_known:
            self._start_operation(record.timestamp).save(group, group.members)
            apply(group, GROUP_METADATA, {}, None, record.timestamp)
        elif record.value is None or not self.exists or group.group_type == CLASSIC:
            return
        # The broker's own conversion writes the tombstones first, in the same operation.
        elif record.timestamp is not None and record.timestamp == self.group_state.updated_at:
            self._start_operation(record.timestamp)
        else:
            self.close()
        if record.value is not None:
            group.group_type = CLASSIC
        self._take(record)

    def _keep_topology(self, at: datetime | None, offset: int) -> None:
        """Keep the group's topology if it is another one than the last one known under the group's id.

        The event is of this record and not of its operation, so it does not depend on where a batch ends.
        """
        state, group = self.group_state, self.group_state.group
        old, new = state.topology_hash, topology_hash(group.subtopologies)
        if new == old:
            return
        state.topology_hash = new
        if old is not None:
            self._add_events([Event(at, TOPOLOGY_CONTENT, None, old, new, offset)])
        if len(self.topologies) < _TOPOLOGIES:
            version = TopologyVersion(new, group.topology_epoch or 0, at, group.subtopologies, offset)
            self.topologies.append(version)
        else:
            self._events_left_out += 1

    def _end(self, operation: _Operation) -> None:
        """Emit an event for each value that the operation changed, and update the times."""
        state, at, offset = self.group_state, self.group_state.updated_at, self.group_state.last_offset
        self._operation = None
        self._values = group_values(state.group, state.topology_hash, exists=self.exists)
        if operation.is_continuation:
            self.retracted += retract(at, state.last_changes)
        changes = operation.changes(state.group, self._values)
        self._add_events(make_events(at, offset, changes, collect_causes(state, changes)))
        state.last_changes = [
            Change(what, member_id, old, offset, operation.kept[SINCE[what]] if what in SINCE else None)
            for what, member_id, old, _ in changes.each()
        ]
        if deployment := note_deployment(state, changes):
            self._add_events([deployment])
            state.last_changes.append(Change(DEPLOYMENT, None, deployment.old, offset))
        for what in OF_OPERATION:
            if (kept := operation.kept[what]) != getattr(state, what):
                state.last_changes.append(Change(what, None, kept, offset))
        _update_times(state)
        was, now = changes.group.get("state", (None, None))
        if now == NOT_READY:
            self._not_ready = PassedNotReady(at, offset, copy(state.group))
        elif was == NOT_READY and self._not_ready:
            self.passed_not_ready.append(self._not_ready)
            self._not_ready = None

    def _add_events(self, events: Iterable[Event]) -> None:
        """Add events as far as the budget goes, and count the others."""
        for event in events:
            self._event_bytes += len(event.old or "") + len(event.new or "")
            if len(self.events) < self.budget.events and self._event_bytes <= 8 * self.budget.bytes:
                self.events.append(event)
            else:
                self._events_left_out += 1


def _update_times(state: GroupState) -> None:
    """Take over the state and the status of the description, after an operation, and since when the new ones hold."""
    group = state.group
    was_known = state.state not in (None, UNKNOWN_STATE) or state.first_seen_at == state.updated_at
    at = state.updated_at if was_known and group.state != UNKNOWN_STATE else None
    for what, since in SINCE.items():
        if getattr(state, what) != (new := getattr(group, what)):
            setattr(state, what, new)
            setattr(state, since, at)
    state.deleted_at = state.updated_at if group.deleted else None


def _revert_last_changes(state: GroupState) -> None:
    """Restore the states and times from before the operation: its second part may undo changes of the first."""
    changes = [change for change in state.last_changes if change.what in _KEPT]
    if is_new := state.first_seen_at == state.updated_at:  # the group was created in the first part
        changes = [Change(what, None, None, state.last_offset) for what in _KEPT]
    for change in changes:
        setattr(state, change.what, change.old)
        if change.what in SINCE:
            setattr(state, SINCE[change.what], change.since)
    if state.state is None and not is_new:
        state.state = UNKNOWN_STATE
