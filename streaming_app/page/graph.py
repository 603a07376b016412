"""What a picture is made of: nodes, edges and clusters, with no positions. Only data; the browser lays it out.

Node ids are made here (`n0`, `n1`, ...), so no name from Kafka ever is part of a layout's text.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_NODES = 1_500
"""Of a larger picture the table is shown only."""


@dataclass
class Node:
    """A box of the picture."""

    id: str
    kind: str
    """`topic`, `pattern`, `repartition`, `changelog`, `subtopology`, `source`, `processor`, `sink` or `store`."""
    name: str
    title: str
    """The name as it is shown."""
    lines: list[str] = field(default_factory=list)
    """Further lines in the box. They may change without another layout."""
    facts: list[tuple[str, str]] = field(default_factory=list)
    """What is shown about a selected node."""
    cluster: str | None = None
    tone: str = ""
    """As in `words.Meaning`."""
    internal: bool = False
    """A changelog topic or a store: it may be hidden."""


@dataclass
class Graph:
    """A picture. `problem` says in words why there is none."""

    level: str
    nodes: list[Node] = field(default_factory=list)
    edges: list[tuple[str, str, str]] = field(default_factory=list)
    """From, to, and the kind: `flow` or `state`."""
    clusters: list[tuple[str, str]] = field(default_factory=list)
    """Id and title."""
    notes: list[str] = field(default_factory=list)
    """What the picture cannot show."""
    problem: str | None = None

    def add(self, kind: str, name: str, title: str, **others: Any) -> Node:  # noqa: ANN401 - the fields of a node
        """Add a node, or return the one of this kind, cluster and name that is there."""
        key = (kind, name, others.get("cluster"))
        node = self._index.get(key)
        if node is None:
            node = self._index[key] = Node(f"n{len(self.nodes)}", kind, name, title, **others)
            self.nodes.append(node)
        return node

    def connect(self, start: Node, end: Node, kind: str = "flow") -> None:
        """Add an edge, once."""
        edge = (start.id, end.id, kind)
        if edge not in self._edges:
            self._edges.add(edge)
            self.edges.append(edge)

    def __post_init__(self) -> None:
        self._index: dict[tuple[str, str, str | None], Node] = {}
        self._edges: set[tuple[str, str, str]] = set()

    @property
    def layout_key(self) -> str:
        """Changes only when another layout is needed, not with what the boxes say in as many lines."""
        shape = [
            [(node.id, node.kind, node.name, node.cluster, len(node.lines)) for node in self.nodes],
            self.edges,
            self.clusters,
        ]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return what the browser gets."""
        if len(self.nodes) > MAX_NODES:
            problem = f"This topology has {len(self.nodes):,} nodes, too many to draw: the table has them all."
            return {"level": self.level, "problem": problem, "nodes": [], "edges": [], "clusters": [], "notes": []}
        return {**asdict(self), "key": self.layout_key}
