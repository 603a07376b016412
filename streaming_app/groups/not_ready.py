"""Why a group is NotReady: the topics that its topology requires, compared with the topics that exist. Pure.

Theory of operation
-------------------
The broker returns the reason only to members, in the status of heartbeat responses, and does not write it to the log.
It checks the topics in this order and stops at the first failed check (`InternalTopicManager.configureTopics`, Kafka
4.4.0). This module does the same:

1. Every source topic must exist.
2. A repartition topic without a partition count in the topology gets the largest count of the topics read by the
   subtopology that writes it.
3. The topics of a copartition group must have equal counts; repartition topics without a fixed count are adjusted.
4. A changelog topic gets the largest count of the topics that its subtopology reads.
5. A repartition or changelog topic that exists must have the count computed above.
6. Every repartition and changelog topic must exist. The broker tries to create them, so this reason remains only if it
   may not create topics or fails.

The patterns of a subtopology count as no topics: released brokers refuse topologies with patterns, and ignore the
patterns of one that a record contains (4.4.0).

If several topics fail the same check, the broker names the first in the order of its hash table. This module names the
first in alphabetical order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from streaming_app.groups.fold import Fold
from streaming_app.groups.group import Group
from streaming_app.groups.state_rules import EMPTY, NONE, NOT_READY
from streaming_app.groups.topology import INTERNAL_TOPICS

Subtopology = Mapping[str, Any]
"""An element of the column `subtopologies` of `groups`."""
PartitionCounts = Mapping[str, int]
TopicLookup = Callable[[Sequence[str]], PartitionCounts | None]
"""Topics -> partition counts of those that exist; None if they are not known."""

# The beginnings of reasons: a status of heartbeat responses, and for some the first words of the broker's message.
_WRONG = "INCORRECTLY_PARTITIONED_TOPICS"
_MISSING_INTERNAL = "MISSING_INTERNAL_TOPICS"
INVALID_TOPOLOGY = "STREAMS_INVALID_TOPOLOGY"  # Kafka's error, not a status: such a member cannot join
_INVALID = f"{INVALID_TOPOLOGY}: Failed to compute number of partitions for all repartition topics"
_NOT_VALIDATED = "TOPICS_NOT_VALIDATED"  # not Kafka's: a check failed, and the log does not show which
_MAX_NAMED_TOPICS = 3  # as many as one message of the broker names
_NAMED = ("source_topics", "repartition_sink_topics", *INTERNAL_TOPICS)


def set_reasons(fold: Fold, topics: TopicLookup | None) -> None:
    """Write to the row and the events of a closed fold why the group is, and was, NotReady.

    Workers of Spark cannot ask the brokers and pass None as `topics`: then the reason in the row stays as it is.
    """
    group = fold.group
    for event, passed in fold.passed_not_ready:
        counts = _counts_of(passed, topics)
        found = reason_from_topics(passed.subtopologies, counts) if counts is not None else None
        fold.add_events([event._replace(new=found or not_ready_reason(passed))])
        group.missing_topics = _missing_topics(passed, counts if found else None)
    fold.passed_not_ready.clear()
    if group.state != NOT_READY:
        fold.set_not_ready_reason(None)
        changes = [event for event in fold.events if event.kind == "state"]
        if group.state != EMPTY or (changes and changes[-1].old != NOT_READY):
            group.missing_topics = None
    elif topics is not None:
        counts = _counts_of(group, topics)
        if counts is not None or not group.not_ready_reason:  # never replace a reason by a less exact one of the log
            fold.set_not_ready_reason(not_ready_reason(group, counts))
            before, group.missing_topics = group.missing_topics, _missing_topics(group, counts)
            fold.touched |= group.missing_topics != before


def _missing_topics(group: Group, topics: PartitionCounts | None) -> list[str] | None:
    """Return the missing source topics of a group. Without `topics`, the log shows only whether all are missing."""
    sources = sorted(set(_names(group.subtopologies, "source_topics")))
    if topics is None and group.metadata_hash != 0:
        return None
    return [one for one in sources if topics is None or one not in topics] or None


def _counts_of(group: Group, topics: TopicLookup | None) -> PartitionCounts | None:
    return topics(required_topics(group.subtopologies)) if topics else None


def not_ready_reason(group: Group, topics: PartitionCounts | None = None) -> str:
    """Return why this group is NotReady: from the topics of the cluster, or if they are None from the log alone.

    `topics` has the partition counts of existing topics, at least of all that `required_topics` returns.
    """
    if group.topology_epoch is None:
        return f"{_NOT_VALIDATED}: The group has no topology."
    if topics is not None:
        valid = f"{_NOT_VALIDATED}: The topics are valid by now; the broker has not checked them again."
        return reason_from_topics(group.subtopologies, topics) or valid
    sources = _names(group.subtopologies, "source_topics")
    if group.metadata_hash == 0 and sources:  # the hash is over the required topics that exist
        return _missing_sources(sources)
    validated = group.validated_topology_epoch
    before = "no epoch" if validated == NONE else f"epoch {validated}"
    wrong = f"Topics of topology epoch {group.topology_epoch} are missing or wrongly partitioned"
    return f"{_NOT_VALIDATED}: {wrong}; {before} was validated."


def required_topics(subtopologies: Iterable[Subtopology]) -> list[str]:
    """Return every topic that these subtopologies name, in alphabetical order."""
    return sorted({name for part in subtopologies for column in _NAMED for name in _names([part], column)})


def reason_from_topics(subtopologies: Iterable[Subtopology], topics: PartitionCounts) -> str | None:
    """Return why a topology's topics are invalid, as the broker would report it; None if they are valid."""
    return next(_failed_checks(sorted(subtopologies, key=lambda part: str(part["subtopology_id"])), topics), None)


def _failed_checks(parts: Sequence[Subtopology], topics: PartitionCounts) -> Iterator[str]:
    """Yield the message of each failed check, in order. Only the first is valid: later checks assume that it passed."""
    if missing := [topic for topic in _names(parts, "source_topics") if topic not in topics]:
        yield _missing_sources(missing)
    declared = {topic["name"]: topic["partitions"] for part in parts for topic in part["repartition_source_topics"]}
    counts = {name: partitions for name, partitions in declared.items() if partitions}
    fixed = frozenset(counts)
    yield from _compute_repartition_counts(counts, parts, topics)
    if declared.keys() - counts.keys():
        yield f"{_INVALID}: A repartition source topic is never used as a sink topic."
    for names in (set(names) for part in parts for names in part["copartition_groups"]):
        known = {**counts, **topics}
        of_group = {name: known[name] for name in sorted(names) if name in known}
        repartition = of_group.keys() & declared.keys()
        decisive = {name: count for name, count in of_group.items() if name not in declared}
        if repartition == names:
            # Here the broker compares all topics with fixed counts in the topology, not only those of this group.
            decisive = {name: known[name] for name in fixed} or {"": max(of_group.values(), default=0)}
        counts |= dict.fromkeys(repartition, max(decisive.values(), default=0))
        if len(set(decisive.values())) > 1:
            named = of_group if repartition == names else decisive
            pairs = ", ".join(f"{name}={count}" for name, count in named.items())
            yield f"{_WRONG}: Following topics do not have the same number of partitions: [{{{pairs}}}]"
        for name in sorted(repartition & fixed):
            if of_group[name] != counts[name]:
                yield (
                    f"{_WRONG}: Number of partitions [{of_group[name]}] of repartition topic [{name}] doesn't match "
                    f"number of partitions [{counts[name]}] of the source topic."
                )
    yield from _check_internal_topics(counts, parts, topics)


def _compute_repartition_counts(
    counts: dict[str, int], parts: Sequence[Subtopology], topics: PartitionCounts
) -> Iterator[str]:
    sinks = [(sink, part) for part in parts for sink in part["repartition_sink_topics"]]
    while unknown := [(sink, part) for sink, part in sinks if sink not in counts]:
        known = len(counts)
        for sink, part in unknown:
            if read := _counts_read(part, counts, topics):
                counts.setdefault(sink, max(read))
        if len(counts) == known:
            yield f"{_INVALID}: There may be loops in the topology that cannot be resolved."
            return


def _check_internal_topics(
    counts: dict[str, int], parts: Sequence[Subtopology], topics: PartitionCounts
) -> Iterator[str]:
    known = {**counts, **topics}
    for part in parts:
        largest = max(_counts_read(part, known, known), default=0)
        counts |= dict.fromkeys(_names([part], "state_changelog_topics"), largest)
    internal = (topic for part in parts for kind in INTERNAL_TOPICS for topic in part[kind])
    expected = {topic["name"]: topic["partitions"] or counts[topic["name"]] for topic in internal}
    for name, count in sorted(expected.items()):
        if (found := topics.get(name, count)) != count:
            different = f"has different number of partitions: expected {count}, found {found}"
            yield f"{_WRONG}: Existing topic {name} {different}"
    if missing := sorted(expected.keys() - topics.keys()):
        yield f"{_MISSING_INTERNAL}: Internal topics are missing: {_summary(missing)}"


def _counts_read(part: Subtopology, internal: PartitionCounts, topics: PartitionCounts) -> list[int]:
    named = ((internal, "repartition_source_topics"), (topics, "source_topics"))
    return [counts[name] for counts, column in named for name in _names([part], column) if name in counts]


def _missing_sources(missing: Iterable[str]) -> str:
    return f"MISSING_SOURCE_TOPICS: Source topics {_summary(sorted(set(missing)))} are missing."


def _summary(topics: Sequence[str]) -> str:
    more = len(topics) - _MAX_NAMED_TOPICS
    return ", ".join(topics[:_MAX_NAMED_TOPICS]) + (f" and {more} additional topics" if more > 0 else "")


def _names(parts: Iterable[Subtopology], column: str) -> list[str]:
    return [topic if isinstance(topic, str) else topic["name"] for part in parts for topic in part[column]]
