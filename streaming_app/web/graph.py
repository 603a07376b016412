"""What a picture of groups, subtopologies, processors and topics is made of, and how a large one is folded. Pure.

A picture has nodes, edges and boxes around nodes, and no positions: the browser lays it out. Ids are made here (`n0`,
`b1`, ...), so no name from Kafka ever is part of a layout's text.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streaming_app.text import count, digest, duration
from streaming_app.web.words import number

FOLDED_ABOVE = 60
"""In a picture of more nodes, each box with several of them is drawn as one node until it is opened."""
MAX_NODES = 1_500
"""Of a larger picture the table is shown only."""
_NOTE = (
    "Nodes that belong together are one box each, as there are more than {}: click a box or press Enter to open it, "
    "and its title to close it."
)


class Lag(NamedTuple):
    """What waits in one or several topics."""

    offsets: int | None = None
    """None if it is known of no partition."""
    seconds: float = 0.0
    """How long ago the oldest record that waits was written."""
    is_partial: bool = False
    """Of some partitions it is not known."""

    def plus(self, other: Lag) -> Lag:
        """Return the lag of both."""
        known = [one for one in (self.offsets, other.offsets) if one is not None]
        is_partial = self.is_partial or other.is_partial or len(known) == 1
        return Lag(sum(known) if known else None, max(self.seconds, other.seconds), is_partial)

    @property
    def text(self) -> str:
        """The lag in offsets and time; `not known` if it is known of no partition, or may be more than 0."""
        if self.offsets is None or (self.is_partial and not self.offsets):
            return "not known"
        text = f"{'≥ ' if self.is_partial else ''}{number(self.offsets)}"
        return f"{text} · {duration(self.seconds)}" if self.seconds >= 1 else text

    @property
    def waiting(self) -> str:
        """What an edge says: nothing where nothing waits, or nobody looks for it."""
        if self.offsets or self.is_partial:
            return f"lag {self.text}" if self.text == "not known" else self.text
        return ""


def sum_of(lags: Iterable[Lag]) -> Lag | None:
    """Return the lag of all of them; None of none."""
    found = None
    for one in lags:
        found = one if found is None else found.plus(one)
    return found


def rate_text(rate: float) -> str:
    """Return records a second in words."""
    return f"{number(rate) if rate >= 10 or not rate else f'{rate:.1f}'} records/s"  # noqa: PLR2004 - below, digits count


@dataclass
class Node:
    """A node of the picture, or a box around nodes."""

    id: str
    kind: str
    """`topic`, `pattern`, `repartition`, `changelog`, `subtopology`, `source`, `processor`, `sink` or `store`; on the
    map of the pipelines `group`, `topic` or `unwritten`, of which no writer is known; `box` around nodes, and `folded`
    for one that is closed."""
    name: str
    title: str
    """The name as it is shown."""
    lines: list[str] = field(default_factory=list)
    """Further lines in the node. They may change without another layout."""
    facts: list[tuple[str, str]] = field(default_factory=list)
    """What is shown about a selected node."""
    box: str | None = None
    """Id of the box that it is in."""
    tone: str = ""
    """As in `words.Meaning`."""
    internal: bool = False
    """A changelog topic or a store: it may be hidden."""
    href: str | None = None
    """A page about it, as a relative URL."""
    holds: list[str] = field(default_factory=list)
    """Of a box that is closed, the names of the nodes in it; empty in a huge picture."""
    counts: str = "node"
    """Of a box: the kind of nodes that are counted; `node` for all."""
    is_open: bool | None = None
    """Of a box: None if the picture is not folded, as it cannot be closed then."""


class Edge(NamedTuple):
    """From a node to another."""

    start: str
    end: str
    kind: str
    """`flow` or `state`."""
    lag: Lag | None
    """What waits for the reader."""
    rate: float | None
    """Records a second that are read."""

    @property
    def text(self) -> str:
        """Lag and rate, which may change without another layout."""
        waiting = self.lag.waiting if self.lag else ""
        return " · ".join(filter(None, (waiting, "" if self.rate is None else rate_text(self.rate))))


@dataclass
class Graph:
    """A picture. `problem` says in words why there is none."""

    level: str
    nodes: list[Node] = field(default_factory=list)
    boxes: list[Node] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the picture cannot show."""
    problem: str | None = None
    draws_boxes: bool = False
    """Whether boxes are drawn also where nothing is folded."""

    def __post_init__(self) -> None:
        self._index: dict[tuple[str, str, str | None], Node] = {}
        self._edges: dict[tuple[str, str, str], Edge] = {}

    @property
    def edges(self) -> list[Edge]:
        """All edges, one of a kind between two nodes."""
        return list(self._edges.values())

    def add(self, kind: str, name: str, title: str, **others: Any) -> Node:  # noqa: ANN401 - the fields of a node
        """Add a node, or return the one of this kind, box and name that is there."""
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

    def connect(
        self, start: Node, end: Node, kind: str = "flow", lag: Lag | None = None, rate: float | None = None
    ) -> None:
        """Add an edge, or add lag and rate to the one that is there."""
        key = (start.id, end.id, kind)
        old = self._edges.get(key, Edge(*key, None, None))
        rates = [one for one in (old.rate, rate) if one is not None]
        total = sum_of(one for one in (old.lag, lag) if one is not None)
        self._edges[key] = Edge(*key, total, sum(rates) if rates else None)

    def folded(self, is_open: Callable[[str], bool], *, all_users: bool = False) -> Graph:
        """Return the picture in which each box with several nodes is one node, if there are many nodes.

        `is_open` says by the name of a box whether its nodes are drawn. A node outside of boxes is in that of the nodes
        it leads to, or of those that lead to it if it leads nowhere, where that is one box; with `all_users` only where
        all of both are in it. A box with one node is none.
        """
        if len(self.nodes) <= FOLDED_ABOVE:
            return self
        box_of = self._gathered(all_users=all_users)
        held = defaultdict[str | None, list[Node]](list)
        for node in self.nodes:
            held[box_of[node.id]].append(node)
        boxes = {one.id: one for one in self.boxes if len(held[one.id]) > 1}
        if not boxes:
            return self
        result = Graph(self.level, notes=[_NOTE.format(FOLDED_ABOVE), *self.notes], draws_boxes=True)
        opened = {}
        for box in boxes.values():
            if is_open(box.name):
                opened[box.id] = f"b{len(result.boxes)}"
                result.boxes.append(replace(box, id=opened[box.id], is_open=True))
        has_names = len(self.nodes) <= MAX_NODES
        place = {}
        for node in self.nodes:
            own = boxes.get(box_of[node.id] or "")
            if own is None or own.id in opened:
                place[node.id] = replace(node, id=f"n{len(result.nodes)}", box=opened[own.id] if own else None)
                result.nodes.append(place[node.id])
                continue
            counted = [one for one in held[own.id] if own.counts in {one.kind, "node"}]
            fields = {"facts": own.facts, "tone": own.tone, "href": own.href}
            names = [one.name for one in held[own.id]] if has_names else []
            lines = [count(len(counted), own.counts), *own.lines]
            place[node.id] = result.add("folded", own.name, own.title, lines=lines, holds=names, **fields)
        for edge in self.edges:
            start, end = place[edge.start], place[edge.end]
            if start is not end or start.kind != "folded":
                result.connect(start, end, edge.kind, edge.lag, edge.rate)
        return result

    def _gathered(self, *, all_users: bool) -> Mapping[str, str | None]:
        """Return the id of the box of each node."""
        box_of = {node.id: node.box for node in self.nodes}
        after, before = defaultdict[str, set[str | None]](set), defaultdict[str, set[str | None]](set)
        for edge in self.edges:
            after[edge.start].add(box_of[edge.end])
            before[edge.end].add(box_of[edge.start])
        for node in self.nodes:
            users = after[node.id] | before[node.id] if all_users else after[node.id] or before[node.id]
            if node.box is None and len(users) == 1:
                (box_of[node.id],) = users
        return box_of

    @property
    def layout_key(self) -> str:
        """Changes only when another layout is needed, not with what the nodes say in as many lines."""
        shape = [
            [(node.id, node.kind, node.name, node.box, len(node.lines)) for node in self.nodes],
            [edge[:3] for edge in self.edges],
            [(box.id, box.title, box.is_open) for box in self.boxes],
            self.draws_boxes,
        ]
        return digest(json.dumps(shape), 16)

    def to_json(self) -> dict[str, Any]:
        """Return what the browser gets."""
        drawn = {
            "level": self.level,
            "problem": self.problem,
            "nodes": [vars(one) for one in self.nodes],
            "edges": [(*edge[:3], edge.text) for edge in self.edges],
            "boxes": [vars(one) for one in self.boxes] if self.draws_boxes else [],
            "notes": self.notes,
            "key": self.layout_key,
        }
        if len(self.nodes) <= MAX_NODES:
            return drawn
        problem = f"There are {len(self.nodes):,} nodes, too many to draw: the table has them all."
        return {**drawn, "problem": problem, "nodes": [], "edges": [], "boxes": [], "notes": []}
