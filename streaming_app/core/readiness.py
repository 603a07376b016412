"""Why a group is NotReady: what its topology wants of topics, against the topics that there are. Pure.

Theory of operation
-------------------
The broker tells the reason to members only, in the status of their heartbeats, and writes none of it down. It looks at
the topics in this order and stops at the first trouble (`InternalTopicManager.configureTopics`, Kafka 4.4.0); so do we:

1. Every source topic must exist.
2. Repartition topics for which the topology fixes no partition count get one: the largest of the topics that the
   subtopology writing them reads.
3. The topics of a copartition group must have equal counts; repartition topics without a fixed count give way.
4. Changelogs get the largest count among what their subtopology reads.
5. A repartition or changelog topic that exists must have the count so worked out.
6. Every repartition and changelog topic must exist. The broker tries to create them: this reason stays only when it
   may not or cannot.

Where several topics are at fault in the same way, the broker names the first that its hash table gives; we name the
first in the alphabet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from streaming_app.core.states import NONE

Subtopology = Mapping[str, Any]
"""As in the column `subtopologies` of `groups`."""
Counts = Mapping[str, int]
"""Topic to number of partitions."""

MISSING_SOURCE_TOPICS = "MISSING_SOURCE_TOPICS"
INCORRECTLY_PARTITIONED_TOPICS = "INCORRECTLY_PARTITIONED_TOPICS"
MISSING_INTERNAL_TOPICS = "MISSING_INTERNAL_TOPICS"
INVALID_TOPOLOGY = "STREAMS_INVALID_TOPOLOGY"  # Kafka's error, not a status: no member gets in with such a topology
NOT_VALIDATED = "TOPICS_NOT_VALIDATED"  # ours: something is wrong, and the log does not tell what

_NAMED = 3  # topics that the broker names in one text


class Reason(NamedTuple):
    """Why a group is not ready: a status as heartbeats name it, the broker's words for it, and the topics meant."""

    status: str
    detail: str
    topics: tuple[str, ...] = ()


class _Trouble(Exception):  # noqa: N818 - it never leaves this module
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.detail)
        self.reason = reason


def not_ready_reason(row: Mapping[str, Any], topics: Counts | None = None) -> Reason | None:
    """Why the group of this row is NotReady; None for a group in any other state.

    `topics` are the cluster's topics with their partition counts, at least those that `required_topics` names, and all
    for topologies with patterns. Without them the reason is what the log alone tells.
    """
    if row["state"] != "NotReady":
        return None
    if row["topology_epoch"] is None:
        return Reason(NOT_VALIDATED, "The group has no topology.")
    if topics is not None:
        return reason_from_topics(row["subtopologies"], topics) or Reason(
            NOT_VALIDATED, "The topics are in order by now; the broker has not looked at them again."
        )
    return _reason_from_log(row)


def _reason_from_log(row: Mapping[str, Any]) -> Reason:
    sources = _names(row["subtopologies"], "source_topics")
    if row["metadata_hash"] == 0 and sources:  # the hash over the topics that exist, of all that are required
        return _missing_sources(sources)
    validated = row["validated_topology_epoch"]
    before = "no epoch" if validated == NONE else f"epoch {validated}"
    return Reason(
        NOT_VALIDATED,
        f"Topics of topology epoch {row['topology_epoch']} are missing or wrongly partitioned; {before} was validated.",
    )


def required_topics(subtopologies: Iterable[Subtopology]) -> list[str]:
    """Every topic that these subtopologies name."""
    listed = list(subtopologies)
    return sorted(
        {
            *_names(listed, "source_topics"),
            *_names(listed, "repartition_source_topics"),
            *_names(listed, "state_changelog_topics"),
            *_names(listed, "repartition_sink_topics"),
        }
    )


def reason_from_topics(subtopologies: Iterable[Subtopology], topics: Counts) -> Reason | None:
    """What is wrong with the topics of a topology, as the broker would say it; None if they are in order."""
    try:
        parts = [_with_patterns(part, topics) for part in sorted(subtopologies, key=lambda s: str(s["subtopology_id"]))]
        _check_source_topics(parts, topics)
        decided = _repartition_counts(parts, topics)
        for part in parts:
            for group in part["copartition_groups"]:
                decided |= _copartitioned(set(group), parts, {**decided, **topics})
        decided |= _changelog_counts(parts, {**decided, **topics})
        _check_internal_topics(parts, decided, topics)
    except _Trouble as trouble:
        return trouble.reason
    return None


def _with_patterns(part: Subtopology, topics: Counts) -> Subtopology:
    """The subtopology with the topics that its patterns match among its sources; a pattern without any stays one.

    Released brokers refuse patterns (4.4.0), so these rules are ours.
    """
    patterns = part["source_topic_regex"]
    if not patterns:
        return part
    matches = {pattern: _matches(pattern, topics) or [pattern] for pattern in patterns}
    found = {topic for matched in matches.values() for topic in matched}
    groups = [[topic for name in group for topic in matches.get(name, [name])] for group in part["copartition_groups"]]
    return {**part, "source_topics": sorted({*part["source_topics"], *found}), "copartition_groups": groups}


def _matches(pattern: str, topics: Iterable[str]) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except re.error:  # Java's patterns are not all Python's
        return []
    return [topic for topic in topics if compiled.fullmatch(topic)]


def _check_source_topics(parts: Sequence[Subtopology], topics: Counts) -> None:
    missing = [topic for topic in _names(parts, "source_topics") if topic not in topics]
    if missing:
        raise _Trouble(_missing_sources(missing))


def _repartition_counts(parts: Sequence[Subtopology], topics: Counts) -> dict[str, int]:
    counts = {topic["name"]: topic["partitions"] for topic in _internal(parts, "repartition_source_topics")}
    counts = {name: partitions for name, partitions in counts.items() if partitions}
    while True:
        progress = wanting = False
        for part in parts:
            for sink in part["repartition_sink_topics"]:
                if sink not in counts:
                    count = max(_counts_read(part, counts, topics), default=None)
                    if count is None:
                        wanting = True
                    else:
                        counts[sink], progress = count, True
        if not wanting:
            break
        if not progress:
            raise _Trouble(_invalid("There may be loops in the topology that cannot be resolved."))
    never_written = [name for name in _names(parts, "repartition_source_topics") if name not in counts]
    if never_written:
        raise _Trouble(_invalid("A repartition source topic is never used as a sink topic.", never_written))
    return counts


def _counts_read(part: Subtopology, decided: Counts, topics: Counts) -> Iterable[int]:
    """The counts, as far as known, of what a subtopology reads."""
    yield from (decided[topic["name"]] for topic in part["repartition_source_topics"] if topic["name"] in decided)
    yield from (topics[topic] for topic in part["source_topics"] if topic in topics)


def _copartitioned(group: set[str], parts: Sequence[Subtopology], counts: Counts) -> dict[str, int]:
    """The counts of a copartition group's repartition topics, made to fit."""
    repartition = {topic["name"]: topic["partitions"] for topic in _internal(parts, "repartition_source_topics")}
    fixed = sorted(name for name, partitions in repartition.items() if partitions)
    told = {name: counts[name] for name in group if name in counts}
    ours = {name: count for name, count in told.items() if name in repartition}
    if ours.keys() == group:
        # The broker looks at the fixed topics of the whole topology here, not only at those of the group.
        deciding = {name: counts[name] for name in fixed} or {"": max(ours.values(), default=0)}
        shown = ours
    else:
        deciding = shown = {name: count for name, count in told.items() if name not in repartition}
    if len(set(deciding.values())) > 1:
        pairs = ", ".join(f"{name}={count}" for name, count in sorted(shown.items()))
        raise _Trouble(
            Reason(
                INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{{{pairs}}}]",
                tuple(sorted(shown)),
            )
        )
    (decided,) = set(deciding.values()) or {0}
    for name in sorted(ours.keys() & set(fixed)):
        if ours[name] != decided:
            raise _Trouble(
                Reason(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{ours[name]}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{decided}] of the source topic.",
                    (name,),
                )
            )
    return dict.fromkeys(ours, decided)


def _changelog_counts(parts: Sequence[Subtopology], counts: Counts) -> dict[str, int]:
    decided: dict[str, int] = {}
    for part in parts:
        read = [*part["source_topics"], *(topic["name"] for topic in part["repartition_source_topics"])]
        largest = max((counts[topic] for topic in read if topic in counts), default=0)
        decided |= {topic["name"]: largest for topic in part["state_changelog_topics"]}
    return decided


def _check_internal_topics(parts: Sequence[Subtopology], decided: Counts, topics: Counts) -> None:
    expected = {
        topic["name"]: topic["partitions"] or decided[topic["name"]]
        for kind in ("repartition_source_topics", "state_changelog_topics")
        for topic in _internal(parts, kind)
    }
    for name, count in sorted(expected.items()):
        if topics.get(name, count) != count:
            raise _Trouble(
                Reason(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has different number of partitions: expected {count}, found {topics[name]}",
                    (name,),
                )
            )
    missing = sorted(expected.keys() - topics.keys())
    if missing:
        words = f"Internal topics are missing: {_summary(missing)}"
        raise _Trouble(Reason(MISSING_INTERNAL_TOPICS, words, tuple(missing)))


def _missing_sources(missing: Iterable[str]) -> Reason:
    named = sorted(set(missing))
    return Reason(MISSING_SOURCE_TOPICS, f"Source topics {_summary(named)} are missing.", tuple(named))


def _invalid(words: str, topics: Iterable[str] = ()) -> Reason:
    what = "Failed to compute number of partitions for all repartition topics"
    return Reason(INVALID_TOPOLOGY, f"{what}: {words}", tuple(sorted(set(topics))))


def _summary(topics: Sequence[str]) -> str:
    more = len(topics) - _NAMED
    return ", ".join(topics[:_NAMED]) + (f" and {more} additional topics" if more > 0 else "")


def _internal(parts: Iterable[Subtopology], kind: str) -> Iterable[Mapping[str, Any]]:
    return (topic for part in parts for topic in part[kind])


def _names(parts: Iterable[Subtopology], kind: str) -> list[str]:
    return [topic if isinstance(topic, str) else topic["name"] for part in parts for topic in part[kind]]
