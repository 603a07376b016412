"""Topology descriptions of brokers: asked for, their status in words, their picture, their table.

A broker is asked when a reader wants it: the page's only request to brokers. One request a group is in flight, an
answer is kept for as long as the group has the same topology epoch, and a failure for a few seconds, so that impatient
readers do not load the brokers. What is made of an answer is pure.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from streaming_app.errors import error_line
from streaming_app.groups.description_graph import NODE_KINDS, parts_of
from streaming_app.groups.topology import is_internal_topic
from streaming_app.groups.topology_description import AVAILABLE
from streaming_app.kafka.properties import client_properties
from streaming_app.kafka.security import security_settings
from streaming_app.web.picture import Graph, Lag, Node
from streaming_app.web.topology_map import Condition, add_topic
from streaming_app.web.words import short_name

# --- A description as StreamsGroupDescribe returns it -----------------------------------------------------------------

Fields = Mapping[str, Any]
_TITLE = 40
STATUSES = {
    0: "The broker was not asked for the description.",
    1: "The broker stores no description of this topology: no member has sent one, or the brokers have no plugin.",
    2: "The broker could not read the description that its plugin stores.",
    AVAILABLE: "The broker returned the description.",
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
    for part, nodes in parts_of(description):
        predecessors: dict[str, list[str]] = {}
        for node in nodes:
            for successor in node["successors"]:
                predecessors.setdefault(successor, []).append(node["name"])
        rows += [_row(part or "", node, predecessors.get(node["name"], ())) for node in nodes]
    return rows


def description_graph(
    described: Described,
    changelogs: Iterable[str] = (),
    conditions: Mapping[str, Condition] | None = None,
    lag: Mapping[str, Lag] | None = None,
) -> Graph:
    """Return the picture of the processors, stores and topics, with a box for each subtopology.

    `changelogs` are the names of changelog topics, `conditions` how subtopologies are, and `lag` is by topic.
    """
    graph = Graph("processors", draws_boxes=True)
    if described.description is None:
        graph.problem = described.text
        return graph
    known = set(changelogs)
    for part, nodes in parts_of(described.description):
        condition = (conditions or {}).get(part or "")
        shown = {"lines": condition.lines, "tone": condition.tone} if condition else {}
        title = f"Subtopology {short_name(part, _TITLE)}" if part else "Global store"
        box = graph.add_box(part or f"global store {len(graph.boxes)}", title, **shown)
        by_name = {node["name"]: _add_node(graph, box.id, node) for node in nodes}
        for node in nodes:
            _connect(graph, node, by_name, box.id, described.group_id, known, lag or {})
    if any(node.kind == "sink" and not _written(node) for node in graph.nodes):
        graph.notes.append("A sink without a topic chooses the topic for each record.")
    if not graph.nodes:
        graph.problem = "The description has no nodes."
    return graph


def _row(part: str, node: Fields, predecessors: Sequence[str]) -> NodeRow:
    topics = [*(node["source_topics"] or ()), *([node["sink_topic"]] if node["sink_topic"] else [])]
    kind = NODE_KINDS.get(node["node_type"], "node")
    return NodeRow(part, node["name"], kind, topics, node["stores"] or (), predecessors, node["successors"] or ())


def _add_node(graph: Graph, box_id: str, node: Fields) -> Node:
    kind = NODE_KINDS.get(node["node_type"], "processor")
    box = graph.add(kind, node["name"], short_name(node["name"], _TITLE), box=box_id, lines=[kind])
    box.facts = [("Kind", kind), ("Name", short_name(node["name"], 250))]
    box.facts += [("Reads", short_name(topic, 250)) for topic in node["source_topics"] or ()]
    box.facts += [("Writes", short_name(node["sink_topic"], 250))] if node["sink_topic"] else []
    box.facts += [("Store", short_name(store, 250)) for store in node["stores"] or ()]
    return box


def _connect(  # noqa: PLR0913, PLR0917 - what a node is connected to
    graph: Graph,
    node: Fields,
    by_name: Mapping[str, Node],
    box_id: str,
    group_id: str,
    changelogs: set[str],
    lag: Mapping[str, Lag],
) -> None:
    box = by_name[node["name"]]
    for name in node["source_topics"] or ():
        graph.connect(_topic(graph, name, group_id, lag), box)
    if node["sink_topic"]:
        graph.connect(box, _topic(graph, node["sink_topic"], group_id, lag))
    for name in node["stores"] or ():
        store = graph.add("store", name, short_name(name, _TITLE), box=box_id, lines=["store"], internal=True)
        changelog = f"{group_id}-{name}-changelog"
        logged = short_name(changelog, 250) if changelog in changelogs else "none in the log under its usual name"
        store.facts = [("Kind", "store"), ("Name", short_name(name, 250)), ("Changelog", logged)]
        graph.connect(box, store, "state")
    for name in node["successors"] or ():
        if name in by_name:
            graph.connect(box, by_name[name])


def _topic(graph: Graph, name: str, group_id: str, lag: Mapping[str, Lag]) -> Node:
    kind = name.rpartition("-")[2] if is_internal_topic(name, group_id) else "topic"
    return add_topic(graph, kind, name, group_id, lag)


def _written(node: Node) -> bool:
    return any(title == "Writes" for title, _ in node.facts)


# --- Asking for it ----------------------------------------------------------------------------------------------------

_MAX_KEPT = 500
_RETRY_SECONDS = 5.0
_GROUP_LOCKS = 64
MAX_IN_FLIGHT = 4
"""Requests at a time; another one is refused."""
ANSWER_SECONDS = 20.0
"""How long a reader waits for the answer, which is kept when it comes later."""


class Descriptions:
    """The descriptions that were asked for. Safe to use from several threads."""

    def __init__(self, ask: Callable[[str], Fields], explain: Callable[[Exception], str]) -> None:
        """Use `ask` to ask a broker, and `explain` to say in one line why it could not be.

        `ask` returns the group's part of a StreamsGroupDescribe response. It may raise what kafka-python raises.
        """
        self._ask, self._explain = ask, explain
        self._kept: OrderedDict[tuple[str, int | None], tuple[Described, float]] = OrderedDict()
        self._group_locks = [threading.Lock() for _ in range(_GROUP_LOCKS)]  # a group always has the same one
        self._lock = threading.Lock()

    def get(self, group_id: str, topology_epoch: int | None) -> Described | None:
        """Return what was answered about this topology of the group; None if nobody has asked."""
        with self._lock:
            kept = self._kept.get((group_id, topology_epoch))
        return kept[0] if kept else None

    def fetch(self, group_id: str, topology_epoch: int | None) -> Described:
        """Return the answer about this topology of the group: the kept one, or a new one.

        It may take as long as the broker takes: call it in a thread that nothing else needs.
        """
        with self._group_locks[hash(group_id) % len(self._group_locks)]:
            with self._lock:
                kept = self._kept.get((group_id, topology_epoch))
            if kept and (kept[0].status == AVAILABLE or time.monotonic() - kept[1] < _RETRY_SECONDS):
                return kept[0]
            described = self._answer(group_id)
            with self._lock:
                self._kept[group_id, topology_epoch] = described, time.monotonic()
                while len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
            return described

    def _answer(self, group_id: str) -> Described:
        now = datetime.now(timezone.utc)
        try:
            return described_of(self._ask(group_id), group_id, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader is told
            return Described(group_id, None, now, None, None, self._explain(error))


def broker_descriptions(brokers: Mapping[str, str]) -> Descriptions:
    """Return the descriptions of the brokers of Kafka client properties, which are connected to at each request."""
    from streaming_app.kafka.client import StreamsGroupClient  # noqa: PLC0415 - a page without brokers does not load it
    from streaming_app.kafka.connection import IMPATIENT_CONNECT_SECONDS  # noqa: PLC0415
    from streaming_app.kafka.error_lines import REQUEST_ERRORS, error_message  # noqa: PLC0415

    def ask(group_id: str) -> Fields:
        with StreamsGroupClient.of(brokers, IMPATIENT_CONNECT_SECONDS) as client:
            (group,) = client.describe([group_id], include_topology_description=True)
        return group

    def explain(error: Exception) -> str:
        if isinstance(error, REQUEST_ERRORS):
            return error_message(error, brokers, "the page needs Describe on the group")
        return error_line(error)

    return Descriptions(ask, explain)


def brokers_of(bootstrap_server: str, command_config: Path | None) -> Mapping[str, str]:
    """Return the Kafka client properties of the brokers to ask. Raises JobError or SecurityError if they are wrong."""
    properties = client_properties(bootstrap_server, command_config)
    security_settings(properties)
    return properties
