"""A topology description as nodes and edges, and its hash."""

from __future__ import annotations

from typing import Any

from streaming_app.groups.description_graph import MAX_NODES, Edge, Node, graph_of

SOURCE, PROCESSOR, SINK = 1, 2, 3


def node(name: str, node_type: int = PROCESSOR, **fields: Any) -> dict[str, Any]:
    empty = {"source_topics": [], "sink_topic": None, "stores": [], "successors": []}
    return {"name": name, "node_type": node_type, **empty, **fields}


def describe(*nodes: dict[str, Any], part: str = "0", **fields: Any) -> dict[str, Any]:
    return {"subtopologies": [{"subtopology_id": part, "nodes": list(nodes)}], "global_stores": [], **fields}


READS = node("read", SOURCE, source_topics=["orders"], successors=["count"])
COUNTS = node("count", stores=["totals"], successors=["write"])
WRITES = node("write", SINK, sink_topic="counted")


def test_topics_and_stores_are_nodes_and_what_touches_them_is_an_edge() -> None:
    graph = graph_of(describe(READS, COUNTS, WRITES))
    assert graph.nodes == [
        Node("count", "processor", "0"),
        Node("counted", "topic"),
        Node("orders", "topic"),
        Node("read", "source", "0"),
        Node("totals", "store", "0"),
        Node("write", "sink", "0"),
    ]
    assert graph.edges == [
        Edge("count", "processor", "totals", "store", "0"),
        Edge("count", "processor", "write", "sink", "0"),
        Edge("orders", "topic", "read", "source", "0"),
        Edge("read", "source", "count", "processor", "0"),
        Edge("write", "sink", "counted", "topic", "0"),
    ]
    assert (graph.node_count, graph.truncated) == (3, False)


def test_a_global_store_has_no_subtopology() -> None:
    stores = [{"source": node("all", SOURCE, source_topics=["rates"]), "processor": node("keep", stores=["rates"])}]
    graph = graph_of(describe(part="0", global_stores=stores))
    assert Node("rates", "store") in graph.nodes
    assert Edge("rates", "topic", "all", "source") in graph.edges


def test_of_more_nodes_than_are_kept_those_of_the_first_names_are() -> None:
    graph = graph_of(describe(*(node(f"{number:05}") for number in range(MAX_NODES + 1))))
    assert (len(graph.nodes), graph.node_count, graph.truncated) == (MAX_NODES, MAX_NODES + 1, True)
    assert graph.nodes[-1].node == f"{MAX_NODES - 1:05}"


def test_the_hash_stays_what_earlier_releases_stored() -> None:
    one = graph_of(describe(READS, COUNTS, WRITES))
    backwards = (dict(reversed(part.items())) for part in (READS, COUNTS, WRITES))
    assert graph_of(describe(*backwards)).content_hash == one.content_hash == "15a385de7bb6acc1"
