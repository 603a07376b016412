"""What clients, owners of applications and administrators do to streams groups, right or wrong, at random.

An operation is one such thing; what the broker refuses counts, too. What is random comes from the seed; the broker's
own timing does not.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.errors import GroupError
from streaming_app.protocol.member import Member, Tasks, new_id
from streaming_app.protocol.messages import Fields
from streaming_app.protocol.topology import internal_topic, subtopology, topology

_POLLS = 20  # until a classic consumer has its assignment


class Operations:
    """Groups, members and topics under names that begin with `prefix`, and what is done to them."""

    def __init__(self, client: StreamsGroupClient, server: str, seed: int, prefix: str = "", groups: int = 6) -> None:
        self.client = client
        self._server = server
        self.random = Random(seed)  # noqa: S311 - no secret
        self.prefix = prefix
        self.groups = [f"{prefix}group-{number}" for number in range(groups)]
        self.topics = {f"{prefix}{name}": partitions for name, partitions in (("a", 4), ("b", 4), ("c", 2))}
        self.members: list[Member] = []
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._topologies: dict[str, Fields] = {}
        self._weights: dict[Callable[[], None], int] = {
            self.join: 14,
            self.join_static: 8,
            self.beat: 22,
            self.acknowledge: 22,
            self.acknowledge_in_part: 6,
            self.leave: 8,
            self.leave_for_a_while: 4,
            self.rejoin: 3,
            self.push: 6,
            self.push_wrongly: 2,
            self.commit: 5,
            self.commit_without_members: 2,
            self.delete: 3,
            self.empty: 3,
            self.configure: 1,
            self.turn_classic: 2,
            self.create_topic: 2,
            self.delete_topic: 1,
            self.beat_wrongly: 3,
        }
        for name, partitions in self.topics.items():
            client.create_topic(name, partitions)

    def step(self) -> None:
        """One operation."""
        (operation,) = self.random.choices(list(self._weights), self._weights.values())
        self.done[operation.__name__] += 1
        started = time.monotonic()
        try:
            operation()
        except GroupError as refusal:
            self.refused[refusal.name] += 1
        self.seconds[operation.__name__] += time.monotonic() - started

    # What members do

    def join(self) -> None:
        group_id = self.random.choice(self.groups)
        self._joined(Member(self.client, group_id, self._topology(group_id), **self._settings(group_id)))

    def join_static(self) -> None:
        group_id = self.random.choice(self.groups)
        instance = f"instance-{self.random.randrange(3)}"
        settings = {**self._settings(group_id), "instance_id": instance}
        self._joined(Member(self.client, group_id, self._topology(group_id), **settings))

    def beat(self) -> None:
        self._of(lambda member: member.heartbeat())

    def acknowledge(self) -> None:
        self._of(lambda member: member.acknowledge())

    def acknowledge_in_part(self) -> None:
        """Give up some of the tasks that are to be given up, take some of those that are to be taken."""

        def some(member: Member) -> None:
            owned: Tasks = {role: {} for role in member.assignment}
            for role, by_subtopology in member.assignment.items():
                for subtopology_id in {**by_subtopology, **member.owned[role]}:
                    wanted = set(by_subtopology.get(subtopology_id, ()))
                    had = set(member.owned[role].get(subtopology_id, ()))
                    kept = (wanted & had) | {task for task in wanted ^ had if self.random.random() < 0.5}
                    if kept:
                        owned[role][subtopology_id] = sorted(kept)
            member.acknowledge(owned)

        self._of(some)

    def leave(self) -> None:
        def gone(member: Member) -> None:
            member.leave()
            self.members.remove(member)

        self._of(gone)

    def leave_for_a_while(self) -> None:
        statics = [member for member in self.members if member.instance_id]
        if statics:
            self._of(lambda member: member.leave(for_a_while=True), self.random.choice(statics))

    def rejoin(self) -> None:
        """The same member from the beginning, as after a fence."""
        self._of(lambda member: member.join())

    def push(self) -> None:
        self._of(lambda member: member.push_description())

    def push_wrongly(self) -> None:
        self._of(lambda member: member.push_description(epoch=self.random.choice((-1, 7))))

    def commit(self) -> None:
        def committed(member: Member) -> None:
            where = self.random.choice(list(self.topics)), 0
            self.client.commit_offsets(
                member.group_id, {where: self.random.randrange(100)}, member.member_id, member.epoch
            )

        self._of(committed)

    def beat_wrongly(self) -> None:
        wrong = self.random.choice([{"member_epoch": 99}, {"member_id": new_id()}, {"active_tasks": []}])
        if self.members:
            self.random.choice(self.members).heartbeat(**wrong)

    # What owners and administrators do

    def commit_without_members(self) -> None:
        self.client.commit_offsets(self.random.choice(self.groups), {(next(iter(self.topics)), 0): 1})

    def delete(self) -> None:
        self.client.delete_group(self.random.choice(self.groups))

    def empty(self) -> None:
        """Every member leaves, one after the other, those that are away, too; perhaps the group is deleted then."""
        group_id = self.random.choice(self.groups)
        for member in [member for member in self.members if member.group_id == group_id]:
            self.members.remove(member)
            with suppress(GroupError):
                member.leave()
        if self.random.random() < 0.7:
            self.client.delete_group(group_id)

    def configure(self) -> None:
        self.client.configure_group(
            self.random.choice(self.groups), {"streams.num.standby.replicas": self.random.randrange(3)}
        )

    def turn_classic(self) -> None:
        """A consumer of the classic protocol takes the group's id, if there are no members, and leaves again."""
        inhabited = {member.group_id for member in self.members}
        group_id = self.random.choice([one for one in self.groups if one not in inhabited] or self.groups)
        topic = next(iter(self.topics))
        consumer = KafkaConsumer(topic, bootstrap_servers=self._server, group_id=group_id, enable_auto_commit=False)
        try:
            for _ in range(_POLLS):
                consumer.poll(timeout_ms=100)
                if consumer.assignment():
                    break
        except KafkaError as refusal:
            self.refused[type(refusal).__name__] += 1
        finally:
            consumer.close()

    def create_topic(self) -> None:
        """One that some topologies wait for appears."""
        name = f"{self.prefix}late-{self.random.randrange(3)}"
        if name not in self.topics:
            self.topics[name] = self.random.choice((1, 4))
            self.client.create_topic(name, self.topics[name])

    def delete_topic(self) -> None:
        late = [name for name in self.topics if "late-" in name]
        if late:
            name = self.random.choice(late)
            del self.topics[name]
            self.client.delete_topic(name)

    def _joined(self, member: Member) -> None:
        member.join()
        self.members = [one for one in self.members if not _takes_the_place_of(member, one)]
        self.members.append(member)

    def _of(self, what: Callable[[Member], Any], member: Member | None = None) -> None:
        """Let a member do something; one that the broker does not know any more is forgotten."""
        if not self.members:
            return
        member = member or self.random.choice(self.members)
        try:
            what(member)
        except GroupError as refusal:
            if refusal.name in {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"}:
                self.members = [one for one in self.members if one is not member]
            raise

    def _settings(self, group_id: str) -> dict[str, Any]:
        epoch = self._topology(group_id)["epoch"]
        older = self.random.random() < 0.1
        return {
            "rack_id": self.random.choice([None, "r1", "r2"]),
            "process_id": self.random.choice([None, f"{group_id}-process"]),
            "client_tags": self.random.choice([{}, {"zone": "z"}]),
            "user_endpoint": self.random.choice([None, ("host.example", 7070)]) if self._orderly(group_id) else None,
            "topology_epoch": max(0, epoch - 1) if older else None,
        }

    def _orderly(self, group_id: str) -> bool:
        """Such a group never waits for a topic. 4.4.0 fails on members with endpoints while one is missing."""
        return self.groups.index(group_id) % 2 == 0

    def _topology(self, group_id: str) -> Fields:
        """The topology of a group; another one now and then, as after a deployment, which the broker may refuse."""
        if group_id not in self._topologies or self.random.random() < 0.03:
            self._topologies[group_id] = self._some_topology(group_id)
        return self._topologies[group_id]

    def _some_topology(self, group_id: str) -> Fields:
        a, b, c = (f"{self.prefix}{name}" for name in "abc")
        late = f"{self.prefix}late-{self.random.randrange(3)}"
        by_key = f"{group_id}-repartition"
        store = internal_topic(f"{group_id}-changelog", configs={"cleanup.policy": "compact"})
        orderly = [
            [subtopology("0", source_topics=[a])],
            [subtopology("0", source_topics=[a, b], state_changelog_topics=[store], copartition_groups=[[a, b]])],
            [subtopology("0", source_topics=[c]), subtopology("1", source_topics=[b])],
        ]
        any_kind = [
            *orderly,
            [subtopology("0", source_topics=[a, late])],
            [subtopology("0", source_topics=[a, c], copartition_groups=[[a, c]])],
            [
                subtopology("0", source_topics=[a], repartition_sink_topics=[by_key]),
                subtopology("1", source_topics=[late], repartition_source_topics=[internal_topic(by_key)]),
                subtopology("2", source_topics=[c]),
            ],
        ]
        chosen = self.random.choice(orderly if self._orderly(group_id) else any_kind)
        return topology(*chosen, epoch=self.random.choice((0, 0, 1, 3)))


def _takes_the_place_of(new: Member, old: Member) -> bool:
    return new.instance_id is not None and (new.group_id, new.instance_id) == (old.group_id, old.instance_id)
