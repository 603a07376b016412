"""The content of a topology (record 23): a hash over it, and the changes between two topologies.

Theory of operation
-------------------
The content of a topology is a set of facts: its subtopologies, and their topics, regular expressions and copartition
groups. The hash and the list of changes both come from these facts, so two topologies have the same hash if and only if
there is no change between them. The epoch, and the order of subtopologies, topics and configs, are not part of it.

Tables store the hash, and later releases compare it: the facts of a topology must never change.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from streaming_app.text import digest

_HASH_CHARACTERS = 16  # 64 bits are enough: one group has few topologies
_READ = ("source_topics", "source_topic_regex")
_TOPICS = (*_READ, "repartition_sink_topics")
INTERNAL_TOPICS = ("repartition_source_topics", "state_changelog_topics")
ADDED, REMOVED, CHANGED = "added", "removed", "changed"

KINDS: Mapping[str, str] = {
    "subtopologies": "subtopology",
    "source_topics": "source topic",
    "source_topic_regex": "source topic regex",
    "repartition_source_topics": "repartition topic",
    "repartition_sink_topics": "repartition sink topic",
    "state_changelog_topics": "changelog topic",
    "copartition_groups": "copartition group",
}
"""Column of a subtopology that is part of the content -> the word for one entry of it."""


def is_internal_topic(name: str, group_id: str) -> bool:
    """Return whether a topic is named like a repartition or changelog topic that Kafka Streams creates for a group."""
    return name.startswith(f"{group_id}-") and name.endswith(("-repartition", "-changelog"))


class Fact(NamedTuple):
    """One entry of a topology; `attributes` are pairs of name and value, sorted."""

    column: str
    subtopology_id: str
    name: str
    attributes: tuple[tuple[str, str], ...] = ()


class TopologyChange(NamedTuple):
    """A difference between two topologies: an entry was added or removed, or an attribute of an entry changed.

    `attribute` is set only for a changed entry: `subtopology`, `partitions`, `replication_factor`, or `config NAME` for
    a topic config. `old` and `new` are its values, or None if it is not set.
    """

    change: str
    kind: str
    subtopology_id: str
    name: str
    attribute: str | None = None
    old: str | None = None
    new: str | None = None


def topology_hash(subtopologies: Iterable[Mapping[str, Any]]) -> str:
    """Return a hash over the content of a topology (the column `subtopologies` of `groups`): 16 hex digits."""
    return content_hash(sorted(_facts(subtopologies)))


def sources_hash(subtopologies: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a hash over the source topics and patterns of a topology: 16 hex digits. None if it has none.

    Repartition topics are not part of it, because their names contain the application id. So an application that runs
    under another id has the same hash.
    """
    names = {f"{column} {name}" for part in subtopologies for column in _READ for name in part[column] or ()}
    return content_hash(sorted(names)) if names else None


def changes_between(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[TopologyChange]:
    """Return the changes between two topologies, sorted by kind (subtopologies first) and name.

    An entry is changed if both topologies have it, in another subtopology or with other attributes. If several entries
    have the same name, it is unclear which one became which: then they are removed and added. What one of the two does
    not know, since it is of the classic protocol, is not compared: see `not_compared`.
    """
    sides, unknown = ([*before], [*after]), set[str]()
    unknown.update(*map(not_compared, sides))
    old, new = (
        {
            one._replace(attributes=() if unknown else one.attributes)
            for one in _facts(side)
            if one.column not in unknown
        }
        for side in sides
    )
    by_name: defaultdict[tuple[str, str], tuple[list[Fact], list[Fact]]] = defaultdict(lambda: ([], []))
    for side, facts in enumerate((old - new, new - old)):
        for fact in facts:
            by_name[fact.column, fact.name][side].append(fact)
    changes: list[TopologyChange] = []
    for gone, come in by_name.values():
        if len(gone) == len(come) == 1 and gone[0].column != "copartition_groups":
            changes += _attribute_changes(gone[0], come[0])
        else:
            changes += [_change(REMOVED, fact) for fact in gone]
            changes += [_change(ADDED, fact) for fact in come]
    kinds = list(KINDS.values())
    return sorted(changes, key=lambda one: (kinds.index(one.kind), one.name, *map(str, one)))


def not_compared(subtopologies: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the columns that a topology does not know: with the classic protocol the log has only what tasks read."""
    return {column for part in subtopologies for column in KINDS if part.get(column, ()) is None}


def content_hash(content: Iterable[object]) -> str:
    """Return a hash over JSON values in this order: 16 hex digits."""
    return digest(json.dumps(content), _HASH_CHARACTERS)


def _facts(subtopologies: Iterable[Mapping[str, Any]]) -> set[Fact]:
    return {fact for subtopology in subtopologies for fact in _facts_of(subtopology)}


def _facts_of(subtopology: Mapping[str, Any]) -> Iterator[Fact]:
    own = subtopology["subtopology_id"]
    yield Fact("subtopologies", own, own)
    for column in _TOPICS:
        yield from (Fact(column, own, topic) for topic in subtopology[column] or ())
    for column in INTERNAL_TOPICS:
        yield from (Fact(column, own, topic["name"], _attributes(topic)) for topic in subtopology[column] or ())
    for topics in subtopology["copartition_groups"] or ():
        names = sorted(set(topics))
        yield Fact("copartition_groups", own, ", ".join(names), tuple(("topic", name) for name in names))


def _attributes(topic: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    configs = dict(topic["topic_configs"] or ())  # a mapping, or a list of pairs
    sizes = ((name, str(topic[name])) for name in ("partitions", "replication_factor") if topic[name])
    return (*sizes, *sorted((f"config {name}", str(value)) for name, value in configs.items()))


def _attribute_changes(old: Fact, new: Fact) -> Iterator[TopologyChange]:
    before = {"subtopology": old.subtopology_id, **dict(old.attributes)}
    after = {"subtopology": new.subtopology_id, **dict(new.attributes)}
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield _change(CHANGED, new)._replace(attribute=name, old=before.get(name), new=after.get(name))


def _change(what: str, fact: Fact) -> TopologyChange:
    return TopologyChange(what, KINDS[fact.column], fact.subtopology_id, fact.name)
