"""A topology description as StreamsGroupDescribe returns it: its status in words, its picture, its table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming_app.page.graph import Graph, Node
from streaming_app.page.words import short_name

Fields = Mapping[str, Any]
_TITLE = 40
_NODE_KINDS = {1: "source", 2: "processor", 3: "sink"}
AVAILABLE = 3
STATUSES = {
    0: "The broker was not asked for the description.",
    1: "The broker stores no description of this topology: no member has sent one, or the brokers have no plugin.",
    2: "The broker could not read the description that its plugin stores.",
    3: "The broker returned the description.",
}


@dataclass(frozen=True)
class Described:
    """What a broker answered about one group, or why it did not."""

    group_id: str
    topology_epoch: int | None
    at: datetime
    status: int | None
    """As in `STATUSES`; None if the broker did not answer."""
    description: Fields | None
    error: str | None = None

    @property
    def text(self) -> str:
        """The answer in one sentence."""
        if self.error is not None:
            return self.error
        return STATUSES.get(self.status if self.status is not None else -1, f"Unknown status {self.status}.")


@dataclass(frozen=True)
class NodeRow:
    """A line of the table of nodes."""

    subtopology_id: str
    name: str
    kind: str
    topics: Sequence[str]
    stores: Sequence[str]
    predecessors: Sequence[str]
    successors: Sequence[str]


def described_of(response: Fields, group_id: str, at: datetime) -> Described:
    """Return what one group of a StreamsGroupDescribe response, of version 1, says."""
    topology = response.get("topology")
    epoch = topology["epoch"] if topology else None
    if response.get("error_code"):
        error = f"The broker returned an error: {response.get('error_message') or response['error_code']}"
        return Described(group_id, epoch, at, None, None, error)
    status = response.get("topology_description_status")
    if status is None or (status == 0 and response.get("topology_description") is None):
        error = "This broker does not return topology descriptions: that needs Kafka 4.4 or later."
        return Described(group_id, epoch, at, None, None, error)
    return Described(group_id, epoch, at, status, response.get("topology_description") if status == AVAILABLE else None)


def node_rows(description: Fields) -> list[NodeRow]:
    """Return the nodes of a description, by subtopology, in the order of the broker."""
    rows = []
    for part, nodes in _parts(description):
        predecessors: dict[str, list[str]] = {}
        for node in nodes:
            for successor in node["successors"]:
                predecessors.setdefault(successor, []).append(node["name"])
        rows += [_row(part, node, predecessors.get(node["name"], ())) for node in nodes]
    return rows


def description_graph(described: Described, changelogs: Iterable[str] = ()) -> Graph:
    """Return the picture of the processors, stores and topics. `changelogs` are the names of changelog topics."""
    graph = Graph("processors")
    if described.description is None:
        graph.problem = described.text
        return graph
    known = set(changelogs)
    for part, nodes in _parts(described.description):
        cluster = f"c{len(graph.clusters)}"
        graph.clusters.append((cluster, f"Subtopology {short_name(part, _TITLE)}" if part else "Global store"))
        by_name = {node["name"]: _add_node(graph, cluster, node) for node in nodes}
        for node in nodes:
            _connect(graph, node, by_name, cluster, described.group_id, known)
    if any(node.kind == "sink" and not _written(node) for node in graph.nodes):
        graph.notes.append("A sink without a topic chooses the topic for each record.")
    if not graph.nodes:
        graph.problem = "The description has no nodes."
    return graph


def _parts(description: Fields) -> Iterable[tuple[str, Sequence[Fields]]]:
    for part in description.get("subtopologies") or ():
        yield part["subtopology_id"], part["nodes"]
    for store in description.get("global_stores") or ():
        yield "", [store["source"], store["processor"]]


def _row(part: str, node: Fields, predecessors: Sequence[str]) -> NodeRow:
    topics = [*(node["source_topics"] or ()), *([node["sink_topic"]] if node["sink_topic"] else [])]
    kind = _NODE_KINDS.get(node["node_type"], "node")
    return NodeRow(part, node["name"], kind, topics, node["stores"] or (), predecessors, node["successors"] or ())


def _add_node(graph: Graph, cluster: str, node: Fields) -> Node:
    kind = _NODE_KINDS.get(node["node_type"], "processor")
    box = graph.add(kind, node["name"], short_name(node["name"], _TITLE), cluster=cluster, lines=[kind])
    box.facts = [("Kind", kind), ("Name", short_name(node["name"], 250))]
    box.facts += [("Reads", short_name(topic, 250)) for topic in node["source_topics"] or ()]
    box.facts += [("Writes", short_name(node["sink_topic"], 250))] if node["sink_topic"] else []
    box.facts += [("Store", short_name(store, 250)) for store in node["stores"] or ()]
    return box


def _connect(  # noqa: PLR0913, PLR0917 - what a node is connected to
    graph: Graph, node: Fields, by_name: Mapping[str, Node], cluster: str, group_id: str, changelogs: set[str]
) -> None:
    box = by_name[node["name"]]
    for name in node["source_topics"] or ():
        graph.connect(_topic(graph, name, group_id), box)
    if node["sink_topic"]:
        graph.connect(box, _topic(graph, node["sink_topic"], group_id))
    for name in node["stores"] or ():
        store = graph.add("store", name, short_name(name, _TITLE), cluster=cluster, lines=["store"], internal=True)
        changelog = f"{group_id}-{name}-changelog"
        logged = short_name(changelog, 250) if changelog in changelogs else "none in the log under its usual name"
        store.facts = [("Kind", "store"), ("Name", short_name(name, 250)), ("Changelog", logged)]
        graph.connect(box, store, "state")
    for name in node["successors"] or ():
        if name in by_name:
            graph.connect(box, by_name[name])


def _topic(graph: Graph, name: str, group_id: str) -> Node:
    prefix = f"{group_id}-"
    is_internal = name.startswith(prefix) and name.endswith(("-repartition", "-changelog"))
    shown = f"…{name.removeprefix(prefix)}" if is_internal else name
    kind = "repartition" if name.endswith("-repartition") and is_internal else "topic"
    node = graph.add(kind, name, short_name(shown, _TITLE), lines=["repartition topic" if is_internal else "topic"])
    node.facts = [("Kind", node.lines[0]), ("Name", short_name(name, 250))]
    return node


def _written(node: Node) -> bool:
    return any(title == "Writes" for title, _ in node.facts)
