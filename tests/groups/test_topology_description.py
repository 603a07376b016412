"""Topology descriptions as text: compared with what Kafka's own `Topology#describe()` prints."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from streaming_app.groups.topology_description import STATUSES, describe_topology
from streaming_app.jvm.jars import resolve
from tests.decoder.kafka_oracle import Oracle
from tests.hostile import STORED, effective_characters

TOPOLOGIES = 30
Fields = dict[str, Any]


def node(name: str, kind: int, *successors: str, **values: Any) -> Fields:
    empty = {"source_topics": [], "sink_topic": None, "stores": []}
    return {"name": name, "node_type": kind, "successors": sorted(successors), **empty, **values}


def description(*nodes: Fields, global_stores: list[Fields] | None = None) -> Fields:
    ordered = sorted(nodes, key=lambda one: str(one["name"]))
    return {
        "subtopologies": [{"subtopology_id": "0", "nodes": ordered}] if ordered else [],
        "global_stores": global_stores or [],
    }


def test_a_subtopology_is_printed_with_its_sources_first() -> None:
    text = describe_topology(
        description(
            node("z-source", 1, "b", source_topics=["orders"]),
            node("b", 2, "a", stores=["s"]),
            node("a", 3, sink_topic="out"),
        )
    )
    assert text == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: z-source (topics: [orders])\n"
        "      --> b\n"
        "    Processor: b (stores: [s])\n"
        "      --> a\n"
        "      <-- z-source\n"
        "    Sink: a (topic: out)\n"
        "      <-- b\n"
        "\n"
    )


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [node("a", 2, "a")],
        [node("a", 2, "b"), node("b", 2, "a")],
        [node("a", 2, "gone")],
        [node(str(n), 2, str(n + 1)) for n in range(3000)],
        [node(str(n), 2, *(str(n * 10 + m) for m in range(1, 9))) for n in range(30)],
        [node("a", 9)],
    ],
    ids=["empty", "itself", "cycle", "missing", "long", "tree", "kind"],
)
def test_a_description_that_no_topology_has_is_printed_all_the_same(nodes: list[Fields]) -> None:
    assert describe_topology(description(*nodes)).startswith("Topologies:\n ")


def test_names_that_clients_choose_cannot_add_a_line() -> None:
    names = {"source_topics": [STORED], "stores": [STORED], "sink_topic": STORED}
    nodes = [node(f"{kind}{STORED}", kind, **names) for kind in (1, 2, 3)]
    text = describe_topology(description(*nodes))
    assert effective_characters(text) == set()
    assert text.count("\n") == describe_topology(description(*(node(str(n), n) for n in (1, 2, 3)))).count("\n")


def test_every_status_has_a_name_and_words() -> None:
    assert [STATUSES[number][0] for number in range(4)] == ["NOT_REQUESTED", "NOT_STORED", "ERROR", "AVAILABLE"]


@pytest.fixture(scope="module")
def oracles() -> Iterator[Oracle]:
    oracle = Oracle(resolve("org.apache.kafka:kafka-streams:4.3.1"))
    yield oracle
    oracle.close()


class JavaTopology:
    """A random topology of Kafka's own classes, and its description as a client of release 4.4 sends it."""

    def __init__(self, oracle: Oracle, random: Random) -> None:
        self.random = random
        self._gateway = oracle._gateway
        self._jvm: Any = self._gateway.jvm
        streams = self._jvm.org.apache.kafka.streams
        self.topology = streams.Topology()
        # Not public, but it needs neither a lambda nor a class of our own.
        pass_through = self._jvm.java.lang.Class.forName("org.apache.kafka.streams.kstream.internals.PassThrough")
        constructor = pass_through.getDeclaredConstructor(self._gateway.new_array(self._jvm.java.lang.Class, 0))
        constructor.setAccessible(True)
        self._processor = constructor.newInstance(self._gateway.new_array(self._jvm.java.lang.Object, 0))
        self._numbers = iter(range(10_000))

    def _strings(self, values: list[str]) -> Any:
        array = self._gateway.new_array(self._jvm.java.lang.String, len(values))
        for n, value in enumerate(values):
            array[n] = value
        return array

    def _name(self, kind: str) -> str:
        return (
            f"KSTREAM-{kind}-{next(self._numbers):010d}"
            if self.random.random() < 0.7
            else f"{kind}{next(self._numbers)}"
        )

    def _parents(self, nodes: list[str]) -> list[str]:
        """Choose parents, by name: their order changes that of successors and is not in the description."""
        return sorted(self.random.sample(nodes, min(len(nodes), self.random.randint(1, 3))))

    def _store(self, processors: list[str]) -> None:
        state = self._jvm.org.apache.kafka.streams.state.Stores
        serdes = self._jvm.org.apache.kafka.common.serialization.Serdes
        supplier = state.inMemoryKeyValueStore(self._name("store"))
        builder = state.keyValueStoreBuilder(supplier, serdes.String(), serdes.String())
        self.topology.addStateStore(builder, self._strings(processors))

    def add_subtopology(self) -> None:
        random = self.random
        nodes: list[str] = []
        for _ in range(random.randint(1, 3)):
            topics = [f"topic-{next(self._numbers)}" for _ in range(random.randint(1, 5))]
            nodes.append(self._name("SOURCE"))
            self.topology.addSource(nodes[-1], self._strings(topics))
        processors: list[str] = []
        for _ in range(random.randint(0, 14)):
            parents = self._parents(nodes)
            processors.append(self._name("PROCESSOR"))
            nodes.append(processors[-1])
            self.topology.addProcessor(nodes[-1], self._processor, self._strings(parents))
        for _ in range(random.randint(0, 3) if processors else 0):
            self._store(random.sample(processors, random.randint(1, len(processors))))
        for _ in range(random.randint(0, 3)):
            parents = self._parents(nodes)
            self.topology.addSink(self._name("SINK"), f"out-{next(self._numbers)}", self._strings(parents))

    def add_global_store(self) -> None:
        state = self._jvm.org.apache.kafka.streams.state.Stores
        serdes = self._jvm.org.apache.kafka.common.serialization.Serdes
        builder = state.keyValueStoreBuilder(
            state.inMemoryKeyValueStore(self._name("global")), serdes.String(), serdes.String()
        ).withLoggingDisabled()
        strings = serdes.String().deserializer()
        source, processor = self._name("SOURCE"), self._name("PROCESSOR")
        topic = f"global-{next(self._numbers)}"
        self.topology.addGlobalStore(builder, source, strings, strings, topic, processor, self._processor)

    def wire(self) -> tuple[str, Fields]:
        """Return what `describe()` prints, and what a client sends: nodes, topics, stores and successors by name."""
        described = self.topology.describe()
        subtopologies = [
            {"subtopology_id": str(one.id()), "nodes": sorted(map(_wire_node, one.nodes()), key=lambda n: n["name"])}
            for one in described.subtopologies()
        ]
        stores = sorted(described.globalStores(), key=lambda one: one.id())
        wire = [{"source": _wire_node(one.source()), "processor": _wire_node(one.processor())} for one in stores]
        return described.toString(), {"subtopologies": subtopologies, "global_stores": wire}


def _wire_node(one: Any) -> Fields:
    kind = ("Source", "Processor", "Sink").index(one.getClass().getSimpleName()) + 1
    return {
        "name": one.name(),
        "node_type": kind,
        "successors": sorted(other.name() for other in one.successors()),
        "source_topics": sorted(one.topicSet()) if kind == 1 else [],
        "stores": sorted(one.stores()) if kind == 2 else [],
        "sink_topic": one.topic() if kind == 3 else None,
    }


def test_random_topologies_are_printed_as_kafka_prints_them(oracles: Oracle) -> None:
    random = Random(20261122)  # noqa: S311 - a fixed seed
    for _ in range(TOPOLOGIES):
        java = JavaTopology(oracles, random)
        for _ in range(random.randint(1, 4)):
            (java.add_global_store if random.random() < 0.25 else java.add_subtopology)()
        printed, wire = java.wire()
        assert describe_topology(wire) == printed
