"""A stored topology description (KIP-1331) as text, as `Topology#describe()` of Kafka Streams prints it. Pure.

Theory of operation
-------------------
Clients send the nodes of a subtopology sorted by name; `Topology#describe()` prints those first from which the most
nodes can be reached. So the order is computed again, as `InternalTopologyBuilder` of release 4.3.1 does. Two parts of
it come from Java's collections, which are therefore imitated: sets of topics and stores are printed in the order of a
HashSet, and the nodes are connected in the order of a HashMap, while the neighbours of a node are sorted by how many
nodes could be reached at that moment. Names with characters that a terminal obeys are escaped.

Not in a description, and so not in its text: the pattern of a source that has one (its topics are `[]` then), and the
class that chooses the topic of a sink (its topic is `null` then). Kafka's own command prints the same for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from streaming_app.groups.partition import hash_code
from streaming_app.text import escape

Node = Mapping[str, Any]
Neighbours = Mapping[str, "_JavaTreeSet"]
_SOURCE, _SINK = 1, 3  # node types; 2 is a processor
_LOAD_FACTOR = 0.75
_SMALLEST_TABLE = 16
_DIGITS, _MOST_DIGITS = "0123456789", 18

AVAILABLE = 3
STATUSES = {
    0: ("NOT_REQUESTED", "its broker is older than Kafka 4.4, and stores none"),
    1: (
        "NOT_STORED",
        "its broker has no plugin that stores descriptions, or no client has pushed one for its topology",
    ),
    2: ("ERROR", "the plugin of its broker failed to return it, see the log of the group coordinator"),
    AVAILABLE: ("AVAILABLE", "its broker stores it"),
}
"""`TopologyDescriptionStatus` of StreamsGroupDescribe: name, and what it means of a group whose description was
requested."""


def describe_topology(description: Mapping[str, Any]) -> str:
    """Return the text of a description as StreamsGroupDescribe returns it, with line breaks, also at its end.

    A global store has no id in the description: it gets the first one that no subtopology before it has.
    """
    global_stores = iter(description["global_stores"])
    subtopologies = sorted(description["subtopologies"], key=lambda one: _number(one["subtopology_id"]))
    parts, expected = [], 0
    for subtopology in subtopologies:
        number = _number(subtopology["subtopology_id"])
        while expected < number and (store := next(global_stores, None)):
            parts.append(_global_store(store, expected))
            expected += 1
        parts.append(_subtopology(subtopology))
        expected = max(expected, number) + 1
    parts += [_global_store(store, expected + n) for n, store in enumerate(global_stores)]
    return "Topologies:\n " + "".join(f"  {part}" for part in parts)


def _number(subtopology_id: str) -> int:
    return int(subtopology_id) if subtopology_id.isascii() and subtopology_id.isdecimal() else 0


def _subtopology(subtopology: Mapping[str, Any]) -> str:
    nodes = {node["name"]: node for node in subtopology["nodes"]}
    successors, predecessors, sizes = _connect(nodes)
    names = sorted(nodes, key=lambda name: _rank(name, sizes))
    lines = (f"    {_node(nodes[name], successors[name], predecessors[name])}\n" for name in names)
    return f"Sub-topology: {escape(subtopology['subtopology_id'])}\n{''.join(lines)}\n"


def _global_store(store: Mapping[str, Any], number: int) -> str:
    source, processor = store["source"], store["processor"]
    first = _node(source, [processor["name"]], [])
    second = _node(processor, [], [source["name"]])
    return f"Sub-topology: {number} for global store (will not generate tasks)\n    {first}\n    {second}\n"


def _node(node: Node, successors: Iterable[str], predecessors: Iterable[str]) -> str:
    name = escape(node["name"])
    after, before = f"\n      --> {_names(successors)}", f"\n      <-- {_names(predecessors)}"
    if node["node_type"] == _SOURCE:
        return f"Source: {name} (topics: {_set(node['source_topics'])}){after}"
    if node["node_type"] == _SINK:
        topic = "null" if node["sink_topic"] is None else escape(node["sink_topic"])
        return f"Sink: {name} (topic: {topic}){before}"
    return f"Processor: {name} (stores: {_set(node['stores'])}){after}{before}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(escape, names)) or "none"


def _set(names: Sequence[str]) -> str:
    capacity = int(len(names) / _LOAD_FACTOR) + 1  # of a HashSet that is made of a collection
    return f"[{', '.join(map(escape, _hash_order(names, capacity)))}]"


def _connect(nodes: Mapping[str, Node]) -> tuple[Neighbours, Neighbours, dict[str, int]]:
    """Return the successors and predecessors of each node, in order, and how many paths begin at it.

    Kafka's descriptions have no cycles; in one that has, one path begins at each node.
    """
    leads_to = {
        name: [one for one in dict.fromkeys(node["successors"]) if one in nodes] for name, node in nodes.items()
    }
    comes_from: dict[str, list[str]] = {name: [] for name in nodes}
    for name, following in leads_to.items():
        for one in following:
            comes_from[one].append(name)
    try:
        backwards = list(TopologicalSorter(leads_to).static_order())
    except CycleError:
        backwards = []
    place = {name: number for number, name in enumerate(backwards)}
    sizes = dict.fromkeys(nodes, 1)
    successors = {name: _JavaTreeSet(lambda one: _rank(one, sizes)) for name in nodes}
    predecessors = {name: _JavaTreeSet(lambda one: _rank(one, sizes)) for name in nodes}
    for name in _hash_order(nodes, math.ceil(len(nodes) / _LOAD_FACTOR)):
        for before in comes_from[name]:
            predecessors[name].add(before)
            successors[before].add(name)
            # What can be reached from `before`, and from each node before it, grows once for each path.
            grows = {before: sizes[name]}
            for one in backwards[place.get(before, 0) :]:
                if by := grows.get(one):
                    sizes[one] += by
                    for earlier in predecessors[one]:
                        grows[earlier] = grows.get(earlier, 0) + by
    return successors, predecessors, sizes


def _creation(name: str) -> tuple[float, bytes]:
    """Return what sorts nodes, topics and stores as they were created: most are numbered at the end of their names.

    It matters only for names that are in one bucket of a hash table.
    """
    digits = name[len(name.rstrip(_DIGITS)) :][-_MOST_DIGITS:]
    return float(digits) if digits else math.inf, _utf_16(name)


def _rank(name: str, sizes: Mapping[str, int]) -> tuple[int, bytes]:
    return -sizes[name], _utf_16(name)


def _utf_16(text: str) -> bytes:
    """Return what Java compares texts by."""
    return text.encode("utf-16-be", "surrogatepass")


def _hash_order(names: Iterable[str], capacity: int) -> list[str]:
    """Return texts in the order of a Java hash table of this capacity, rounded up to a power of two."""
    mask = (1 << (max(capacity, _SMALLEST_TABLE) - 1).bit_length()) - 1

    def place(name: str) -> tuple[int, float, bytes]:
        code = hash_code(name) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & mask, *_creation(name)

    return sorted(names, key=place)


class _Entry:
    """A node of a tree; what is below it is at its sides, the lesser at 0."""

    def __init__(self, value: str, parent: _Entry | None = None) -> None:
        self.value, self.parent, self.is_red = value, parent, parent is not None
        self.sides: list[_Entry | None] = [None, None]

    def __iter__(self) -> Iterator[str]:
        less, greater = self.sides
        yield from less or ()
        yield self.value
        yield from greater or ()


class _JavaTreeSet:
    """A sorted set of texts; `key` gives what they are compared by at the time of a comparison.

    It has the order of a Java TreeSet whose elements change after they were inserted: such a set keeps its tree as it
    was, so where a later element goes depends on its shape. `java.util.TreeMap` is a red-black tree after Cormen,
    Leiserson and Rivest, and so is this one. Elements are only added.
    """

    def __init__(self, key: Callable[[str], Any]) -> None:
        self._key = key
        self._top = _Entry("")  # the root is at its side 0

    def __iter__(self) -> Iterator[str]:
        yield from self._top.sides[0] or ()

    def add(self, value: str) -> None:
        """Add an element that is not in the set yet."""
        key, parent, side = self._key(value), self._top, 0
        while below := parent.sides[side]:
            parent, side = below, int(key >= self._key(below.value))
        entry = parent.sides[side] = _Entry(value, parent)
        while (parent := entry.parent or self._top).is_red and (grandparent := parent.parent):
            side = grandparent.sides.index(parent)
            uncle = grandparent.sides[1 - side]
            if uncle and uncle.is_red:
                parent.is_red = uncle.is_red = False
                grandparent.is_red, entry = True, grandparent
                continue
            if entry is parent.sides[1 - side]:
                _rotate(parent, side)
                entry, parent = parent, entry
            parent.is_red, grandparent.is_red = False, True
            _rotate(grandparent, 1 - side)
        if root := self._top.sides[0]:
            root.is_red = False


def _rotate(entry: _Entry, side: int) -> None:
    """Put the child at the other side in the place of the entry, and the entry below it at this side."""
    child, parent = entry.sides[1 - side], entry.parent
    assert child is not None and parent is not None  # noqa: S101, PT018 - by the cases of `add`
    inner = entry.sides[1 - side] = child.sides[side]
    if inner:
        inner.parent = entry
    parent.sides[parent.sides.index(entry)] = child
    child.sides[side] = entry
    child.parent, entry.parent = parent, child
