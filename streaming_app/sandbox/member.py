"""A simulated member of a streams group that sends the requests of a Streams client or, if asked, invalid ones.

It has no thread and no connection of its own: its owner calls its methods to send heartbeats. `settle` does so for
several members.

Also functions that build topologies and matching topology descriptions, as plain dicts in snake_case. Their shapes are
in `schemas/messages/StreamsGroupHeartbeatRequest.json` (Topology) and
`StreamsGroupTopologyDescriptionUpdateRequest.json` (TopologyDescription).
"""

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from streaming_app.groups.group import ROLES
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import UNKNOWN_SERVER_ERROR, Fields, GroupError

TasksByRole = dict[str, dict[str, list[int]]]
"""By role (`active`, `standby`, `warmup`), then by subtopology id: sorted partitions."""

SETTLE_SECONDS = 30.0
_PAUSE_SECONDS = 0.05  # between two heartbeats of a member that is not settled
_METADATA_DELAY_SECONDS = 3.0  # a coordinator may take as long to learn of a new topic
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_TEMPORARILY_EPOCH = 0, -1, -2
STATUSES = (
    "STALE_TOPOLOGY",
    "MISSING_SOURCE_TOPICS",
    "INCORRECTLY_PARTITIONED_TOPICS",
    "MISSING_INTERNAL_TOPICS",
    "SHUTDOWN_APPLICATION",
    "ASSIGNMENT_DELAYED",
    "MISSING_CLIENT_TAGS",
)
_SOURCE, _PROCESSOR, _SINK = 1, 2, 3  # node types of KIP-1331
_CHANGELOG = "-changelog"


class SimulatedMember:
    """One member: what it sends to its coordinator, and the coordinator's last response.

    `assignment` are the tasks assigned to it, `owned` those that it reported. `statuses` are (name, detail) of the
    group. `topology_description_required`: the coordinator requested one, and the member has not pushed it since. All
    requests raise GroupError if the coordinator rejects them; the member's state is then unchanged.
    """

    def __init__(  # noqa: PLR0913 - each is a field of the protocol
        self,
        client: StreamsGroupClient,
        group_id: str,
        topology: Mapping[str, Any],
        *,
        member_id: str | None = None,
        instance_id: str | None = None,
        rack_id: str | None = None,
        process_id: str | None = None,
        client_tags: Mapping[str, str] | None = None,
        user_endpoint: tuple[str, int] | None = None,
        topology_epoch: int | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        """Prepare a member; nothing is sent before `join()`. `instance_id` makes it static."""
        self.client = client
        self.group_id = group_id
        self.topology = {**topology, "epoch": topology["epoch"] if topology_epoch is None else topology_epoch}
        self.member_id = member_id or new_id()
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.process_id = process_id or new_id()
        self.client_tags = dict(client_tags or {})
        self.user_endpoint = user_endpoint
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.keeps_revoked_tasks = False
        """If set, `step()` neither releases nor takes over tasks: the group stays Reconciling for that timeout."""
        self.epoch = JOIN_EPOCH
        self.assignment: TasksByRole = _no_tasks()
        self.owned: TasksByRole = _no_tasks()
        self.statuses: list[tuple[str, str]] = []
        self.topology_description_required = False

    @property
    def settled(self) -> bool:
        """Whether it has reported exactly its assigned tasks as owned."""
        return self.owned == self.assignment

    def join(self) -> Fields:
        """Join, or rejoin as the same member, and return the response."""
        self.epoch, self.assignment, self.owned = JOIN_EPOCH, _no_tasks(), _no_tasks()
        endpoint = dict(zip(("host", "port"), self.user_endpoint, strict=True)) if self.user_endpoint else None
        # The coordinator of Kafka 4.4.0 fails for a member with an endpoint until it knows the source topics. For a
        # topic that was just created this takes a moment; for a topic that does not exist the failure stays.
        stop = stop_after_delay(_METADATA_DELAY_SECONDS if endpoint else 0)
        unknown = retry_if_exception(lambda one: isinstance(one, GroupError) and one.code == UNKNOWN_SERVER_ERROR)
        retrying = Retrying(retry=unknown, stop=stop, wait=wait_fixed(0.1), reraise=True)
        response: Fields = retrying(
            self.heartbeat,
            topology=self.topology,
            rack_id=self.rack_id,
            process_id=self.process_id,
            user_endpoint=endpoint,
            client_tags=[{"key": key, "value": value} for key, value in self.client_tags.items()],
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            **_task_fields(self.owned),
        )
        return response

    def heartbeat(self, **overrides: Any) -> Fields:  # noqa: ANN401 - any field of the request
        """Send one heartbeat, update the member from the response, and return it. `overrides` are request fields."""
        fields = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "endpoint_information_epoch": 0,
        }
        response = self.client.heartbeat({**fields, **overrides})
        self.epoch = response["member_epoch"]
        self.statuses = [(STATUSES[one["status_code"]], one["status_detail"]) for one in response["status"] or []]
        self.topology_description_required |= response.get("topology_description_required", False)
        if response["active_tasks"] is not None:
            self.assignment = {role: _tasks(response[f"{role}_tasks"]) for role in ROLES}
        return response

    def acknowledge(self, owned: TasksByRole | None = None) -> Fields:
        """Report `owned`, correct or not; by default the assigned tasks, which also releases all others."""
        owned = self.assignment if owned is None else owned
        response = self.heartbeat(**_task_fields(owned))
        self.owned = owned
        return response

    def leave(self, *, temporarily: bool = False) -> Fields:
        """Leave the group; `temporarily` as a static member that will rejoin."""
        response = self.heartbeat(member_epoch=LEAVE_TEMPORARILY_EPOCH if temporarily else LEAVE_EPOCH)
        self.assignment, self.owned = _no_tasks(), _no_tasks()
        return response

    def push_description(self, epoch: int | None = None, description: Mapping[str, Any] | None = None) -> None:
        """Push a topology description, solicited or not; by default the matching one for the current epoch."""
        self.client.push_description(
            self.group_id,
            self.member_id,
            self.topology["epoch"] if epoch is None else epoch,
            build_description(self.topology, self.group_id) if description is None else description,
        )
        self.topology_description_required = False

    def step(self) -> None:
        """Send a heartbeat as a Streams client does: with its tasks if they changed, unless it keeps revoked tasks."""
        if self.settled or self.keeps_revoked_tasks:
            self.heartbeat()
        else:
            self.acknowledge()


def settle(members: Sequence[SimulatedMember], until: Callable[[], bool] | None = None) -> None:
    """Let members send heartbeats until a condition holds, by default all settled and Stable. Raises TimeoutError."""
    client, group_ids = members[0].client, sorted({member.group_id for member in members})
    deadline = time.monotonic() + SETTLE_SECONDS

    def states() -> dict[str, str]:
        return {group["group_id"]: group["group_state"] for group in client.describe(group_ids)}

    def settled() -> bool:
        return all(member.settled for member in members) and set(states().values()) == {"Stable"}

    while not (until or settled)():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not settled within {SETTLE_SECONDS} s: {states()}")
        for member in members:
            member.step()
        time.sleep(_PAUSE_SECONDS)


def new_id() -> str:
    """Return an id like Kafka's Uuid.randomUuid: 16 random bytes in URL-safe base64 that do not start with a dash."""
    while (new := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass  # tools would parse it as an option
    return new


def _no_tasks() -> TasksByRole:
    return {role: {} for role in ROLES}


def _tasks(fields: Sequence[Mapping[str, Any]] | None) -> dict[str, list[int]]:
    return {tasks["subtopology_id"]: sorted(tasks["partitions"]) for tasks in fields or []}


def _task_fields(owned: TasksByRole) -> Fields:
    return {
        f"{role}_tasks": [{"subtopology_id": name, "partitions": list(tasks)} for name, tasks in owned[role].items()]
        for role in ROLES
    }


def topology(*subtopologies: Fields, epoch: int = 0) -> Fields:
    """Return a topology with these subtopologies. Their ids must be unique."""
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


def internal_topic(
    name: str, partitions: int = 0, replication_factor: int = 0, configs: Mapping[str, str] | None = None
) -> Fields:
    """Return a repartition or changelog topic that the coordinator creates; 0 lets the broker choose the number."""
    pairs = [{"key": key, "value": value} for key, value in (configs or {}).items()]
    return {"name": name, "partitions": partitions, "replication_factor": replication_factor, "topic_configs": pairs}


def subtopology(  # noqa: PLR0913 - each is a field of the protocol
    subtopology_id: str,
    *,
    source_topics: Sequence[str] = (),
    source_topic_regex: Sequence[str] = (),
    repartition_source_topics: Sequence[Fields] = (),
    repartition_sink_topics: Sequence[str] = (),
    state_changelog_topics: Sequence[Fields] = (),
    copartition_groups: Sequence[Sequence[str]] = (),
) -> Fields:
    """Return a subtopology. `copartition_groups` has names of its source topics; the request gets their indexes.

    The lists are sorted by name, as the coordinator requires.
    """
    sources, regexes = sorted(source_topics), sorted(source_topic_regex)
    repartitions = sorted(repartition_source_topics, key=_name)
    names = {
        "source_topics": sources,
        "source_topic_regex": regexes,
        "repartition_source_topics": [_name(topic) for topic in repartitions],
    }
    return {
        "subtopology_id": subtopology_id,
        "source_topics": sources,
        "source_topic_regex": regexes,
        "state_changelog_topics": sorted(state_changelog_topics, key=_name),
        "repartition_sink_topics": sorted(repartition_sink_topics),
        "repartition_source_topics": repartitions,
        "copartition_groups": [
            {kind: [known.index(name) for name in group if name in known] for kind, known in names.items()}
            for group in copartition_groups
        ],
    }


def build_description(described: Mapping[str, Any], group_id: str) -> Fields:
    """Return a topology description that matches a group's topology: source → processor with the stores → sinks."""
    return {"subtopologies": [_describe(part, group_id) for part in described["subtopologies"]], "global_stores": []}


def _describe(part: Mapping[str, Any], group_id: str) -> Fields:
    subtopology_id = part["subtopology_id"]
    sources = [*part["source_topics"], *map(_name, part["repartition_source_topics"])]
    changelogs = map(_name, part["state_changelog_topics"])
    stores = [topic.removeprefix(f"{group_id}-").removesuffix(_CHANGELOG) for topic in changelogs]
    processor = f"KSTREAM-PROCESSOR-{subtopology_id}"
    sinks = [(f"KSTREAM-SINK-{subtopology_id}-{topic}", topic) for topic in part["repartition_sink_topics"]]
    nodes = [
        _node(f"KSTREAM-SOURCE-{subtopology_id}", _SOURCE, source_topics=sources, successors=[processor]),
        _node(processor, _PROCESSOR, stores=stores, successors=[name for name, _topic in sinks]),
        *(_node(name, _SINK, sink_topic=topic) for name, topic in sinks),
    ]
    return {"subtopology_id": subtopology_id, "nodes": nodes}


def _node(name: str, node_type: int, **fields: Any) -> Fields:  # noqa: ANN401 - a list or a name
    node = {"name": name, "node_type": node_type, "source_topics": [], "sink_topic": None}
    return {**node, "stores": [], "successors": [], **fields}


def _name(topic: Mapping[str, Any]) -> str:
    return str(topic["name"])
