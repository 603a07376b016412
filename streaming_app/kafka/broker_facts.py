"""What explains a group's lag and only the brokers know: configs in force, coordinators, replicas, open transactions.

Each function asks for facts of one kind. What the job's principal may not read is missing from the result. All raise
kafka-python's KafkaError, or GroupError, when the brokers do not answer.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any, NamedTuple

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.protocol.metadata.find_coordinator import CoordinatorType, FindCoordinatorRequest

from streaming_app.chunks import chunks
from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.groups.state_rules import EMPTY
from streaming_app.groups.topology import is_internal_topic
from streaming_app.kafka import (
    ASKED_FOR,
    BROKER_CONFIG,
    COORDINATOR,
    FEATURE,
    GROUP_CONFIG,
    GROUP_STATE,
    INTERNAL_TOPIC,
    ISR,
    LEFT_OVER_TOPIC,
    RETENTION,
    TRANSACTION,
    WRITER,
    releases,
)
from streaming_app.kafka.connection import Admin
from streaming_app.text import format_duration, utc_iso

_PER_REQUEST = 500  # groups or topics
_MOST_LEFT_OVER = 1_000  # topics
_STREAMS = "streams."  # what the names of configs of streams groups begin with
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
)
_RETENTION_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes")
_MIN_ISR = "min.insync.replicas"
_NO_LEADER = -1
_SOURCES = {"DYNAMIC_GROUP_CONFIG": "group", "DYNAMIC_TOPIC_CONFIG": "topic", "DEFAULT_CONFIG": "default"}
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STREAMS_ID = re.compile(rf"(?s:(.+))-{_UUID}-\d+")
"""Ids of Kafka Streams: `<application id>-<process id>-<thread>` (`StreamsProducer`, exactly_once_v2)."""
_MOST_OF_GROUP = 2  # transactions of a group that are described at a pass: its threads write the same topics in turn


class BrokerFact(NamedTuple):
    """A row of `broker_facts`, without the cluster and the time."""

    kind: str
    subject: str
    name: str
    value: str
    group_id: str | None = None
    source: str | None = None
    value_before: str | None = None
    """The value that it had before, if the job has seen another one."""
    changed_at: datetime | None = None
    """When the job first saw the present value after that."""


class InternalTopic(NamedTuple):
    """A repartition or changelog topic as a topology asks for it."""

    group_id: str
    name: str
    partitions: int
    """0: the broker decides."""
    replication_factor: int
    """0 and -1: the broker's default."""
    configs: tuple[tuple[str, str], ...]


def internal_topics(admin: Admin, wanted: Iterable[InternalTopic]) -> list[BrokerFact]:
    """Return how many partitions each topic has, and what of it is not as it was asked for: `ACTUAL, asked for WANTED`.

    A topic that does not exist has no fact, and neither has one whose name does not begin with the id of its group, as
    every group may name any topic; of several groups the one with the longest id has it. Brokers create these topics,
    and log a difference, but act on none (KIP-1071, "Topic configuration mismatches"). Needs Describe and
    DescribeConfigs on the topics.
    """
    by_length = sorted(wanted, key=lambda one: len(one.group_id))
    asked = {one.name: one for one in by_length if one.name.startswith(f"{one.group_id}-")}
    keys = sorted({key for one in asked.values() for key, _ in one.configs})
    configs = {
        topic: {name: value for name, value, _ in values}
        for topic, values in (_configs(admin, ConfigResourceType.TOPIC, asked, keys) if keys else ())
    }
    described = (topic for some in chunks(asked, _PER_REQUEST) for topic in admin.describe_topics(some))
    return [
        BrokerFact(INTERNAL_TOPIC, topic["name"], name, value, asked[topic["name"]].group_id)
        for topic in described
        if not topic["error_code"]
        for name, value in _compared(asked[topic["name"]], topic["partitions"], configs.get(topic["name"], {}))
    ]


def _compared(
    asked: InternalTopic, partitions: Sequence[Mapping[str, Any]], configs: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    count, replicas = len(partitions), len(partitions[0]["replica_nodes"])
    yield "partitions", f"{count}{ASKED_FOR}{asked.partitions}" if asked.partitions not in {0, count} else str(count)
    if asked.replication_factor > 0 and asked.replication_factor != replicas:  # 0 and -1 are the broker's default
        yield "replication_factor", f"{replicas}{ASKED_FOR}{asked.replication_factor}"
    for name, value in asked.configs:
        if name in configs and configs[name] != value:
            yield name, f"{configs[name]}{ASKED_FOR}{value}"


class LeftOverTopic(NamedTuple):
    """A repartition or changelog topic that an earlier topology asked for, and that none asks for now."""

    name: str
    group_id: str
    left_by: str
    """`topology`: the group has another one; `group`: it is gone."""


def left_over_topics(admin: Admin, earlier: Iterable[LeftOverTopic]) -> list[BrokerFact]:
    """Return of those that exist what left them, how many partitions they have, and the bytes of all replicas.

    Needs Describe on the topics, and for the bytes Describe on the cluster, and that every broker answers.
    """
    existing = set(admin.list_topics())
    found = {one.name: one for one in islice((one for one in earlier if one.name in existing), _MOST_LEFT_OVER)}
    partitions = {
        topic["name"]: len(topic["partitions"])
        for some in chunks(found, _PER_REQUEST)
        for topic in admin.describe_topics(some)
        if not topic["error_code"]
    }
    sizes = _sizes(admin, partitions) if partitions else {}
    return [
        BrokerFact(LEFT_OVER_TOPIC, topic, name, str(value), found[topic].group_id)
        for topic, number in partitions.items()
        for name, value in (("left_by", found[topic].left_by), ("partitions", number), ("bytes", sizes.get(topic)))
        if value is not None
    ]


def _sizes(admin: Admin, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of all replicas of topics, of which it gets the numbers of partitions; nothing if not known."""
    wanted = {topic: list(range(number)) for topic, number in partitions.items()}
    sizes = dict.fromkeys(partitions, 0)
    try:
        answers = admin.describe_log_dirs(wanted)
    except KafkaError:  # a broker is away, and its replicas with it
        return {}
    for directory in (one for answer in answers for one in answer["log_dirs"]):
        if directory["error_code"]:
            return {}
        for topic in directory["topics"]:
            sizes[topic["name"]] += sum(one["partition_size"] for one in topic["partitions"])
    # Without the right to it a broker names no directory.
    return sizes if all(answer["log_dirs"] for answer in answers) else {}


def group_configs(admin: Admin, group_ids: Iterable[str]) -> list[BrokerFact]:
    """Return the configs in force of streams groups. Needs DescribeConfigs on the groups, and Kafka 4.1.

    Brokers of 4.4.0 describe their internal configs only where the group or the broker sets them: warm-ups, the
    acceptable recovery lag and the interval of task offsets.
    """
    return [
        BrokerFact(GROUP_CONFIG, group_id, name, value, group_id, source)
        for group_id, configs in _configs(admin, ConfigResourceType.GROUP, group_ids, None)
        for name, value, source in configs
        if name.startswith(_STREAMS)
    ]


def broker_configs(admin: Admin, _all: Iterable[str]) -> list[BrokerFact]:
    """Return `configs_of_brokers` of every broker."""
    return configs_of_brokers(admin, admin.broker_ids())


def configs_of_brokers(admin: Admin, brokers: Iterable[int]) -> list[BrokerFact]:
    """Return the configs of these brokers that limit streams groups, or say when what they leave is removed.

    Of a config that is not set there is no fact. Needs DescribeConfigs on the cluster. Raises if no broker answers.
    """
    answers = [_configs_of(admin, broker) for broker in brokers]
    errors = [answer for answer in answers if isinstance(answer, KafkaError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
    return [fact for answer in answers if not isinstance(answer, KafkaError) for fact in answer]


def _configs_of(admin: Admin, broker: int) -> list[BrokerFact] | KafkaError:
    """Return the configs of a broker, none if they may not be read; or the error if it does not answer."""
    try:
        described = list(_configs(admin, ConfigResourceType.BROKER, [str(broker)], _BROKER_CONFIGS))
    except KafkaError as error:
        return error
    return [
        BrokerFact(BROKER_CONFIG, str(broker), name, value, source=source)
        for _, configs in described
        for name, value, source in configs
    ]


def coordinators(admin: Admin, group_ids: Iterable[str]) -> list[BrokerFact]:
    """Return the coordinator of each group that has one now, as Kafka's tool prints it: `HOST:PORT (ID)`.

    Needs Describe on the groups.
    """
    found: list[BrokerFact] = []
    for some in chunks(group_ids, _PER_REQUEST):
        request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP.value, coordinator_keys=some, min_version=4)
        found += (
            BrokerFact(COORDINATOR, one.key, COORDINATOR, f"{one.host}:{one.port} ({one.node_id})", one.key)
            for one in admin.send_to_any(request).coordinators
            if not one.error_code  # else it may not be described, or its partition has no leader
        )
    return found


def group_states(admin: Admin, _all: Iterable[str]) -> list[BrokerFact]:
    """Return the states of classic groups with members, of which the log does not hold the rebalances.

    Those that a broker which does not answer coordinates are missing. Needs Describe on the groups.
    """
    found: list[BrokerFact] = []
    for broker in admin.broker_ids():
        with suppress(KafkaError):
            found += (
                BrokerFact(GROUP_STATE, one["group_id"], "state", one["group_state"], one["group_id"])
                for one in admin.list_groups([broker], types_filter=["classic"])
                if one["group_state"] != EMPTY
            )
    return found


def features(admin: Admin, _all: Iterable[str]) -> list[BrokerFact]:
    """Return the release of each broker that answers, and the level of the features of its cluster. Needs no ACL."""
    return [
        BrokerFact(FEATURE, str(one.broker_id), name, str(value))
        for one in releases.ask(admin)
        for name, value in {releases.RELEASE: one.release, **one.shown}.items()
    ]


def retention(admin: Admin, topics: Iterable[str]) -> list[BrokerFact]:
    """Return how long topics keep records. Needs DescribeConfigs on the topics."""
    return [
        BrokerFact(RETENTION, topic, name, value, source=source)
        for topic, configs in _configs(admin, ConfigResourceType.TOPIC, topics, _RETENTION_CONFIGS)
        for name, value, source in configs
    ]


def replication(admin: Admin, topics: Iterable[str]) -> list[BrokerFact]:
    """Return which partitions of topics lack a leader, or replicas.

    Needs Describe on the topics, and for the replicas DescribeConfigs.
    """
    names = list(topics)
    configs = _configs(admin, ConfigResourceType.TOPIC, names, (_MIN_ISR,))
    minimum = {topic: int(value) for topic, values in configs for _, value, _ in values}
    described = (topic for some in chunks(names, _PER_REQUEST) for topic in admin.describe_topics(some))
    return [fact for topic in described for fact in _replicas(topic, minimum.get(topic["name"]))]


def _replicas(topic: Mapping[str, Any], minimum: int | None) -> Iterator[BrokerFact]:
    for partition in topic["partitions"]:
        subject = f"{topic['name']}-{partition['partition_index']}"
        if partition["leader_id"] == _NO_LEADER:
            yield BrokerFact(ISR, subject, "leader", "none")
        in_sync = partition["isr_nodes"]
        if minimum is not None and len(in_sync) < minimum:
            value = f"{_ids(in_sync) or 'none'} of {_ids(partition['replica_nodes'])}, {_MIN_ISR} {minimum}"
            yield BrokerFact(ISR, subject, ISR, value)


def overdue_transactions(admin: Admin, topics: Iterable[str], now: datetime | None = None) -> list[BrokerFact]:
    """Return the transactions on these topics that have been open for longer than their time-out.

    A reader with `read_committed` waits for them. Needs Describe on the transactional ids. `now` is for tests.
    """
    wanted, at, ids = frozenset(topics), now or datetime.now(timezone.utc), _listed(admin, _OPEN)
    return [
        BrokerFact(TRANSACTION, f"{partition.topic}-{partition.partition}", name, _overdue(one))
        for name, one in _described(admin, ids)
        if _is_overdue(one, at)
        for partition in sorted(one.topic_partitions)
        if partition.topic in wanted
    ]


def writers(admin: Admin, _all: Iterable[str]) -> list[BrokerFact]:
    """Return which topics Kafka Streams applications write in transactions that are open now: exactly-once ones do.

    A sample: a topic that nothing is written to at this moment is missing, and so is an application that writes without
    transactions. Of a group a few transactions are described. Internal topics of the application are left out. Needs
    Describe on the transactional ids.
    """
    ids = defaultdict[str, list[str]](list)
    for name in _listed(admin, _OPEN[:1]):
        if found := _STREAMS_ID.fullmatch(name):
            ids[found[1]].append(name)
    return [
        BrokerFact(WRITER, topic, group_id, "transaction", group_id)
        for group_id, names in ids.items()
        for topic in {
            partition.topic
            for _, one in _described(admin, random.sample(names, min(len(names), _MOST_OF_GROUP)))
            for partition in one.topic_partitions
        }
        if topic != OFFSETS_TOPIC and not is_internal_topic(topic, group_id)
    ]


def _listed(admin: Admin, states: Sequence[str]) -> list[str]:
    """Return the ids of transactions in these states, of the coordinators that answer."""
    ids: list[str] = []
    for broker in admin.broker_ids():
        with suppress(KafkaError):  # one that is away: the coordinators of its transactions move
            listed = admin.list_transactions([broker], state_filters=states)
            ids += [one.transactional_id for some in listed.values() for one in some]
    return ids


def _described(admin: Admin, ids: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for name in sorted(set(ids)):
        with suppress(KafkaError):  # it has ended since, or may not be described
            yield from admin.describe_transactions([name]).items()


def _is_overdue(transaction: Any, now: datetime) -> bool:  # noqa: ANN401 - kafka-python is untyped
    return now - _began(transaction) > timedelta(milliseconds=transaction.transaction_timeout_ms)


def _overdue(transaction: Any) -> str:  # noqa: ANN401 - the same
    timeout = format_duration(transaction.transaction_timeout_ms / 1000)
    return f"open since {utc_iso(_began(transaction))}, time-out {timeout}, producer {transaction.producer_id}"


def _began(transaction: Any) -> datetime:  # noqa: ANN401 - the same
    return datetime.fromtimestamp(transaction.transaction_start_time_ms / 1000, timezone.utc)


def _configs(
    admin: Admin, kind: ConfigResourceType, names: Iterable[str], keys: Sequence[str] | None
) -> Iterator[tuple[str, Iterator[tuple[str, str, str]]]]:
    """Yield the name, value and source of the configs of each resource; `keys` None: all of them."""
    wanted = None if keys is None else dict.fromkeys(keys)
    for some in chunks(names, _PER_REQUEST):
        described = admin.describe_configs([ConfigResource(kind, one, wanted) for one in some], config_filter="all")
        for resource, configs in described.get(kind.name.lower(), {}).items():
            yield (
                resource,
                (
                    (name, str(config["value"]), _SOURCES.get(config["config_source"], "broker"))
                    for name, config in sorted(configs.items())
                    if config["value"] is not None
                ),
            )


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))
