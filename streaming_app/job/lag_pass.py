"""One pass over the lag of a cluster: commits, then the ends of the logs, then the rows of the tables.

The order matters: a commit that is read before the end of its log is never beyond it. Only partitions are asked for
that some group has committed, or that the topology of a streams group reads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.kafka.connection import Admin
from streaming_app.kafka.lag_offsets import (
    EARLIEST,
    LATEST,
    LogEndsClient,
    Offsets,
    TopicLeaders,
    fetch_committed_offsets,
)
from streaming_app.lag.committed import CommittedOffsets
from streaming_app.lag.model import (
    NO_TASKS,
    Commit,
    GroupTasks,
    LagRow,
    LogEnds,
    TopicPartition,
    group_tasks,
    source_topics,
)
from streaming_app.lag.tracker import CommitKey, LagTracker
from streaming_app.tables.lag_tables import GroupVersion, LagTables
from streaming_app.text import first_of

_SLOW_SECONDS = 300.0  # between two requests for leaders and for the starts of the logs
_SEED_SECONDS = (86_400, 21_600, 3_600, 900, 300, 60)  # ages, oldest first
_EXAMPLES = 3
_DENIED = "AUTHORIZATION"


class PassResult(NamedTuple):
    """The rows, what the brokers did not answer, by the name of the error, and what the pass cost."""

    rows: list[LagRow]
    errors: Mapping[str, Collection[str]]
    """Error to the topics or groups that it is about."""
    at: float
    partitions: int
    requests: int
    seconds: float
    groups: Mapping[str, GroupTasks] = MappingProxyType({})


class _KnownGroup(NamedTuple):
    """What a pass needs of a streams group: a part of its row, which can have thousands of members and assignments."""

    tasks: GroupTasks
    topics: frozenset[str]
    """Those that the topology names."""
    row: Mapping[str, Any] | None
    """For a topology with regular expressions: its tasks depend on the topics that exist."""


class LagPass:
    """What is kept from pass to pass of one cluster; for one thread."""

    def __init__(
        self, store: LagTables, allowed_lag: Callable[[str], int], clock: Callable[[], float] = time.time
    ) -> None:
        self._store, self._clock = store, clock
        self.tracker = LagTracker(allowed_lag)
        self._committed = CommittedOffsets()
        self._versions: dict[str, GroupVersion] = {}
        self._known: dict[str, _KnownGroup] = {}
        self._topics: dict[str, TopicLeaders] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._slow_at = 0.0
        self._matches: dict[str, Collection[str]] = {}
        self._matched_topics: frozenset[str] = frozenset()

    def restore(self) -> None:
        """Begin with what an earlier run left in the tables. Raises WarehouseError."""
        reader = self._store.reader()
        for sample in self._store.samples(reader):
            self.tracker.restore_samples(*sample)
        for row in self._store.rows(reader):
            self.tracker.restore_row(row)

    def run(self, admin: Admin) -> PassResult:
        """Do one pass. Raises KafkaError when no broker answers, WarehouseError when a table cannot be read."""
        began = time.monotonic()
        reader = self._store.reader()
        in_log = self._store.commits(reader)
        self._read_groups(reader)
        fetched = fetch_committed_offsets(
            admin, sorted(self._committed.choose(in_log, self._known.keys(), self._clock()))
        )
        commits = self._committed.merge(fetched.offsets, self._clock())
        groups = self._groups({topic for _, topic, _ in commits})
        groups.update(
            (group_id, replace(NO_TASKS, has_members=has_members))
            for group_id, has_members in self._store.other_groups(reader).items()
            if group_id not in groups
        )
        client = LogEndsClient(admin)
        self._describe(client, commits)
        self._add_partitions_without_commit(commits, groups)
        keys = {key[1:] for key in commits}
        now = self._clock()
        latest, stable, starts = self._list(client, keys)
        ends = {
            key: LogEnds(end, self._starts.get(key), _at_most(stable.offsets.get(key), end), self._topic_id(key[0]))
            for key, end in ((key, latest.offsets.get(key)) for key in keys)
        }
        seeds = self._seed(client, commits, ends, now)
        rows = self.tracker.observe(commits, ends, groups, now)
        requests = latest.requests + stable.requests + starts + seeds
        errors = _errors(latest, fetched.errors)
        return PassResult(rows, errors, now, len(keys), requests, time.monotonic() - began, groups)

    def topic_ids(self) -> dict[str, str | None]:
        """Return the ids of the topics that the samples are of."""
        return {topic: self.tracker.topic_id(topic) for topic, _ in self.tracker.samples()}

    def _read_groups(self, reader: Any) -> None:  # noqa: ANN401 - a WarehouseReader
        """Read the rows of the streams groups that have changed since the pass before."""
        versions = self._store.group_versions(reader)
        changed = {group_id for group_id, version in versions.items() if self._versions.get(group_id) != version}
        for row in self._store.groups(reader, changed):
            has_patterns = any(part["source_topic_regex"] for part in row["subtopologies"] or ())
            self._known[row["group_id"]] = _KnownGroup(
                group_tasks(row, self._match), frozenset(source_topics(row)), row if has_patterns else None
            )
        for group_id in self._known.keys() - versions.keys():
            del self._known[group_id]
        self._versions = versions

    def _groups(self, committed_topics: set[str]) -> dict[str, GroupTasks]:
        if not committed_topics <= self._matched_topics:
            self._matched_topics = frozenset(committed_topics | set(self._topics))
            self._matches.clear()
            for group_id, known in self._known.items():
                if known.row is not None:
                    self._known[group_id] = known._replace(tasks=group_tasks(known.row, self._match))
        return {group_id: known.tasks for group_id, known in self._known.items()}

    def _match(self, pattern: str) -> Collection[str]:
        """Return the known topics that match, by RE2, which takes linear time: whoever joins a group chooses it."""
        found = self._matches.get(pattern)
        if found is None:
            names = pa.array(sorted(self._matched_topics), pa.string())
            found = ()
            with suppress(pa.ArrowInvalid):  # a regular expression of Java's only
                found = names.filter(pc.match_substring_regex(names, f"^(?:{pattern})$")).to_pylist()
            self._matches[pattern] = found
        return found

    def _describe(self, client: LogEndsClient, commits: Mapping[CommitKey, Commit]) -> None:
        """Ask for the leaders of all topics now and then; else of new ones, and of those that were created again."""
        needed = {topic for _, topic, _ in commits}
        for known in self._known.values():
            needed |= known.topics
        if not 0 <= self._clock() - self._slow_at < _SLOW_SECONDS:
            self._topics = client.describe(sorted(needed))
            return
        recreated = {
            topic
            for (_, topic, _), commit in commits.items()
            if commit.topic_id is not None and topic in self._topics and self._topics[topic].topic_id != commit.topic_id
        }
        self._topics.update(client.describe(sorted((needed - self._topics.keys()) | recreated)))

    def _add_partitions_without_commit(
        self, commits: dict[CommitKey, Commit], groups: Mapping[str, GroupTasks]
    ) -> None:
        """Add the partitions that a streams group reads and has no offset of."""
        none = Commit(None)
        for group_id, tasks in groups.items():
            for topic in tasks.subtopology_of or ():
                described = self._topics.get(topic)
                for partition in described.leaders if described else ():
                    commits.setdefault((group_id, topic, partition), none)

    def _list(self, client: LogEndsClient, keys: Collection[TopicPartition]) -> tuple[Offsets, Offsets, int]:
        """Return the ends and the last stable offsets, and how many requests the starts took."""
        latest = client.list_offsets(keys, self._topics)
        if latest.are_leaders_stale:
            stale = [key for key in latest.errors if not self._is_known_to_be_missing(key)]
            self._topics.update(client.describe(sorted({topic for topic, _ in stale})))
            again = client.list_offsets(stale, self._topics)
            latest.offsets.update(again.offsets)
            latest.errors = {**{k: v for k, v in latest.errors.items() if k not in again.offsets}, **again.errors}
            latest.requests += again.requests
        answered = latest.offsets.keys()
        stable = client.list_offsets(answered, self._topics, LATEST, committed_only=True)
        requests = 0
        is_due = not 0 <= self._clock() - self._slow_at < _SLOW_SECONDS
        if due := answered if is_due else answered - self._starts.keys():
            starts = client.list_offsets(due, self._topics, EARLIEST)
            requests = starts.requests
            self._starts = {key: offset for key, offset in self._starts.items() if key in answered}
            self._starts.update(starts.offsets)
        if is_due:
            self._slow_at = self._clock()
        return latest, stable, requests

    def _is_known_to_be_missing(self, key: TopicPartition) -> bool:
        """Tell whether the newest description of the topic is itself an error: then the leader was not even asked."""
        described = self._topics.get(key[0])
        return described is None or described.error is not None

    def _topic_id(self, topic: str) -> str | None:
        described = self._topics.get(topic)
        return described.topic_id if described else None

    def _seed(
        self,
        client: LogEndsClient,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        now: float,
    ) -> int:
        """Find earlier end offsets of partitions that are seen for the first time and have lag, by record times.

        Return how many requests it took. An answer that is the start of the log proves nothing: older records were
        deleted, or there were none.
        """
        known = self.tracker.samples()
        new = {
            key[1:]
            for key, commit in commits.items()
            if key[1:] not in known and commit.offset is not None and (ends[key[1:]].end or 0) > commit.offset
        }
        found: defaultdict[TopicPartition, list[tuple[int, float]]] = defaultdict(list)
        requests = 0
        for age in _SEED_SECONDS if new else ():
            answers = client.list_offsets(new, self._topics, int((now - age) * 1000))
            requests += answers.requests
            for key, offset in answers.offsets.items():
                end, start = ends[key].end, ends[key].start
                written = end if offset < 0 else offset
                if written is not None and start is not None and written > start:
                    found[key].append((written, now - age))
        for (topic, partition), samples in found.items():
            self.tracker.restore_samples(topic, partition, self._topic_id(topic), samples)
        return requests


def describe_errors(errors: Mapping[str, Collection[str]]) -> str | None:
    """Return one line about what the brokers did not answer; None if there was nothing."""
    parts = []
    for error, subjects in sorted(errors.items()):
        hint = "; grant Describe on them" if _DENIED in error else ""
        parts.append(f"{error}: {first_of(sorted(subjects), _EXAMPLES)}{hint}")
    return f"the lag of some partitions is not known. {'. '.join(parts)}" if parts else None


def _errors(latest: Offsets, groups: Mapping[str, str]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for (topic, _), error in latest.errors.items():
        found[error].add(topic)
    for group_id, error in groups.items():
        if _DENIED in error:  # of any other group the log is believed for this pass
            found[error].add(f"group {group_id}")
    return dict(found)


def _at_most(offset: int | None, end: int | None) -> int | None:
    """Return a last stable offset, which is asked for after the end, as it was at the end."""
    return offset if offset is None or end is None else min(offset, end)
