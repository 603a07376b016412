"""Random topologies of Kafka's own classes: what `Topology#describe()` prints, and what a client sends.

`python -m tests.groups.java_topology` records some of them, so that the order of nodes is tested without a JVM.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.support.ivy import resolve
from tests.support.kafka_oracle import Oracle

Fields = dict[str, Any]
KAFKA_STREAMS = "org.apache.kafka:kafka-streams:4.3.1"
SEEDS = (7, 10, 22, 37, 55, 58, 238, 277)
"""Of topologies in which each part of the order matters, as a run of mutants of `topology_description` showed."""
RECORDED = Path(__file__).with_name("described_topologies.jsonl")


def random_topology(oracle: Oracle, random: Random) -> tuple[str, Fields]:
    """Return the text and the description of a topology of up to four parts."""
    java = JavaTopology(oracle, random)
    for _ in range(random.randint(1, 4)):
        (java.add_global_store if random.random() < 0.25 else java.add_subtopology)()
    return java.wire()


def recorded(oracle: Oracle) -> str:
    """Return the lines to record, each the text and the description of a topology."""
    made = (random_topology(oracle, Random(seed)) for seed in SEEDS)  # noqa: S311 - a fixed seed
    return "".join(f"{json.dumps(one, sort_keys=True)}\n" for one in made)


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
            topics = [f"topic-{next(self._numbers)}" for _ in range(random.choice((1, 2, 3, 4, 5, 12, 30)))]
            nodes.append(self._name("SOURCE"))
            self.topology.addSource(nodes[-1], self._strings(topics))
        processors: list[str] = []
        is_wide = random.random() < 0.3  # nodes with many successors, whose trees are rotated
        for _ in range(random.randint(0, 30 if is_wide else 14)):
            parents = self._parents(nodes[:3] if is_wide else nodes)
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


if __name__ == "__main__":
    RECORDED.write_text(recorded(Oracle(resolve(KAFKA_STREAMS))))
