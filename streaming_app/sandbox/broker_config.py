"""Broker configurations for tests and the demo: one small node with fast responses and long session timeouts."""

from collections.abc import Mapping
from types import MappingProxyType

NODE_ID = 1
_PLUGIN_CLASS = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
_FIRST_RELEASE_WITH_DESCRIPTIONS = (4, 4)

_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    # One node has no second replica, and fewer partitions are created faster.
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",  # a source topic that is missing must stay missing
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "50",
    "group.streams.assignment.interval.ms": "0",
    # Tests and the demo decide when their members send heartbeats, which may be less often than every five seconds.
    "group.streams.session.timeout.ms": "300000",
    "group.streams.max.session.timeout.ms": "3600000",
    "group.streams.heartbeat.interval.ms": "5000",
    "group.consumer.session.timeout.ms": "300000",
    "group.consumer.max.session.timeout.ms": "300000",
    "group.share.session.timeout.ms": "300000",
    "group.share.max.session.timeout.ms": "300000",
    # The demo keeps groups in transient states by group configs that no production broker would allow.
    "group.streams.max.assignment.interval.ms": "86400000",
    # A broker restarted after a crash waits until its previous session has timed out; the default is nine seconds.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "2097152",
}
_EARLY_ACCESS = {  # before 4.4, streams groups or the newest versions of their requests had to be enabled
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
}


def broker_configuration(
    version: str,
    *,
    listeners: Mapping[str, str],
    advertised: str,
    properties: Mapping[str, str],
    protocols: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the whole configuration of one node.

    `listeners` gives `host:port` by listener: PLAINTEXT, CONTROLLER, and those in `protocols`, each with its security
    protocol. `advertised` is the advertised `host:port` of PLAINTEXT; the other listeners advertise their own.
    `properties` override everything.
    """
    advertised_listeners = {"PLAINTEXT": advertised, **{name: listeners[name] for name in protocols}}
    protocol_map = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **protocols}
    release = tuple(int(part) for part in version.split(".")[:2])
    has_descriptions = release >= _FIRST_RELEASE_WITH_DESCRIPTIONS
    return {
        **_DEFAULTS,
        **({"group.streams.topology.description.plugin.class": _PLUGIN_CLASS} if has_descriptions else _EARLY_ACCESS),
        "listeners": _format_listeners(listeners),
        "advertised.listeners": _format_listeners(advertised_listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocol_map.items()),
        "controller.quorum.voters": f"{NODE_ID}@{listeners['CONTROLLER']}",
        **properties,
    }


def _format_listeners(listeners: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in listeners.items())
