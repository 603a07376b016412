"""Stored topology descriptions on the page: what a row of the table `descriptions` says, its picture and its table.

The job fetches descriptions from the brokers and writes the table; the page only reads it. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming_app.groups.description import PROCESSOR, SINK, SOURCE, STORE, TOPIC
from streaming_app.groups.topology import is_internal_topic
from streaming_app.web.picture import Graph, Lag, Node
from streaming_app.web.topology_map import Condition, add_topic
from streaming_app.web.words import short_name

Row = Mapping[str, Any]
_TITLE = 40
STATUSES = {
    "AVAILABLE": "The brokers have it.",
    "NOT_STORED": "The brokers' plugin has lost it since, though the log says that it is stored.",
    "ERROR": "The brokers' plugin failed to return it when it was asked last.",
}
"""By the column `status` of `descriptions`."""
_NODES = (SOURCE, PROCESSOR, SINK)
_WITHOUT_PART = "global"


@dataclass
class NodeRow:
    """A line of the table of nodes."""

    subtopology_id: str | None
    name: str
    kind: str
    topics: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    successors: list[str] = field(default_factory=list)


def status_text(described: Row) -> str:
    """Return what the brokers said of a description when they were asked last."""
    text = STATUSES.get(described["status"], f"The brokers answered {described['status']}.")
    if described["truncated"]:
        text = f"{text} It has {described['node_count']:,} nodes, of which some are kept."
    return text


def node_rows(described: Row) -> list[NodeRow]:
    """Return the sources, processors and sinks of a description, by subtopology and name."""
    rows = {
        (one["subtopology_id"], one["node"]): NodeRow(one["subtopology_id"], one["node"], one["kind"])
        for one in described["description_nodes"] or ()
        if one["kind"] in _NODES
    }
    for edge in described["description_edges"] or ():
        part, begin, end = edge["subtopology_id"], edge["from_node"], edge["to_node"]
        if edge["from_kind"] == TOPIC:
            rows[part, end].topics.append(begin)
        elif edge["to_kind"] == TOPIC:
            rows[part, begin].topics.append(end)
        elif edge["to_kind"] == STORE:
            rows[part, begin].stores.append(end)
        else:
            rows[part, begin].successors.append(end)
    return sorted(rows.values(), key=lambda row: (row.subtopology_id or "", row.name))


def description_graph(
    described: Row,
    changelogs: Iterable[str] = (),
    conditions: Mapping[str, Condition] | None = None,
    lag: Mapping[str, Lag] | None = None,
) -> Graph:
    """Return the picture of the processors, stores and topics, with a box for each subtopology.

    `described` is a row of `descriptions`, `changelogs` are the names of changelog topics, `conditions` how
    subtopologies are, and `lag` is by topic.
    """
    graph, group_id, known = Graph("processors", draws_boxes=True), described["group_id"], set(changelogs)
    parts: defaultdict[str | None, list[NodeRow]] = defaultdict(list)
    for row in node_rows(described):
        parts[row.subtopology_id].append(row)
    for part, rows in parts.items():
        condition = (conditions or {}).get(part or "")
        shown = {"lines": condition.lines, "tone": condition.tone} if condition else {}
        title = f"Subtopology {short_name(part, _TITLE)}" if part else "Global stores"
        box = graph.add_box(part or _WITHOUT_PART, title, **shown)
        by_name = {row.name: _add_node(graph, box.id, row) for row in rows}
        for row in rows:
            _connect(graph, row, by_name, box.id, group_id, known, lag or {})
    if any(row.kind == SINK and not row.topics for rows in parts.values() for row in rows):
        graph.notes.append("A sink without a topic chooses the topic for each record.")
    if not graph.nodes:
        graph.problem = "The description has no nodes."
    return graph


def _add_node(graph: Graph, box_id: str, row: NodeRow) -> Node:
    node = graph.add(row.kind, row.name, short_name(row.name, _TITLE), box=box_id, lines=[row.kind])
    node.facts = [("Kind", row.kind), ("Name", short_name(row.name, 250))]
    node.facts += [("Writes" if row.kind == SINK else "Reads", short_name(topic, 250)) for topic in row.topics]
    node.facts += [("Store", short_name(store, 250)) for store in row.stores]
    return node


def _connect(  # noqa: PLR0913, PLR0917 - what a node is connected to
    graph: Graph,
    row: NodeRow,
    by_name: Mapping[str, Node],
    box_id: str,
    group_id: str,
    changelogs: set[str],
    lag: Mapping[str, Lag],
) -> None:
    node = by_name[row.name]
    for name in row.topics:
        topic = _topic(graph, name, group_id, lag)
        graph.connect(*((node, topic) if row.kind == SINK else (topic, node)))
    for name in row.stores:
        store = graph.add("store", name, short_name(name, _TITLE), box=box_id, lines=["store"], internal=True)
        changelog = f"{group_id}-{name}-changelog"
        logged = short_name(changelog, 250) if changelog in changelogs else "none in the log under its usual name"
        store.facts = [("Kind", "store"), ("Name", short_name(name, 250)), ("Changelog", logged)]
        graph.connect(node, store, "state")
    for name in row.successors:
        graph.connect(node, by_name[name])


def _topic(graph: Graph, name: str, group_id: str, lag: Mapping[str, Lag]) -> Node:
    kind = name.rpartition("-")[2] if is_internal_topic(name, group_id) else "topic"
    return add_topic(graph, kind, name, group_id, lag)
