"""The groups of the demo: some dozen streams groups, each brought into a state worth looking at, and kept there.

One function per group. They drive real members through `streaming_app.protocol`; nothing here is simulated.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.errors import GroupError
from streaming_app.protocol.member import Member, settle
from streaming_app.protocol.messages import Fields
from streaming_app.protocol.topology import internal_topic, subtopology, topology

_AN_HOUR_MS = 3_600_000  # the most that our brokers allow for a session
_A_DAY_MS = 86_400_000
_TRIES = 10
_TAKEN_IN_SECONDS = 0.2
_LOST = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH")
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
}


@dataclass
class LivingGroup:
    """A group of the demo. `state` is as Kafka's describe spells it, `Dead` for the one that was deleted."""

    group_id: str
    state: str
    story: str
    members: list[Member] = field(default_factory=list)


class LivingGroups:
    """All groups of the demo. Somebody must call `heartbeat()` every few seconds, from one thread or several."""

    def __init__(self, groups: list[LivingGroup]) -> None:
        """Keep these groups alive."""
        self.groups = groups
        self._lock = threading.Lock()
        self._closed = False

    @property
    def states(self) -> dict[str, str]:
        """The state in which each group is held, by group id."""
        return {group.group_id: group.state for group in self.groups}

    def heartbeat(self) -> None:
        """Beat once for every living member; one that was expelled joins again. Does nothing once closed.

        Raises kafka-python's KafkaError when the broker does not answer.
        """
        for group in self.groups:
            for member in group.members:
                with self._lock:
                    if self._closed:
                        return
                    _beat(member)

    def close(self) -> None:
        """Stop beating. The members do not leave: their groups stay as they are until the session times out."""
        with self._lock:
            self._closed = True


def create_living_groups(client: StreamsGroupClient, progress: Callable[[str], None] | None = None) -> LivingGroups:
    """Create the topics and bring every group into its state, which takes a few seconds on a broker of our own.

    `progress` gets one line per group. Raises TimeoutError when a group does not get where it should, GroupError and
    KafkaError as `StreamsGroupClient` does.
    """
    options = {name: {"num_partitions": partitions, "replication_factor": 1} for name, partitions in _TOPICS.items()}
    client.admin.create_topics(options, wait_for_metadata=True)
    groups = []
    for create in _GROUPS:
        group = create(client)
        groups.append(group)
        if progress:
            progress(f"{group.group_id}: {group.story}")
    return LivingGroups(groups)


def _beat(member: Member) -> None:
    try:
        member.step()
    except GroupError as refusal:
        if refusal.name not in _LOST:
            raise
        with suppress(GroupError):  # a static name may still be taken; the next round tries again
            member.join()


def _reads(*topics: str) -> Fields:
    return topology(subtopology("0", source_topics=topics))


def _joined(client: StreamsGroupClient, group_id: str, wanted: Fields, members: int = 1) -> list[Member]:
    """Bring a group to Stable, its members apart by process and rack."""
    made = [
        Member(
            client,
            group_id,
            wanted,
            process_id=f"{group_id}-{number}",
            rack_id=f"rack-{'abc'[number % 3]}",
            client_tags={"zone": f"zone-{number}"},
            user_endpoint=(f"{group_id}-{number}.example", 7070),
        )
        for number in range(members)
    ]
    for member in made:
        member.join()
    settle(made)
    return made


def _payments_enrichment(client: StreamsGroupClient) -> LivingGroup:
    members = _joined(client, "payments-enrichment", _reads("payments"), 2)
    members[0].push_description()
    for member in members:
        offsets = {("payments", number): 100 for number in member.assignment["active"]["0"]}
        client.commit_offsets(member.group_id, offsets, member.member_id, member.epoch)
    return LivingGroup("payments-enrichment", "Stable", "two members, offsets, its description stored", members)


def _orders_aggregator(client: StreamsGroupClient) -> LivingGroup:
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
    members = _joined(client, name, topology(joins, totals), 3)
    settle(
        members, until=lambda: all(one.settled for one in members) and any(one.assignment["standby"] for one in members)
    )
    members[0].push_description()
    return LivingGroup(
        name, "Stable", "two subtopologies, repartition and changelog topics, copartitioning, standby tasks", members
    )


def _inventory_sync(client: StreamsGroupClient) -> LivingGroup:
    wanted = _reads("stock-movements")
    first, second = (Member(client, "inventory-sync", wanted, rebalance_timeout_ms=_A_DAY_MS) for _ in range(2))
    first.join()
    settle([first])
    first.holds_on = True
    second.join()
    settle([first, second], until=lambda: _state(client, "inventory-sync") == "Reconciling" and not first.settled)
    return LivingGroup("inventory-sync", "Reconciling", "one member does not give up revoked tasks", [first, second])


def _fraud_detection(client: StreamsGroupClient) -> LivingGroup:
    member = Member(client, "fraud-detection", _reads("card-transactions"))
    member.join()
    return LivingGroup("fraud-detection", "NotReady", "its source topic card-transactions does not exist", [member])


def _nightly_settlement(client: StreamsGroupClient) -> LivingGroup:
    for member in _joined(client, "nightly-settlement", _reads("settlements"), 2):
        client.commit_offsets(member.group_id, {("settlements", 0): 7}, member.member_id, member.epoch)
        member.leave()
    return LivingGroup("nightly-settlement", "Empty", "all members left, offsets stay")


def _shipment_router(client: StreamsGroupClient) -> LivingGroup:
    members = _joined(client, "shipment-router", _reads("shipments"))
    client.configure_group("shipment-router", {"streams.assignment.interval.ms": _A_DAY_MS})
    members.append(Member(client, "shipment-router", _reads("shipments")))
    for _ in range(_TRIES):  # a broker that is busy takes the config in only after it made the assignment
        members[1].join()
        settle(members, until=lambda: _state(client, "shipment-router") in {"Assigning", "Stable"})
        time.sleep(_TAKEN_IN_SECONDS)
        members[0].step()
        if _state(client, "shipment-router") == "Assigning":
            break
        members[1].leave()
    return LivingGroup("shipment-router", "Assigning", "a member joined and waits for its assignment", members)


def _customer_profiles(client: StreamsGroupClient) -> LivingGroup:
    members = _joined(client, "customer-profiles", _reads("profile-changes"))
    return LivingGroup("customer-profiles", "Stable", "asked for its topology description, never sent it", members)


def _clickstream_sessions(client: StreamsGroupClient) -> LivingGroup:
    members = _joined(client, "clickstream-sessions", _reads("clicks"))
    members[0].push_description()
    members[0].push_description()
    return LivingGroup("clickstream-sessions", "Stable", "sent its topology description again, unasked", members)


def _ledger_reconciler(client: StreamsGroupClient) -> LivingGroup:
    client.configure_group("ledger-reconciler", {"streams.session.timeout.ms": _AN_HOUR_MS})  # for the one away
    members = [
        Member(client, "ledger-reconciler", _reads("ledger-entries"), instance_id=f"ledger-{number}")
        for number in (1, 2)
    ]
    for member in members:
        member.join()
    settle(members)
    members[1].leave(for_a_while=True)
    return LivingGroup("ledger-reconciler", "Reconciling", "a static member is away and expected back", members[:1])


def _price_feed(client: StreamsGroupClient) -> LivingGroup:
    wanted = topology(subtopology("0", source_topics=["prices-eu", "prices-us"]), epoch=2)
    members = _joined(client, "price-feed", wanted)
    stale = Member(client, "price-feed", wanted, topology_epoch=1)
    stale.join()
    members[0].push_description()
    settle([*members, stale], until=lambda: _state(client, "price-feed") == "Stable")
    return LivingGroup("price-feed", "Stable", "one member still runs an older topology", [*members, stale])


def _legacy_reports(client: StreamsGroupClient) -> LivingGroup:
    for member in _joined(client, "legacy-reports", _reads("invoices")):
        member.leave()
    client.delete_group("legacy-reports")
    return LivingGroup("legacy-reports", "Dead", "deleted")


def _state(client: StreamsGroupClient, group_id: str) -> str:
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
)
