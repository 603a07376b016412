"""Random operations on streams groups by clients, application owners and administrators, valid or invalid.

An operation that the broker rejects counts as well. The random choices depend on the seed only; the broker's timing
does not.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from kafka.errors import KafkaError

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields, GroupError
from streaming_app.sandbox.member import SimulatedMember, TasksByRole, internal_topic, new_id, subtopology, topology
from tests.recorded.record import classic_member

_GROUPS = tuple(f"group-{number}" for number in range(6))


class Operations:
    def __init__(
        self,
        client: StreamsGroupClient,
        server: str,
        seed: int,
        group_ids: Sequence[str] = _GROUPS,
        *,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.client, self._rebalance_timeout_ms = client, rebalance_timeout_ms
        self._server = server
        self.random = Random(seed)  # noqa: S311 - no secret
        self.groups = list(group_ids)
        self.topics = {"a": 4, "b": 4, "c": 2}
        self.members: list[SimulatedMember] = []
        self._topologies: dict[str, Fields] = {}
        of_member: dict[Callable[[SimulatedMember], object], int] = {
            SimulatedMember.heartbeat: 22,
            SimulatedMember.acknowledge: 22,
            SimulatedMember.join: 3,  # one that has joined, as after it was fenced
            SimulatedMember.push_description: 6,
            lambda member: member.push_description(epoch=self.random.choice((-1, 7))): 2,
            self._acknowledge_some: 6,
            self._leave: 8,
            self._leave_temporarily: 4,
            self._commit: 5,
            self._send_invalid_heartbeat: 3,
        }
        self._weights: dict[Callable[[], object], int] = {
            self._join: 22,
            self._commit_without_member: 2,
            lambda: self.client.delete_group(self.random.choice(self.groups)): 3,
            self._empty_group: 3,
            self._configure_group: 1,
            self._use_as_classic_group: 2,
            self._create_topic: 2,
            self._delete_topic: 1,
            **{(lambda operation=one: self._run(operation)): weight for one, weight in of_member.items()},
        }
        for name, partitions in self.topics.items():
            client.create_topic(name, partitions)

    def step(self) -> None:
        (operation,) = self.random.choices(list(self._weights), self._weights.values())
        with suppress(GroupError):
            operation()

    # Operations of members

    def _join(self) -> None:
        """Let a member join, a static one in a third of all cases."""
        group_id = self.random.choice(self.groups)
        settings = self._settings(group_id)
        if self.random.random() < 0.36:
            settings["instance_id"] = f"instance-{self.random.randrange(3)}"
        member = SimulatedMember(self.client, group_id, self._topology(group_id), **settings)
        member.join()
        self.members = [one for one in self.members if not _replaces(member, one)]
        self.members.append(member)

    def _run(self, operation: Callable[[SimulatedMember], object]) -> None:
        """Run an operation of a random member; one that the broker has removed is dropped."""
        if not self.members:
            return
        member = self.random.choice(self.members)
        try:
            operation(member)
        except GroupError as error:
            if error.name in {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"}:
                self.members = [one for one in self.members if one is not member]
            raise

    def _acknowledge_some(self, member: SimulatedMember) -> None:
        """Report some of the tasks to revoke as revoked, and some of the newly assigned tasks as owned."""
        owned: TasksByRole = {role: {} for role in member.assignment}
        for role, by_subtopology in member.assignment.items():
            for subtopology_id in {**by_subtopology, **member.owned[role]}:
                assigned = set(by_subtopology.get(subtopology_id, ()))
                before = set(member.owned[role].get(subtopology_id, ()))
                changed = sorted(assigned ^ before)
                after = (assigned & before) | {task for task in changed if self.random.random() < 0.5}
                if after:
                    owned[role][subtopology_id] = sorted(after)
        member.acknowledge(owned)

    def _leave(self, member: SimulatedMember) -> None:
        member.leave()
        self.members.remove(member)

    def _leave_temporarily(self, member: SimulatedMember) -> None:
        if member.instance_id:
            member.leave(temporarily=True)

    def _commit(self, member: SimulatedMember) -> None:
        offsets = {(self.random.choice(list(self.topics)), 0): self.random.randrange(100)}
        self.client.commit_offsets(member.group_id, offsets, member.member_id, member.epoch)

    def _send_invalid_heartbeat(self, member: SimulatedMember) -> None:
        member.heartbeat(**self.random.choice([{"member_epoch": 99}, {"member_id": new_id()}, {"active_tasks": []}]))

    # Operations of application owners and administrators

    def _commit_without_member(self) -> None:
        self.client.commit_offsets(self.random.choice(self.groups), {("a", 0): 1})

    def _empty_group(self) -> None:
        """Remove all members one by one, also those that left temporarily; then delete the group, in most cases."""
        group_id = self.random.choice(self.groups)
        for member in [member for member in self.members if member.group_id == group_id]:
            self.members.remove(member)
            with suppress(GroupError):
                member.leave()
        if self.random.random() < 0.7:
            self.client.delete_group(group_id)

    def _configure_group(self) -> None:
        standbys = {"streams.num.standby.replicas": self.random.randrange(3)}
        self.client.configure_group(self.random.choice(self.groups), standbys)

    def _use_as_classic_group(self) -> None:
        """Join a group without members with a consumer of the classic protocol, which then leaves again."""
        with_members = {member.group_id for member in self.members}
        group_id = self.random.choice([one for one in self.groups if one not in with_members] or self.groups)
        with suppress(KafkaError), classic_member(self._server, group_id, "a", polls=20, enable_auto_commit=False):
            pass

    def _create_topic(self) -> None:
        """Create one of the topics that some topologies require."""
        name = f"late-{self.random.randrange(3)}"
        if name not in self.topics:
            self.topics[name] = self.random.choice((1, 4))
            self.client.create_topic(name, self.topics[name])

    def _delete_topic(self) -> None:
        late = [name for name in self.topics if "late-" in name]
        if late:
            name = self.random.choice(late)
            del self.topics[name]
            self.client.delete_topics([name])

    def _settings(self, group_id: str) -> dict[str, Any]:
        epoch = self._topology(group_id)["epoch"]
        is_stale = self.random.random() < 0.1
        endpoint = self.random.choice([None, ("host.example", 7070)])
        return {
            "rack_id": self.random.choice([None, "r1", "r2"]),
            "process_id": self.random.choice([None, f"{group_id}-process"]),
            "client_tags": self.random.choice([{}, {"zone": "z"}]),
            "user_endpoint": endpoint if self._has_all_topics(group_id) else None,
            "topology_epoch": max(0, epoch - 1) if is_stale else None,
            "rebalance_timeout_ms": self._rebalance_timeout_ms,
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
        late = f"late-{self.random.randrange(3)}"
        application = f"group-{self.groups.index(group_id)}"  # any id, and only some names of topics
        repartition = f"{application}-repartition"
        changelog = internal_topic(f"{application}-changelog", configs={"cleanup.policy": "compact"})
        with_existing_topics = [
            [subtopology("0", source_topics=["a"])],
            [
                subtopology(
                    "0",
                    source_topics=["a", "b"],
                    state_changelog_topics=[changelog],
                    copartition_groups=[["a", "b"]],
                )
            ],
            [subtopology("0", source_topics=["c"]), subtopology("1", source_topics=["b"])],
        ]
        with_any_topics = [
            *with_existing_topics,
            [subtopology("0", source_topics=["a", late])],
            [subtopology("0", source_topics=["a", "c"], copartition_groups=[["a", "c"]])],
            [
                subtopology("0", source_topics=["a"], repartition_sink_topics=[repartition]),
                subtopology("1", source_topics=[late], repartition_source_topics=[internal_topic(repartition)]),
                subtopology("2", source_topics=["c"]),
            ],
        ]
        subtopologies = self.random.choice(with_existing_topics if self._has_all_topics(group_id) else with_any_topics)
        return topology(*subtopologies, epoch=self.random.choice((0, 0, 1, 3)))


def _replaces(new: SimulatedMember, old: SimulatedMember) -> bool:
    """Return whether a joined static member replaces one with the same instance id."""
    return new.instance_id is not None and (new.group_id, new.instance_id) == (old.group_id, old.instance_id)
