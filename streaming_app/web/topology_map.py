"""The map of a group's subtopologies and topics, from the log alone. Pure.

Record 23 names what each subtopology reads, which repartition topics it writes, and its changelog topics. It does not
name other topics that it writes, and not the processors: the notes of the picture say so. In a large picture each
subtopology is a box with the topics that only it reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from streaming_app.queries.topics import BY_PATTERN, Topic
from streaming_app.text import count
from streaming_app.web.picture import Graph, Lag, Node, sum_of
from streaming_app.web.words import NOTHING, number, short_name

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
    parts, lags = list(subtopologies), lag_by_topic(lag)
    conditions = conditions_of(parts, assignments, lags)
    for row in parts:
        _add_subtopology(graph, group_id, row, conditions[row["subtopology_id"]], lags)
    _add_partitions(graph, topics)
    if not graph.nodes:
        graph.problem = "The log has no topology of this group."
    return graph


class Condition(NamedTuple):
    """How a subtopology is."""

    lines: list[str]
    """Tasks; hosts, or what is wrong with the tasks; lag, if it is known."""
    tone: str
    tasks: int
    hosts: Sequence[str]


def conditions_of(
    subtopologies: Iterable[Row], assignments: Iterable[Row], lag: Mapping[str, Lag]
) -> dict[str, Condition]:
    """Return how each subtopology is, by its id; `lag` is by topic."""
    tasks = defaultdict[str, list[Row]](list)
    for row in assignments:
        tasks[row["subtopology_id"]].append(row)
    found = {}
    for row in subtopologies:
        own = tasks[row["subtopology_id"]]
        total = sum_of(lag[topic] for topic in _read(row) if topic in lag)
        moving, unowned = _moving(own), _unowned(own)
        lines = [*_task_lines(own, moving, unowned), *([f"lag {total.text}"] if total else [])]
        tone = "warning" if unowned else "busy" if moving else ""
        found[row["subtopology_id"]] = Condition(lines, tone, len({one["partition"] for one in own}), _hosts(own))
    return found


def _read(row: Row) -> list[str]:
    """Return the topics that a subtopology reads by name."""
    return [*(row["source_topics"] or ()), *sorted({topic["name"] for topic in row["repartition_source_topics"] or ()})]


def _add_subtopology(graph: Graph, group_id: str, row: Row, condition: Condition, lag: Mapping[str, Lag]) -> None:
    own = row["subtopology_id"]
    changelogs = [topic["name"] for topic in row["state_changelog_topics"] or ()]
    facts = [
        ("Tasks", number(condition.tasks)),
        ("Hosts", ", ".join(condition.hosts) or NOTHING),
        *_facts("Reads", _read(row)),
        *_facts("Pattern", row["source_topic_regex"] or ()),
        *_facts("Writes", row["repartition_sink_topics"] or ()),
        *_facts("Changelog", changelogs),
    ]
    shown = {"lines": condition.lines, "facts": facts, "tone": condition.tone}
    title = f"Subtopology {short_name(own, _TITLE)}"
    node = graph.add("subtopology", own, title, box=graph.add_box(own, title, **shown).id, **shown)
    for name in row["source_topics"] or ():
        kind = "changelog" if name in changelogs else "topic"
        graph.connect(add_topic(graph, kind, name, group_id, lag), node)
    for name in row["source_topic_regex"] or ():
        graph.connect(graph.add("pattern", name, short_name(name, _TITLE), lines=["pattern"]), node)
    for topic in row["repartition_source_topics"] or ():
        graph.connect(add_topic(graph, "repartition", topic["name"], group_id, lag), node)
    for name in row["repartition_sink_topics"] or ():
        graph.connect(node, add_topic(graph, "repartition", name, group_id, lag))
    for name in changelogs:
        if name not in (row["source_topics"] or ()):
            graph.connect(node, add_topic(graph, "changelog", name, group_id, {}, internal=True), "state")


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


def add_topic(  # noqa: PLR0913 - what a topic is drawn from
    graph: Graph,
    kind: str,
    name: str,
    group_id: str,
    lag: Mapping[str, Lag],
    *,
    internal: bool = False,
) -> Node:
    """Add a topic. The name of an internal one is shown without the group id that all of them begin with."""
    prefix = f"{group_id}-"
    shown = f"…{name.removeprefix(prefix)}" if kind != "topic" and name.startswith(prefix) else name
    node = graph.add(kind, name, short_name(shown, _TITLE), internal=internal)
    word = {"topic": "topic", "repartition": "repartition topic", "changelog": "changelog topic"}[kind]
    node.lines = [f"lag {lag[name].text}" if name in lag else word]
    node.facts = [("Kind", word), ("Name", short_name(name, 250))]
    if name in lag:
        node.facts.append(("Lag", lag[name].text))
    return node


def _facts(title: str, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return [(title, short_name(name, 250)) for name in names]


def _task_lines(tasks: list[Row], moving: int, unowned: int) -> list[str]:
    held = [task for task in tasks if task["current"]]
    copies = sum(task["role"] != "active" for task in held)
    active = sum(task["role"] == "active" for task in held)
    line = f"{active} active" + (f" · {count(copies, 'copy', 'copies')}" if copies else "")
    if unowned:
        return [line, f"{unowned} processed by nobody"]
    return [line, f"{moving} on the move" if moving else f"on {count(len(_hosts(tasks)), 'host')}"]


def _moving(tasks: Iterable[Row]) -> int:
    moving = (task for task in tasks if task["pending_revocation"] or task["current"] != task["target"])
    return len({(task["role"], task["partition"]) for task in moving})


def _unowned(tasks: Iterable[Row]) -> int:
    """Return how many tasks have a copy, or are to get one, and no member has them as active."""
    return len({one["partition"] for one in tasks} - {one["partition"] for one in tasks if _is_processed(one)})


def _is_processed(task: Row) -> bool:
    return bool(task["role"] == "active" and task["current"])


def _hosts(tasks: Iterable[Row]) -> list[str]:
    return sorted({task["client_host"] for task in tasks if task.get("client_host")})


def lag_by_topic(rows: Iterable[Row]) -> dict[str, Lag]:
    """Return the lag of each topic, from rows of `lag` of a group."""
    lag: dict[str, Lag] = {}
    for row in rows:
        if row["lag"] is not None or row["is_unknown"]:
            own = Lag(row["lag"], row["lag_seconds"] or 0.0, row["is_unknown"])
            lag[row["topic"]] = lag[row["topic"]].plus(own) if row["topic"] in lag else own
    return lag
