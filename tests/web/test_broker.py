"""The topology descriptions that a real broker returns, and what is said of a broker that does not answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streaming_app.groups.topology_description import AVAILABLE
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology
from streaming_app.web.descriptions import broker_descriptions, description_graph


def test_a_description_is_fetched_and_drawn_once_it_is_stored(
    broker: Broker, client: StreamsGroupClient, group_id: str, unique: Callable[[str], str]
) -> None:
    source, repartition = unique("orders"), f"{group_id}-by-key-repartition"
    client.create_topic(source, 2)
    member = SimulatedMember(
        client,
        group_id,
        topology(
            subtopology("0", source_topics=[source], repartition_sink_topics=[repartition]),
            subtopology(
                "1",
                repartition_source_topics=[internal_topic(repartition, 2)],
                state_changelog_topics=[internal_topic(f"{group_id}-counts-changelog")],
            ),
        ),
    )
    member.join()
    settle([member])
    brokers = {"bootstrap.servers": broker.bootstrap_server}
    before = broker_descriptions(brokers).fetch(group_id, 0)
    assert (before.status, "stores no description" in before.text) == (1, True)
    member.push_description()
    described = broker_descriptions(brokers).fetch(group_id, 0)
    assert (described.status, described.topology_epoch) == (AVAILABLE, 0)
    graph = description_graph(described, [f"{group_id}-counts-changelog"])
    kinds = [(node.kind, node.name) for node in graph.nodes]
    assert ("topic", source) in kinds
    assert ("repartition", repartition) in kinds  # one topic between the two subtopologies
    assert len(graph.boxes) == 2
    (store,) = (node for node in graph.nodes if node.kind == "store")
    assert store.name == f"{group_id}-counts"
    member.leave()


@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_one_line() -> None:
    described = broker_descriptions({"bootstrap.servers": "127.0.0.1:1"}).fetch("g", 0)
    assert described.status is None
    assert "127.0.0.1:1" in described.text
    assert "\n" not in described.text
