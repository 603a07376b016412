"""A topology description: its nodes and edges, its hash, and its text, compared with what Kafka's own tool prints."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from streaming_app.groups.description import MAX_NODES, describe_topology, graph_of
from tests.long.hostile import STORED, effective_characters
from tests.support.ivy import NOT_PUBLISHED, resolve
from tests.support.kafka_oracle import Oracle

SOURCE, PROCESSOR, SINK = 1, 2, 3


def node(name: str, node_type: int = PROCESSOR, **fields: Any) -> dict[str, Any]:
    empty = {"source_topics": [], "sink_topic": None, "stores": [], "successors": []}
    return {"name": name, "node_type": node_type, **empty, **fields}


def describe(*nodes: dict[str, Any], part: str = "0", **fields: Any) -> dict[str, Any]:
    return {"subtopologies": [{"subtopology_id": part, "nodes": list(nodes)}], "global_stores": [], **fields}


READS = node("read", SOURCE, source_topics=["orders"], successors=["count"])
COUNTS = node("count", stores=["totals"], successors=["write"])
WRITES = node("write", SINK, sink_topic="counted")


def test_of_more_nodes_than_are_kept_those_of_the_first_names_are() -> None:
    graph = graph_of(describe(*(node(f"{number:05}") for number in range(MAX_NODES + 1))))
    nodes = graph["description_nodes"]
    assert (len(nodes), graph["node_count"], graph["truncated"]) == (MAX_NODES, MAX_NODES + 1, True)
    assert nodes[-1]["node"] == f"{MAX_NODES - 1:05}"


def test_the_hash_stays_what_earlier_releases_stored() -> None:
    one = graph_of(describe(READS, COUNTS, WRITES))["content_hash"]
    backwards = (dict(reversed(part.items())) for part in (READS, COUNTS, WRITES))
    assert graph_of(describe(*backwards))["content_hash"] == one == "15a385de7bb6acc1"


@pytest.mark.parametrize("nodes", [[], [node("a", successors=["a", "gone"])], [node("a", 9)]])
def test_a_description_that_no_topology_has_is_printed_all_the_same(nodes: list[dict[str, Any]]) -> None:
    assert describe_topology(describe(*nodes)).startswith("Topologies:\n   Sub-topology: 0\n")


def test_names_that_clients_choose_cannot_add_a_line() -> None:
    names = {"source_topics": [STORED], "stores": [STORED], "sink_topic": STORED}
    text = describe_topology(describe(*(node(f"{kind}{STORED}", kind, **names) for kind in (1, 2, 3)), part=STORED))
    assert effective_characters(text) == set()
    assert text.count("\n") == describe_topology(describe(*(node(str(n), n) for n in (1, 2, 3)))).count("\n")


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle(resolve("org.apache.kafka:kafka-tools:4.4.0", exclude=NOT_PUBLISHED))
    yield oracle
    oracle.close()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_camel(name): _as_json(one) for name, one in value.items()}
    return [_as_json(one) for one in value] if isinstance(value, list) else value


def _printed(oracle: Oracle, description: dict[str, Any]) -> str:
    """Return what `kafka-streams-groups.sh --describe --topology` prints of a description in a response."""
    jvm = oracle._gateway.jvm
    group = {"errorCode": 0, "errorMessage": None, "groupId": "g", "groupState": "Stable", "groupEpoch": 1}
    group |= {"assignmentEpoch": 1, "topology": None, "members": [], "authorizedOperations": 0, "assignorName": None}
    group |= {"topologyDescriptionStatus": 3, "topologyDescription": _as_json(description)}
    text = oracle._mapper.readTree(json.dumps({"throttleTimeMs": 0, "groups": [group]}))
    converter = jvm.org.apache.kafka.common.message.StreamsGroupDescribeResponseDataJsonConverter
    answered = converter.read(text, 1).groups()[0].topologyDescription()
    admin = jvm.org.apache.kafka.clients.admin
    log = jvm.org.apache.kafka.common.utils.internals.LogContext()
    handler = admin.internals.DescribeStreamsGroupsHandler(*(False, True), log)
    status = admin.StreamsGroupTopologyDescriptionStatus.AVAILABLE
    described = _call(oracle, handler.getClass(), "convertTopologyDescription", handler, status, answered).get()
    formatter = jvm.java.lang.Class.forName("org.apache.kafka.tools.streams.TopologyDescriptionFormatter")
    return str(_call(oracle, formatter, "format", None, described))


def _call(oracle: Oracle, java_class: Any, name: str, target: Any, *arguments: Any) -> Any:
    """Call a method that is not public."""
    (method,) = (one for one in java_class.getDeclaredMethods() if one.getName() == name)
    method.setAccessible(True)
    values = oracle._gateway.new_array(oracle._gateway.jvm.java.lang.Object, len(arguments))
    for n, argument in enumerate(arguments):
        values[n] = argument
    return method.invoke(target, values)


def test_random_descriptions_are_printed_as_kafkas_own_tool_prints_them(oracle: Oracle) -> None:
    random = Random(20261127)  # noqa: S311 - a fixed seed

    def some(*names: str) -> list[str]:
        return random.sample(names, random.randint(0, len(names)))

    def nodes() -> list[dict[str, Any]]:
        return [
            node(
                name,
                random.randint(1, 3),
                successors=some("a", "b", "c", "gone"),
                source_topics=some("t1", "t2", "t10"),
                stores=some("s1", "s2", "s10"),
                sink_topic=random.choice([None, "out"]),
            )
            for name in some("a", "b", "c")
        ]

    for _ in range(30):
        stores = [
            {"source": node("all", SOURCE, successors=["keep"]), "processor": node("keep", stores=some("x", "y"))}
            for _ in range(random.randint(0, 2))
        ]
        parts = [{"subtopology_id": one, "nodes": nodes()} for one in some("0", "1", "10", "x")]
        description = {"subtopologies": parts, "global_stores": stores}
        assert describe_topology(description) == _printed(oracle, description)
