"""A topology description as nodes and edges, and its hash."""

from __future__ import annotations

from typing import Any

import pytest

from streaming_app.groups import description_graph
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


def test_lists_that_are_null_are_empty() -> None:
    null = dict.fromkeys(("source_topics", "sink_topic", "stores", "successors"))
    assert graph_of(describe({"name": "a", "node_type": PROCESSOR, **null})).nodes == [Node("a", "processor", "0")]
    assert graph_of({"subtopologies": None, "global_stores": None}).nodes == []
    assert graph_of({}).node_count == 0


def test_a_node_counts_with_all_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each edge has the names of both ends, and some characters more."""
    nodes = [
        node("a" * 4, SOURCE, source_topics=["t" * 10], successors=["s" * 7]),
        node("b" * 4, stores=["u" * 20]),
        node("c" * 4, SINK, sink_topic="o"),
    ]
    sizes = (20 + 30 + 27 + 20, 20 + 40 + 20, 20 + 21)  # without a sink, its name is empty
    for most, kept in (
        (sum(sizes), 3),
        (sum(sizes) - 1, 2),
        (sum(sizes[:2]), 2),
        (sum(sizes[:2]) - 1, 1),
        (sizes[0] - 1, 0),
    ):
        monkeypatch.setattr(description_graph, "MAX_CHARACTERS", most)
        graph = graph_of(describe(*nodes))
        assert sum(one.kind in {"source", "processor", "sink"} for one in graph.nodes) == kept
        assert graph.truncated == (kept < 3)


def test_the_hash_stays_what_earlier_releases_stored() -> None:
    one = graph_of(describe(READS, COUNTS, WRITES))
    backwards = (dict(reversed(part.items())) for part in (READS, COUNTS, WRITES))
    assert graph_of(describe(*backwards)).content_hash == one.content_hash == "15a385de7bb6acc1"


def test_a_global_store_may_have_nodes_with_the_names_of_those_of_a_subtopology() -> None:
    nodes = [node("a", SOURCE, source_topics=["t"], successors=["b"]), node("b", stores=["s"])]
    graph = graph_of(describe(*nodes, global_stores=[{"source": nodes[0], "processor": nodes[1]}]))
    assert [one for one in graph.nodes if one.node == "a"] == [Node("a", "source"), Node("a", "source", "0")]


def test_of_a_node_of_an_unknown_type_and_a_successor_that_is_not_there_nothing_fails() -> None:
    graph = graph_of(describe(node("a", 9, successors=["gone"])))
    assert (graph.nodes, graph.edges) == ([Node("a", "processor", "0")], [])
