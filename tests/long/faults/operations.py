"""Random operations on streams groups by clients, application owners and administrators, valid or invalid.

An operation that the broker rejects counts as well. The random choices depend on the seed only; the broker's timing
does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields, GroupError
from streaming_app.sandbox.member import SimulatedMember, TasksByRole, internal_topic, new_id, subtopology, topology

_POLLS = 20  # at most, until a classic consumer has its assignment


class Operations:
    """Groups, members and topics whose names start with `prefix`, and the operations on them."""

    def __init__(
        self,
        client: StreamsGroupClient,
        server: str,
        seed: int,
        prefix: str = "",
        groups: int = 6,
        group_ids: Sequence[str] | None = None,
    ) -> None:
        """Create the topics. `group_ids` replace the ids that are made of `prefix` and a number."""
        self.client = client
        self._server = server
        self.random = Random(seed)  # noqa: S311 - no secret
        self.prefix = prefix
        self.groups = list(group_ids or (f"{prefix}group-{number}" for number in range(groups)))
        self.topics = {f"{prefix}{name}": partitions for name, partitions in (("a", 4), ("b", 4), ("c", 2))}
        self.members: list[SimulatedMember] = []
        self.done: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self._topologies: dict[str, Fields] = {}
        self._weights: dict[Callable[[], None], int] = {
            self.join: 14,
            self.join_static: 8,
            self.heartbeat: 22,
            self.acknowledge: 22,
            self.acknowledge_partially: 6,
            self.leave: 8,
            self.leave_temporarily: 4,
            self.rejoin: 3,
            self.push_description: 6,
            self.push_description_of_wrong_epoch: 2,
            self.commit_offsets: 5,
            self.commit_offsets_without_member: 2,
            self.delete_group: 3,
            self.empty_group: 3,
            self.configure_group: 1,
            self.use_as_classic_group: 2,
            self.create_topic: 2,
            self.delete_topic: 1,
            self.invalid_heartbeat: 3,
        }
        for name, partitions in self.topics.items():
            client.create_topic(name, partitions)

    def step(self) -> None:
        """Run one operation."""
        (operation,) = self.random.choices(list(self._weights), self._weights.values())
        self.done[operation.__name__] += 1
        try:
            operation()
        except GroupError as error:
            self.rejected[error.name] += 1

    # Operations of members

    def join(self) -> None:
        group_id = self.random.choice(self.groups)
        self._join(SimulatedMember(self.client, group_id, self._topology(group_id), **self._settings(group_id)))

    def join_static(self) -> None:
        group_id = self.random.choice(self.groups)
        instance = f"instance-{self.random.randrange(3)}"
        settings = {**self._settings(group_id), "instance_id": instance}
        self._join(SimulatedMember(self.client, group_id, self._topology(group_id), **settings))

    def heartbeat(self) -> None:
        self._run(lambda member: member.heartbeat())

    def acknowledge(self) -> None:
        self._run(lambda member: member.acknowledge())

    def acknowledge_partially(self) -> None:
        """Report some of the tasks to revoke as revoked, and some of the newly assigned tasks as owned."""

        def acknowledge_some(member: SimulatedMember) -> None:
            owned: TasksByRole = {role: {} for role in member.assignment}
            for role, by_subtopology in member.assignment.items():
                for subtopology_id in {**by_subtopology, **member.owned[role]}:
                    assigned = set(by_subtopology.get(subtopology_id, ()))
                    before = set(member.owned[role].get(subtopology_id, ()))
                    after = (assigned & before) | {task for task in assigned ^ before if self.random.random() < 0.5}
                    if after:
                        owned[role][subtopology_id] = sorted(after)
            member.acknowledge(owned)

        self._run(acknowledge_some)

    def leave(self) -> None:
        def leave(member: SimulatedMember) -> None:
            member.leave()
            self.members.remove(member)

        self._run(leave)

    def leave_temporarily(self) -> None:
        static_members = [member for member in self.members if member.instance_id]
        if static_members:
            self._run(lambda member: member.leave(temporarily=True), self.random.choice(static_members))

    def rejoin(self) -> None:
        """Join again with a member that has joined, as after it was fenced."""
        self._run(lambda member: member.join())

    def push_description(self) -> None:
        self._run(lambda member: member.push_description())

    def push_description_of_wrong_epoch(self) -> None:
        self._run(lambda member: member.push_description(epoch=self.random.choice((-1, 7))))

    def commit_offsets(self) -> None:
        def commit(member: SimulatedMember) -> None:
            partition = self.random.choice(list(self.topics)), 0
            self.client.commit_offsets(
                member.group_id, {partition: self.random.randrange(100)}, member.member_id, member.epoch
            )

        self._run(commit)

    def invalid_heartbeat(self) -> None:
        invalid = self.random.choice([{"member_epoch": 99}, {"member_id": new_id()}, {"active_tasks": []}])
        if self.members:
            self.random.choice(self.members).heartbeat(**invalid)

    # Operations of application owners and administrators

    def commit_offsets_without_member(self) -> None:
        self.client.commit_offsets(self.random.choice(self.groups), {(next(iter(self.topics)), 0): 1})

    def delete_group(self) -> None:
        self.client.delete_group(self.random.choice(self.groups))

    def empty_group(self) -> None:
        """Remove all members one by one, also those that left temporarily; then delete the group, in most cases."""
        group_id = self.random.choice(self.groups)
        for member in [member for member in self.members if member.group_id == group_id]:
            self.members.remove(member)
            with suppress(GroupError):
                member.leave()
        if self.random.random() < 0.7:
            self.client.delete_group(group_id)

    def configure_group(self) -> None:
        self.client.configure_group(
            self.random.choice(self.groups), {"streams.num.standby.replicas": self.random.randrange(3)}
        )

    def use_as_classic_group(self) -> None:
        """Join a group without members with a consumer of the classic protocol, which then leaves again."""
        with_members = {member.group_id for member in self.members}
        group_id = self.random.choice([one for one in self.groups if one not in with_members] or self.groups)
        topic = next(iter(self.topics))
        consumer = KafkaConsumer(topic, bootstrap_servers=self._server, group_id=group_id, enable_auto_commit=False)
        try:
            for _ in range(_POLLS):
                consumer.poll(timeout_ms=100)
                if consumer.assignment():
                    break
        except KafkaError as error:
            self.rejected[type(error).__name__] += 1
        finally:
            consumer.close()

    def create_topic(self) -> None:
        """Create one of the topics that some topologies require."""
        name = f"{self.prefix}late-{self.random.randrange(3)}"
        if name not in self.topics:
            self.topics[name] = self.random.choice((1, 4))
            self.client.create_topic(name, self.topics[name])

    def delete_topic(self) -> None:
        late = [name for name in self.topics if "late-" in name]
        if late:
            name = self.random.choice(late)
            del self.topics[name]
            self.client.admin.delete_topics([name])

    def _join(self, member: SimulatedMember) -> None:
        member.join()
        self.members = [one for one in self.members if not _replaces(member, one)]
        self.members.append(member)

    def _run(self, operation: Callable[[SimulatedMember], Any], member: SimulatedMember | None = None) -> None:
        """Run an operation of this member, or of a random one; a member that the broker has removed is dropped."""
        if not self.members:
            return
        member = member or self.random.choice(self.members)
        try:
            operation(member)
        except GroupError as error:
            if error.name in {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"}:
                self.members = [one for one in self.members if one is not member]
            raise

    def _settings(self, group_id: str) -> dict[str, Any]:
        epoch = self._topology(group_id)["epoch"]
        is_stale = self.random.random() < 0.1
        return {
            "rack_id": self.random.choice([None, "r1", "r2"]),
            "process_id": self.random.choice([None, f"{group_id}-process"]),
            "client_tags": self.random.choice([{}, {"zone": "z"}]),
            "user_endpoint": self.random.choice([None, ("host.example", 7070)])
            if self._has_all_topics(group_id)
            else None,
            "topology_epoch": max(0, epoch - 1) if is_stale else None,
        }

    def _has_all_topics(self, group_id: str) -> bool:
        """Return whether the group uses existing topics only; 4.4.0 fails on endpoints of members if one is missing."""
        return self.groups.index(group_id) % 2 == 0

    def _topology(self, group_id: str) -> Fields:
        """Return the topology of a group; sometimes a new one, as after a deployment, which the broker may reject."""
        if group_id not in self._topologies or self.random.random() < 0.03:
            self._topologies[group_id] = self._random_topology(group_id)
        return self._topologies[group_id]

    def _random_topology(self, group_id: str) -> Fields:
        a, b, c = (f"{self.prefix}{name}" for name in "abc")
        late = f"{self.prefix}late-{self.random.randrange(3)}"
        application = f"{self.prefix}group-{self.groups.index(group_id)}"  # any id, and only some names of topics
        repartition = f"{application}-repartition"
        changelog = internal_topic(f"{application}-changelog", configs={"cleanup.policy": "compact"})
        with_existing_topics = [
            [subtopology("0", source_topics=[a])],
            [subtopology("0", source_topics=[a, b], state_changelog_topics=[changelog], copartition_groups=[[a, b]])],
            [subtopology("0", source_topics=[c]), subtopology("1", source_topics=[b])],
        ]
        with_any_topics = [
            *with_existing_topics,
            [subtopology("0", source_topics=[a, late])],
            [subtopology("0", source_topics=[a, c], copartition_groups=[[a, c]])],
            [
                subtopology("0", source_topics=[a], repartition_sink_topics=[repartition]),
                subtopology("1", source_topics=[late], repartition_source_topics=[internal_topic(repartition)]),
                subtopology("2", source_topics=[c]),
            ],
        ]
        subtopologies = self.random.choice(with_existing_topics if self._has_all_topics(group_id) else with_any_topics)
        return topology(*subtopologies, epoch=self.random.choice((0, 0, 1, 3)))


def _replaces(new: SimulatedMember, old: SimulatedMember) -> bool:
    """Return whether a joined static member replaces one with the same instance id."""
    return new.instance_id is not None and (new.group_id, new.instance_id) == (old.group_id, old.instance_id)
