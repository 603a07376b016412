"""The groups of the demo: eleven streams groups, each brought into one state and kept there, and a classic one.

One function per group. Simulated members send the real requests of the protocol to a real broker. Applications of Kafka
Streams would need the Streams and RocksDB jars (70 MB more to download) and a Java compiler, and no application can be
kept in the middle of a rebalance or made to push an unsolicited description. Tests also run a real application:
`tests/support/StreamsApplication.java`.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from kafka import KafkaProducer

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields, GroupError
from streaming_app.sandbox.classic_member import ClassicMember
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology

_HOUR_MS = 3_600_000  # the maximum session timeout of our brokers
_DAY_MS = 86_400_000
_MAX_ATTEMPTS = 10
_CONFIG_DELAY_SECONDS = 0.2
_REJOIN_ERRORS = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH")
_MOVING_TOPIC, _MOVING_RECORDS = "payments", 2_000
_TOPICS = {
    "payments": 4,
    "orders": 4,
    "customers": 4,
    "stock-movements": 6,
    "settlements": 2,
    "shipments": 3,
    "profile-changes": 2,
    "clicks": 3,
    "ledger-entries": 2,
    "prices-eu": 1,
    "prices-us": 1,
    "invoices": 2,
    "purchases": 3,
}


@dataclass
class DemoGroup:
    """A group of the demo. `state` is the name that Kafka's describe returns; `Dead` for a deleted group."""

    group_id: str
    state: str
    description: str
    members: list[SimulatedMember] = field(default_factory=list)
    threads: list[ClassicMember] = field(default_factory=list)
    """The members of a group with the classic protocol."""


class DemoGroups:
    """All groups of the demo. Call `heartbeat()` every few seconds, from any number of threads."""

    def __init__(self, groups: list[DemoGroup]) -> None:
        self.groups = groups
        self._lock = threading.Lock()
        self._closed = False
        self._moves = 0

    def heartbeat(self) -> None:
        """Send a heartbeat for each member, unless closed; one that was removed joins again. Raises KafkaError."""
        for group in self.groups:
            members: list[SimulatedMember | ClassicMember] = [*group.members, *group.threads]
            for member in members:
                with self._lock:
                    if self._closed:
                        return
                    _heartbeat(member)

    def move(self) -> None:
        """Let one group fall behind, and at the next call catch up; then restart a member of another group."""
        by_id = {group.group_id: group.members for group in self.groups}
        with self._lock:
            if self._closed:
                return
            self._moves += 1
            if self._moves % 2:
                _produce(by_id["payments-enrichment"][0].client, _MOVING_TOPIC, _MOVING_RECORDS)
                return
            by_id["orders-aggregator"][-1].leave()  # its next heartbeat lets it join again
            for member in by_id["payments-enrichment"]:
                _commit_all(member, _MOVING_TOPIC)

    def close(self) -> None:
        """Stop the heartbeats. Members do not leave: the groups keep their states until the session timeout."""
        with self._lock:
            self._closed = True


def create_demo_groups(client: StreamsGroupClient, progress: Callable[[str], None] | None = None) -> DemoGroups:
    """Bring each group into its state; `progress` gets a line for each. Raises TimeoutError and errors of Kafka."""
    options = {name: {"num_partitions": partitions, "replication_factor": 1} for name, partitions in _TOPICS.items()}
    client.create_topics(options, wait_for_metadata=True)
    groups = []
    for create in _GROUPS:
        group = create(client)
        groups.append(group)
        if progress:
            progress(f"{group.group_id}: {group.description}")
    return DemoGroups(groups)


def _heartbeat(member: SimulatedMember | ClassicMember) -> None:
    try:
        member.step()
    except GroupError as error:
        if not rejoin(member, error):
            raise


def rejoin(member: SimulatedMember | ClassicMember, error: GroupError) -> bool:
    """Let a member join again if `error` says that the coordinator does not know it; return whether it says so."""
    is_unknown = error.name in _REJOIN_ERRORS
    if is_unknown:
        with suppress(GroupError):  # the instance id may still be in use; the next heartbeat tries again
            member.join()
    return is_unknown


def _topology_of(*topics: str) -> Fields:
    return topology(subtopology("0", source_topics=topics))


def _join_members(
    client: StreamsGroupClient, group_id: str, group_topology: Fields, count: int = 1
) -> list[SimulatedMember]:
    members = [
        SimulatedMember(
            client,
            group_id,
            group_topology,
            process_id=f"{group_id}-{number}",
            rack_id=f"rack-{'abc'[number % 3]}",
            client_tags={"zone": f"zone-{number}"},
            user_endpoint=(f"{group_id}-{number}.example", 7070),
        )
        for number in range(count)
    ]
    for member in members:
        member.join()
    settle(members)
    return members


def _produce(client: StreamsGroupClient, topic: str, records: int) -> None:
    producer = KafkaProducer(bootstrap_servers=client.config["bootstrap_servers"])
    for number in range(records):
        producer.send(topic, str(number).encode(), partition=number % _TOPICS[topic])
    producer.close()


def _commit_all(member: SimulatedMember, topic: str) -> None:
    ends = member.client.end_offsets(topic)
    offsets = {(topic, number): ends[number] for number in member.assignment["active"]["0"]}
    member.client.commit_offsets(member.group_id, offsets, member.member_id, member.epoch)


def _payments_enrichment(client: StreamsGroupClient) -> DemoGroup:
    members = _join_members(client, "payments-enrichment", _topology_of("payments"), 2)
    members[0].push_description()
    _produce(client, _MOVING_TOPIC, _MOVING_RECORDS)
    for member in members:
        _commit_all(member, _MOVING_TOPIC)
    return DemoGroup(
        "payments-enrichment", "Stable", "two members, committed offsets, a stored topology description", members
    )


def _orders_aggregator(client: StreamsGroupClient) -> DemoGroup:
    name = "orders-aggregator"
    by_region = f"{name}-by-region-repartition"
    compacted = {"cleanup.policy": "compact"}
    joins = subtopology(
        "0",
        source_topics=["orders", "customers"],
        repartition_sink_topics=[by_region],
        state_changelog_topics=[internal_topic(f"{name}-customers-changelog", configs=compacted)],
        copartition_groups=[["orders", "customers"]],
    )
    totals = subtopology(
        "1",
        repartition_source_topics=[internal_topic(by_region, partitions=2)],
        state_changelog_topics=[internal_topic(f"{name}-totals-changelog", configs=compacted)],
    )
    client.configure_group(name, {"streams.num.standby.replicas": 1})
    members = _join_members(client, name, topology(joins, totals), 3)
    settle(
        members, until=lambda: all(one.settled for one in members) and any(one.assignment["standby"] for one in members)
    )
    members[0].push_description()
    return DemoGroup(
        name, "Stable", "two subtopologies, repartition and changelog topics, copartitioning, standby tasks", members
    )


def _inventory_sync(client: StreamsGroupClient) -> DemoGroup:
    group_topology = _topology_of("stock-movements")
    first, second = (
        SimulatedMember(client, "inventory-sync", group_topology, rebalance_timeout_ms=_DAY_MS) for _ in range(2)
    )
    first.join()
    settle([first])
    first.keeps_revoked_tasks = True
    second.join()
    settle([first, second], until=lambda: _group_state(client, "inventory-sync") == "Reconciling" and not first.settled)
    return DemoGroup("inventory-sync", "Reconciling", "one member does not release its revoked tasks", [first, second])


def _fraud_detection(client: StreamsGroupClient) -> DemoGroup:
    member = SimulatedMember(client, "fraud-detection", _topology_of("card-transactions"))
    member.join()
    return DemoGroup("fraud-detection", "NotReady", "its source topic card-transactions does not exist", [member])


def _nightly_settlement(client: StreamsGroupClient) -> DemoGroup:
    _produce(client, "settlements", 14)
    for member in _join_members(client, "nightly-settlement", _topology_of("settlements"), 2):
        _commit_all(member, "settlements")
        member.leave()
    return DemoGroup("nightly-settlement", "Empty", "all members left, its offsets remain")


def _shipment_router(client: StreamsGroupClient) -> DemoGroup:
    members = _join_members(client, "shipment-router", _topology_of("shipments"))
    client.configure_group("shipment-router", {"streams.assignment.interval.ms": _DAY_MS})
    members.append(SimulatedMember(client, "shipment-router", _topology_of("shipments")))
    for _ in range(_MAX_ATTEMPTS):  # a busy broker may apply the config only after it has computed the assignment
        members[1].join()
        settle(members, until=lambda: _group_state(client, "shipment-router") in {"Assigning", "Stable"})
        time.sleep(_CONFIG_DELAY_SECONDS)
        members[0].step()
        if _group_state(client, "shipment-router") == "Assigning":
            break
        members[1].leave()
    return DemoGroup("shipment-router", "Assigning", "a member has joined and waits for its assignment", members)


def _customer_profiles(client: StreamsGroupClient) -> DemoGroup:
    members = _join_members(client, "customer-profiles", _topology_of("profile-changes"))
    return DemoGroup("customer-profiles", "Stable", "its topology description was requested, but never sent", members)


def _clickstream_sessions(client: StreamsGroupClient) -> DemoGroup:
    members = _join_members(client, "clickstream-sessions", _topology_of("clicks"))
    members[0].push_description()
    members[0].push_description()
    return DemoGroup(
        "clickstream-sessions", "Stable", "sent its topology description a second time, unsolicited", members
    )


def _ledger_reconciler(client: StreamsGroupClient) -> DemoGroup:
    client.configure_group("ledger-reconciler", {"streams.session.timeout.ms": _HOUR_MS})  # of the absent member
    members = [
        SimulatedMember(client, "ledger-reconciler", _topology_of("ledger-entries"), instance_id=f"ledger-{number}")
        for number in (1, 2)
    ]
    for member in members:
        member.join()
    settle(members)
    members[1].leave(temporarily=True)
    return DemoGroup("ledger-reconciler", "Reconciling", "a static member has left temporarily", members[:1])


def _price_feed(client: StreamsGroupClient) -> DemoGroup:
    group_topology = topology(subtopology("0", source_topics=["prices-eu", "prices-us"]), epoch=2)
    members = _join_members(client, "price-feed", group_topology)
    stale = SimulatedMember(client, "price-feed", group_topology, topology_epoch=1)
    stale.join()
    members[0].push_description()
    settle([*members, stale], until=lambda: _group_state(client, "price-feed") == "Stable")
    return DemoGroup("price-feed", "Stable", "one member still has an older topology", [*members, stale])


def _legacy_reports(client: StreamsGroupClient) -> DemoGroup:
    for member in _join_members(client, "legacy-reports", _topology_of("invoices")):
        member.leave()
    client.delete_group("legacy-reports")
    return DemoGroup("legacy-reports", "Dead", "deleted")


def _loyalty_points(client: StreamsGroupClient) -> DemoGroup:
    name, topic = "loyalty-points", "purchases"
    client.create_topic(f"{name}-totals-changelog", _TOPICS[topic], {"cleanup.policy": "compact"})
    member = ClassicMember(client, name, topic, range(_TOPICS[topic]))
    member.join()
    _produce(client, topic, 30)
    offsets = {(topic, number): end for number, end in client.end_offsets(topic).items()}
    client.commit_offsets(name, offsets, member.member_id, member.generation)
    return DemoGroup(name, "Stable", "with the classic protocol: the log has its tasks", threads=[member])


def _group_state(client: StreamsGroupClient, group_id: str) -> str:
    return str(client.describe([group_id])[0]["group_state"])


_GROUPS = (
    _payments_enrichment,
    _orders_aggregator,
    _inventory_sync,
    _fraud_detection,
    _nightly_settlement,
    _shipment_router,
    _customer_profiles,
    _clickstream_sessions,
    _ledger_reconciler,
    _price_feed,
    _legacy_reports,
    _loyalty_points,
)
