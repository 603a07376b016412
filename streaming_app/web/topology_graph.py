"""The picture of a group's topology, and the table of its processors. Pure.

The map comes from the log alone. Record 23 names the topics that each subtopology reads, its repartition topics and its
changelog topics. It names neither other topics that it writes nor processors; the notes of the picture say so. If the
job has fetched the topology description from the brokers, the picture also has processors and stores. Each subtopology
is a box with the topics that only it reads.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streaming_app.groups.description import PROCESSOR, SINK, SOURCE, STORE, TOPIC
from streaming_app.groups.topology import is_internal_topic
from streaming_app.queries.lag import Lag, sum_of
from streaming_app.text import count
from streaming_app.web.graph import Graph, Node
from streaming_app.web.words import short_name

Row = Mapping[str, Any]
_TITLE = 40  # characters of a name in a box
_NOTES = [
    "The log does not name the sink topics of a topology, other than repartition topics, nor its processors and "
    "stores: the broker has them if a description is stored.",
    "The log does not say which topics a regular expression matches: only topics with commits are known.",
]
_CLASSIC_NOTES = [
    "With the classic protocol the log has the topics that tasks read, as of the last rebalance. Topics that they "
    "write, changelog topics, patterns, processors and stores are not known."
]
_KINDS = {TOPIC: "topic", "repartition": "repartition topic", "changelog": "changelog topic"}
_STATUSES = {
    "AVAILABLE": "The brokers have it.",
    "NOT_STORED": "The brokers' plugin does not have it any more, although the log says that it is stored.",
    "ERROR": "The brokers' plugin failed to return it at the last request.",
}
"""Value of the column `status` of `descriptions` -> text."""
_NODES = (SOURCE, PROCESSOR, SINK)


class TopologyGraph:
    """Draws the topology of a group, from its row of `groups` and the lag of its topics, as far as it is known."""

    def __init__(
        self,
        group_id: str,
        subtopologies: Iterable[Row],
        assignments: Iterable[Row],
        lag: Mapping[str, Lag],
        *,
        is_classic: bool = False,
    ) -> None:
        self._group_id, self._parts, self._lag = group_id, list(subtopologies), lag
        self._is_classic = is_classic
        self._tasks = defaultdict[str, list[Row]](list)
        for row in assignments:
            self._tasks[row["subtopology_id"]].append(row)

    def map(self) -> Graph:
        """Return the picture of subtopologies."""
        graph = Graph("map", notes=list(_CLASSIC_NOTES if self._is_classic else _NOTES))
        for row in self._parts:
            self._add_subtopology(graph, row)
        if not graph.nodes:
            graph.problem = "The log has no topology of this group."
        return graph

    def processors(self, described: Row) -> Graph:
        """Return the picture of processors, stores and topics; `described` is a row of `descriptions`."""
        graph = Graph("processors", draws_boxes=True)
        rows = {(row["subtopology_id"], row["name"]): row for row in node_rows(described)}
        boxes, known = dict[str | None, str](), {one["subtopology_id"]: one for one in self._parts}
        nodes = {}
        for (part, name), row in rows.items():
            if part not in boxes:
                title = f"Subtopology {short_name(part, _TITLE)}" if part else "Global stores"
                shown = self._condition(known[part]) if part in known else {}
                boxes[part] = graph.add_box(part or "global", title, **shown).id
            title = short_name(name, _TITLE)
            nodes[part, name] = graph.add(row["kind"], name, title, box=boxes[part], lines=[row["kind"]])
        for key, row in rows.items():
            self._connect(graph, row, nodes, key)
        if any(row["kind"] == SINK and not row["topics"] for row in rows.values()):
            graph.notes.append("A sink without a topic chooses the topic for each record.")
        if not graph.nodes:
            graph.problem = "The description has no nodes."
        return graph

    def _condition(self, row: Row) -> dict[str, Any]:
        tasks = self._tasks[row["subtopology_id"]]
        total = sum_of(self._lag[topic] for topic in _read(row) if topic in self._lag)
        moves = [one for one in tasks if one["pending_revocation"] or one["current"] != one["target"]]
        moving = len({(one["role"], one["partition"]) for one in moves})
        held = [task for task in tasks if task["current"]]
        active = [task["partition"] for task in held if task["role"] == "active"]
        of_nobody = len({one["partition"] for one in tasks} - set(active))
        unowned = 0 if self._is_classic else of_nobody  # with the classic protocol such a task changes hands
        copies = len(held) - len(active)
        hosts = {task["client_host"] for task in tasks if task.get("client_host")}
        lines = [f"{len(active)} active" + (f" · {count(copies, 'copy', 'copies')}" if copies else "")]
        if unowned:
            lines.append(f"{unowned} without an active member")
        else:
            lines.append(f"{moving} on the move" if moving else f"on {count(len(hosts), 'host')}")
        lines += [f"lag {total.text}"] if total else []
        return {"lines": lines, "tone": "warning" if unowned else "busy" if moving else ""}

    def _add_subtopology(self, graph: Graph, row: Row) -> None:
        own, sources = row["subtopology_id"], row["source_topics"] or ()
        changelogs = [topic["name"] for topic in row["state_changelog_topics"] or ()]
        title, shown = f"Subtopology {short_name(own, _TITLE)}", self._condition(row)
        node = graph.add("subtopology", own, title, box=graph.add_box(own, title, **shown).id, **shown)
        for name in sources:
            graph.connect(self._topic(graph, "changelog" if name in changelogs else TOPIC, name), node)
        for name in row["source_topic_regex"] or ():
            graph.connect(graph.add("pattern", name, short_name(name, _TITLE), lines=["pattern"]), node)
        for topic in row["repartition_source_topics"] or ():
            graph.connect(self._topic(graph, "repartition", topic["name"]), node)
        for name in row["repartition_sink_topics"] or ():
            graph.connect(node, self._topic(graph, "repartition", name))
        for name in changelogs:
            if name not in sources:
                graph.connect(node, self._topic(graph, "changelog", name, internal=True), "state")

    def _connect(
        self, graph: Graph, row: Row, nodes: Mapping[tuple[str | None, str], Node], key: tuple[str | None, str]
    ) -> None:
        node = nodes[key]
        for name in row["topics"]:
            kind = name.rpartition("-")[2] if is_internal_topic(name, self._group_id) else TOPIC
            topic = self._topic(graph, kind, name)
            graph.connect(*((node, topic) if row["kind"] == SINK else (topic, node)))
        for name in row["stores"]:
            store = graph.add(STORE, name, short_name(name, _TITLE), box=node.box, lines=[STORE], internal=True)
            graph.connect(node, store, "state")
        for name in row["successors"]:
            graph.connect(node, nodes[key[0], name])

    def _topic(self, graph: Graph, kind: str, name: str, *, internal: bool = False) -> Node:
        """Add a topic. The name of an internal topic is shown without the group id at its beginning."""
        prefix = f"{self._group_id}-"
        shown = f"…{name.removeprefix(prefix)}" if kind != TOPIC and name.startswith(prefix) else name
        node = graph.add(kind, name, short_name(shown, _TITLE), internal=internal)
        lag = None if internal else self._lag.get(name)
        node.lines = [f"lag {lag.text}" if lag else _KINDS[kind]]
        return node


def status_text(described: Row) -> str:
    """Return a text for the brokers' last answer about a description."""
    text = _STATUSES.get(described["status"], f"The brokers answered {described['status']}.")
    return (
        f"{text} It has {described['node_count']:,} nodes, of which some are kept." if described["truncated"] else text
    )


def node_rows(described: Row) -> list[Row]:
    """Return the sources, processors and sinks of a description, by subtopology and name.

    Each has its `topics`, `stores` and `successors`.
    """
    rows: dict[tuple[str | None, str], dict[str, Any]] = {
        (one["subtopology_id"], one["node"]): {
            "subtopology_id": one["subtopology_id"],
            "name": one["node"],
            "kind": one["kind"],
            **{name: list[str]() for name in ("topics", "stores", "successors")},
        }
        for one in described["description_nodes"] or ()
        if one["kind"] in _NODES
    }
    for edge in described["description_edges"] or ():
        part, begin, end = edge["subtopology_id"], edge["from_node"], edge["to_node"]
        if edge["from_kind"] == TOPIC:
            rows[part, end]["topics"].append(begin)
        else:
            what = {TOPIC: "topics", STORE: "stores"}.get(edge["to_kind"], "successors")
            rows[part, begin][what].append(end)
    return sorted(rows.values(), key=lambda row: (row["subtopology_id"] or "", row["name"]))


def _read(row: Row) -> Iterator[str]:
    yield from row["source_topics"] or ()
    yield from sorted({topic["name"] for topic in row["repartition_source_topics"] or ()})
