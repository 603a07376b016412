"""A picture of subtopologies, processors and topics, and how a large picture is folded. Pure.

A picture has nodes, edges and boxes around nodes. It has no positions: the browser lays it out. This module makes the
ids (`n0`, `b1`, ...), so the text of a layout contains no name from Kafka.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streaming_app.text import count, digest

FOLDED_ABOVE = 60
"""In a picture of more nodes, each box with several of them is drawn as one node until it is opened."""
MAX_NODES = 1_500
"""Of a larger picture the table is shown only."""
_NOTE = (
    "Nodes that belong together are one box each, as there are more than {}: click a box or press Enter to open it, "
    "and its title to close it."
)


@dataclass
class Node:
    """A node of the picture, or a box around nodes."""

    id: str
    kind: str
    """`topic`, `pattern`, `repartition`, `changelog`, `subtopology`, `source`, `processor`, `sink` or `store`.
    `box` for a box around nodes, `folded` for a closed box."""
    name: str
    title: str
    lines: list[str] = field(default_factory=list)
    """More lines in the node. They may change without a new layout."""
    box: str | None = None
    """Id of the box around it."""
    tone: str = ""
    """As in `words.Meaning`."""
    internal: bool = False
    """A changelog topic or a store: the reader may hide it."""
    href: str | None = None
    """A page about it, or its rows, as a relative URL."""
    holds: list[str] = field(default_factory=list)
    """Of a closed box, the names of the nodes in it; empty in a huge picture."""
    is_open: bool | None = None
    """Of a box: None if the picture is not folded, since nobody can close the box then."""


class Edge(NamedTuple):
    """An edge from one node to another."""

    start: str
    end: str
    kind: str
    """`flow` or `state`."""


@dataclass
class Graph:
    """A picture. `problem` says why there is none."""

    level: str
    nodes: list[Node] = field(default_factory=list)
    boxes: list[Node] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences about what the picture cannot show."""
    problem: str | None = None
    draws_boxes: bool = False
    """Whether boxes are drawn even if nothing is folded."""

    def __post_init__(self) -> None:
        self._index: dict[tuple[str, str, str | None], Node] = {}
        self._edges: dict[Edge, None] = {}

    @property
    def edges(self) -> list[Edge]:
        """All edges: between two nodes at most one of each kind."""
        return list(self._edges)

    def add(self, kind: str, name: str, title: str, **others: Any) -> Node:  # noqa: ANN401 - the fields of a node
        """Add a node, or return the existing node of this kind, box and name."""
        key = (kind, name, others.get("box"))
        node = self._index.get(key)
        if node is None:
            node = self._index[key] = Node(f"n{len(self.nodes)}", kind, name, title, **others)
            self.nodes.append(node)
        return node

    def add_box(self, name: str, title: str, **others: Any) -> Node:  # noqa: ANN401 - the fields of a node
        """Add a box around nodes."""
        box = Node(f"b{len(self.boxes)}", "box", name, title, **others)
        self.boxes.append(box)
        return box

    def connect(self, start: Node, end: Node, kind: str = "flow") -> None:
        """Add an edge, unless it is there."""
        self._edges[Edge(start.id, end.id, kind)] = None

    def folded(self, is_open: Callable[[str], bool]) -> Graph:
        """Return the picture with each closed box as one node, if the picture has many nodes.

        `is_open` says by the name of a box whether its nodes are drawn. A node outside of boxes joins the box of all
        the nodes it leads to. If it leads nowhere, it joins the box of all the nodes that lead to it. A box with one
        node is left out.
        """
        if len(self.nodes) <= FOLDED_ABOVE:
            return self
        box_of = self._gathered()
        held = defaultdict[str | None, list[Node]](list)
        for node in self.nodes:
            held[box_of[node.id]].append(node)
        boxes = {one.id: one for one in self.boxes if len(held[one.id]) > 1}
        if not boxes:
            return self
        result = Graph(self.level, notes=[_NOTE.format(FOLDED_ABOVE), *self.notes], draws_boxes=True)
        has_names = len(self.nodes) <= MAX_NODES
        opened, closed = dict[str, str](), dict[str, dict[str, Any]]()
        for box in boxes.values():
            if is_open(box.name):
                opened[box.id] = f"b{len(result.boxes)}"
                result.boxes.append(replace(box, id=opened[box.id], is_open=True))
            else:
                names, lines = [one.name for one in held[box.id]], [count(len(held[box.id]), "node"), *box.lines]
                closed[box.id] = {"lines": lines, "holds": names if has_names else [], "tone": box.tone}
        place = {}
        for node in self.nodes:
            own = boxes.get(box_of[node.id] or "")
            if own is None or own.id in opened:
                place[node.id] = replace(node, id=f"n{len(result.nodes)}", box=opened[own.id] if own else None)
                result.nodes.append(place[node.id])
            else:
                place[node.id] = result.add("folded", own.name, own.title, **closed[own.id])
        for edge in self.edges:
            start, end = place[edge.start], place[edge.end]
            if start is not end or start.kind != "folded":
                result.connect(start, end, edge.kind)
        return result

    def _gathered(self) -> Mapping[str, str | None]:
        box_of = {node.id: node.box for node in self.nodes}
        after, before = defaultdict[str, set[str | None]](set), defaultdict[str, set[str | None]](set)
        for edge in self.edges:
            after[edge.start].add(box_of[edge.end])
            before[edge.end].add(box_of[edge.start])
        for node in self.nodes:
            users = after[node.id] or before[node.id]
            if node.box is None and len(users) == 1:
                (box_of[node.id],) = users
        return box_of

    def to_json(self) -> dict[str, Any]:
        """Return the picture for the browser, with a key that changes only when a new layout is needed."""
        shape = [
            [(node.id, node.kind, node.name, node.box, len(node.lines)) for node in self.nodes],  # not their text
            self.edges,
            [(box.id, box.title, box.is_open) for box in self.boxes],
            self.draws_boxes,
        ]
        drawn = {
            "level": self.level,
            "problem": self.problem,
            "nodes": [vars(one) for one in self.nodes],
            "edges": self.edges,
            "boxes": [vars(one) for one in self.boxes] if self.draws_boxes else [],
            "notes": self.notes,
            "key": digest(json.dumps(shape), 16),
        }
        if len(self.nodes) <= MAX_NODES:
            return drawn
        problem = f"There are {len(self.nodes):,} nodes, too many to draw: the table has them all."
        return {**drawn, "problem": problem, "nodes": [], "edges": [], "boxes": [], "notes": []}
