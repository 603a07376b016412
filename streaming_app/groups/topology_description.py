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
from dataclasses import dataclass
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
    name, after, before = (
        escape(node["name"]),
        f"\n      --> {_names(successors)}",
        f"\n      <-- {_names(predecessors)}",
    )
    if node["node_type"] == _SOURCE:
        return f"Source: {name} (topics: {_set(node['source_topics'])}){after}"
    if node["node_type"] == _SINK:
        topic = "null" if node["sink_topic"] is None else escape(node["sink_topic"])
        return f"Sink: {name} (topic: {topic}){before}"
    return f"Processor: {name} (stores: {_set(node['stores'])}){after}{before}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(escape, names)) or "none"


def _set(names: Sequence[str]) -> str:
    table = max(int(len(names) / _LOAD_FACTOR) + 1, _SMALLEST_TABLE)
    return f"[{', '.join(map(escape, _hash_order(sorted(names, key=_creation), table)))}]"


def _connect(nodes: Mapping[str, Node]) -> tuple[Neighbours, Neighbours, dict[str, int]]:
    """Return the successors and predecessors of each node, in order, and how many paths begin at it."""
    edges: dict[str, list[str]] = {name: [] for name in nodes}
    for name, node in nodes.items():
        for successor in dict.fromkeys(node["successors"]):
            if successor in edges:
                edges[successor].append(name)
    sizes = dict.fromkeys(nodes, 1)
    successors = {name: _JavaTreeSet(lambda one: _rank(one, sizes)) for name in nodes}
    predecessors = {name: _JavaTreeSet(lambda one: _rank(one, sizes)) for name in nodes}
    for name in _hash_order(sorted(nodes, key=_creation), _grown_table(len(nodes))):
        for before in edges[name]:
            predecessors[name].add(before)
            successors[before].add(name)
            _grow(before, sizes[name], predecessors, sizes)
    return successors, predecessors, sizes


def _creation(name: str) -> tuple[float, bytes]:
    """Return what sorts nodes, topics and stores as they were created: most are numbered at the end of their names.

    It matters only for names that are in one bucket of a hash table.
    """
    digits = name[len(name.rstrip(_DIGITS)) :][-_MOST_DIGITS:]
    return float(digits) if digits else math.inf, _utf_16(name)


def _grow(name: str, by: int, predecessors: Neighbours, sizes: dict[str, int]) -> None:
    """Add to the size of a node, and of each from which it can be reached, once for each path.

    Kafka's descriptions have no cycles; in one that has, each node counts once.
    """
    paths = _paths_to(name, predecessors)
    for one, number in paths.items():
        sizes[one] += by * number


def _paths_to(name: str, predecessors: Neighbours) -> dict[str, int]:
    order, paths = list(_ancestors(name, predecessors)), {name: 1}
    for one in order:
        for before in predecessors[one]:
            paths[before] = paths.get(before, 0) + paths[one]
    return paths


def _ancestors(name: str, predecessors: Neighbours) -> Iterator[str]:
    """Return a node and those before it, each after all that it leads to: reverse postorder of a depth-first walk."""
    done: list[str] = []
    seen = {name}
    stack = [(name, iter(predecessors[name]))]
    while stack:
        one, rest = stack[-1]
        following = next((before for before in rest if before not in seen), None)
        if following is None:
            done.append(one)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(predecessors[following])))
    return reversed(done)


def _rank(name: str, sizes: Mapping[str, int]) -> tuple[int, bytes]:
    return -sizes[name], _utf_16(name)


def _utf_16(text: str) -> bytes:
    """Return what Java compares texts by."""
    return text.encode("utf-16-be", "surrogatepass")


def _grown_table(entries: int) -> int:
    """Return the size of the table of a HashMap that was created empty."""
    size = _SMALLEST_TABLE
    while entries > size * _LOAD_FACTOR:
        size *= 2
    return size


def _hash_order(names: Iterable[str], capacity: int) -> list[str]:
    """Return texts in the order of a Java hash table of this capacity, rounded up to a power of two."""
    mask = (1 << (capacity - 1).bit_length()) - 1

    def bucket(name: str) -> int:
        code = hash_code(name) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & mask

    return sorted(names, key=bucket)


@dataclass(eq=False)
class _Entry:
    value: str
    parent: _Entry | None = None
    left: _Entry | None = None
    right: _Entry | None = None
    is_red: bool = True


class _JavaTreeSet:
    """A sorted set of texts; `key` gives what they are compared by at the time of a comparison.

    It has the order of a Java TreeSet whose elements change after they were inserted: such a set keeps its tree as it
    was, so where a later element goes depends on its shape. `java.util.TreeMap` is a red-black tree after Cormen,
    Leiserson and Rivest, and so is this one. Elements are only added.
    """

    def __init__(self, key: Callable[[str], Any]) -> None:
        self._key = key
        self._root: _Entry | None = None

    def __iter__(self) -> Iterator[str]:
        stack: list[_Entry] = []
        entry = self._root
        while stack or entry:
            while entry:
                stack.append(entry)
                entry = entry.left
            entry = stack.pop()
            yield entry.value
            entry = entry.right

    def add(self, value: str) -> None:
        """Add an element that is not in the set yet."""
        key, parent, below = self._key(value), None, self._root
        is_less = False
        while below:
            parent, is_less = below, key < self._key(below.value)
            below = below.left if is_less else below.right
        entry = _Entry(value, parent)
        if parent is None:
            self._root = entry
        elif is_less:
            parent.left = entry
        else:
            parent.right = entry
        self._balance(entry)

    def _balance(self, entry: _Entry) -> None:
        """Rotate and colour the tree after a new entry. The root may stay red: nothing asks for its colour."""
        while (parent := entry.parent) and parent.is_red and (grandparent := parent.parent):
            is_left = parent is grandparent.left
            uncle = grandparent.right if is_left else grandparent.left
            if uncle and uncle.is_red:
                parent.is_red = uncle.is_red = False
                grandparent.is_red = True
                entry = grandparent
                continue
            if entry is (parent.right if is_left else parent.left):
                self._rotate(parent, to_left=is_left)
                entry, parent = parent, entry
            parent.is_red, grandparent.is_red = False, True
            self._rotate(grandparent, to_left=not is_left)

    def _rotate(self, entry: _Entry, *, to_left: bool) -> None:
        """Put a child of the entry, the right one if `to_left`, in its place, and the entry below it."""
        child = entry.right if to_left else entry.left
        assert child is not None  # noqa: S101 - by the cases of `_balance`
        inner = child.left if to_left else child.right
        if to_left:
            entry.right, child.left = inner, entry
        else:
            entry.left, child.right = inner, entry
        if inner:
            inner.parent = entry
        child.parent = entry.parent
        if entry.parent is None:
            self._root = child
        elif entry is entry.parent.left:
            entry.parent.left = child
        else:
            entry.parent.right = child
        entry.parent = child
