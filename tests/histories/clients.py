"""Simulated time: the heartbeats and timeouts of application instances, and the log that results from them.

Heartbeats that change nothing are left out, as the coordinator writes nothing for them. Everything is deterministic.
"""

import heapq
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import NamedTuple

from streaming_app.groups.group import CLASSIC, STREAMS, LogRecord
from streaming_app.groups.task_copies import TaskCopy
from tests.histories.classic_coordinator import RECORD, ClassicGroup
from tests.histories.coordinator import ASSIGNMENT_INTERVAL, INITIAL_REBALANCE_DELAY, STABLE, Group, Member, Write
from tests.histories.traffic import Seen, Traffic

START = datetime(2026, 3, 2, tzinfo=timezone.utc)
HEARTBEAT, SESSION_TIMEOUT = 5.0, 45.0  # seconds, the defaults of the release
MISSING_TOPIC_HEARTBEATS = 2  # after so many Kafka's own client gives up
_SOON = 0.1  # seconds; a heartbeat that is due so soon was just sent
_REVOKE_SECONDS = 0.2
_PUSH_SECONDS = 0.5
_PUSH_BACKOFF = 30.0  # doubled each time, up to an hour
_LONGEST_BACKOFF = 3600.0
_ASSIGNMENT = 20  # record type


class Appended(NamedTuple):
    """A record, and when it was really written: the timestamp is by the clock of the coordinator."""

    at: float
    group_id: str
    record: LogRecord


@dataclass
class Instance:
    """A process of an application, with one thread. The fields before `members` are set once."""

    name: str
    group: Group
    host: str
    is_static: bool
    pushes: bool
    """The client is of 4.4 or later, and sends the description when it is asked."""
    rebalance_timeout: float
    members: list[Member] = field(default_factory=list)
    generation: int = 0
    is_hung: bool = False
    """It sends heartbeats, but does not revoke tasks."""
    not_ready_heartbeats: int = 0


class Clients:
    """The applications on a cluster, and what their clients do by themselves."""

    def __init__(self, topics: dict[str, int], protocol: str = STREAMS) -> None:
        self.topics = dict(topics)
        self._group_class = ClassicGroup if protocol == CLASSIC else Group
        self.log: list[Appended] = []
        self.topic_changes: list[tuple[float, dict[str, int]]] = [(0.0, dict(topics))]
        self.plugin_configs: list[tuple[float, bool]] = []
        self.incident_ends: list[tuple[float, str]] = []
        """When a person ended all open incidents, and why."""
        self.copies: list[tuple[float, str, list[TaskCopy], int]] = []
        """When the brokers were asked for the copies of a group's tasks, what they said, and its standby replicas."""
        self.lag: list[Seen] = []
        """What passes over the lag see."""
        self.now = 0.0
        self._groups: dict[str, Group] = {}
        self._instances: dict[str, Instance] = {}
        self._traffic: dict[str, Traffic] = {}
        self._plugin: str | None = None
        self._clock: dict[str, float] = {}
        self._clock_of_all = 0.0
        self._last_written: dict[str, float] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()
        self._offset = count()
        self._awake: set[str] = set()
        self._assigning: set[str] = set()
        self._backoff: dict[str, tuple[float, float]] = {}
        self._pushing: set[str] = set()
        self._settled_epoch: dict[str, int] = {}

    def stop(self, name: str) -> None:
        """Stop an instance: its members leave."""
        instance = self._instances[name]
        for member in instance.members:
            self._after(0.0, lambda member=member: self._leave(instance, member))
        instance.members = []

    def _join(self, instance: Instance) -> None:
        group, generation = instance.group, instance.generation
        process, client = f"{instance.name}-{generation}", f"{instance.name}-thread-0"
        member = Member(f"{process}-0", process, instance.host, client, rebalance_timeout=instance.rebalance_timeout)
        if instance.is_static:
            member.instance_id = f"{instance.name}-0"
        known = group.members.values() if instance.is_static else ()
        old = next((one for one in known if one.instance_id == member.instance_id), None)
        instance.members.append(member)
        if old:
            group.replace(old, member)
        else:
            group.join(member, self.now)
        self._settle(group)
        self._wake(instance, member)

    def _leave(self, instance: Instance, member: Member) -> None:
        group = instance.group
        if group.members.get(member.member_id) is not member:
            return
        if instance.is_static or not group.leaves_on_close:
            group.leave_temporarily(member)
            self._expire_session(group, member, 0.0)
        else:
            self._remove(group, member)

    def _expire_session(self, group: Group, member: Member, since_heartbeat: float) -> None:
        group.misses(member)
        self._after(SESSION_TIMEOUT - since_heartbeat, lambda: self._remove(group, member))

    def _remove(self, group: Group, member: Member) -> None:
        if group.members.get(member.member_id) is member:
            group.remove(member)
            self._settle(group)

    def _settle(self, group: Group) -> None:
        """Plan the heartbeats that are needed until every member has its tasks."""
        if group.epoch > group.assignment_epoch and group.members and group.group_id not in self._assigning:
            self._assigning.add(group.group_id)
            delay_ends = group.first_join_at + INITIAL_REBALANCE_DELAY
            if self.now < delay_ends:
                self._at(delay_ends, lambda: self._end_initial_delay(group))
            else:
                earliest = max(self.now, group.assigned_at + ASSIGNMENT_INTERVAL)
                self._at(earliest + HEARTBEAT / (len(group.members) + 1), lambda: self._assign(group))
        if self._settled_epoch.get(group.group_id) != group.assignment_epoch:
            self._settled_epoch[group.group_id] = group.assignment_epoch
            for instance in self._instances.values():
                if instance.group is group:
                    for member in instance.members:
                        self._wake(instance, member)

    def _end_initial_delay(self, group: Group) -> None:
        self._assigning.discard(group.group_id)
        group.end_initial_delay(self.now)
        self._settle(group)

    def _assign(self, group: Group) -> None:
        self._assigning.discard(group.group_id)
        for instance in self._instances.values():
            if instance.group is group and instance.members:
                self._heartbeat(instance, instance.members[0])
                break

    def _heartbeat_soon(self, group: Group) -> None:
        self._after(1.0, lambda: self._assign(group))

    def _wake(self, instance: Instance, member: Member) -> None:
        """Plan the next heartbeat of a member, unless it is planned."""
        if member.member_id not in self._awake:
            self._awake.add(member.member_id)
            wait = (phase_of(member.member_id) - self.now) % HEARTBEAT
            self._after(wait if wait > _SOON else wait + HEARTBEAT, lambda: self._regular_heartbeat(instance, member))

    def _regular_heartbeat(self, instance: Instance, member: Member) -> None:
        self._awake.discard(member.member_id)
        self._heartbeat(instance, member)

    def _heartbeat(self, instance: Instance, member: Member) -> None:
        group = instance.group
        if member not in instance.members or group.members.get(member.member_id) is not member:
            return
        was_revoking = bool(member.revoking)
        group.heartbeat(member, self.now)
        if member.revoking and not was_revoking:
            self._after(member.rebalance_timeout, lambda: self._end_of_rebalance(group, member))
        if member.revoking and not instance.is_hung:
            self._after(_REVOKE_SECONDS, lambda: self._revoked(instance, member))
        self._settle(group)
        if not group.ready and (group.unequal or any(topic in group.missing for topic in group.sources)):
            instance.not_ready_heartbeats += 1
            if group.unequal or instance.not_ready_heartbeats >= MISSING_TOPIC_HEARTBEATS * len(instance.members):
                instance.not_ready_heartbeats = 0
                self.stop(instance.name)
                return
            self._wake(instance, member)
        elif member.state != STABLE or member.epoch != group.assignment_epoch:
            self._wake(instance, member)
        self._solicit(instance)

    def _revoked(self, instance: Instance, member: Member) -> None:
        if member in instance.members and member.revoking and instance.group.members.get(member.member_id) is member:
            instance.group.heartbeat(member, self.now, revoked=True)
            self._settle(instance.group)
            self._wake(instance, member)

    def _end_of_rebalance(self, group: Group, member: Member) -> None:
        if member.revoking:
            self._remove(group, member)

    def _solicit(self, instance: Instance) -> None:
        group, group_id = instance.group, instance.group.group_id
        ends, _ = self._backoff.get(group_id, (0.0, 0.0))
        if self._plugin is None or not instance.pushes or group.stored == 0 or group.failed == 0:
            return
        if self.now < ends:
            self._at(ends + 1.0, lambda: self._assign(group))
        elif group_id not in self._pushing:
            self._pushing.add(group_id)
            self._after(_PUSH_SECONDS, lambda: self._push(group))

    def _push(self, group: Group) -> None:
        group_id = group.group_id
        self._pushing.discard(group_id)
        if not group.members or self._plugin is None:
            return
        group.push_description(self._plugin)
        if self._plugin == "failing":
            _, last = self._backoff.get(group_id, (0.0, 0.0))
            pause = min(last * 2 or _PUSH_BACKOFF, _LONGEST_BACKOFF)
            self._backoff[group_id] = (self.now + pause, pause)
            self._after(pause + 1.0, lambda: self._assign(group))

    def _group(self, group_id: str, sources: tuple[str, ...], changelogs: tuple[str, ...]) -> Group:
        group = self._groups.get(group_id)
        if group is None or not group.exists:
            self._settled_epoch.pop(group_id, None)
        is_other = group is not None and not group.exists and (group.sources, group.changelogs) != (sources, changelogs)
        if group is None or is_other:  # one that was started at this instant does not exist yet, and is the same
            group = self._group_class(
                group_id, sources, self.topics, lambda one, records: self._write(one.group_id, records), changelogs
            )
            self._groups[group_id] = group
        return group

    def _write(self, group_id: str, records: list[Write]) -> None:
        at = max(self.now, self._last_written.get(group_id, 0.0) + 0.001)  # an operation has a millisecond of its own
        self._last_written[group_id] = at
        clock = self._clock.get(group_id, self._clock_of_all)
        timestamp = START + timedelta(milliseconds=round((at + clock) * 1000))
        for kind, key, written in records:
            value = written
            if kind == _ASSIGNMENT and value is not None and self._groups[group_id].members:
                value = {**value, "assignment_timestamp": int(timestamp.timestamp() * 1000)}
            if kind == RECORD and value and value["current_state_timestamp"] is None:
                entered_ms = int(timestamp.timestamp() * 1000)
                value = {**value, "current_state_timestamp": entered_ms}
                vars(self._groups[group_id])["entered_ms"] = entered_ms
            record = LogRecord(next(self._offset), timestamp, kind, {"group_id": group_id, **key}, value)
            self.log.append(Appended(at, group_id, record))

    def _at(self, time: float, step: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(time, self.now), next(self._sequence), step))

    def _after(self, seconds: float, step: Callable[[], None]) -> None:
        self._at(self.now + seconds, step)


def phase_of(member_id: str) -> float:
    """Return when, within the heartbeat interval, a member sends its heartbeats."""
    return zlib.crc32(member_id.encode()) % 5000 / 1000
