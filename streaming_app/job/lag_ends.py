"""The ends of the logs, as a pass over the lag asks for them: what is kept of leaders and starts from pass to pass.

Theory of operation
-------------------
The leaders of all topics are asked for now and then. Meanwhile an answer that is an error, and a broker that does not
answer, say that they may be others by now: then the topics are described again, and the new leaders asked in the same
pass. Where there is no new leader yet, `has_news` tells when there is one: a pass is then due at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from streaming_app.kafka.connection import Admin
from streaming_app.kafka.lag_offsets import (
    AWAY,
    EARLIEST,
    LATEST,
    NO_LEADER,
    UNKNOWN_TOPIC,
    FoundRecords,
    LogEndsClient,
    Offsets,
    TopicLeaders,
    leader_of,
)
from streaming_app.lag.ends import LogEnds, Tail, TopicPartition
from streaming_app.lag.model import Commit, CommitKey

_SLOW_SECONDS = 300.0  # between two requests for leaders and for the starts of the logs
_RETRIES = 3
_MOST_MISSING = 1_000  # topics that are asked for at each pass, as somebody may create them
_MOST_READ = 200  # partitions in a pass
_READS = 8  # of one partition in a pass; the next pass goes on from there
_SEED_SECONDS = (86_400, 21_600, 3_600, 900, 300, 60)  # ages, oldest first


class Ends(NamedTuple):
    """The ends of a pass, and what the brokers did not answer."""

    ends: Mapping[TopicPartition, LogEnds]
    errors: Mapping[TopicPartition, str]
    """The name of the error; not of partitions whose broker is away."""
    away: Mapping[str, Collection[TopicPartition]]
    """By the name of a broker that is away: the partitions that it leads, or that have no leader without it."""
    answered_at: Mapping[int, float]
    """When each broker that leads one of them last answered."""


class LogEndsReader:
    """What is kept from pass to pass of one cluster; for one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.topics: dict[str, TopicLeaders] = {}
        """Those that were needed, as they were last described."""
        self._starts: dict[TopicPartition, tuple[int, float]] = {}  # and when they were asked for
        self._slow_at = 0.0
        self._brokers: frozenset[int] = frozenset()
        self._missing: Mapping[TopicPartition, str] = {}
        self._retries = 0  # of the same partitions
        self._answered_at: dict[int, float] = {}
        self._leaders: dict[TopicPartition, int | None] = {}  # the last ones that were known
        self._tails: dict[TopicPartition, Tail] = {}
        self._asked_denied_at = 0.0  # whether tails can be read now whose read was denied

    def describe(self, admin: Admin, needed: Collection[str], commits: Mapping[CommitKey, Commit]) -> None:
        """Ask for the leaders of all topics now and then; else of new ones, missing ones, and those created again.

        Raises KafkaError when no broker answers.
        """
        client = LogEndsClient(admin)
        self._brokers = admin.alive_brokers()
        if self._is_slow_due():
            self.topics = client.describe(sorted(needed))
            return
        recreated = {
            topic
            for (_, topic, _), commit in commits.items()
            if commit.topic_id is not None and topic in self.topics and self.topics[topic].topic_id != commit.topic_id
        }
        missing = [topic for topic in sorted(needed & self.topics.keys()) if self.topics[topic].error == UNKNOWN_TOPIC]
        again = recreated.union(missing[:_MOST_MISSING])
        self.topics.update(client.describe(sorted((needed - self.topics.keys()) | again)))

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic that was described."""
        described = self.topics.get(topic)
        return described.topic_id if described else None

    def read(self, admin: Admin, keys: Collection[TopicPartition]) -> Ends:
        """Ask for the ends of these partitions. Raises KafkaError when no broker answers."""
        client = LogEndsClient(admin)
        at = dict.fromkeys(keys, self._clock())
        latest = client.list_offsets(keys, self.topics)
        if stale := [key for key in latest.stale if not self._is_known_to_be_missing(key)]:
            self.topics.update(client.describe(sorted({topic for topic, _ in stale})))
            at.update(dict.fromkeys(stale, self._clock()))
            latest.replace(client.list_offsets(self._with_another_leader(stale, latest), self.topics))
        self._answered_at.update(dict.fromkeys(latest.answered, self._clock()))
        self._leaders = {key: self._leader(key) for key in keys}
        leaders = set(self._leaders.values())
        self._answered_at = {broker: at for broker, at in self._answered_at.items() if broker in leaders}
        answered = latest.offsets.keys()
        stable = client.list_offsets(answered, self.topics, LATEST, committed_only=True)
        self._read_starts(client, answered)
        missing = {key: latest.errors[key] for key in latest.stale if not self._is_known_to_be_missing(key)}
        if missing.keys() != self._missing.keys():
            self._retries = 0
        self._missing = missing
        ends = {}
        for key in keys:
            end, (start, start_at) = latest.offsets.get(key), self._starts.get(key, (None, None))
            last_stable = _at_most(stable.offsets.get(key), end)
            leader = self._leaders[key]
            answered_at = None if leader is None else self._answered_at.get(leader)
            ends[key] = LogEnds(end, start, last_stable, self.topic_id(key[0]), at[key], start_at, leader, answered_at)
        away = self._away(admin, latest)
        named = {key for led in away.values() for key in led}
        errors = {key: error for key, error in latest.errors.items() if key not in named}
        return Ends(ends, errors, away, dict(self._answered_at))

    def read_tails(
        self, admin: Admin, resting: Mapping[TopicPartition, Collection[int]], ends: Mapping[TopicPartition, LogEnds]
    ) -> dict[TopicPartition, LogEnds]:
        """Find out whether records lie between commits that rest and the ends of their logs; return the ends with that.

        Each is read from the highest commit on, which in most cases is proof for all others. What is known of an end
        is known until it moves; a read that was denied is tried again after some minutes. Raises KafkaError when no
        broker answers.
        """
        self._tails = {key: tail for key, tail in self._tails.items() if key in ends and tail.end == ends[key].end}
        if asks_denied := not 0 <= self._clock() - self._asked_denied_at < _SLOW_SECONDS:
            self._asked_denied_at = self._clock()
        from_offsets: dict[TopicPartition, int] = {}
        for key, offsets in resting.items():
            tail = self._tails.setdefault(key, Tail(ends[key].end or 0))
            unknown = [offset for offset in offsets if tail.has_record(offset) is None]
            if unknown and (asks_denied or not tail.is_denied) and len(from_offsets) < _MOST_READ:
                from_offsets[key] = max(unknown)
        client = LogEndsClient(admin)
        for _ in range(_READS):
            starts = {key: _read_from(self._tails[key], offset) for key, offset in from_offsets.items()}
            if not starts:
                break
            found = client.find_records(starts, self.topics)
            for key, offset in list(from_offsets.items()):
                if (one := found.get(key)) is not None:
                    self._tails[key] = _with_read(self._tails[key], starts[key], one)
                if one is None or one.reached == starts[key] or self._tails[key].has_record(offset) is not None:
                    del from_offsets[key]
        return {key: one._replace(tail=self._tails.get(key)) for key, one in ends.items()}

    def away_of(self, admin: Admin, topic: str) -> dict[str, list[TopicPartition]]:
        """Return the partitions of a topic that have no leader now, by the names of the brokers that would lead them.

        Raises KafkaError when no broker answers.
        """
        described, found = LogEndsClient(admin).describe([topic]).get(topic), defaultdict(list)
        for partition, brokers in described.offline.items() if described else ():
            for broker in brokers:
                found[admin.broker_name(broker)].append((topic, partition))
        return dict(found)

    def has_news(self, admin: Admin) -> bool:
        """Tell whether a broker has come or gone since the newest pass, or whom it could not ask has another leader.

        Raises KafkaError when no broker answers.
        """
        if admin.alive_brokers() != self._brokers:
            return True
        if not self._missing:
            return False
        described = LogEndsClient(admin).describe(sorted({topic for topic, _ in self._missing}))
        leaders = {key: leader_of(described, key) for key in self._missing}
        if any(
            isinstance(leader, int)
            and (leader != leader_of(self.topics, key) or self._missing[key] not in {AWAY, NO_LEADER})
            for key, leader in leaders.items()
        ):
            return True
        return self._may_retry(leaders.values())

    def _may_retry(self, leaders: Iterable[object]) -> bool:
        """Tell whether to ask a leader again that did not answer and counts as alive, such as a new one.

        Only a few times: it may be one that cannot be reached from here.
        """
        if self._retries == _RETRIES or self._brokers.isdisjoint(
            leader for leader in leaders if isinstance(leader, int)
        ):
            return False
        self._retries += 1
        return True

    def seed(
        self,
        admin: Admin,
        new: Mapping[TopicPartition, float],
        ends: Mapping[TopicPartition, LogEnds],
        now: float,
    ) -> dict[TopicPartition, list[tuple[int, float]]]:
        """Find earlier end offsets of partitions by record times.

        `new` has the time of the newest commit of each: whether a record waited already then is asked for exactly.

        An answer that is the start of the log proves nothing: older records were deleted, or there were none. "No
        record is so new" proves that all are older only where records have times: those of some producers have none. A
        record that is stamped ahead of now proves nothing, either.
        """
        client = LogEndsClient(admin)
        found: defaultdict[TopicPartition, list[tuple[int, float]]] = defaultdict(list)
        timed = client.list_offsets(new, self.topics, 0) if new else Offsets()
        new = {key: at for key, at in new.items() if timed.offsets.get(key, -1) >= 0}
        times = [dict.fromkeys(new, now - age) for age in _SEED_SECONDS]
        for at in (*times, new) if new else ():
            answers = client.list_offsets(new, self.topics, {key: int(one * 1000) for key, one in at.items()})
            for key, offset in answers.offsets.items():
                end, start = ends[key].end, ends[key].start
                if answers.timestamps[key] > now * 1000:  # stamped ahead: it says nothing of those behind it
                    continue
                written = end if offset < 0 else offset
                if written is not None and start is not None and written > start:
                    found[key].append((written, at[key]))
                if at is new and offset >= 0:  # the first record after the commit: from its time on it is there
                    found[key].append((offset + 1, answers.timestamps[key] / 1000))
        return {key: sorted(samples, key=itemgetter(1)) for key, samples in found.items()}

    def _is_slow_due(self) -> bool:
        return not 0 <= self._clock() - self._slow_at < _SLOW_SECONDS

    def _is_known_to_be_missing(self, key: TopicPartition) -> bool:
        """Tell whether the newest description of the topic is itself an error: then the leader was not even asked."""
        described = self.topics.get(key[0])
        return described is None or described.error is not None

    def _with_another_leader(self, keys: Iterable[TopicPartition], latest: Offsets) -> list[TopicPartition]:
        """Return the partitions that may be asked again: not those whose leader has just not answered."""
        return [key for key in keys if latest.errors[key] != AWAY or leader_of(self.topics, key) not in latest.away]

    def _read_starts(self, client: LogEndsClient, answered: Collection[TopicPartition]) -> None:
        """Ask for the starts of the logs that are due."""
        is_due = self._is_slow_due()
        if due := answered if is_due else set(answered) - self._starts.keys():
            asked_at, starts = self._clock(), client.list_offsets(due, self.topics, EARLIEST)
            self._starts = {key: known for key, known in self._starts.items() if key in answered}
            self._starts.update({key: (offset, asked_at) for key, offset in starts.offsets.items()})
        if is_due:
            self._slow_at = self._clock()

    def _leader(self, key: TopicPartition) -> int | None:
        """Return the leader of a partition; while it has none, the last one."""
        leader = leader_of(self.topics, key)
        return leader if isinstance(leader, int) else self._leaders.get(key)

    def _away(self, admin: Admin, latest: Offsets) -> dict[str, list[TopicPartition]]:
        found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for key, error in latest.errors.items():
            topic, leader = self.topics.get(key[0]), leader_of(self.topics, key)
            if error == AWAY and isinstance(leader, int):
                found[admin.broker_name(leader)].append(key)
            elif error == NO_LEADER and topic:
                for broker in topic.offline.get(key[1], ()):
                    found[admin.broker_name(broker)].append(key)
        return dict(found)


def _read_from(tail: Tail, offset: int) -> int:
    return tail.empty_to if tail.empty_from <= offset < tail.empty_to else offset


def _with_read(tail: Tail, start: int, found: FoundRecords) -> Tail:
    if found.error is not None:
        return tail._replace(is_denied=True)
    tail = tail._replace(is_denied=False)
    if found.record_at is not None:
        return tail._replace(record_at=max(tail.record_at, found.record_at))
    begin = tail.empty_from if start == tail.empty_to else start
    meets = begin <= tail.empty_from <= found.reached  # what was known to be empty begins there
    return tail._replace(empty_from=begin, empty_to=max(found.reached, tail.empty_to if meets else 0))


def _at_most(offset: int | None, end: int | None) -> int | None:
    """Return a last stable offset, which is asked for after the end, as it was at the end."""
    return offset if offset is None or end is None else min(offset, end)
