"""Why a group is NotReady: the topics that its topology requires, compared with the topics that exist. Pure.

Theory of operation
-------------------
The broker returns the reason to members only, in the status of their heartbeat responses, and does not write it to the
log. It checks the topics in this order and stops at the first failed check (`InternalTopicManager.configureTopics`,
Kafka 4.4.0); so do we:

1. Every source topic must exist.
2. A repartition topic without a partition count in the topology gets the largest count of the topics read by the
   subtopology that writes it.
3. The topics of a copartition group must have equal counts; repartition topics without a fixed count are adjusted.
4. A changelog topic gets the largest count of the topics that its subtopology reads.
5. A repartition or changelog topic that exists must have the count computed above.
6. Every repartition and changelog topic must exist. The broker tries to create them: this reason remains only when it
   is not authorized to or fails.

Where several topics fail the same check, the broker names the first in the order of its hash table; we name the first
in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from streaming_app.groups.fold import Fold
from streaming_app.groups.state_rules import NONE, NOT_READY
from streaming_app.regex import compiled

Subtopology = Mapping[str, Any]
"""As in the column `subtopologies` of `groups`."""
PartitionCounts = Mapping[str, int]
"""Topic to number of partitions."""
TopicLookup = Callable[[Sequence[str] | None], PartitionCounts | None]
"""Partition counts by topic, of these topics, or of all for None; None where they cannot be known."""

MISSING_SOURCE_TOPICS = "MISSING_SOURCE_TOPICS"
INCORRECTLY_PARTITIONED_TOPICS = "INCORRECTLY_PARTITIONED_TOPICS"
MISSING_INTERNAL_TOPICS = "MISSING_INTERNAL_TOPICS"
INVALID_TOPOLOGY = "STREAMS_INVALID_TOPOLOGY"  # Kafka's error, not a status: such a member cannot join
NOT_VALIDATED = "TOPICS_NOT_VALIDATED"  # ours: a check failed, and the log does not show which

_MAX_NAMED_TOPICS = 3  # in one message of the broker
_MISSING_SOURCES = "Source topics ", " are missing."  # what is before and after their names


class Reason(NamedTuple):
    """Why a group is not ready: a status of heartbeat responses, the broker's message, and the topics concerned."""

    status: str
    detail: str
    topics: tuple[str, ...] = ()


class _TopicConfigurationError(Exception):
    """A check of the topics failed. Never leaves this module."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.detail)
        self.reason = reason


def set_reasons(fold: Fold, topics: TopicLookup | None) -> None:
    """Let the row and the events of a fold that is closed say why the group is, and was, NotReady.

    Without `topics`, as in a worker, which cannot ask the brokers, the row stays as it is.
    """
    for passed in fold.passed_not_ready:
        parts, counts = passed.columns["subtopologies"], _counts_of(passed.columns, topics)
        found = reason_from_topics(parts, counts) if counts is not None else None
        fold.add_passed_reason(passed, _text(found or not_ready_reason(passed.columns)))
    fold.passed_not_ready.clear()
    state = fold.group_state
    if state.state != NOT_READY:
        fold.set_not_ready_reason(None)
    elif topics is not None:
        columns = fold.not_ready_columns()
        counts = _counts_of(columns, topics)
        if counts is not None or not state.not_ready_reason:  # one that was found in the topics says more than the log
            fold.set_not_ready_reason(_text(not_ready_reason(columns, counts)))


def _counts_of(columns: Mapping[str, Any], topics: TopicLookup | None) -> PartitionCounts | None:
    parts = columns["subtopologies"]
    has_patterns = any(part["source_topic_regex"] for part in parts)
    return topics(None if has_patterns else required_topics(parts)) if topics else None


def _text(reason: Reason | None) -> str:
    return f"{reason.status}: {reason.detail}" if reason else ""


def not_ready_reason(row: Mapping[str, Any], topics: PartitionCounts | None = None) -> Reason | None:
    """Return why the group of this row is NotReady; None for a group in any other state.

    `topics` are the cluster's topics with their partition counts: at least those that `required_topics` returns, and
    all of them for topologies with patterns. Without `topics` the reason is derived from the log alone.
    """
    if row["state"] != NOT_READY:
        return None
    if row["topology_epoch"] is None:
        return Reason(NOT_VALIDATED, "The group has no topology.")
    if topics is not None:
        return reason_from_topics(row["subtopologies"], topics) or Reason(
            NOT_VALIDATED, "The topics are valid by now; the broker has not checked them again."
        )
    return _reason_from_log(row)


def _reason_from_log(row: Mapping[str, Any]) -> Reason:
    sources = _names(row["subtopologies"], "source_topics")
    if row["metadata_hash"] == 0 and sources:  # the hash is over those of the required topics that exist
        return _missing_sources(sources)
    validated = row["validated_topology_epoch"]
    before = "no epoch" if validated == NONE else f"epoch {validated}"
    return Reason(
        NOT_VALIDATED,
        f"Topics of topology epoch {row['topology_epoch']} are missing or wrongly partitioned; {before} was validated.",
    )


def required_topics(subtopologies: Iterable[Subtopology]) -> list[str]:
    """Return every topic that these subtopologies name, in alphabetical order."""
    listed = list(subtopologies)
    return sorted(
        {
            *_names(listed, "source_topics"),
            *_names(listed, "repartition_source_topics"),
            *_names(listed, "state_changelog_topics"),
            *_names(listed, "repartition_sink_topics"),
        }
    )


def reason_from_topics(subtopologies: Iterable[Subtopology], topics: PartitionCounts) -> Reason | None:
    """Return why a topology's topics are invalid, as the broker would report it; None if they are valid."""
    try:
        parts = [_with_patterns(part, topics) for part in sorted(subtopologies, key=lambda s: str(s["subtopology_id"]))]
        _check_source_topics(parts, topics)
        computed = _repartition_counts(parts, topics)
        for part in parts:
            for group in part["copartition_groups"]:
                computed |= _copartition_counts(set(group), parts, {**computed, **topics})
        computed |= _changelog_counts(parts, {**computed, **topics})
        _check_internal_topics(parts, computed, topics)
    except _TopicConfigurationError as error:
        return error.reason
    return None


def _with_patterns(part: Subtopology, topics: PartitionCounts) -> Subtopology:
    """Return the subtopology with its patterns resolved to source topics; a pattern without a match is kept as a name.

    Released brokers reject patterns (4.4.0), so these rules are our own.
    """
    patterns = part["source_topic_regex"]
    if not patterns:
        return part
    matches = {pattern: _matches(pattern, topics) or [pattern] for pattern in patterns}
    matching = {topic for topics_of_pattern in matches.values() for topic in topics_of_pattern}
    groups = [[topic for name in group for topic in matches.get(name, [name])] for group in part["copartition_groups"]]
    return {**part, "source_topics": sorted({*part["source_topics"], *matching}), "copartition_groups": groups}


def _matches(pattern: str, topics: Iterable[str]) -> list[str]:
    try:
        regex = compiled(pattern)
    except ValueError:  # not every Java pattern is valid in RE2
        return []
    return [topic for topic in topics if regex.matches(topic)]


def _check_source_topics(parts: Sequence[Subtopology], topics: PartitionCounts) -> None:
    missing = [topic for topic in _names(parts, "source_topics") if topic not in topics]
    if missing:
        raise _TopicConfigurationError(_missing_sources(missing))


def _repartition_counts(parts: Sequence[Subtopology], topics: PartitionCounts) -> dict[str, int]:
    counts = {topic["name"]: topic["partitions"] for topic in _internal_topics(parts, "repartition_source_topics")}
    counts = {name: partitions for name, partitions in counts.items() if partitions}
    while True:
        progress = incomplete = False
        for part in parts:
            for sink in part["repartition_sink_topics"]:
                if sink not in counts:
                    count = max(_counts_read(part, counts, topics), default=None)
                    if count is None:
                        incomplete = True
                    else:
                        counts[sink], progress = count, True
        if not incomplete:
            break
        if not progress:
            raise _TopicConfigurationError(_invalid("There may be loops in the topology that cannot be resolved."))
    never_written = [name for name in _names(parts, "repartition_source_topics") if name not in counts]
    if never_written:
        raise _TopicConfigurationError(
            _invalid("A repartition source topic is never used as a sink topic.", never_written)
        )
    return counts


def _counts_read(part: Subtopology, computed: PartitionCounts, topics: PartitionCounts) -> Iterable[int]:
    """Yield the known partition counts of the topics that a subtopology reads."""
    yield from (computed[topic["name"]] for topic in part["repartition_source_topics"] if topic["name"] in computed)
    yield from (topics[topic] for topic in part["source_topics"] if topic in topics)


def _copartition_counts(group: set[str], parts: Sequence[Subtopology], counts: PartitionCounts) -> dict[str, int]:
    """Return the partition counts that a copartition group's repartition topics must have."""
    declared = {topic["name"]: topic["partitions"] for topic in _internal_topics(parts, "repartition_source_topics")}
    fixed = sorted(name for name, partitions in declared.items() if partitions)
    known = {name: counts[name] for name in group if name in counts}
    repartition = {name: count for name, count in known.items() if name in declared}
    if repartition.keys() == group:
        # The broker compares the fixed topics of the whole topology here, not only those of the group.
        decisive = {name: counts[name] for name in fixed} or {"": max(repartition.values(), default=0)}
        reported = repartition
    else:
        decisive = reported = {name: count for name, count in known.items() if name not in declared}
    if len(set(decisive.values())) > 1:
        pairs = ", ".join(f"{name}={count}" for name, count in sorted(reported.items()))
        raise _TopicConfigurationError(
            Reason(
                INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{{{pairs}}}]",
                tuple(sorted(reported)),
            )
        )
    (required,) = set(decisive.values()) or {0}
    for name in sorted(repartition.keys() & set(fixed)):
        if repartition[name] != required:
            raise _TopicConfigurationError(
                Reason(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{repartition[name]}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{required}] of the source topic.",
                    (name,),
                )
            )
    return dict.fromkeys(repartition, required)


def _changelog_counts(parts: Sequence[Subtopology], counts: PartitionCounts) -> dict[str, int]:
    computed: dict[str, int] = {}
    for part in parts:
        read = [*part["source_topics"], *(topic["name"] for topic in part["repartition_source_topics"])]
        largest = max((counts[topic] for topic in read if topic in counts), default=0)
        computed |= {topic["name"]: largest for topic in part["state_changelog_topics"]}
    return computed


def _check_internal_topics(parts: Sequence[Subtopology], computed: PartitionCounts, topics: PartitionCounts) -> None:
    expected = {
        topic["name"]: topic["partitions"] or computed[topic["name"]]
        for kind in ("repartition_source_topics", "state_changelog_topics")
        for topic in _internal_topics(parts, kind)
    }
    for name, count in sorted(expected.items()):
        if topics.get(name, count) != count:
            raise _TopicConfigurationError(
                Reason(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has different number of partitions: expected {count}, found {topics[name]}",
                    (name,),
                )
            )
    missing = sorted(expected.keys() - topics.keys())
    if missing:
        detail = f"Internal topics are missing: {_summary(missing)}"
        raise _TopicConfigurationError(Reason(MISSING_INTERNAL_TOPICS, detail, tuple(missing)))


def _missing_sources(missing: Iterable[str]) -> Reason:
    names = sorted(set(missing))
    begin, end = _MISSING_SOURCES
    return Reason(MISSING_SOURCE_TOPICS, f"{begin}{_summary(names)}{end}", tuple(names))


def missing_sources(reason: str) -> tuple[str, ...]:
    """Return the source topics that a `not_ready_reason` says are missing, as far as it names them.

    No name of a topic has a comma or a space.
    """
    status, _, detail = reason.partition(": ")
    begin, end = _MISSING_SOURCES
    if status != MISSING_SOURCE_TOPICS or not (detail.startswith(begin) and detail.endswith(end)):
        return ()
    return tuple(detail[len(begin) : -len(end)].partition(" and ")[0].split(", "))


def _invalid(cause: str, topics: Iterable[str] = ()) -> Reason:
    detail = f"Failed to compute number of partitions for all repartition topics: {cause}"
    return Reason(INVALID_TOPOLOGY, detail, tuple(sorted(set(topics))))


def _summary(topics: Sequence[str]) -> str:
    more = len(topics) - _MAX_NAMED_TOPICS
    return ", ".join(topics[:_MAX_NAMED_TOPICS]) + (f" and {more} additional topics" if more > 0 else "")


def _internal_topics(parts: Iterable[Subtopology], kind: str) -> Iterable[Mapping[str, Any]]:
    return (topic for part in parts for topic in part[kind])


def _names(parts: Iterable[Subtopology], kind: str) -> list[str]:
    return [topic if isinstance(topic, str) else topic["name"] for part in parts for topic in part[kind]]
