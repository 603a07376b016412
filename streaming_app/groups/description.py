"""Converts a stored topology description (KIP-1331) to nodes and edges with a hash, and to text. Pure.

The input is the description of a StreamsGroupDescribe response, in snake_case. The tenant chooses the number and the
names of its nodes. So at most `MAX_NODES` nodes are kept, with at most `MAX_CHARACTERS` characters of names.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from streaming_app.groups.topology import content_hash
from streaming_app.text import escape

SOURCE, PROCESSOR, SINK, STORE, TOPIC = "source", "processor", "sink", "store", "topic"
MAX_NODES = 2_000
"""How many sources, processors and sinks are kept of a description; real applications have tens to hundreds."""
MAX_CHARACTERS = 2_000_000
"""How many characters the names in the kept edges may have in total; each edge adds `_EDGE_CHARACTERS`."""
_EDGE_CHARACTERS = 16
NODE_KINDS = {1: SOURCE, 2: PROCESSOR, 3: SINK}
"""Node type in a description -> kind."""

AVAILABLE = "AVAILABLE"
STATUSES = {1: "NOT_STORED", 2: "ERROR", 3: AVAILABLE}
"""`TopologyDescriptionStatus` of a StreamsGroupDescribe response that includes descriptions (Kafka 4.4 or later)."""

_Node = tuple[str, str, str | None]
_NODE = ("node", "kind", "subtopology_id")
_EDGE = ("from_node", "from_kind", "to_node", "to_kind", "subtopology_id")


def graph_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of `descriptions` that hold the graph of a description.

    If the description is too large, they hold the nodes that come first in the order of subtopologies and names.
    `content_hash` is over all nodes: it is the same for two descriptions if and only if these are equal.
    """
    every = [(part, node) for part, nodes in _parts(description) for node in nodes]
    every.sort(key=lambda one: (one[0] or "", one[1]["name"]))
    kept = every[: _fitting([node for _, node in every])]
    own: dict[tuple[str | None, str], _Node] = {
        (part, node["name"]): (node["name"], NODE_KINDS.get(node["node_type"], PROCESSOR), part) for part, node in kept
    }
    nodes, edges = set(own.values()), set()
    for part, node in kept:
        for begin, end in _connections(part, node, own):
            nodes |= {begin, end}
            edges.add((*begin[:2], *end[:2], part))
    return {
        "content_hash": content_hash(sorted(json.dumps([part, node], sort_keys=True) for part, node in every)),
        "node_count": len(every),
        "truncated": len(kept) < len(every),
        "description_nodes": _rows(_NODE, nodes),
        "description_edges": _rows(_EDGE, edges),
    }


def _parts(description: Mapping[str, Any]) -> list[tuple[str | None, Sequence[Mapping[str, Any]]]]:
    """Return pairs of subtopology id and nodes. The nodes of a global store have the id None."""
    stores = description.get("global_stores") or ()
    return [
        *((part["subtopology_id"], part["nodes"]) for part in description.get("subtopologies") or ()),
        *((None, [store["source"], store["processor"]]) for store in stores),
    ]


def _connections(
    part: str | None, node: Mapping[str, Any], known: Mapping[tuple[str | None, str], _Node]
) -> Iterator[tuple[_Node, _Node]]:
    own = known[part, node["name"]]
    yield from (((topic, TOPIC, None), own) for topic in node["source_topics"] or ())
    yield from ((own, (topic, TOPIC, None)) for topic in (node["sink_topic"],) if topic)
    yield from ((own, (store, STORE, part)) for store in node["stores"] or ())
    yield from ((own, known[part, one]) for one in node["successors"] or () if (part, one) in known)


def _fitting(nodes: Sequence[Mapping[str, Any]]) -> int:
    """Return how many nodes from the beginning fit the limits."""
    left = MAX_CHARACTERS
    for number, node in enumerate(nodes[:MAX_NODES]):
        own = len(node["name"]) + _EDGE_CHARACTERS
        ends = (*(node["source_topics"] or ()), *(node["stores"] or ()), *(node["successors"] or ()))
        left -= own + sum(len(name) + own for name in (*ends, node["sink_topic"] or ""))
        if left < 0:
            return number
    return min(len(nodes), MAX_NODES)


def _rows(columns: Sequence[str], found: Iterable[tuple[str | None, ...]]) -> list[dict[str, Any]]:
    rows = sorted(found, key=lambda one: tuple(value or "" for value in one))
    return [dict(zip(columns, one, strict=True)) for one in rows]


def describe_topology(description: Mapping[str, Any]) -> str:
    """Return a description as `kafka-streams-groups.sh --describe --topology` of release 4.4.0 prints it.

    Each line ends with a line break. Control characters in names are escaped.
    """
    lines = ["Topologies:"]
    for number, (part, nodes) in enumerate(_parts(description)):
        global_store = f"{number} for global store (will not generate tasks)"
        lines.append(f"   Sub-topology: {global_store if part is None else escape(part)}")
        predecessors: defaultdict[str, list[str]] = defaultdict(list)
        for node in nodes:
            for name in node["successors"] or ():
                predecessors[name].append(node["name"])
        for node in nodes:
            lines += _text_of(node, predecessors[node["name"]])
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


def _text_of(node: Mapping[str, Any], predecessors: Iterable[str]) -> Iterator[str]:
    kind = NODE_KINDS.get(node["node_type"], PROCESSOR)
    topic = "null" if node["sink_topic"] is None else escape(node["sink_topic"])
    what = {
        SOURCE: f"topics: [{_names(node['source_topics'])}]",
        PROCESSOR: f"stores: [{_names(node['stores'])}]",
        SINK: f"topic: {topic}",
    }
    yield f"    {kind.capitalize()}: {escape(node['name'])} ({what[kind]})"
    if kind != SINK:
        yield f"      --> {_names(node['successors']) or 'none'}"
    if kind != SOURCE:
        yield f"      <-- {_names(predecessors) or 'none'}"


def _names(names: Iterable[str] | None) -> str:
    return ", ".join(map(escape, sorted(set(names or ()))))
