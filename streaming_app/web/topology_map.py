"""The map of a group's subtopologies and topics, from the log alone, and what any picture is made of. Pure.

Record 23 names what each subtopology reads, which repartition topics it writes, and its changelog topics. It does not
name other topics that it writes, and not the processors: the notes of the picture say so.

A picture has nodes, edges and clusters, and no positions: the browser lays it out. Node ids are made here (`n0`, `n1`,
...), so no name from Kafka ever is part of a layout's text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from streaming_app.queries.topics import BY_PATTERN, Topic
from streaming_app.text import count, duration
from streaming_app.web.words import NOTHING, number, short_name

# --- Pictures ---------------------------------------------------------------------------------------------------------

MAX_NODES = 1_500
"""Of a larger picture the table is shown only."""


@dataclass
class Node:
    """A box of the picture."""

    id: str
    kind: str
    """`topic`, `pattern`, `repartition`, `changelog`, `subtopology`, `source`, `processor`, `sink` or `store`; on the
    map of the pipelines `group`, `family`, `topic` or `unwritten`, of which no writer is known."""
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
    href: str | None = None
    """A page about it, as a relative URL."""


@dataclass
class Graph:
    """A picture. `problem` says in words why there is none."""

    level: str
    nodes: list[Node] = field(default_factory=list)
    edges: list[tuple[str, str, str, str]] = field(default_factory=list)
    """From, to, the kind, `flow` or `state`, and a text, which may change without another layout."""
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

    def node(self, node_id: str) -> Node:
        """Return the node of this id."""
        return self.nodes[int(node_id[1:])]

    def connect(self, start: Node, end: Node, kind: str = "flow", text: str = "") -> None:
        """Add an edge, once."""
        edge = (start.id, end.id, kind)
        if edge not in self._edges:
            self._edges.add(edge)
            self.edges.append((*edge, text))

    def __post_init__(self) -> None:
        self._index: dict[tuple[str, str, str | None], Node] = {}
        self._edges: set[tuple[str, str, str]] = set()

    @property
    def layout_key(self) -> str:
        """Changes only when another layout is needed, not with what the boxes say in as many lines."""
        shape = [
            [(node.id, node.kind, node.name, node.cluster, len(node.lines)) for node in self.nodes],
            [edge[:3] for edge in self.edges],
            self.clusters,
        ]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return what the browser gets."""
        if len(self.nodes) > MAX_NODES:
            problem = f"There are {len(self.nodes):,} boxes, too many to draw: the table has them all."
            return {"level": self.level, "problem": problem, "nodes": [], "edges": [], "clusters": [], "notes": []}
        return {**asdict(self), "key": self.layout_key}


# --- The map ----------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]
_TITLE = 40  # characters of a name in a box
_NOTES = [
    "The log does not name the sink topics of a topology, other than repartition topics, nor its processors and "
    "stores: the broker has them if a description is stored.",
    "Which topics a regular expression matches is not in the log: those that are read are known by their lag.",
]


def topology_map(
    group_id: str,
    subtopologies: Iterable[Row],
    assignments: Iterable[Row],
    lag: Iterable[Row],
    topics: Iterable[Topic] = (),
) -> Graph:
    """Return the picture of the columns of a row of `groups`; `lag` are the group's rows of that table, if any.

    `topics` are those of the topology as they are.
    """
    graph = Graph("map", notes=list(_NOTES))
    tasks = _tasks_by_subtopology(assignments)
    lag_by_topic = _lag_by_topic(lag)
    for row in subtopologies:
        _add_subtopology(graph, group_id, row, tasks.get(row["subtopology_id"], []), lag_by_topic)
    _add_partitions(graph, topics)
    if not graph.nodes:
        graph.problem = "The log has no topology of this group."
    return graph


def _add_subtopology(
    graph: Graph, group_id: str, row: Row, tasks: list[Row], lag_by_topic: Mapping[str, _TopicLag]
) -> None:
    own = row["subtopology_id"]
    changelogs = [topic["name"] for topic in row["state_changelog_topics"] or ()]
    repartition = {topic["name"] for topic in row["repartition_source_topics"] or ()}
    read = [*(row["source_topics"] or ()), *sorted(repartition)]
    lags = [lag_by_topic[topic] for topic in read if topic in lag_by_topic]
    box = graph.add("subtopology", own, f"Subtopology {short_name(own, _TITLE)}")
    box.lines = [*_task_lines(tasks), *([_lag_line(lags)] if lags else [])]
    box.facts = [
        ("Tasks", number(len({(t["partition"]) for t in tasks}))),
        ("Hosts", ", ".join(_hosts(tasks)) or NOTHING),
        *_facts("Reads", read),
        *_facts("Pattern", row["source_topic_regex"] or ()),
        *_facts("Writes", row["repartition_sink_topics"] or ()),
        *_facts("Changelog", changelogs),
    ]
    box.tone = "busy" if any(_moves(task) for task in tasks) else ""
    for name in row["source_topics"] or ():
        kind = "changelog" if name in changelogs else "topic"
        graph.connect(_topic(graph, kind, name, group_id, lag_by_topic), box)
    for name in row["source_topic_regex"] or ():
        graph.connect(graph.add("pattern", name, short_name(name, _TITLE), lines=["pattern"]), box)
    for topic in row["repartition_source_topics"] or ():
        graph.connect(_topic(graph, "repartition", topic["name"], group_id, lag_by_topic), box)
    for name in row["repartition_sink_topics"] or ():
        graph.connect(box, _topic(graph, "repartition", name, group_id, lag_by_topic))
    for name in changelogs:
        if name not in (row["source_topics"] or ()):
            graph.connect(box, _topic(graph, "changelog", name, group_id, {}, internal=True), "state")


def _add_partitions(graph: Graph, topics: Iterable[Topic]) -> None:
    """Say of each topic how many partitions it has, and of each pattern what it matches."""
    known = list(topics)
    texts = {one.name: one.text for one in known if one.text}
    matched = [(one.subtopology_id, one.name) for one in known if one.kind == BY_PATTERN]
    for node in graph.nodes:
        if node.kind == "subtopology":
            node.facts += _facts("Reads by pattern", (name for own, name in matched if own == node.name))
        elif node.name in texts and node.kind != "pattern":
            node.facts.append(("Has", texts[node.name]))


def _topic(  # noqa: PLR0913 - what a topic is drawn from
    graph: Graph,
    kind: str,
    name: str,
    group_id: str,
    lag: Mapping[str, _TopicLag],
    *,
    internal: bool = False,
) -> Node:
    """Add a topic. The name of an internal one is shown without the group id that all of them begin with."""
    prefix = f"{group_id}-"
    shown = f"…{name.removeprefix(prefix)}" if kind != "topic" and name.startswith(prefix) else name
    node = graph.add(kind, name, short_name(shown, _TITLE), internal=internal)
    word = {"topic": "topic", "repartition": "repartition topic", "changelog": "changelog topic"}[kind]
    node.lines = [_lag_line([lag[name]]) if name in lag else word]
    node.facts = [("Kind", word), ("Name", short_name(name, 250))]
    if name in lag:
        node.facts.append(("Lag", _lag_line([lag[name]])))
    return node


def _facts(title: str, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return [(title, short_name(name, 250)) for name in names]


def _tasks_by_subtopology(assignments: Iterable[Row]) -> dict[str, list[Row]]:
    tasks: dict[str, list[Row]] = {}
    for row in assignments:
        tasks.setdefault(row["subtopology_id"], []).append(row)
    return tasks


def _task_lines(tasks: list[Row]) -> list[str]:
    held = [task for task in tasks if task["current"]]
    copies = sum(task["role"] != "active" for task in held)
    moving = len({(task["role"], task["partition"]) for task in tasks if _moves(task)})
    active = sum(task["role"] == "active" for task in held)
    line = f"{active} active" + (f" · {count(copies, 'copy', 'copies')}" if copies else "")
    hosts = len(_hosts(tasks))
    return [line, f"{moving} on the move" if moving else f"on {count(hosts, 'host')}"]


def _moves(task: Row) -> bool:
    return bool(task["pending_revocation"]) or task["current"] != task["target"]


def _hosts(tasks: Iterable[Row]) -> list[str]:
    return sorted({task["client_host"] for task in tasks if task.get("client_host")})


class _TopicLag(NamedTuple):
    offsets: int = 0
    seconds: float = 0.0
    is_partial: bool = False
    """Of some partitions it is not known."""

    def plus(self, other: _TopicLag) -> _TopicLag:
        """Return the lag of both."""
        seconds = max(self.seconds, other.seconds)
        return _TopicLag(self.offsets + other.offsets, seconds, self.is_partial or other.is_partial)


def _lag_by_topic(rows: Iterable[Row]) -> dict[str, _TopicLag]:
    lag: dict[str, _TopicLag] = {}
    for row in rows:
        if row["lag"] is not None or row["is_unknown"]:
            own = _TopicLag(row["lag"] or 0, row["lag_seconds"] or 0.0, row["is_unknown"])
            lag[row["topic"]] = lag.get(row["topic"], _TopicLag()).plus(own)
    return lag


def _lag_line(lags: Iterable[_TopicLag]) -> str:
    lag = reduce(_TopicLag.plus, lags)
    text = f"lag {'≥ ' if lag.is_partial else ''}{number(lag.offsets)}"
    return f"{text} · {duration(lag.seconds)}" if lag.seconds >= 1 else text
