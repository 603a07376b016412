"""The page of the pipelines: groups and topics as one picture, lag on the edges, and where trouble begins. Pure.

Many groups are drawn by families (see `queries.pipelines.families`), each as one box until it is opened. What a picture
is made of is in `topology_map`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streaming_app.queries.pipelines import Pipelines, Read, Root, families
from streaming_app.text import count, duration, first_of
from streaming_app.web.overview import GroupSummary
from streaming_app.web.topology_map import Graph, Node
from streaming_app.web.words import NOTHING, health_meaning, label_text, number, short_name

FOLDED_ABOVE = 60
"""Of more groups than this, those that belong together are one box each."""
SHOWN_TOPICS = 300
SHOWN_GROUPS = 12
_TITLE = 36  # characters of a name in a box
_TONES = ("bad", "warning", "busy")
"""Those that a box is drawn with, the worst first."""
Link = Callable[[str], str]

_NOTES = {
    "writers": "Who writes a topic is known of streams groups whose topology description is archived: a topic that no "
    "arrow leads to is written by others.",
    "undescribed": "What {} write is not known: no description of their topology is archived.",
}


class TopicRow(NamedTuple):
    """A line of the table of topics."""

    topic: str
    rate: float | None
    """Records a second."""
    writers: Sequence[str]
    reads: Sequence[Read]
    """Those with the largest lag first."""


@dataclass(frozen=True)
class PipelinesView:
    """What the page shows."""

    roots: Sequence[tuple[Root, GroupSummary]]
    """Where trouble begins."""
    topics: Sequence[TopicRow]
    """Those with the largest lag first."""
    all_topics: int
    families: Sequence[str]
    """What is drawn as one box, or was opened."""
    opened: Collection[str]
    notes: Sequence[str]


def pipelines_view(found: Pipelines, groups: Mapping[str, GroupSummary], opened: Collection[str]) -> PipelinesView:
    """Return what the page shows of the pipelines of these groups."""
    troubled = {group_id for group_id, one in groups.items() if one.is_troubled}
    topics = [
        TopicRow(topic, found.rates.get(topic), found.writers(topic), sorted(found.reads_of(topic), key=_lag_first))
        for topic in found.topics
    ]
    topics.sort(key=lambda one: (-max((read.lag or 0 for read in one.reads), default=0), one.topic))
    return PipelinesView(
        [(root, groups[root.group_id]) for root in found.roots(troubled)],
        topics[:SHOWN_TOPICS],
        len(topics),
        [name for name, _ in _folded(found, groups)],
        opened,
        _notes(found),
    )


def pipelines_graph(
    found: Pipelines, groups: Mapping[str, GroupSummary], opened: Collection[str], group_url: Link, family_url: Link
) -> Graph:
    """Return the picture; `opened` are the families that are drawn group by group, the links those of the boxes."""
    graph = Graph("pipelines", notes=_notes(found))
    boxes = _Boxes(graph, found, groups, group_url, family_url)
    for name, members in _folded(found, groups):
        if name not in opened:
            boxes.fold(name, members)
    for topic in found.topics:
        boxes.add_topic(topic)
    if not graph.nodes:
        graph.problem = "No group is known to read or write a topic yet."
    return graph


class _Boxes:
    """The boxes of groups, families and topics, while a picture is made."""

    def __init__(
        self, graph: Graph, found: Pipelines, groups: Mapping[str, GroupSummary], group_url: Link, family_url: Link
    ) -> None:
        self._graph, self._found, self._groups = graph, found, groups
        self._group_url, self._family_url = group_url, family_url
        self._family_of: dict[str, str] = {}
        self._members: dict[str, Sequence[str]] = {}

    def fold(self, name: str, members: Sequence[str]) -> None:
        """Draw these groups as one box."""
        self._members[name] = members
        self._family_of.update(dict.fromkeys(members, name))

    def add_topic(self, topic: str) -> None:
        """Add a topic with those that write and read it; not one that only groups of one box know."""
        writers, reads = self._found.writers(topic), self._found.reads_of(topic)
        readers = [one.group_id for one in reads]
        users = [*writers, *readers]
        if len({self._family_of.get(one, one) for one in users}) == 1 and users[0] in self._family_of:
            self._box(users[0])
            return
        rate = self._found.rates.get(topic)
        node = self._graph.add("topic" if writers else "unwritten", topic, short_name(topic, _TITLE))
        node.lines = [rate_text(rate) if rate is not None else "topic"]
        node.facts = [
            ("Name", short_name(topic, 250)),
            ("Rate", NOTHING if rate is None else rate_text(rate)),
            ("Written by", _names(writers) if writers else "nobody that is known"),
            ("Read by", _names(readers) if readers else "nobody that is known"),
        ]
        for one in writers:
            self._graph.connect(self._box(one), node)
        by_box: dict[str, list[Read]] = {}
        for read in reads:
            by_box.setdefault(self._box(read.group_id).id, []).append(read)
        for box, own in by_box.items():
            self._graph.connect(node, self._graph.node(box), text=lag_text(own))

    def _box(self, group_id: str) -> Node:
        family = self._family_of.get(group_id)
        return self._group(group_id) if family is None else self._family(family)

    def _group(self, group_id: str) -> Node:
        summary = self._groups.get(group_id)
        node = self._graph.add("group", group_id, short_name(group_id, _TITLE))
        if node.facts:
            return node
        verdict = summary.verdict if summary else None
        node.lines = [verdict or (summary.group_type if summary else "group")]
        node.tone = _tone([verdict])
        node.href = self._group_url(group_id)
        after, before = self._found.downstream(group_id), self._found.upstream(group_id)
        node.facts = [
            ("Group", short_name(group_id, 250)),
            *([("Why", short_name(summary.health.why, 400))] if summary and summary.health else []),
            ("Lag", NOTHING if summary is None or summary.lag is None else number(summary.lag)),
            ("Waits for", _names(before) if before else "no group that is known"),
            ("Needed by", self._needed_by(group_id, after)),
        ]
        return node

    def _needed_by(self, group_id: str, after: Sequence[str]) -> str:
        if group_id in self._found.undescribed and not after:
            return "not known: no description of its topology is archived"
        return _names(after) if after else "no group that is known"

    def _family(self, name: str) -> Node:
        members = self._members[name]
        node = self._graph.add("family", name, short_name(f"{name}: {count(len(members), 'group')}", _TITLE))
        if node.facts:
            return node
        known = [self._groups[one] for one in members if one in self._groups]
        bad = [one.group_id for one in known if one.is_troubled]
        node.lines = [f"{len(bad)} in trouble" if bad else "none in trouble"]
        node.tone = _tone([one.verdict for one in known])
        node.href = self._family_url(name)
        node.facts = [
            ("Groups", _names(members)),
            ("In trouble", _names(bad) if bad else "none"),
        ]
        return node


def _tone(verdicts: Sequence[str | None]) -> str:
    tones = {health_meaning(one).tone for one in verdicts if one}
    return next((tone for tone in _TONES if tone in tones), "")


def _names(group_ids: Sequence[str]) -> str:
    return first_of([short_name(one, 60) for one in group_ids[:SHOWN_GROUPS]], SHOWN_GROUPS, len(group_ids))


def lag_text(reads: Sequence[Read]) -> str:
    """Return what waits on an edge, in offsets and time; empty if nothing does."""
    known = [one for one in reads if one.lag is not None]
    if not known:
        return "lag not known" if any(one.is_lower_bound for one in reads) else ""
    lag = sum(one.lag or 0 for one in known)
    is_least = len(known) < len(reads) or any(one.is_lower_bound for one in reads)
    if not lag:
        return "lag not known" if is_least else ""
    seconds = max(one.lag_seconds or 0.0 for one in known)
    text = f"{'≥ ' if is_least else ''}{number(lag)}"
    return f"{text} · {duration(seconds)}" if seconds >= 1 else text


def rate_text(rate: float) -> str:
    """Return records a second in words."""
    return f"{number(rate) if rate >= 10 or not rate else f'{rate:.1f}'} records/s"  # noqa: PLR2004 - below, digits count


def _folded(found: Pipelines, groups: Mapping[str, GroupSummary]) -> list[tuple[str, list[str]]]:
    """Return the families, with their groups, that are one box each; none of few groups."""

    def label(group_id: str) -> str | None:
        summary = groups.get(group_id)
        return label_text(summary.labels[0]) if summary and summary.labels else None

    return list(families(found.group_ids, label)) if len(found.group_ids) > FOLDED_ABOVE else []


def _notes(found: Pipelines) -> list[str]:
    notes = [_NOTES["writers"]]
    if found.undescribed:
        notes.append(_NOTES["undescribed"].format(_names(sorted(found.undescribed))))
    return notes


def _lag_first(read: Read) -> tuple[int, str]:
    return -(read.lag or 0), read.group_id
