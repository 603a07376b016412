"""What happens on a cluster: the actions that a history is made of, run in simulated time."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streaming_app.groups.task_copies import TaskCopy
from tests.histories.clients import Instance, phase_of
from tests.histories.members import STABLE, Member
from tests.histories.traffic_actions import TrafficActions


class Operation(NamedTuple):
    """Something that clients, operators or brokers do `at` a number of seconds after the start."""

    at: float
    action: str
    """The name of a method of `Simulation`."""
    arguments: dict[str, Any]


class Simulation(TrafficActions):
    """Runs operations and collects the log. Create the topics first, then `run`."""

    def run(self, operations: Iterable[Operation], until: float) -> None:
        """Run the operations, and everything that follows from them, up to this time."""
        for operation in operations:
            action = getattr(self, operation.action)
            self._at(operation.at, lambda action=action, arguments=operation.arguments: action(**arguments))
        while self._queue and self._queue[0][0] <= until:
            self.now, _, step = heapq.heappop(self._queue)
            step()

    def start(
        self,
        name: str,
        group: str = "app",
        *,
        threads: int = 1,
        host: str | None = None,
        static: bool = False,
        keeps_process_id: bool = False,
        pushes: bool = True,
        rebalance_timeout: float = 300.0,
        sources: tuple[str, ...] = ("in",),
        changelogs: tuple[str, ...] = (),
    ) -> None:
        """Start an instance: its threads join within a second."""
        known = self._instances.get(name)
        target = self._group(group, sources, changelogs)
        instance = Instance(
            name,
            target,
            threads,
            host or _address(name),
            static,
            keeps_process_id,
            pushes,
            rebalance_timeout,
        )
        instance.generation = known.generation + 1 if known else 1
        self._instances[name] = instance
        for thread in range(threads):
            self._after(thread / threads + 0.01, lambda thread=thread: self._join(instance, thread))

    def kill(self, name: str) -> None:
        """End an instance without notice: its members are removed when their sessions expire."""
        instance = self._instances[name]
        for member in instance.members:
            self._expire_session(instance.group, member, phase_of(member.member_id))
        instance.members = []

    def remove(self, name: str) -> None:
        """Remove a static instance for good: its members do not come back."""
        instance = self._instances[name]
        for member in instance.members:
            self._remove(instance.group, member)
        instance.members = []

    def hang(self, name: str, *, hung: bool = True) -> None:
        """Let an instance send heartbeats, but revoke nothing; or let it go on."""
        instance = self._instances[name]
        instance.is_hung = hung
        for member in instance.members:
            self._wake(instance, member)

    def expire(self, name: str) -> None:
        """Remove the members of an instance that sends no heartbeats for a while; it does not end."""
        instance = self._instances[name]
        for member in instance.members:
            self._remove(instance.group, member)

    def rejoin(self, name: str) -> None:
        """Let an instance whose members were removed join again under the same member ids."""
        instance = self._instances[name]
        for thread, member in enumerate(instance.members):
            if member.member_id not in instance.group.members:
                instance.members[thread] = fresh = replace(
                    member, epoch=0, previous_epoch=0, state=STABLE, tasks={}, revoking={}
                )
                instance.group.join(fresh, self.now)
                self._settle(instance.group)
                self._wake(instance, fresh)

    def set_topic(self, topic: str, partitions: int | None) -> None:
        """Create a topic, change its number of partitions, or delete it (None)."""
        self.topics.pop(topic, None)
        if partitions is not None:
            self.topics[topic] = partitions
        self.topic_changes.append((self.now, dict(self.topics)))
        for group in self._groups.values():
            if topic in group.required_topics:
                self._heartbeat_soon(group)

    def leave_out(self, partitions: Iterable[int], group: str = "app") -> None:
        """Let the next assignments leave out the tasks of these partitions; none: let them be complete again."""
        self._groups[group].left_out = frozenset(partitions)

    def configure(self, group: str = "app", **configs: str) -> None:
        """Change the assignment configs of a group."""
        self._groups[group].configs.update({name.replace("_", "."): value for name, value in configs.items()})
        self._heartbeat_soon(self._groups[group])

    def rebalance_without_cause(self, group: str = "app") -> None:
        """Raise the epoch for a reason that is not in the records."""
        self._groups[group].last_configs = None
        self._heartbeat_soon(self._groups[group])

    def set_plugin(self, mode: str | None, *, in_config: bool = True) -> None:
        """Configure the brokers' description plugin: `stored`, `rejected`, `failing` is what it does, None removes it.

        With `in_config` the job may read the brokers' configuration.
        """
        self._plugin = mode
        if in_config:
            self.plugin_configs.append((self.now, mode is not None))
        for group in self._groups.values():
            self._heartbeat_soon(group)

    def push(self, group: str = "app", result: str = "stored") -> None:
        """Push a description that nobody asked for."""
        self._groups[group].push_description(result)

    def clean_up_description(self, group: str = "app") -> None:
        """Let the brokers' clean-up delete the description of an empty group."""
        self._groups[group].clean_up_description()

    def delete(self, group: str = "app") -> None:
        self._groups[group].delete()

    def to_classic(self, group: str = "app") -> None:
        """Let a consumer of the classic protocol take over the id of an empty group."""
        self._groups[group].delete(converted=True)

    def from_classic(self, group: str) -> None:
        """Write the tombstone of a classic group whose id a streams group takes over."""
        self._write(group, [(2, {}, None)])

    def fail_over(self, group: str | None = None, clock: float = 0.0) -> None:
        """Move a group, or all, to a coordinator whose clock is wrong by so many seconds; it writes nothing."""
        if group is None:
            self._clock_of_all, self._clock = clock, {}
        else:
            self._clock[group] = clock

    def report_copies(
        self,
        group: str = "app",
        *,
        lags: Mapping[str, int] | None = None,
        has_standbys: bool = True,
        restores: Mapping[str, int] | None = None,
        role: str = "standby",
    ) -> None:
        """Let the job ask for the copies of a group's tasks, each of which has a standby at the next instance.

        `lags` says how far the standbys at some instances are behind, `restores` how many offsets the active tasks of
        some have to restore; `role` is what the others are.
        """
        found, members = self._groups[group], list(self._groups[group].members.values())
        if not members:
            return
        copies = []
        for partition in range(found.topics[found.sources[0]]):
            at = next((n for n, one in enumerate(members) if ("0", partition) in one.tasks), 0)
            left = (restores or {}).get(_instance_of(members[at]))
            places: list[tuple[Member, str, int | None]] = [(members[at], "restoring" if left else "active", left)]
            standby = next(
                (one for one in members[at + 1 :] + members[:at] if one.process != members[at].process), None
            )
            if standby and has_standbys:
                places.append((standby, role, (lags or {}).get(_instance_of(standby), 0)))
            copies += [
                TaskCopy(group, one.member_id, one.process, one.host, is_what, "0", partition, stateful=True, lag=lag)
                for one, is_what, lag in places
            ]
        self.copies.append((self.now, group, copies, int(found.configs["num.standby.replicas"])))

    def end_incidents(self, reason: str) -> None:
        """Let a person end every open incident."""
        self.incident_ends.append((self.now, reason))

    def job_down(self, seconds: float) -> None:
        """Stop the job that watches, and start it again after so many seconds."""
        self.job_downtimes.append((self.now, self.now + seconds))


def _instance_of(member: Member) -> str:
    return member.process.rpartition("-")[0] or member.process


def _address(name: str) -> str:
    number = zlib.crc32(name.encode())
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
