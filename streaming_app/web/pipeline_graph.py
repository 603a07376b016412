"""The page of the pipelines: groups and topics as one picture, lag and rates on edges, and where trouble begins. Pure.

In a large picture groups are in boxes by families (see `queries.pipelines.families`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from streaming_app.health.verdict import BAD, UNKNOWN
from streaming_app.queries.lag import Lag, sum_of
from streaming_app.queries.pipelines import Pipelines, Read, families
from streaming_app.text import first_of
from streaming_app.web.graph import Graph, Node, rate_text
from streaming_app.web.words import health_meaning, label_text, number, short_name

SHOWN_TOPICS = 300
SHOWN_GROUPS = 12
_TITLE = 36  # characters of a name in a box
_TONES = ("bad", "warning", "busy")
"""Those that a box is drawn with, the worst first."""
Row = Mapping[str, Any]

_NOTES = {
    "writers": "Who writes a topic is known of streams groups whose topology description is archived, and of Kafka "
    "Streams applications with exactly-once processing whose transactions were seen: a topic that no arrow leads to "
    "is written by others.",
    "undescribed": "What {} write is not known: no description of their topology is archived, and none of their "
    "transactions was seen.",
}


def pipelines_view(found: Pipelines, groups: Mapping[str, Row]) -> dict[str, Any]:
    """Return what the page shows of the pipelines of these groups: `topics` are those with the largest lag first."""
    troubled = {group_id for group_id, one in groups.items() if one["verdict"] in BAD}
    reads = {topic: sorted(found.reads_of(topic), key=_lag_first) for topic in found.topics}
    topics = sorted(reads, key=lambda topic: (_lag_first(reads[topic][0])[0] if reads[topic] else 0, topic))
    return {
        "roots": [(root, groups[root.group_id]) for root in found.roots(troubled)],
        "topics": [
            {"topic": one, "rate": found.rates.get(one), "writers": found.writers(one), "reads": reads[one]}
            for one in topics[:SHOWN_TOPICS]
        ],
        "all_topics": len(topics),
        "notes": _notes(found),
    }


def pipelines_graph(found: Pipelines, groups: Mapping[str, Row], is_open: Callable[[str], bool]) -> Graph:
    """Return the picture; `is_open` says which families are drawn group by group."""
    graph = Graph("pipelines", notes=_notes(found))
    box_of = {}
    for name, members in families(found.group_ids, partial(_label, groups)):
        box = _family(graph, name, members, groups)
        box_of.update(dict.fromkeys(members, box.id))
    nodes = {one: graph.add("group", one, short_name(one, _TITLE), box=box_of.get(one)) for one in found.group_ids}
    for group_id, node in nodes.items():
        summary = groups.get(group_id)
        verdict = summary["verdict"] if summary else None
        node.lines = [verdict or (summary["group_type"] if summary else "group")]
        node.tone = _tone([verdict])
    for topic in found.topics:
        node = _topic(graph, found, topic)
        for one in found.writers(topic):
            graph.connect(nodes[one], node)
        for read in found.reads_of(topic):
            graph.connect(node, nodes[read.group_id], lag=read.lag)
    graph = graph.folded(is_open, all_users=True)
    if not graph.nodes:
        graph.problem = "No group is known to read or write a topic yet."
    return graph


def _topic(graph: Graph, found: Pipelines, topic: str) -> Node:
    rate = found.rates.get(topic)
    node = graph.add("topic" if found.writers(topic) else "unwritten", topic, short_name(topic, _TITLE))
    node.lines = [rate_text(rate) if rate is not None else "topic"]
    return node


def _family(graph: Graph, name: str, members: Sequence[str], groups: Mapping[str, Row]) -> Node:
    known = [groups[one] for one in members if one in groups]
    bad = [one["group_id"] for one in known if one["verdict"] in BAD]
    lag = sum_of(map(Lag.of, known))
    is_known = len(known) == len(members) and all(one["verdict"] not in {None, UNKNOWN} for one in known)
    none = "none in trouble" if is_known else "none known to be in trouble"
    trouble = f"{number(len(bad))} in trouble" if bad else none
    return graph.add_box(
        name,
        short_name(name, _TITLE),
        lines=[trouble, f"lag {lag.text if lag else Lag().text}"],
        tone=_tone([one["verdict"] for one in known]),
        counts="group",
    )


def _tone(verdicts: Sequence[str | None]) -> str:
    tones = {health_meaning(one).tone for one in verdicts if one}
    return next((tone for tone in _TONES if tone in tones), "")


def _names(group_ids: Sequence[str]) -> str:
    return first_of([short_name(one, 60) for one in group_ids[:SHOWN_GROUPS]], SHOWN_GROUPS, len(group_ids))


def _label(groups: Mapping[str, Row], group_id: str) -> str | None:
    summary = groups.get(group_id)
    return label_text(summary["labels"][0]) if summary and summary["labels"] else None


def _notes(found: Pipelines) -> list[str]:
    notes = [_NOTES["writers"]]
    if found.undescribed:
        notes.append(_NOTES["undescribed"].format(_names(sorted(found.undescribed))))
    return notes


def _lag_first(read: Read) -> tuple[int, str]:
    return -(read.lag.lag or 0), read.group_id
