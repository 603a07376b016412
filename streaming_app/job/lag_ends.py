"""The ends of the logs, which a lag pass asks for; keeps leaders and log starts from pass to pass.

Theory of operation
-------------------
Every few minutes the pass asks for the leaders of all topics. In between, an error or a missing answer means that the
leaders may have changed: then the pass describes the topics again, and asks the new leaders. If a partition has no
leader yet, or its leader does not answer, the next pass tries again; `lag_service` starts it soon.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import NamedTuple

from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.log_records import FoundRecords, find_records
from streaming_app.kafka.topic_reader import (
    AWAY,
    EARLIEST,
    NO_LEADER,
    UNKNOWN_TOPIC,
    Answers,
    Offset,
    TopicReader,
    describe_topics,
    is_denied,
    leader_of,
)
from streaming_app.lag.ends import NO_ENDS, LogEnds, Tail, TopicPartition
from streaming_app.lag.model import Commit, CommitKey

_SLOW_SECONDS = 300.0  # between two requests for all leaders, for starts of logs, and for reads that were denied
_MOST_MISSING = 1_000  # missing topics that are asked for at each pass, since somebody may create them
_MOST_READ = 200  # partitions in a pass
SEED_SECONDS = (90_000, 21_600, 3_600, 900, 300, 60)  # ages, oldest first: more than a day, see `alert.is_old`


class Ends(NamedTuple):
    """The ends that a pass got, and what the brokers did not answer."""

    ends: Mapping[TopicPartition, LogEnds]
    errors: Mapping[str, Collection[str]]
    """Topics by the name of the error; without partitions whose broker is away."""
    away: Mapping[str, Collection[str]]
    """By the name of a broker that is away: the partitions that it leads, or that have no leader without it.

    Includes partitions of the offsets topic: groups in such a partition have no coordinator, and cannot be read.
    """
    answered_at: Mapping[int, float]
    """By broker that leads one of the partitions: when it last answered."""
    may_come: bool
    """Whether some unknown ends may soon be known, after an election or once a leader answers."""


class LogEndsReader:
    """The state that is kept from pass to pass of one cluster; for one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.reader = TopicReader()  # of the needed topics
        self._starts: dict[TopicPartition, tuple[int, float]] = {}  # with the time of the request
        self._slow_at = 0.0
        self._is_slow = True  # this pass also makes the requests that are made only every few minutes
        self._answered_at: dict[int, float] = {}
        self._leaders: dict[TopicPartition, int | None] = {}  # the last known leaders
        self._tails: dict[TopicPartition, Tail] = {}
        self._ends: Mapping[TopicPartition, LogEnds] = {}

    def describe(self, admin: Admin, needed: Collection[str], commits: Mapping[CommitKey, Commit]) -> None:
        """Every few minutes describe all topics; else new, missing and recreated ones. Raises as `read`."""
        known = self.reader.topics
        self._is_slow = not 0 <= self._clock() - self._slow_at < _SLOW_SECONDS
        if self._is_slow:
            self.reader.topics = {name: one for name, one in known.items() if name in needed}
            self.reader.describe(admin, needed)
            return
        recreated = {
            topic
            for (_, topic, _), commit in commits.items()
            if commit.topic_id is not None and topic in self.reader.topics and known[topic].topic_id != commit.topic_id
        }
        missing = [topic for topic in sorted(needed & known.keys()) if known[topic].error == UNKNOWN_TOPIC]
        again = recreated.union(missing[:_MOST_MISSING], needed - known.keys())
        self.reader.describe(admin, again)

    def shown(self, admin: Admin, topics: Collection[str]) -> set[str]:
        """Return which of these topics the principal may describe: before, and still. Raises KafkaError, as above."""
        before = {name for name in topics if (one := self.reader.topics.get(name)) and one.error is None}
        self.reader.describe(admin, topics)
        return {name for name in before if self.reader.topics[name].error is None}

    def read(self, admin: Admin, keys: Collection[TopicPartition]) -> Ends:
        """Ask for the ends of these partitions. Raises KafkaError when no broker answers."""
        at = dict.fromkeys(keys, self._clock())
        latest = self.reader.offsets(admin, keys)
        if again := self.reader.find_leaders(admin, latest):
            at.update(dict.fromkeys(again, self._clock()))
            latest |= self.reader.offsets(admin, again)
        self._note_leaders(latest)
        answered = {key for key, found in latest.items() if isinstance(found, Offset)}
        whole = set() if self._is_slow else {key for key in answered if self._is_whole(key, latest[key])}
        stable = {**latest, **self.reader.offsets(admin, answered - whole, committed_only=True)}
        self._read_starts(admin, answered)
        ends = {}
        for key in keys:
            end, (start, start_at) = _offset(latest.get(key)), self._starts.get(key, (None, None))
            topic, leader = self.reader.topics.get(key[0]), self._leaders[key]
            last_stable, topic_id = _offset(stable.get(key)), topic.topic_id if topic else None
            if last_stable is not None and end is not None:
                last_stable = min(last_stable, end)  # the two requests are made one after the other
            answered_at = None if leader is None else self._answered_at.get(leader)
            ends[key] = LogEnds(end, start, last_stable, topic_id, at[key], start_at, leader, answered_at)
        self._ends = ends
        return Ends(
            ends, *self._not_answered(admin, latest), dict(self._answered_at), bool(self.reader.unanswered(latest))
        )

    def _is_whole(self, key: TopicPartition, latest: Offset | str) -> bool:
        """Return whether no transaction is open: at the same end there was none before, and each one has a record."""
        before, topic = self._ends.get(key, NO_ENDS), self.reader.topics.get(key[0])
        then = (before.stable, before.end, before.leader, before.topic_id)
        return then == (_offset(latest), _offset(latest), self._leaders[key], topic and topic.topic_id)

    def read_tails(
        self, admin: Admin, resting: Mapping[TopicPartition, Collection[int]], ends: Mapping[TopicPartition, LogEnds]
    ) -> dict[TopicPartition, LogEnds]:
        """Find out whether records lie between commits at rest and last stable offsets; return the ends with that.

        Each log is read from the highest commit on, which in most cases also proves it for the other commits. If an
        answer does not reach that end, the next pass continues there. The result holds until the last stable offset
        moves. A denied read is tried again after some minutes. Raises KafkaError when no broker answers.
        """
        self._tails = {key: tail for key, tail in self._tails.items() if key in ends and tail.end == ends[key].stable}
        starts: dict[TopicPartition, int] = {}
        for key, offsets in resting.items():
            tail = self._tails.setdefault(key, Tail(ends[key].stable or 0))
            unknown = [offset for offset in offsets if tail.has_record(offset) is None]
            if unknown and (self._is_slow or not tail.is_denied) and len(starts) < _MOST_READ:
                highest = max(unknown)
                starts[key] = tail.empty_to if tail.empty_from <= highest < tail.empty_to else highest
        for key, found in find_records(admin, starts, self.reader.topics).items():
            if not isinstance(found, str):
                self._tails[key] = _with_read(self._tails[key], starts[key], found)
            elif is_denied(found):
                self._tails[key] = self._tails[key]._replace(is_denied=True)
        return {**ends, **{key: ends[key]._replace(tail=tail) for key, tail in self._tails.items()}}

    def seed(
        self,
        admin: Admin,
        new: Mapping[TopicPartition, Sequence[float]],
        ends: Mapping[TopicPartition, LogEnds],
        now: float,
    ) -> dict[TopicPartition, list[tuple[int, float]]]:
        """Find earlier end offsets of partitions by record timestamps.

        `new` has times of commits of each partition: for these the result is exact, so that it shows whether a record
        waited already then.

        An answer with the start of the log proves nothing: older records were deleted, or there were none. "No record
        is as new" proves that all are older only if records have timestamps; some producers write none. A record with
        a timestamp in the future also proves nothing.
        """
        found: defaultdict[TopicPartition, list[tuple[int, float]]] = defaultdict(list)
        timed = self.reader.offsets(admin, new, 0) if new else {}
        new = {key: new[key] for key, one in timed.items() if isinstance(one, Offset) and one.offset >= 0}
        most = max(map(len, new.values()), default=0)
        searches = [(dict.fromkeys(new, now - age), False) for age in SEED_SECONDS] if new else []
        searches += [({key: times[n] for key, times in new.items() if n < len(times)}, True) for n in range(most)]
        for at, is_exact in searches:
            answers = self.reader.offsets(admin, at, {key: int(one * 1000) for key, one in at.items()})
            for key, answer in answers.items():
                end, start = ends[key].end, ends[key].start
                if isinstance(answer, str) or answer.timestamp > now * 1000:  # a timestamp in the future proves nothing
                    continue
                written = end if answer.offset < 0 else answer.offset
                if written is not None and start is not None and written > start:
                    found[key].append((written, at[key]))
                if is_exact and answer.offset >= 0:  # the first record after the commit existed from its timestamp on
                    found[key] += [(answer.offset + more, answer.timestamp / 1000) for more in (0, 1)]
        return {key: sorted(samples, key=itemgetter(1)) for key, samples in found.items()}

    def _read_starts(self, admin: Admin, answered: AbstractSet[TopicPartition]) -> None:
        now = self._clock()
        if due := answered if self._is_slow else answered - self._starts.keys():
            starts = self.reader.offsets(admin, due, EARLIEST)
            self._starts = {key: known for key, known in self._starts.items() if key in answered}
            self._starts |= {key: (one.offset, now) for key, one in starts.items() if isinstance(one, Offset)}
        if self._is_slow:
            self._slow_at = now

    def _note_leaders(self, latest: Answers[Offset]) -> None:
        """Note the leader of each partition (without one, the last leader), and which leaders have answered."""
        found = {key: leader_of(self.reader.topics, key) for key in latest}
        self._leaders = {
            key: leader if isinstance(leader, int) else self._leaders.get(key) for key, leader in found.items()
        }
        answered = {leader for key, leader in found.items() if latest[key] != AWAY and isinstance(leader, int)}
        leaders, now = set(self._leaders.values()), self._clock()
        self._answered_at = {one: at for one, at in self._answered_at.items() if one in leaders}
        self._answered_at |= dict.fromkeys(answered, now)

    def _not_answered(self, admin: Admin, latest: Answers[Offset]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Return topics by error, and partitions by the name of the broker that is away."""
        errors, away = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for partition, replicas in describe_topics(admin, [OFFSETS_TOPIC])[OFFSETS_TOPIC].offline.items():
            for broker in replicas:
                away[admin.broker_name(broker)].add(f"{OFFSETS_TOPIC}-{partition}")
        for key, error in latest.items():
            if isinstance(error, Offset):
                continue
            topic, leader = self.reader.topics.get(key[0]), leader_of(self.reader.topics, key)
            offline = topic.offline.get(key[1], ()) if topic and error == NO_LEADER else ()
            brokers = [leader] if error == AWAY and isinstance(leader, int) else offline
            for broker in brokers:
                away[admin.broker_name(broker)].add(f"{key[0]}-{key[1]}")
            if not brokers:
                errors[error].add(key[0])
        return errors, away


def _offset(found: Offset | str | None) -> int | None:
    return found.offset if isinstance(found, Offset) else None


def _with_read(tail: Tail, start: int, found: FoundRecords) -> Tail:
    tail = tail._replace(is_denied=False)
    if found.record_at is not None:
        return tail._replace(record_at=max(tail.record_at, found.record_at))
    begin = tail.empty_from if start == tail.empty_to else start
    meets = begin <= tail.empty_from <= found.reached  # the known empty range begins within the new one
    return tail._replace(empty_from=begin, empty_to=max(found.reached, tail.empty_to if meets else 0))
