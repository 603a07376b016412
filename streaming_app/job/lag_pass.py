"""One lag pass over a cluster: reads commits, then the ends of the logs, then makes the rows of the tables.

The order matters: a commit that is read before the end of its log is never beyond it. The pass only asks about
partitions that some group has committed, or that tasks of Kafka Streams read.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.job.lag_ends import LogEndsReader
from streaming_app.kafka.client import fetch_committed_offsets
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.log_records import are_committed
from streaming_app.kafka.topic_reader import UNKNOWN_TOPIC, is_denied
from streaming_app.lag.committed import CommittedOffsets
from streaming_app.lag.ends import LogEnds, TopicPartition
from streaming_app.lag.model import Commit, CommitKey, GroupTasks, LagRow, Owner, ReadUntil, group_tasks
from streaming_app.lag.topic_changes import KnownTopic, TopicChanges
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import GroupWork
from streaming_app.tables.lag_tables import KnownUntil, LagTables
from streaming_app.text import first_of

Reader: TypeAlias = Any
_EXAMPLES = 3
_MOST_PROOFS = 200  # commits in a pass
_UNREADABLE = "whether records or only transaction markers wait (TOPIC_AUTHORIZATION_FAILED)"


class _Tables(Protocol):
    """What a pass reads, each time through a reader of its own; see `LagTables`."""

    def reader(self) -> Reader: ...
    def commits(self, reader: Reader, /) -> Mapping[CommitKey, Commit]: ...
    def records_of_commits(
        self, reader: Reader, keys: Collection[CommitKey], /
    ) -> dict[CommitKey, tuple[int, int]]: ...
    def group_versions(self, reader: Reader, /) -> pa.Table: ...
    def groups(self, reader: Reader, group_ids: Collection[str], /) -> Iterable[dict[str, Any]]: ...
    def other_groups(self, reader: Reader, /) -> tuple[Mapping[str, GroupTasks], Counter[str]]: ...


class PassResult(NamedTuple):
    """The rows of a pass, the missing answers by the name of the error, and the duration."""

    rows: list[LagRow]
    errors: Mapping[str, Collection[str]]
    """By error: the topics or groups."""
    at: float
    seconds: float
    work: Mapping[str, GroupWork] = MappingProxyType({})
    """The waiting work of each group."""
    away: Mapping[str, Collection[str]] = MappingProxyType({})
    """As in `Ends`."""
    known: KnownUntil = KnownUntil(None, MappingProxyType({}), MappingProxyType({}))
    """Up to when its inputs are known."""
    types: Mapping[str, int] = MappingProxyType({})
    """The number of groups of the cluster by type."""
    may_come: bool = False
    """As in `Ends`."""
    topic_events: Sequence[Mapping[str, Any]] = ()
    """Rows of `group_events` about topics that streams groups read."""


class LagPass:
    """The state that is kept from pass to pass of one cluster; for one thread."""

    def __init__(
        self,
        store: _Tables,
        tracker: LagTracker,
        clock: Callable[[], float] = time.time,
        read_until: Callable[[], ReadUntil] | None = None,
        topic: str = OFFSETS_TOPIC,
    ) -> None:
        """Prepare. `read_until` returns up to when the streams have read `topic`, by default up to now."""
        self._store, self.tracker, self._clock = store, tracker, clock
        self._read_until = read_until or (lambda: ReadUntil(clock(), clock()))
        self._committed, self._topic = CommittedOffsets(), topic
        self._tasks: dict[str, GroupTasks] = {}
        self._with_patterns: dict[str, Mapping[str, Any]] = {}
        """Rows whose topology has regular expressions: their tasks depend on the topics that exist."""
        self._rows: pa.Table | None = None
        """The version of each row that was read; in Arrow, since there may be a million."""
        self._newest: object = None  # the version of all rows
        self._ends, self._changes = LogEndsReader(clock), TopicChanges()
        self._brokers: frozenset[int] = frozenset()
        self._matches: dict[str, Collection[str]] = {}
        self._matched_topics: frozenset[str] = frozenset()

    def restore(self, store: LagTables) -> None:
        """Start with the tables of an earlier run. Raises WarehouseError."""
        reader = store.reader()
        for sample in store.samples(reader):
            self.tracker.restore_samples(*sample)
            self._changes.restore(sample[0], sample[2], 0)
        for row in store.rows(reader):
            self.tracker.restore_row(row)
            if row.subtopology_id is not None:  # of such a topic there is a row for each partition
                self._changes.restore(row.topic, None, row.partition + 1)
        self.tracker.read_uncommitted = store.read_uncommitted(reader)

    def run(self, admin: Admin) -> PassResult:
        """Make one pass. Raises KafkaError when no broker answers, WarehouseError when a table cannot be read."""
        began = time.monotonic()
        log = self._read_until()
        reader = self._store.reader()
        in_log = self._store.commits(reader)
        self._read_groups(reader)
        asked_at = self._clock()
        is_late = asked_at - log.commits > self.tracker.late_seconds
        chosen = self._committed.choose(in_log, self._tasks.keys(), asked_at, is_late=is_late)
        fetched, errors = fetch_committed_offsets(admin, sorted(chosen))
        denied = [group_id for group_id, error in errors.items() if is_denied(error)]
        left_out = self._committed.left_out(fetched)
        commits = self._committed.merge(fetched, asked_at, denied, self._ends.shown(admin, left_out))
        self._prove(admin, reader, commits, denied, asked_at)
        others, types = self._store.other_groups(reader)
        groups = {**others, **self._groups({topic for _, topic, _ in commits})}
        needed = left_out.union(topic for _, topic, _ in commits)
        needed = needed.union(*(one.subtopology_of or () for one in groups.values()))
        self._brokers = admin.alive_brokers()
        self._ends.describe(admin, needed, commits)
        self._add_partitions_without_commit(commits, groups)
        now = self._clock()
        ends = self._ends.read(admin, {key[1:] for key in commits})
        new = self.tracker.unseen(commits, ends.ends, now, groups)
        for key, samples in self._ends.seed(admin, new, ends.ends, now).items():
            self.tracker.restore_samples(*key, ends.ends[key].topic_id, samples)
        known = {  # the stream of commits reads the members of groups of other types
            one: ReadUntil(
                self._committed.known_until(one, log.commits), log.members if one in self._tasks else log.commits
            )
            for one in {key[0] for key in commits}
        }
        topic_events = [*self._topic_events(groups, needed, now)]
        with_tails = self._ends.read_tails(admin, self.tracker.resting(commits, ends.ends), ends.ends)
        rows = self.tracker.observe(commits, with_tails, groups, now, known)
        of_groups = {group_id: one.commits for group_id, one in known.items() if is_late and one.commits > log.commits}
        return PassResult(
            rows,
            _errors(ends.errors, errors, with_tails),
            now,
            time.monotonic() - began,
            self.tracker.work,
            ends.away,
            KnownUntil(log.commits or None, of_groups, ends.answered_at, dict(self.tracker.read_uncommitted)),
            types,
            ends.may_come,
            topic_events,
        )

    def _topic_events(
        self, groups: Mapping[str, GroupTasks], needed: Collection[str], now: float
    ) -> Iterator[dict[str, Any]]:
        """Yield an event for each streams group that reads a topic that has changed."""
        described = {
            name: None if one.error else KnownTopic(one.topic_id, len(one.leaders))
            for name, one in self._ends.reader.topics.items()
            if one.error in {None, UNKNOWN_TOPIC}
        }
        at = datetime.fromtimestamp(now, timezone.utc)
        for topic, kind, old, new in self._changes.update(described, needed):
            event = {"at": at, "kind": kind, "topic": topic, "old": old, "new": new}
            for group_id, tasks in groups.items():
                if topic in (tasks.subtopology_of or ()):
                    yield {**event, "group_id": group_id, "source_partition": tasks.source_partition}

    def _prove(
        self, admin: Admin, reader: Reader, commits: dict[CommitKey, Commit], denied: Collection[str], now: float
    ) -> None:
        """Find out whether commits of groups that may not be requested were aborted, where that matters."""
        groups = frozenset(denied)
        of_log = {key: one for key, one in commits.items() if key[0] in groups}
        ends, rests = (self._committed.without_proof(commits, those) for those in self.tracker.doubtful(of_log, now))
        asked = (ends + rests)[:_MOST_PROOFS]
        records = self._store.records_of_commits(reader, asked) if asked else {}
        known = are_committed(admin, self._topic, records.values()) if records else {}
        proofs = {key: known[at] for key, at in records.items() if at in known}
        self._committed.prove(commits, {*ends, *asked}, proofs)

    def has_news(self, admin: Admin) -> bool:
        """Return whether a broker has come or gone since the newest pass. Raises KafkaError when no broker answers."""
        return admin.alive_brokers() != self._brokers

    def _read_groups(self, reader: Reader) -> None:
        """Read the rows of the groups of Kafka Streams that have changed since the last pass."""
        newest = reader.versions("groups")
        if newest == self._newest:
            return
        rows = self._store.group_versions(reader)
        before = rows.slice(0, 0) if self._rows is None else self._rows
        shared: dict[Any, Any] = {}  # many groups read the same topics, and tasks have the same names
        for row in self._store.groups(reader, _without(rows, before, rows.column_names)):
            self._tasks[row["group_id"]] = _sharing(group_tasks(row, self._match), shared)
            self._with_patterns.pop(row["group_id"], None)
            if any(part["source_topic_regex"] for part in row["subtopologies"] or ()):
                self._with_patterns[row["group_id"]] = row
        for group_id in _without(before, rows, ["group_id"]):
            self._tasks.pop(group_id, None)
            self._with_patterns.pop(group_id, None)
        self._rows, self._newest = rows, newest  # not after an error, so that the next pass reads what is new

    def _groups(self, committed_topics: set[str]) -> dict[str, GroupTasks]:
        if not committed_topics <= self._matched_topics:
            described = {name for name, one in self._ends.reader.topics.items() if one.error != UNKNOWN_TOPIC}
            self._matched_topics = frozenset(committed_topics | described)
            self._matches.clear()
            self._tasks |= {one: group_tasks(row, self._match) for one, row in self._with_patterns.items()}
        return self._tasks

    def _match(self, pattern: str) -> Collection[str]:
        """Return the known topics that match. RE2 takes linear time: every group member can choose a pattern."""
        found = self._matches.get(pattern)
        if found is None:
            names = pa.array(sorted(self._matched_topics), pa.string())
            found = ()
            with suppress(pa.ArrowInvalid):  # the regular expression is valid only in Java
                found = names.filter(pc.match_substring_regex(names, f"^(?:{pattern})$")).to_pylist()
            self._matches[pattern] = found
        return found

    def _add_partitions_without_commit(
        self, commits: dict[CommitKey, Commit], groups: Mapping[str, GroupTasks]
    ) -> None:
        """Add partitions without a commit that a streams group reads; of a hidden topic, only the first is known."""
        none = Commit(None)
        for group_id, tasks in groups.items():
            for topic in tasks.subtopology_of or ():
                described = self._ends.reader.topics.get(topic)
                is_hidden = described and described.error and not described.leaders and is_denied(described.error)
                for partition in (0,) if is_hidden else described.leaders if described else ():
                    commits.setdefault((group_id, topic, partition), none)


def _without(rows: pa.Table, others: pa.Table, columns: Sequence[str]) -> list[str]:
    """Return the groups of these rows that do not have the same values in `others`."""
    found = rows.select(columns).join(others.select(columns), columns, join_type="left anti", use_threads=False)
    return list(found["group_id"].to_pylist())


def _sharing(tasks: GroupTasks, shared: dict[Any, Any]) -> GroupTasks:
    """Return the tasks; parts that equal those of other groups are replaced by the objects in `shared`."""
    topics = tasks.subtopology_of
    owners = {
        one: Owner(one.member_id, *(shared.setdefault(text, text) for text in one[1:]))
        for one in set(tasks.owners.values())
    }
    return replace(
        tasks,
        subtopology_of=topics and shared.setdefault(tuple(topics.items()), topics),
        owners={shared.setdefault(task, task): owners[owner] for task, owner in tasks.owners.items()},
        stateful=shared.setdefault(tasks.stateful, tasks.stateful),
        content=shared.setdefault(tasks.content, tasks.content),
        repartition=shared.setdefault(tasks.repartition, tasks.repartition),
    )


def describe_errors(errors: Mapping[str, Collection[str]], away: Mapping[str, Collection[str]]) -> str | None:
    """Return one line about missing answers of the brokers; None if there are none."""
    parts = [
        f"{broker} does not answer; it is the leader or only replica of {first_of(sorted(partitions), _EXAMPLES)}"
        for broker, partitions in sorted(away.items())
    ]
    for error, subjects in sorted(errors.items()):
        right = "Read" if error == _UNREADABLE else "Describe"
        hint = f"; grant {right} on them" if is_denied(error) else ""
        parts.append(f"{error}: {first_of(sorted(subjects), _EXAMPLES)}{hint}")
    return f"the lag of some partitions is not known. {'. '.join(parts)}" if parts else None


def _errors(
    of_topics: Mapping[str, Collection[str]], of_groups: Mapping[str, str], ends: Mapping[TopicPartition, LogEnds]
) -> dict[str, set[str]]:
    unreadable = {topic for (topic, _), one in ends.items() if one.tail is not None and one.tail.is_denied}
    denied = defaultdict[str, set[str]](set)
    for group_id, error in of_groups.items():
        if is_denied(error):  # for other errors this pass uses the commits in the log
            denied[error].add(f"group {group_id}")
    return _both(_both(of_topics, denied), {_UNREADABLE: unreadable} if unreadable else {})


def _both(one: Mapping[str, Collection[str]], other: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    return {key: {*one.get(key, ()), *other.get(key, ())} for key in (*one, *other)}
