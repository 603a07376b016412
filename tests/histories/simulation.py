"""What happens on a cluster: the actions that a history is made of, run in simulated time."""

import heapq
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streaming_app.groups.task_copies import TaskCopy
from tests.histories.clients import START, Clients, Instance, phase_of
from tests.histories.coordinator import STABLE, Member
from tests.histories.traffic import PASS, Partition, Traffic

_SUBTOPOLOGY = "0"
SWEEP, OFFSETS_KEPT = 600.0, 7 * 86_400.0  # seconds, the defaults of the release


class Operation(NamedTuple):
    """Something that clients, operators or brokers do `at` a number of seconds after the start."""

    at: float
    action: str
    """The name of a method of `Simulation`."""
    arguments: dict[str, Any]


class Simulation(Clients):
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
        host: str | None = None,
        static: bool = False,
        pushes: bool = True,
        rebalance_timeout: float = 300.0,
        sources: tuple[str, ...] = ("in",),
        changelogs: tuple[str, ...] = (),
    ) -> None:
        """Start an instance, which has one thread: it joins at once."""
        known = self._instances.get(name)
        target = self._group(group, sources, changelogs)
        instance = Instance(
            name,
            target,
            host or _address(name),
            static,
            pushes,
            rebalance_timeout,
        )
        instance.generation = known.generation + 1 if known else 1
        self._instances[name] = instance
        self._after(0.01, lambda: self._join(instance))

    def kill(self, name: str) -> None:
        """End an instance without notice: its members are removed when their sessions expire."""
        instance = self._instances[name]
        for member in instance.members:
            self._expire_session(instance.group, member, phase_of(member.member_id))
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

    def warm_up(self, partitions: Iterable[int], group: str = "app") -> None:
        """Let the first member have warm-ups, as from Kafka 4.5 on; the records of its next assignment show it."""
        member = next(iter(self._groups[group].members.values()))
        member.warmups = {("0", partition): member.epoch for partition in partitions}

    def set_plugin(self, mode: str | None) -> None:
        """Configure the description plugin of the brokers: `stored`, `rejected` or `failing`; None removes it."""
        self._plugin = mode
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

    # Records and offsets: the topics that a group reads, and how it processes them

    def read(
        self,
        group: str = "app",
        *,
        rate: float = 10.0,
        capacity: float = 50.0,
        commit_interval: float = PASS,
        transactional: bool = False,
        restore_seconds: float = 0.0,
        log_of: str | None = None,
        begins: str = "earliest",
        keeps_seconds: float | None = None,
    ) -> None:
        """Let records be produced into the topics of a group, which processes them; the job sees it at each pass.

        With `log_of` it reads the same logs as another group, and `begins` there as `Traffic` says.
        """
        made = Traffic(self._groups[group], rate, capacity, commit_interval, transactional, restore_seconds)
        made.log_of, made.begins, made.keeps_seconds = self._traffic.get(log_of or ""), begins, keeps_seconds
        if not self._traffic:
            self._after(SWEEP, self._clean_up)
        self._traffic[group] = made
        step = (lambda: self._after(0.0, lambda: self._pass(made))) if log_of else (lambda: self._pass(made))
        self._at(self.now - self.now % PASS + PASS, step)  # that of the other group comes first: both see the same ends

    def stop(self, name: str) -> None:
        """Stop an instance in an orderly way: it commits, and its members leave."""
        if traffic := self._traffic.get(self._instances[name].group.group_id):
            traffic.step(self.now, self._running(traffic))
            traffic.close(name, self.now)
        super().stop(name)

    def crash(self, name: str) -> None:
        """Let the threads of an instance end with an exception: its members leave, and nothing is committed."""
        super().stop(name)

    def change(self, group: str = "app", **values: float) -> None:
        """Change `rate`, `capacity` or another number of `read`."""
        for name, value in values.items():
            setattr(self._traffic[group], name, value)

    def stick(self, partitions: Iterable[int] | None = None, *, group: str = "app") -> None:
        """Let partitions make no progress: a record that is tried again and again, or a topic that is not read."""
        for one in self._traffic[group].of(partitions):
            one.is_stuck = True

    def hang_processing(self, name: str, *, hung: bool = True, group: str = "app") -> None:
        """Let the threads of an instance hang, or go on; its heartbeats go on."""
        (self._traffic[group].hung.add if hung else self._traffic[group].hung.discard)(name)

    def lose_leaders(self, partitions: Iterable[int], seconds: float, *, group: str = "app") -> None:
        """Let the broker that leads these partitions be away for so long, without another one that could lead them."""
        self._traffic[group].without_leader |= dict.fromkeys(partitions, self.now + seconds)

    def retention(self) -> dict[str, float]:
        """Return how many seconds each topic keeps its records, of those that do not keep them for ever."""
        return {
            topic: one.keeps_seconds
            for one in self._traffic.values()
            if one.keeps_seconds is not None
            for topic in one.group.sources
        }

    def delete_records(self, *, group: str = "app") -> None:
        """Let retention delete all records but the newest hundred of each partition."""
        for one in self._traffic[group].of(None):
            one.start = max(one.start, one.end - 100)

    def end_transaction(self, offsets: int, *, denied: bool = False, group: str = "app") -> None:
        """Write so many offsets of markers and aborted records after the last record of each partition.

        With `denied` the job may not read the topic.
        """
        for one in self._traffic[group].of(None):
            one.trailing, one.trailing_is_denied = offsets, denied

    def expire_all(self, *, group: str = "app") -> None:
        """Let retention delete everything, up to the end of each log."""
        for one in self._traffic[group].of(None):
            one.start = one.end + one.trailing

    def truncate(self, partitions: Iterable[int], to: float, *, group: str = "app") -> None:
        """Let a log end at an offset, as after an unclean election; the group stays where it is."""
        for one in self._traffic[group].of(partitions):
            one.end, one.is_stuck = to, True

    def recreate_topics(self, *, group: str = "app") -> None:
        """Delete the topics and create them again, with the same number of partitions."""
        self._traffic[group].recreate(self.now)

    def go_back(self, partitions: Iterable[int] | None = None, *, by: float = 5_000.0, group: str = "app") -> None:
        """Commit lower offsets and go on from there."""
        for one in self._traffic[group].of(partitions):
            one.position = max(0.0, one.position - by)
            one.committed, one.committed_at = int(one.position), self.now

    def leave_over(self, topic: str, *, group: str = "app") -> None:
        """Leave the offsets of a topic that the group does not read any more, and that is still written."""
        self._traffic[group].left_over[topic, 0] = Partition(committed=0, committed_at=self.now)

    def _clean_up(self) -> None:
        """Delete groups without members and offsets, as brokers do at intervals; offsets expire before that."""
        for group_id, traffic in self._traffic.items():
            group = self._groups[group_id]
            if group.members or not group.exists:
                traffic.empty_since = None
                continue
            traffic.empty_since = self.now if traffic.empty_since is None else traffic.empty_since
            if self.now - traffic.empty_since > OFFSETS_KEPT:
                traffic.forget()
            if all(one.committed is None for one in traffic.partitions.values()):
                group.delete()
        self._after(SWEEP, self._clean_up)

    def _pass(self, traffic: Traffic) -> None:
        traffic.group = self._groups[traffic.group.group_id]
        if not traffic.group.exists:
            traffic.forget()
        traffic.step(self.now, self._running(traffic))
        clock = self._clock.get(traffic.group.group_id, self._clock_of_all)
        self.lag.append(traffic.seen(self.now, START.timestamp() + clock))
        self._after(PASS, lambda: self._pass(traffic))

    def _running(self, traffic: Traffic) -> dict[int, str]:
        """Return the instance that runs the task of each partition."""
        running = {
            member.member_id: instance.name for instance in self._instances.values() for member in instance.members
        }
        return {
            number: running[member.member_id]
            for member in traffic.group.members.values()
            for subtopology, number in member.tasks
            if subtopology == _SUBTOPOLOGY and member.member_id in running
        }


def _instance_of(member: Member) -> str:
    return member.process.rpartition("-")[0] or member.process


def _address(name: str) -> str:
    number = zlib.crc32(name.encode())
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
