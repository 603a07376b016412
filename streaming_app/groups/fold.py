"""Folds the records of one group, in log order, into its row and into events that describe the changes.

Theory of operation
-------------------
The broker writes the records of one operation (a join, a heartbeat, ...) with one timestamp. A value that an operation
changes and changes back is not an event. So the fold compares the group before the first record of an operation with
the group after its last record.

A batch can end in the middle of an operation. So the row keeps the changes that the first part made (`last_changes`).
When the next batch continues the operation, with the same timestamp, the fold retracts the events of the first part
(`retracted`) and emits the events of the whole operation. So the events do not depend on where a batch ends.

Records at or below the row's `last_offset` are skipped: reading a part of the log twice has no effect.

A compacted log holds only the newest record of each key. So its first records of a group, such as a topology written
months ago, do not show the state at that time. The log shows the creation of the group only if the first operation
contains record 17. Otherwise times that the log does not prove are None, and events show values as new, not as changed.

A group can be created a second time without tombstones in the log: compaction removed them, or a JoinGroup removed an
empty group from the coordinator's memory. A record 17 with a lower epoch shows such a new group. Other records of the
new group may come before it, see `Group.create_again`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from streaming_app.groups import budget as budgets
from streaming_app.groups import classic
from streaming_app.groups.budget import Budget, OverBudgetError, check_size
from streaming_app.groups.events import (
    DEPLOYMENT,
    EVENTS_LEFT_OUT,
    NOT_READY_REASON,
    OF_METADATA,
    OF_OPERATION,
    TOPOLOGY_CONTENT,
    UNKNOWN_STATE,
    Values,
    collect_causes,
    each_change,
    group_values,
    is_replaced,
    make_events,
    member_values,
    note_deployment,
    operation_values,
    retract,
)
from streaming_app.groups.group import CLASSIC, SINCE, Group, GroupEvent, LogRecord
from streaming_app.groups.replay import APPLY
from streaming_app.groups.state_rules import EMPTY, NOT_READY, is_unsolicited
from streaming_app.groups.topology import topology_hash

CLASSIC_GROUP = 2  # record type of a classic group's metadata; a group id belongs to one type of group at a time
GROUP_METADATA, TOPOLOGY = 17, 23
_OF_MEMBER = frozenset({19, 21, 22})
_METADATA = attrgetter("group_epoch", *OF_METADATA)
_LISTS = ("events", "retracted", "topologies", "passed_not_ready")
_TOPOLOGIES = 20  # stored topologies of a group in one batch: each may have a megabyte


@dataclass(slots=True)
class Fold:
    """Folds records into `group`, and appends to `events` and `retracted` at the end of each operation.

    `topologies` gets a row of the table `topologies` for each topology that differs from the one before it under this
    group id, without the columns that are the same for the whole group.

    Call `close` after the last record. `touched` becomes true when a record changed the row, or may have.
    """

    group: Group
    budget: Budget = budgets.DEFAULT
    touched: bool = False
    events: list[GroupEvent] = field(default_factory=list)
    retracted: list[GroupEvent] = field(default_factory=list)
    topologies: list[dict[str, Any]] = field(default_factory=list)
    was_classic: bool = False
    """The group is read again, and its old row is of Kafka Streams with the classic protocol: without members, its
    record no longer says so."""
    size: int = 0
    """Bytes of the group, roughly, as of the last `close`."""
    steps: int = 0
    passed_not_ready: list[tuple[GroupEvent, Group]] = field(default_factory=list)
    """One entry for each time that the group was NotReady and is no more: an event that still needs the reason, and a
    shallow copy of the group at the time when it became NotReady."""
    _not_ready: tuple[GroupEvent, Group] | None = None
    """The same for the current time in NotReady; None in other states, or if the reason is known."""
    _unchecked: int = 0
    """Bytes of records since the last check of the group's size."""
    _event_bytes: int = 0
    _events_left_out: int = 0
    _values: Values | None = None
    """The values of the group after the last operation; None before the first."""
    _before: dict[str | None, Values] = field(default_factory=dict)
    """Values before the current operation: of the group, under None, and by id of the members that the operation may
    have changed. Empty between operations."""

    @classmethod
    def of(cls, group_id: str, source_partition: int, stored: Group | None, budget: Budget = budgets.DEFAULT) -> Fold:
        """Start from a stored group, or without one from a group about which nothing is known."""
        group = stored or Group(group_id, source_partition)
        fold = cls(group, budget, _values=None if stored else _OF_UNKNOWN_GROUP)
        if group.state == NOT_READY and group.not_ready_reason is None:  # the last fold could not find out why
            fold._not_ready = _reason_to_come(group, group.state_since), copy(group)
        return fold

    def add(self, records: Iterable[LogRecord]) -> None:
        """Fold records, which come in offset order. Raises OverBudgetError if the group exceeds its budget."""
        for record in records:
            if record.offset > self.group.last_offset:
                if record.record_type == CLASSIC_GROUP:
                    self._add_classic(record)
                # A tombstone for an unknown group has no effect.
                elif record.record_type in APPLY and (record.value is not None or self.group.is_known):
                    self._add(record)

    def copy(self) -> Fold:
        """Return a copy that later changes of this fold do not affect."""
        lists: dict[str, Any] = {name: [*getattr(self, name)] for name in _LISTS}
        return replace(self, group=self.group.copy(), _before=dict(self._before), **lists)

    def close(self) -> None:
        """End the current operation. The next batch may still continue it. Raises OverBudgetError."""
        if not self._before:
            return
        self._end()
        if self._events_left_out:
            at, offset = self.group.updated_at, self.group.last_offset
            self.events.append(GroupEvent(at, EVENTS_LEFT_OUT, None, None, str(self._events_left_out), offset))
            self._events_left_out = 0
        self._check_size()

    def count_steps(self, steps: int) -> None:
        """Add to the steps of the batch. Raises OverBudgetError if there are more than the budget allows."""
        self.steps += steps
        if self.steps > self.budget.steps:
            raise OverBudgetError(f"it takes more than {self.budget.steps:,} steps to fold its records of one batch")

    def set_not_ready_reason(self, reason: str | None) -> None:
        """Set why the group is NotReady, or None in another state. Call it after `close`.

        The first changed reason after an operation is an event. Later changes without a record in between only update
        the row, because they have no offset of their own in the log.
        """
        group, old = self.group, self.group.not_ready_reason
        if reason == old:
            return
        if not any(change["what"] == NOT_READY_REASON for change in group.last_changes):
            group.last_changes.append(
                {"what": NOT_READY_REASON, "member_id": None, "old": old, "offset": group.last_offset}
            )
            if reason is not None:
                self.events.append(GroupEvent(group.updated_at, NOT_READY_REASON, None, old, reason, group.last_offset))
        group.not_ready_reason = reason
        self.touched, self._values = True, None

    def _check_size(self) -> None:
        self._unchecked = 0
        if len(self._before) > 1 + 2 * self.budget.members:  # members of the old group, and of one created again
            raise OverBudgetError(f"one operation concerns {len(self._before) - 1:,} members")
        self.size = check_size(self.group, self.budget)

    def _add(self, record: LogRecord) -> None:
        kind, key, value, at = record.record_type, record.key, record.value, record.timestamp
        if value is None and self._is_classic:
            return
        self._start_operation(at)
        self.count_steps(1)
        self._unchecked += record.size
        if self._unchecked > self.budget.bytes:
            self._check_size()
        group = self.group
        if self._is_classic:  # its tombstone is no longer in the log
            self.count_steps(len(group.members))
            self._save(*group.members)
            group = self._create(group.created(at))
        elif not group.is_known:
            group = self._create(group.created(at))
        if kind == GROUP_METADATA and value is not None:
            self._set_metadata(record, value)
        else:
            if kind in _OF_MEMBER:
                self._save(key["member_id"])
            elif kind == GROUP_METADATA:
                self.count_steps(len(group.members))
                self._save(*group.members)
            APPLY[kind](group, key, value, at)
            if kind == TOPOLOGY and value is not None:
                self._keep_topology(at, record.offset)
        self._take(record)

    def _take(self, record: LogRecord) -> None:
        self.group.last_offset = record.offset
        self.touched = True

    def _set_metadata(self, record: LogRecord, value: dict[str, Any]) -> None:
        """Apply a value of record 17. A lower epoch means that the group was created again."""
        group, at, epoch = self.group, record.timestamp, self.group.group_epoch
        is_first_known = epoch is None and group.first_seen_at != at
        if epoch is not None and value["epoch"] < epoch:
            self.count_steps(len(group.members))
            self._save(*group.members)
            group = self._create(group.create_again(at), group=None)
        before, record_before = (group.stored_description_epoch, group.failed_description_epoch), _METADATA(group)
        was_stored_once = group.was_description_stored(group.topology_epoch)
        APPLY[GROUP_METADATA](group, record.key, value, None if is_first_known else at)
        group.metadata_at = at
        if group.members and is_unsolicited(
            group.topology_epoch,
            before,
            group.stored_description_epoch,
            was_stored_once=was_stored_once,
            is_same=record_before == _METADATA(group),
        ):
            group.unsolicited_pushes += 1
            group.last_unsolicited_push_at = at
            self.add_events([GroupEvent(at, "unsolicited_push", None, None, str(group.topology_epoch), record.offset)])

    def _start_operation(self, at: datetime | None) -> None:
        """Continue the operation if it has the same timestamp; otherwise end it and start a new one."""
        group = self.group
        is_same = at is not None and at == group.updated_at  # a record without a time is its own operation
        if self._before and is_same:
            return
        self._start_alone()
        if is_same:  # the last batch ended within this operation, or within its millisecond
            self._undo()
        elif group.group_epoch is None:
            group.first_seen_at = None  # an operation without record 17 is not the creation
        group.updated_at = at

    def _start_alone(self) -> None:
        if self._before:
            self._end()
        self._before = {None: dict(self._values or _values_of(self.group))}

    def _undo(self) -> None:
        """Restore the values before the first part of an operation, because the second part may change them back.

        This restores the compared values, and the fields that `_end` set. The records of the first part stay folded.
        """
        group = self.group
        self.retracted += retract(group.updated_at, group.last_changes)
        for change in group.last_changes:
            what, member_id, old = change["what"], change["member_id"], change["old"]
            if member_id is not None:
                self._save(member_id)
            if what in (before := self._before[member_id]):
                before[what] = old
            if what in SINCE or what in OF_OPERATION:
                setattr(group, what, datetime.fromisoformat(old) if old and what in SINCE.values() else old)
        if group.first_seen_at == group.updated_at:  # the first part created the group
            group.state = group.description_status = None

    def _save(self, *member_ids: str) -> None:
        """Save the values of these members before the operation, unless they are saved already."""
        for member_id in member_ids:
            if member_id not in self._before:
                self._before[member_id] = member_values(self.group, member_id)

    def _create(self, new: Group, **before: None) -> Group:
        of_topology = {TOPOLOGY_CONTENT: new.topology_hash}  # None if that of the former group cannot be compared
        self._before[None] = {**self._before[None], **dict.fromkeys(OF_OPERATION), **of_topology, **before}
        self.group = new
        return new

    def _add_classic(self, record: LogRecord) -> None:
        """Take a record 2: of Kafka Streams it is the whole group.

        Another one deletes the group: a classic group has its id now, or the tombstone of one removes every group with
        the id.
        """
        value = record.value
        may_be_empty = self._is_classic or self.was_classic
        if value and (classic.is_streams(value) or (may_be_empty and classic.has_no_members(value))):
            self._add_generation(record, value)
        elif self._is_classic:
            self._delete_classic(record)
        else:
            self._take_over(record)

    def _take_over(self, record: LogRecord) -> None:
        """Delete the streams group whose id a classic group of other clients has now, or convert it."""
        group, at = self.group, record.timestamp
        if group.is_known:
            self._start_operation(at)
            self._save(*group.members)
            APPLY[GROUP_METADATA](group, {}, None, at)
        elif record.value is None or group.last_offset < 0 or group.group_type == CLASSIC:
            return
        # The broker's own conversion writes the tombstones first, in the same operation, and then a generation 0
        # without members. They may be of other clients: that shows their first generation.
        elif at is not None and at == group.updated_at:
            self._start_operation(at)
            group = self._create(group.created(at))
            group.protocol, group.group_epoch = CLASSIC, 0
        else:
            self.close()
        if record.value is not None:
            group.group_type = CLASSIC
        self._take(record)

    @property
    def _is_classic(self) -> bool:
        return self.group.is_known and self.group.is_classic

    def _add_generation(self, record: LogRecord, value: dict[str, Any]) -> None:
        """Take a record 2 of Kafka Streams. It is an operation of its own, even if others have its timestamp."""
        self.count_steps(1 + len(self.group.members) + len(value["members"]))
        self._start_alone()
        self._save(*self.group.members, *(one["member_id"] for one in value["members"]))
        group, at = self.group, record.timestamp
        if not self._is_classic or value["generation"] < (group.group_epoch or 0):
            is_new = {"group": None} if self._is_classic else {}  # else the broker has converted a streams group
            group = self._create(group.created(classic.created_at(value, at), CLASSIC), **is_new)
        if classic.apply(group, value, at):
            self._keep_topology(at, record.offset)
        group.updated_at = at
        self._take(record)
        self.close()
        group.last_changes, self._values = [], None
        if group.state == EMPTY:
            group.state_since = classic.entered_at(value) or at

    def _delete_classic(self, record: LogRecord) -> None:
        """Delete a classic group. If it is converted, records of the streams group follow in this operation."""
        self._start_alone()
        self._save(*self.group.members)
        APPLY[GROUP_METADATA](self.group, {}, None, record.timestamp)
        self.group.undecoded_members = self.group.tasks_moving = self.group.probing_rebalance_at = None
        self.group.assignment_error = None
        self.group.updated_at = record.timestamp
        self._take(record)

    def _keep_topology(self, at: datetime | None, offset: int) -> None:
        """Add a row for the group's topology if it differs from the last one under this group id.

        The event belongs to this record, not to its operation, so it does not depend on where a batch ends.
        """
        group = self.group
        old, new = group.topology_hash, topology_hash(group.subtopologies)
        if new == old:
            return
        group.topology_hash = new
        if old is not None:
            self.add_events([GroupEvent(at, TOPOLOGY_CONTENT, None, old, new, offset)])
        if len(self.topologies) < _TOPOLOGIES:
            is_proven = not group.is_classic or old is not None or group.first_seen_at is not None
            first_seen_at = at if is_proven else None  # a record 2 repeats the topology of those before it
            row = {"topology_hash": new, "topology_epoch": group.topology_epoch, "first_seen_at": first_seen_at}
            self.topologies.append(row | {"subtopologies": group.subtopologies, "offset": offset})
            self._check_size()  # the row is written even if the next record replaces this topology
        else:
            self._events_left_out += 1

    def _end(self) -> None:
        """Emit an event for each value that the operation changed, and update the times."""
        group, at, offset = self.group, self.group.updated_at, self.group.last_offset
        derived = group.derive()
        before, self._before, self._values = self._before, {}, group_values(group, derived)
        now = {one: self._values if one is None else member_values(group, one) for one in before}
        changes = {one: (old, now[one]) for one, old in before.items() if one is None or old != now[one]}
        self.add_events(make_events(at, offset, changes, collect_causes(group, changes)))
        deployment = note_deployment(group, changes)
        _update_times(group, derived, is_new_epoch=is_replaced(changes, "group_epoch"))
        self._values |= operation_values(group)
        group.last_changes = [
            {"what": what, "member_id": member_id, "old": old, "offset": offset}
            for what, member_id, old, _ in each_change(changes)
        ]
        if deployment:
            self.add_events([deployment])
            group.last_changes.append({"what": DEPLOYMENT, "member_id": None, "old": deployment.old, "offset": offset})
        was, is_now = before[None]["state"], self._values["state"]
        if is_now == NOT_READY and was != NOT_READY:
            self._not_ready = _reason_to_come(group, at), copy(group)
        elif was == NOT_READY and is_now != NOT_READY and self._not_ready:
            self.passed_not_ready.append(self._not_ready)
            self._not_ready = None

    def add_events(self, events: Iterable[GroupEvent]) -> None:
        """Add events up to the budget, and count those beyond it."""
        for event in events:
            self._event_bytes += len(event.old or "") + len(event.new or "")
            if len(self.events) < self.budget.events and self._event_bytes <= 8 * self.budget.bytes:
                is_of = event.protocol == self.group.protocol
                self.events.append(event if is_of else event._replace(protocol=self.group.protocol))
            else:
                self._events_left_out += 1


def _values_of(group: Group) -> Values:
    return group_values(group, group.derive()) | operation_values(group)


_OF_UNKNOWN_GROUP = _values_of(Group(""))  # no id is among them


def _reason_to_come(group: Group, at: datetime | None) -> GroupEvent:
    return GroupEvent(at, NOT_READY_REASON, None, None, None, group.last_offset)


def _update_times(group: Group, derived: Mapping[str, str], *, is_new_epoch: bool) -> None:
    """Set the state and the description's status after an operation, and the time when each of them changed."""
    was_known = group.state not in (None, UNKNOWN_STATE) or group.first_seen_at == group.updated_at
    at = group.updated_at if was_known and derived["state"] != UNKNOWN_STATE else None
    if group.state == derived["state"] == EMPTY and is_new_epoch:
        # Only heartbeats of members begin an epoch (KIP-1071): compaction has removed the members that came and left.
        group.state_since = group.updated_at
    for what, since in SINCE.items():
        has = what == "state" or not group.is_classic  # the row of a classic group has no description
        if has and getattr(group, what) != derived[what]:
            setattr(group, what, derived[what])
            setattr(group, since, at)
    if group.state == EMPTY and group.state_since is None and group.assignment_epoch == group.group_epoch:
        group.state_since = group.assigned_at  # since Kafka 4.4 the last member that leaves writes both epochs
    group.deleted_at = group.updated_at if group.is_deleted else None
