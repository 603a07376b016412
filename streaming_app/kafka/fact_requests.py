"""Requests for facts that explain a group's lag and that only brokers know: configs, coordinators, replicas, ...

Each function asks for facts of one kind. The result omits what the job's principal may not read. All functions raise
kafka-python's KafkaError, or GroupError, when the brokers do not answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from operator import itemgetter
from typing import Any, NamedTuple

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeProducersRequest

from streaming_app import kafka as kinds
from streaming_app.chunks import chunks
from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.groups.state_rules import EMPTY
from streaming_app.groups.topology import is_internal_topic
from streaming_app.health.verdict import HAS_NO_LEADER, NO_TOPIC
from streaming_app.kafka import ASKED_FOR, releases
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.topic_reader import (
    UNKNOWN_TOPIC,
    DescribedTopic,
    by_topic,
    describe_topics,
    parts_of_topics,
    send_to_leaders,
)
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.open_transactions import FirstProducer, OpenTransaction
from streaming_app.text import format_duration, utc_iso

_PER_REQUEST = 500  # groups or topics
ACCEPTABLE_LAG = "streams.acceptable.recovery.lag"
LONGEST_TRANSACTION = "transaction.max.timeout.ms"
_STREAMS = "streams."  # the prefix of the config names of streams groups
_BROKER_CONFIGS = (
    releases.REBALANCE_PROTOCOLS,
    releases.DESCRIPTION_PLUGIN,
    "group.streams.assignors",
    "group.streams.max.assignment.interval.ms",
    "group.streams.max.heartbeat.interval.ms",
    "group.streams.max.session.timeout.ms",
    "group.streams.max.size",
    "group.streams.max.standby.replicas",
    "group.streams.max.warmup.replicas",
    "group.streams.min.assignment.interval.ms",
    "group.streams.min.heartbeat.interval.ms",
    "group.streams.min.session.timeout.ms",
    "group.streams.min.task.offset.interval.ms",
    releases.OFFSETS_SWEEP,
    releases.OFFSETS_RETENTION,
    LONGEST_TRANSACTION,
)
_RETENTION_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes")
_MIN_ISR = "min.insync.replicas"
_SOURCES = {"DYNAMIC_GROUP_CONFIG": "group", "DYNAMIC_TOPIC_CONFIG": "topic", "DEFAULT_CONFIG": "default"}
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STREAMS_ID = re.compile(rf"(?s:(.+))-{_UUID}-\d+")
"""Transactional ids of Kafka Streams: `<application id>-<process id>-<thread>` (`StreamsProducer`, exactly_once_v2)."""

Row = Mapping[str, Any]


class BrokerFact(NamedTuple):
    """A row of `broker_facts`, without the cluster and the time."""

    kind: str
    subject: str
    name: str
    value: str
    source: str | None = None
    group_id: str | None = None
    value_before: str | None = None
    changed_at: datetime | None = None
    """When the job first saw the current value, if there was an earlier one."""


def topic_facts(admin: Admin, topics: Iterable[str], wanted: Iterable[Row] = ()) -> list[BrokerFact]:
    """Return the retention of topics, partitions without leader or replicas, and the state of internal topics.

    `wanted` has the internal topics of topologies as the tables have them, each with the `group_id`. 0 partitions, and
    the replication factors 0 and -1, are the broker's default.

    Facts of an internal topic are its number of partitions, and its differences from the topology, on which brokers do
    not act (KIP-1071, "Topic configuration mismatches"): `ACTUAL, asked for WANTED`. Every group may name any topic. So
    only the group with the longest id that is a prefix of the name has them. Needs Describe and DescribeConfigs.
    """
    names, by_length = list(topics), sorted(wanted, key=lambda one: len(one["group_id"]))
    asked = {one["name"]: one for one in by_length if one["name"].startswith(f"{one['group_id']}-")}
    own = {name: sorted(_topic_configs(one)) for name, one in asked.items()}
    keys = {name: (*_RETENTION_CONFIGS, _MIN_ISR, *own.get(name, ())) for name in names}
    by_topic = _configs(admin, ConfigResourceType.TOPIC, keys)
    facts = [
        BrokerFact(kinds.RETENTION, topic, name, *values[name])
        for topic, values in by_topic.items()
        for name in _RETENTION_CONFIGS
        if name in values
    ]
    for name, topic in describe_topics(admin, names, in_detail=True).items():
        if topic.error:
            continue  # it does not exist, or may not be described
        values = by_topic.get(name, {})
        facts += _replicas(name, topic, values.get(_MIN_ISR))
        if one := asked.get(name):
            found = _compared(one, topic, values)
            facts += (BrokerFact(kinds.INTERNAL_TOPIC, name, *fact, group_id=one["group_id"]) for fact in found)
    return facts


def changelogs_of(admin: Admin, group_ids: Collection[str]) -> list[BrokerFact]:
    """Return the changelogs of groups with the classic protocol, by their names, with their number of partitions.

    Their log does not name them. A topic is of the group with the longest id. Needs Describe on the topics.
    """
    facts, topics = list[BrokerFact](), describe_topics(admin, None) if group_ids else {}
    for name, topic in topics.items():
        if name.endswith("-changelog") and not topic.error:
            ends = (end for end in range(len(name) - 1, 0, -1) if name[end] == "-")
            if owner := next((name[:end] for end in ends if name[:end] in group_ids), None):
                facts.append(BrokerFact(kinds.CHANGELOG, name, "partitions", str(len(topic.leaders)), group_id=owner))
    return facts


def _topic_configs(asked: Row) -> dict[str, str]:
    return dict(asked["topic_configs"] or ())


def _compared(asked: Row, topic: DescribedTopic, configs: _Configs) -> Iterator[tuple[str, str]]:
    count, replicas = len(topic.leaders), len(topic.replicas[min(topic.replicas)])
    partitions, factor = asked["partitions"] or 0, asked["replication_factor"] or 0
    yield "partitions", f"{count}{ASKED_FOR}{partitions}" if partitions not in {0, count} else str(count)
    if factor > 0 and factor != replicas:
        yield "replication_factor", f"{replicas}{ASKED_FOR}{factor}"
    for name, value in sorted(_topic_configs(asked).items()):
        if name in configs and configs[name].value != value:
            yield name, f"{configs[name].value}{ASKED_FOR}{value}"


def _replicas(name: str, topic: DescribedTopic, minimum: _Config | None) -> Iterator[BrokerFact]:
    for partition, leader in topic.leaders.items():
        subject, in_sync = f"{name}-{partition}", topic.in_sync[partition]
        if leader < 0:
            yield BrokerFact(kinds.ISR, subject, "leader", "none")
        if minimum is not None and len(in_sync) < int(minimum.value):
            value = f"{_ids(in_sync) or 'none'} of {_ids(topic.replicas[partition])}, {_MIN_ISR} {minimum.value}"
            yield BrokerFact(kinds.ISR, subject, "isr", value)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))


def sink_facts(admin: Admin, sinks: Collection[tuple[str, str]]) -> list[BrokerFact]:
    """Return which of these sink topics, each with its group, do not exist or have partitions without a leader.

    A topic that may not be described gives no fact. Needs Describe on the topics.
    """
    found = describe_topics(admin, sorted({topic for topic, _ in sinks})) if sinks else {}
    states = {topic: NO_TOPIC for topic, one in found.items() if one.error == UNKNOWN_TOPIC}
    states |= {
        topic: HAS_NO_LEADER for topic, one in found.items() if any(leader < 0 for leader in one.leaders.values())
    }
    those = ((topic, group_id) for topic, group_id in sorted(sinks) if topic in states)
    return [BrokerFact(kinds.SINK, topic, group_id, states[topic], group_id=group_id) for topic, group_id in those]


def group_configs(admin: Admin, group_ids: Iterable[str]) -> list[BrokerFact]:
    """Return the effective configs of streams groups. Needs DescribeConfigs on the groups, and Kafka 4.1.

    Brokers of 4.4.0 describe internal configs only if the group or the broker sets them: warm-ups, the acceptable
    recovery lag and the interval of task offsets.
    """
    return [
        BrokerFact(kinds.GROUP_CONFIG, group_id, name, config.value, config.source, group_id)
        for group_id, configs in _configs(admin, ConfigResourceType.GROUP, dict.fromkeys(group_ids)).items()
        for name, config in configs.items()
        if name.startswith(_STREAMS)
    ]


def configs_of_brokers(admin: Admin, brokers: Iterable[int]) -> list[BrokerFact]:
    """Return the configs of these brokers that limit streams groups, or define when brokers remove groups and offsets.

    A config that is not set gives no fact. Needs DescribeConfigs on the cluster. Raises if no broker answers.
    """
    facts, errors, names = list[BrokerFact](), list[KafkaError](), list(map(str, brokers))
    for broker in names:
        try:
            found = _configs(admin, ConfigResourceType.BROKER, {broker: _BROKER_CONFIGS}).get(broker, {})
        except KafkaError as error:  # noqa: PERF203 - few brokers
            errors.append(error)
        else:
            facts += (BrokerFact(kinds.BROKER_CONFIG, broker, name, *config) for name, config in found.items())
    if errors and len(errors) == len(names):
        raise errors[0]
    return facts


def has_description_plugin(connection: SharedConnection[Admin]) -> bool | None:
    """Return whether a broker's config names a plugin for descriptions; None if not all of them can be read."""
    try:
        with connection.use() as admin:
            brokers = admin.broker_ids()
            facts = configs_of_brokers(admin, brokers)
    except (KafkaError, OSError, ValueError, SecurityError):
        return None
    if any(fact.name == releases.DESCRIPTION_PLUGIN and fact.value for fact in facts):
        return True
    return False if {fact.subject for fact in facts} == set(map(str, brokers)) else None


def coordinators(admin: Admin) -> list[BrokerFact]:
    """Return the coordinator of the groups in each partition of the offsets topic, `HOST:PORT (ID)`, or `none`.

    It is the leader of the partition, for groups of all types (`GroupCoordinatorService.partitionFor`). Needs Describe
    on the topic.
    """
    leaders = describe_topics(admin, [OFFSETS_TOPIC])[OFFSETS_TOPIC].leaders
    names = {leader: f"{admin.address_of(leader)} ({leader})" if leader >= 0 else "none" for leader in leaders.values()}
    return [
        BrokerFact(kinds.COORDINATOR, f"{OFFSETS_TOPIC}-{partition}", kinds.COORDINATOR, names[leader])
        for partition, leader in leaders.items()
    ]


def group_states(admin: Admin) -> list[BrokerFact]:
    """Return the states of classic groups with members: the log lacks their rebalances. Needs Describe on groups."""
    found: list[BrokerFact] = []
    for broker in admin.broker_ids():
        with suppress(KafkaError):
            found += (
                BrokerFact(kinds.GROUP_STATE, one["group_id"], "state", one["group_state"], group_id=one["group_id"])
                for one in admin.list_groups([broker], types_filter=["classic"])
                if one["group_state"] != EMPTY
            )
    return found


def features(admin: Admin) -> list[BrokerFact]:
    """Return the release of each broker that answers, and the feature levels of its cluster. Needs no ACL."""
    return [
        BrokerFact(kinds.FEATURE, str(one.broker_id), name, str(value))
        for one in releases.fetch(admin)
        for name, value in {releases.RELEASE: one.release, **one.shown}.items()
    ]


OpenTransactions = Sequence[tuple[OpenTransaction, TopicPartition]]
"""Open transactions, each with every partition that it writes to."""


def open_transactions(admin: Admin, topics: Collection[str]) -> OpenTransactions:
    """Return the open transactions on these topics, and all of Streams applications. Needs Describe on their ids."""
    found: list[tuple[OpenTransaction, TopicPartition]] = []
    ids = set[str]()
    for broker in admin.broker_ids():
        with suppress(KafkaError):  # a broker is away: its transactions get new coordinators
            listed = admin.list_transactions([broker], state_filters=_OPEN)
            ids.update(one.transactional_id for some in listed.values() for one in some)
    for name in sorted(ids):
        try:
            described = admin.describe_transactions([name]) if topics or _STREAMS_ID.fullmatch(name) else {}
        except KafkaError:  # it has ended meanwhile, or may not be described
            continue
        for one in described.values():
            began, timeout = one.transaction_start_time_ms / 1000, one.transaction_timeout_ms / 1000
            transaction = OpenTransaction(name, began, timeout, one.producer_id)
            found += ((transaction, (topic, partition)) for topic, partition in sorted(one.topic_partitions))
    return found


def by_partition(found: OpenTransactions) -> dict[TopicPartition, OpenTransaction]:
    """Return the oldest transaction of each partition."""
    return {key: one for one, key in sorted(found, key=lambda one: one[0].began, reverse=True)}


def first_producers(
    admin: Admin, held: Sequence[TopicPartition], found: OpenTransactions
) -> dict[TopicPartition, FirstProducer]:
    """Return the producer of the open transaction with the first offset in each of these partitions; ask the leaders.

    Its transaction is the one of `found`. Needs Read on the topics: those that may not be read are missing, and so are
    partitions whose leader does not answer.
    """
    if not held:
        return {}

    def request(keys: Sequence[TopicPartition]) -> Any:  # noqa: ANN401 - kafka-python is untyped
        asked = DescribeProducersRequest.TopicRequest
        topics = [asked(name=name, partition_indexes=those) for name, those in by_topic(keys, itemgetter(1))]
        return DescribeProducersRequest(topics=topics)

    def producer(key: TopicPartition, one: Any) -> FirstProducer | None:  # noqa: ANN401 - the same
        starts = [(each.current_txn_start_offset, each.producer_id) for each in one.active_producers]
        if not (is_open := [each for each in starts if each[0] >= 0]):
            return None
        starts_at, producer_id = min(is_open)
        return FirstProducer(starts_at, producer_id, described.get((producer_id, key)))

    described = {(one.producer_id, key): one for one, key in found}
    topics = describe_topics(admin, {topic for topic, _ in held})
    answers = send_to_leaders(admin, held, topics, request, parts_of_topics, producer)
    return {key: one for key, one in answers.items() if isinstance(one, FirstProducer)}


def longest_transaction(facts: Iterable[BrokerFact]) -> float | None:
    """Return the longest time-out of transactions that the configs of brokers allow, in seconds; None: not known."""
    values = [int(one.value) for one in facts if one.name == LONGEST_TRANSACTION]
    return max(values) / 1000 if values else None


def transaction_facts(
    found: OpenTransactions, topics: Collection[str], now: datetime | None = None
) -> list[BrokerFact]:
    """Return the transactions on these topics that are open beyond their time-out, and which groups write which topics.

    A reader with `read_committed` waits for such transactions. Writers are Kafka Streams applications with exactly-once
    processing that have a transaction open now, without their internal topics: a sample. `now` is for tests.
    """
    at = (now or datetime.now(timezone.utc)).timestamp()
    facts, written = list[BrokerFact](), set[tuple[str, str]]()
    for one, (topic, partition) in found:
        if at - one.began > one.timeout and topic in topics:
            began = utc_iso(datetime.fromtimestamp(one.began, timezone.utc))
            value = f"open since {began}, time-out {format_duration(one.timeout)}, producer {one.producer_id}"
            facts.append(BrokerFact(kinds.TRANSACTION, f"{topic}-{partition}", one.transactional_id, value))
        group = _STREAMS_ID.fullmatch(one.transactional_id)
        if group and topic != OFFSETS_TOPIC and not is_internal_topic(topic, group[1]):
            written.add((topic, group[1]))
    return facts + [BrokerFact(kinds.WRITER, topic, group, "transaction", group_id=group) for topic, group in written]


class _Config(NamedTuple):
    value: str
    source: str


_Configs = Mapping[str, _Config]


def _configs(
    admin: Admin, kind: ConfigResourceType, wanted: Mapping[str, Iterable[str] | None]
) -> dict[str, dict[str, _Config]]:
    """Return the wanted configs of each resource that have a value, by name; None: all configs."""
    resources = (
        ConfigResource(kind, one, None if keys is None else dict.fromkeys(keys)) for one, keys in wanted.items()
    )
    found = {}
    for some in chunks(resources, _PER_REQUEST):
        described = admin.describe_configs(some, config_filter="all")
        for resource, configs in described.get(kind.name.lower(), {}).items():
            found[resource] = {
                name: _Config(str(one["value"]), _SOURCES.get(one["config_source"], "broker"))
                for name, one in sorted(configs.items())
                if one["value"] is not None
            }
    return found
