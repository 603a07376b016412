"""Histories in a real broker: it loads their records as its own, describes their groups, and its cleaner compacts them.

A history is played in simulated time (`tests.histories`), and shifted so that it ended a while ago. Its records keep
their order and their times. Topics exist as they do at its end. Each has a record for each two minutes in which records
came, and commits are mapped to these offsets: a partition has lag where and when it has lag in the history.

What the broker does not hold, or holds otherwise, is not written, see `is_writable`.
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from streaming_app.groups.partition import partition_of
from streaming_app.health.verdict import DOWN, STALLED
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.kafka.topic_reader import describe_topics
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.child_process import Startable
from tests.histories.bed import run
from tests.histories.clients import START
from tests.histories.history import HOUR, MINUTE, History
from tests.histories.outcome import Outcome
from tests.histories.simulation import Operation, Simulation
from tests.support.encode import encode
from tests.support.internal_topic import PARTITIONS, TimedRecord, group_record, write_records
from tests.support.offsets_log import RawRecord, read_log
from tests.support.waiting import wait_until

ENDED_SECONDS = 20 * MINUTE
"""How long ago histories end: longer than the patience of every rule."""
_COMMIT, _METADATA, _TARGET, _TOPOLOGY = 1, 17, 21, 23
_EVERY = 2 * MINUTE  # between two records of a partition of a topic, and two commits of it
_LONGEST, _MOST_RECORDS = 12 * HOUR, 5_000
_REST_SECONDS = 150.0
_SEGMENT_BYTES = 1 << 20  # the least that 4.4 allows
# What happens to topics while they have records; what persons, members and other coordinators say, and other records.
_CHANGED = (
    "recreate_topics",
    "delete_records",
    "expire_all",
    "truncate",
    "lose_leaders",
    "end_transaction",
    "leave_over",
)
_SAID = ("end_incidents", "report_copies", "fail_over", "clean_up_description", "delete", "to_classic")
_HOLDING = {
    "group.streams.session.timeout.ms": "3600000",  # of members that send no heartbeat any more
    "offsets.retention.check.interval.ms": "86400000",  # groups without commits stay
    "offsets.topic.segment.bytes": str(_SEGMENT_BYTES),
    "log.retention.ms": "-1",
    "log.index.size.max.bytes": "4096",
}
_KEEPING = {"log.cleaner.enable": "false"}
_CLEANING = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.cleaner.delete.retention.ms": "0",
}
_FILLER = "filler"


def is_writable(history: History) -> bool:
    """Return whether a broker can hold a history, and a job judges it without a configuration of its own."""
    if history.settings or history.later_settings or history.running_hours or history.seconds > _LONGEST:
        return False
    return not any(one.action in _CHANGED + _SAID or "keeps_seconds" in one.arguments for one in history.operations)


def at_rest(history: History) -> History:
    """Return the history with records for each of its groups, which end shortly before it does.

    After its end nothing more happens, which is how the broker holds it. The records begin at one time, since groups
    may read the same topic.
    """
    groups = {
        one.arguments.get("group", "app"): one.at for one in reversed(history.operations) if one.action == "start"
    }
    read = {one.arguments.get("group", "app") for one in history.operations if one.action == "read"}
    rest, last = history.seconds - _REST_SECONDS, max(groups.values(), default=0.0)
    more = [
        *(Operation(last + MINUTE, "read", {"group": one}) for one in groups if one not in read),
        *(Operation(rest, "change", {"group": one, "rate": 0.0}) for one in groups),
    ]
    kept = [one for one in history.operations if one.at < rest]
    return replace(history, operations=tuple(sorted([*kept, *more], key=attrgetter("at"))))


@dataclass
class WrittenHistory:
    """A history whose groups and topics begin with `name`; what happens at its end happened at `ended_at`."""

    name: str
    history: History
    ended_at: float

    @cached_property
    def outcome(self) -> Outcome:
        """What a job that watched all of it says."""
        return run(self.history)

    @property
    def bad(self) -> frozenset[str]:
        """The groups that exist, are Down or Stalled when it ends, and of which somebody was told."""
        open_groups = {one.group_id for one in self.outcome.alerts if one.opened_at and not one.ended_at}
        bad = {one for one, verdict in self._verdicts.items() if verdict in {DOWN, STALLED}} & open_groups
        return self._existing(one for one in bad if one)

    @property
    def well(self) -> frozenset[str]:
        """The groups that exist, and have no alert when it ends."""
        open_groups = {one.group_id for one in self.outcome.alerts if not one.ended_at}
        return self._existing(one for one in self._verdicts if one not in open_groups)

    def _existing(self, group_ids: Iterable[str]) -> frozenset[str]:
        return frozenset(self.group(one) for one in group_ids if self.simulation._groups[one].exists)

    @property
    def _verdicts(self) -> dict[str, str]:
        return {one.group_id: one.verdict.verdict for one in self.outcome.changes}

    def group(self, group_id: str) -> str:
        return f"{self.name}.{group_id}"

    topic = group

    @cached_property
    def simulation(self) -> Simulation:
        played = Simulation(dict(self.history.topics))
        played.run(self.history.operations, self.history.seconds)
        return played

    @property
    def topics(self) -> dict[str, int]:
        """The topics that exist at its end, with their numbers of partitions."""
        return {self.topic(name): number for name, number in self.simulation.topics.items()}

    @cached_property
    def _steps(self) -> dict[tuple[str, int], list[tuple[float, int]]]:
        """By topic and partition: the times at which records had come, and the end of the log then."""
        steps: defaultdict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        for seen in self.simulation.lag:
            marker = int(self.simulation._traffic[seen.group_id].is_transactional)
            for key, one in seen.ends.items():
                known, end = steps[key], (one.end or marker) - marker
                if end > (known[-1][1] if known else 0) and not (known and seen.at - known[-1][0] < _EVERY):
                    known.append((seen.at, end))
        return steps

    def inputs(self) -> Iterator[TimedRecord]:
        """Yield the records of the topics that are read."""
        for (topic, partition), steps in self._steps.items():
            if partition < self.simulation.topics.get(topic, 0):
                yield from (TimedRecord(self._ms(at), self.topic(topic), partition, None, b"x") for at, _ in steps)

    def records(self, topic_ids: Mapping[str, str]) -> Iterator[TimedRecord]:
        """Yield the records of its groups."""
        for appended in self.simulation.log:
            record = appended.record
            key = {**record.key, "group_id": self.group(appended.group_id)}
            pair = encode(record.record_type, key, self._value(record.record_type, record.value))
            at = (record.timestamp or START) - START
            yield group_record(self._ms(at.total_seconds()), *pair)
        yield from self._commits(topic_ids)

    def _commits(self, topic_ids: Mapping[str, str]) -> Iterator[TimedRecord]:
        """Yield the commits: of each partition one for two minutes, and the last one."""
        every: defaultdict[tuple[str, str, int], dict[int, tuple[float, int]]] = defaultdict(dict)
        for seen in self.simulation.lag:
            for (topic, partition), commit in seen.commits.items():
                if (
                    commit.offset is not None
                    and commit.committed_at is not None
                    and partition < self.simulation.topics.get(topic, 0)
                ):
                    at = commit.committed_at - START.timestamp()
                    every[seen.group_id, topic, partition][int(at / _EVERY)] = at, commit.offset
        for (group_id, topic, partition), commits in every.items():
            ends = [end for _, end in self._steps[topic, partition]]
            for at, offset in commits.values():
                key = {"group": self.group(group_id), "topic": self.topic(topic), "partition": partition}
                value = {
                    "offset": bisect_right(ends, offset),
                    "leader_epoch": 0,
                    "metadata": "",
                    "commit_timestamp": self._ms(at),
                    "topic_id": topic_ids[self.topic(topic)],
                }
                yield group_record(self._ms(at), *encode(_COMMIT, key, value))

    def _value(self, record_type: int, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        if record_type == _METADATA:  # without configs its readiness is not known, as of 4.1
            configs = value["last_assignment_configs"] or [{"key": "num.standby.replicas", "value": "0"}]
            return {**value, "last_assignment_configs": configs}
        if record_type == _TARGET:
            fields = ("subtopology_id", "partitions")
            return {role: [{name: one[name] for name in fields} for one in tasks] for role, tasks in value.items()}
        if record_type != _TOPOLOGY:
            return dict(value)
        parts = [
            {
                **part,
                "source_topics": [self.topic(one) for one in part["source_topics"]],
                "state_changelog_topics": [
                    {**one, "name": self.topic(one["name"])} for one in part["state_changelog_topics"]
                ],
            }
            for part in value["subtopologies"]
        ]
        return {**value, "subtopologies": parts}

    def _ms(self, seconds: float) -> int:
        return round(1000 * (self.ended_at - self.history.seconds + seconds))


def writable(histories: Iterable[History], ended_at: float) -> list[WrittenHistory]:
    """Return the histories that can be written and end as they are labelled: in outages, or all well."""
    found = []
    for number, history in enumerate(histories):
        if not is_writable(history):
            continue
        written = WrittenHistory(f"h{number}", at_rest(history), ended_at)
        is_small = len(written.simulation.log) <= _MOST_RECORDS
        if is_small and (written.bad if history.rules else not any(one.opened_at for one in written.outcome.alerts)):
            found.append(written)
    return found


class HistoriesBroker(Startable):
    """A broker that holds the groups of histories, with their whole log, or as its own cleaner leaves it."""

    def __init__(self, directory: Path, histories: Sequence[WrittenHistory]) -> None:
        """Prepare; nothing runs before `start()`."""
        self._directory, self._histories = directory, histories
        self.broker = LocalBroker(directory, properties=_HOLDING | _KEEPING)

    @property
    def server(self) -> str:
        return self.broker.bootstrap_server

    def start(self) -> None:
        """Write the histories, and let the broker load them."""
        try:
            self.broker.start()
            self._write()
            self._restart(_KEEPING)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.broker.stop()

    def _restart(self, cleaning: Mapping[str, str]) -> None:
        self.broker.stop()
        self.broker = LocalBroker(self._directory, properties=_HOLDING | cleaning, port=self.broker.port)
        self.broker.start()
        with StreamsGroupClient([self.server]) as client:
            assert wait_until(lambda: self._holds(client), interval=1.0), self.broker.log_file

    def _holds(self, client: StreamsGroupClient) -> bool:
        """Return whether the broker has loaded the groups that are well; a machine that does much else takes longer."""
        with suppress(KafkaError, GroupError):
            described = client.describe(sorted(frozenset().union(*(one.well for one in self._histories))))
            return all(one["error_code"] == 0 for one in described)
        return False

    def _write(self) -> None:
        topics = {name: number for one in self._histories for name, number in one.topics.items()}
        with StreamsGroupClient([self.server]) as client:
            new = {name: {"num_partitions": number, "replication_factor": 1} for name, number in topics.items()}
            client.create_topics(new, wait_for_metadata=True)
            client.describe([_FILLER])  # which creates the offsets topic
            ids = {name: one.topic_id or "" for name, one in describe_topics(client, sorted(topics)).items()}
        write_records(self.server, (record for one in self._histories for record in one.inputs()))
        records = [record for one in self._histories for record in one.records(ids)]
        write_records(self.server, sorted(records, key=attrgetter("at")))

    def compact(self) -> None:
        """Let the broker's own cleaner remove what it may, and load what is left.

        The newest segment of a partition is never cleaned: fillers roll it.
        """
        self._restart(_CLEANING)
        write_records(self.server, _fillers())
        assert wait_until(self._is_compacted, interval=1.0), self.broker.log_file
        self._restart(_KEEPING)

    def log(self) -> list[RawRecord]:
        """Return all records of the histories' groups."""
        return [one for one in read_log(self.server) if not one.group_id.startswith(_FILLER)]

    def _is_compacted(self) -> bool:
        """Return whether each key has one record at most."""
        keys = [one.key for one in self.log()]
        return len(keys) == len(set(keys))


def _fillers() -> Iterator[TimedRecord]:
    """Yield commits of a group in each partition, more than a segment holds."""
    groups = {partition_of(name, PARTITIONS): name for name in (f"{_FILLER}-{number}" for number in range(100))}
    value = {"offset": 0, "metadata": "x" * 4_000, "commit_timestamp": round(time.time() * 1000)}
    for group_id in groups.values():
        pair = encode(_COMMIT, {"group": group_id, "topic": _FILLER, "partition": 0}, value)
        yield from [group_record(None, *pair)] * (2 * _SEGMENT_BYTES // 4_000)
