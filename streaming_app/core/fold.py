"""Folds the records of one group, in the order of the log, into its row and the events that tell what changed.

Theory of operation
-------------------
The broker writes the records of one operation (a join, a heartbeat, ...) with one timestamp. What an operation puts
and takes back itself lasted no time and is no event, so changes are read off between operations: before the first
record of one, and after its last.

A reader can be cut in the middle of an operation. Then the row remembers what the first part changed (`last_changes`);
when the second part comes, with the same timestamp, the events of the first part are taken back (`retracted`) and the
operation is told anew as a whole. So the events do not depend on where the log was cut.

Records at or below the row's `last_offset` are skipped: reading a stretch of the log twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from streaming_app.core.group import RECORD_TYPES, ROLES, Group, Member, Tasks, apply
from streaming_app.core.life import Change, Event, Life, LogRecord
from streaming_app.core.states import is_unsolicited

CLASSIC_GROUP = 2  # record type of a classic group's metadata: one group id has one type at a time
GROUP_METADATA = 17
_REASON = "not_ready_reason"
_UNTOLD = "Unknown"  # no state to tell of: it says that records are still to come

# What is compared before and after an operation, besides the members.
_SCALARS = {
    "group_epoch": attrgetter("group_epoch"),
    "assignment_epoch": attrgetter("told_assignment_epoch"),
    "topology_epoch": attrgetter("topology_epoch"),
    "validated_topology_epoch": attrgetter("validated_topology_epoch"),
    "stored_description_epoch": attrgetter("stored_description_epoch"),
    "failed_description_epoch": attrgetter("failed_description_epoch"),
    "description_status": attrgetter("description_status"),
    "state": attrgetter("state"),
}


_Subject = tuple[str, str | None]  # what, and of which member


@dataclass(slots=True)
class Fold:
    """Folds records into `life`; `events` and `retracted` grow as operations end. Call `close` after the last one.

    `touched` tells whether any record changed, or could have changed, the row.
    """

    life: Life
    exists: bool
    touched: bool = False
    events: list[Event] = field(default_factory=list)
    retracted: list[Event] = field(default_factory=list)
    _before: dict[_Subject, str | None] = field(default_factory=dict)
    _since: dict[str, datetime | None] = field(default_factory=dict)
    _open: bool = False
    _reopened: bool = False

    @classmethod
    def of(cls, group_id: str, source_partition: int, stored: Life | None) -> Fold:
        """Start from a stored row, or from nothing."""
        return cls(stored or Life(Group(group_id), source_partition), exists=stored is not None)

    def add(self, records: Iterable[LogRecord]) -> None:
        """Fold records in, in the order of their offsets."""
        for record in records:
            if record.offset > self.life.last_offset:
                self._add(record)

    def close(self) -> None:
        """End the operation at hand. The next batch may still bring a rest of it."""
        if self._open:
            self._tell()
            self._open = False

    def give_reason(self, reason: str | None) -> None:
        """After `close`: say why the group is NotReady, None in other states. Another reason than before is an event.

        Only the first that is given after an operation is: one that comes of a later look, without a record in
        between, puts the row right and has no place of its own in the log.
        """
        life = self.life
        if reason == life.not_ready_reason:
            return
        if not any(change.what == _REASON for change in life.last_changes):
            life.last_changes.append(Change(_REASON, None, life.not_ready_reason, life.last_offset))
            if reason is not None:
                event = Event(life.updated_at, _REASON, None, life.not_ready_reason, reason, life.last_offset)
                self.events.append(event)
        life.not_ready_reason = reason
        self.touched = True

    def _add(self, record: LogRecord) -> None:
        life = self.life
        if record.record_type == CLASSIC_GROUP:
            if self.exists and not life.group.deleted:
                self._open_at(record.timestamp)
                self._taken_over(record)
            return
        if record.record_type not in RECORD_TYPES or (record.value is None and (not self.exists or life.group.deleted)):
            return  # a tombstone for what is unknown says nothing
        self._open_at(record.timestamp)
        if not self.exists or life.group.deleted:
            self._begin(record)
        group = self.life.group
        descriptions = (group.stored_description_epoch, group.failed_description_epoch)
        self._remember_member(record)
        apply(group, record.record_type, record.key, record.value, record.timestamp)
        if record.record_type == GROUP_METADATA and not group.deleted:
            self._watch_pushes(record, descriptions)
        self.life.last_offset = record.offset
        self.touched = True

    def _open_at(self, at: datetime | None) -> None:
        life = self.life
        same = at is not None and at == life.updated_at  # without a time every record is an operation of its own
        if self._open and same:
            return
        if self._open:
            self._tell()
        self._reopened = not self._open and same and bool(life.last_changes)
        self._open = True
        self._before = self._scalars()
        if self._reopened:  # the batch before was cut inside this operation, or ended within its millisecond
            changes = [change for change in life.last_changes if change.what != _REASON]
            self._before.update({(change.what, change.member_id): change.old for change in changes})
            self._restore_times()
        self._since = {"state": life.state_since, "description_status": life.description_since}
        life.updated_at = at

    def _restore_times(self) -> None:
        """Let the first part of an operation not count: what it changed, the second may change back."""
        life = self.life
        if life.first_seen_at == life.updated_at:  # this life began in that part
            life.state = life.state_since = life.description_status = life.description_since = None
            life.not_ready_reason = None
        for change in life.last_changes if life.state else ():
            if change.what == "state":
                life.state = change.old or _UNTOLD
                life.state_since = change.since
            elif change.what == "description_status":
                life.description_status, life.description_since = change.old, change.since
            elif change.what == _REASON:
                life.not_ready_reason = change.old

    def _begin(self, record: LogRecord) -> None:
        """A group comes into being, perhaps again: nothing of an earlier life counts."""
        self._since = {}
        self.life = Life(
            Group(self.life.group.group_id),
            self.life.source_partition,
            last_offset=self.life.last_offset,
            first_seen_at=record.timestamp,
            updated_at=self.life.updated_at,
            last_changes=self.life.last_changes,
        )
        self.exists = True

    def _taken_over(self, record: LogRecord) -> None:
        """A classic group now has this id, or a tombstone of one removes whatever had it."""
        group = self.life.group
        for member_id in group.members:
            self._remember(group, member_id)
        apply(group, GROUP_METADATA, {}, None, record.timestamp)
        if record.value is not None:
            group.group_type = "classic"
        self.life.last_offset = record.offset
        self.touched = True

    def _remember_member(self, record: LogRecord) -> None:
        """Keep what a member was before the operation, the first time that one of its records touches it."""
        group = self.life.group
        if member_id := record.key.get("member_id"):
            self._remember(group, member_id)
        elif record.record_type == GROUP_METADATA and record.value is None:
            for left in group.members:
                self._remember(group, left)

    def _remember(self, group: Group, member_id: str) -> None:
        for subject, text in _member_subjects(member_id, group.members.get(member_id)).items():
            self._before.setdefault(subject, text)

    def _watch_pushes(self, record: LogRecord, before: tuple[int, int]) -> None:
        life, group = self.life, self.life.group
        stored = group.stored_description_epoch
        if is_unsolicited(group.topology_epoch, before, stored, has_members=group.has_members):
            life.unsolicited_pushes += 1
            life.last_unsolicited_push_at = record.timestamp
            epoch = str(group.topology_epoch)
            self.events.append(Event(record.timestamp, "unsolicited_push", None, None, epoch, record.offset))

    def _tell(self) -> None:
        """Turn what differs between before and now into events, and the newest state into times."""
        life = self.life
        now = self._scalars()
        for _, member_id in self._before:
            if member_id is not None:
                now.update(_member_subjects(member_id, life.group.members.get(member_id)))
        if self._reopened:
            self.retracted += [
                Event(life.updated_at, _kind(c.what, c.old, None), c.member_id, c.old, None, c.offset)
                for c in life.last_changes
            ]
        changes = [
            (subject, old, now[subject])
            for subject, old in self._before.items()
            if old != now[subject] and not (subject[0] == "member" and None not in (old, now[subject]))
        ]
        life.last_changes = [
            Change(*subject, old, life.last_offset, self._since.get(subject[0])) for subject, old, _ in changes
        ]
        for (what, member_id), old, new in changes:
            event = Event(life.updated_at, _kind(what, old, new), member_id, old, new, life.last_offset)
            self.events.append(event)
        self._keep_times()

    def _keep_times(self) -> None:
        life, group = self.life, self.life.group
        if life.state != group.state:
            life.state, life.state_since = group.state, life.updated_at
        if life.description_status != group.description_status:
            life.description_status, life.description_since = group.description_status, life.updated_at
        life.deleted_at = (life.deleted_at or life.updated_at) if group.deleted else None

    def _scalars(self) -> dict[_Subject, str | None]:
        group = self.life.group
        told: dict[_Subject, str | None] = {
            ("group", None): group.group_type if self.exists and not group.deleted else None
        }
        for name, value_of in _SCALARS.items():
            told[name, None] = _text(value_of(group)) if self.exists else None
        return told


def _text(value: object) -> str | None:
    return None if value in (None, _UNTOLD) else str(value)


def _member_subjects(member_id: str, member: Member | None) -> dict[_Subject, str | None]:
    return {
        ("member", member_id): (member.client_id or "") if member else None,
        ("assignment", member_id): tasks_text(member.current) if member and member.current else None,
    }


def tasks_text(tasks: Tasks) -> str:
    """Tasks in the spelling of Kafka's logs: ``active 0_0,0_1; standby 1_2``."""
    by_role = ((role, sorted((s, p) for r, s, p in tasks if r == role)) for role in ROLES)
    return "; ".join(f"{role} " + ",".join(f"{s}_{p}" for s, p in ids) for role, ids in by_role if ids)


# (what, appeared or vanished) -> kind of event
_COMINGS_AND_GOINGS = {
    ("group", "new"): "created",
    ("group", "gone"): "deleted",
    ("member", "new"): "member_joined",
    ("member", "gone"): "member_left",
}


def _kind(what: str, old: str | None, new: str | None) -> str:
    turn = "new" if old is None else "gone" if new is None else "changed"
    return _COMINGS_AND_GOINGS.get((what, turn), what)
