"""The brokers: the listener and the release of each, the topic, every ACL by name, and the clock."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest, DescribeTransactionsRequest
from kafka.protocol.consumer import OffsetSpec

from streaming_app.checks.result import Result, failed, ok, skipped, warning
from streaming_app.errors import error_line
from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.kafka import AUTHORIZATION_CODES, GROUP_PREFIX, broker_facts, diagnose, releases
from streaming_app.kafka.broker_facts import BrokerFact
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.error_lines import REQUEST_ERRORS, missing_acl_message
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, GroupError
from streaming_app.kafka.releases import BrokerRelease
from streaming_app.kafka.security import security_settings
from streaming_app.text import first_of

_NAMED = 3  # partitions of a broker that is away
_CLOCK_SECONDS = 5.0  # a difference that is worth a line
_WAIT_FOR_RECORD_SECONDS = 2.0
_POLL_SECONDS = 0.1
_OPERATIONS = "authorized_operations"  # as kafka-python names it in what it returns
_READ, _DESCRIBE, _DESCRIBE_CONFIGS = "READ", "DESCRIBE", "DESCRIBE_CONFIGS"
_UNKNOWN_TOPIC, _GROUP_AUTHORIZATION_FAILED, _TRANSACTION_AUTHORIZATION_FAILED = 3, 30, 53
_UNAVAILABLE = "no broker answers"
_ENABLE = "kafka-features.sh --bootstrap-server ... upgrade --feature streams.version=1 enables them, since Kafka 4.2"
_APPLICATIONS = " (APPLICATIONS=yes deploy/kafka/acls.sh grants it)"
_VERIFY = " (VERIFY=yes deploy/kafka/acls.sh grants it)"
_FACTS = " (FACTS=yes deploy/kafka/acls.sh grants it)"
_UNKNOWN_CONFIGS = {
    ConfigResourceType.GROUP: "the configs of the streams groups are unknown, such as how many standbys they ask for",
    ConfigResourceType.TOPIC: "how long topics keep records is unknown, and so what a group will lose, and when",
}
"""What is unknown without DescribeConfigs on all resources of a type."""


def check_brokers(properties: Mapping[str, str], topic: str) -> Iterator[Result]:
    """Yield the results about the cluster of these Kafka client properties, with `bootstrap.servers`."""
    servers = properties["bootstrap.servers"]
    try:
        security_settings(properties)
    except SecurityError as error:
        yield skipped("brokers", f"{error}; brokers, topic and ACLs can only be checked by the job itself")
        return
    cause = diagnose.find_cause(servers, properties)  # sooner than a client's time-out
    if cause is None:
        try:
            client = StreamsGroupClient.of(properties)
        except REQUEST_ERRORS as error:
            cause = diagnose.find_cause(servers, properties) or _describe(error, servers)
    if cause is not None:
        yield failed("brokers", cause)
        yield from (skipped(name, _UNAVAILABLE) for name in list(_CHECKS)[1:])
        return
    with client:
        for check in _CHECKS:
            yield from _run(check, client, properties, topic)


def _run(check: str, client: StreamsGroupClient, properties: Mapping[str, str], topic: str) -> Iterator[Result]:
    try:
        yield from _CHECKS[check](client, properties, topic)
    except REQUEST_ERRORS as error:
        yield failed(check, _describe(error, properties["bootstrap.servers"]))


def _describe(error: Exception, servers: str) -> str:
    return f"{servers}: {error_line(error)}"


def _check_listeners(client: StreamsGroupClient, properties: Mapping[str, str], _topic: str) -> Iterator[Result]:
    """Connect to the address that each broker gives to clients: they are often not reachable from everywhere."""
    cluster = client.admin.describe_cluster()
    brokers = sorted(cluster["brokers"], key=lambda broker: broker["broker_id"])
    found = {one.broker_id: one for one in releases.ask(client.admin)}

    def connect(broker: Mapping[str, Any]) -> str | None:
        return diagnose.find_cause(_address(broker), properties)

    with ThreadPoolExecutor(diagnose.CONNECTIONS) as threads:
        causes = dict(zip((broker["broker_id"] for broker in brokers), threads.map(connect, brokers), strict=True))
    led = _partitions_of(client, {number for number, cause in causes.items() if cause})
    for broker in brokers:
        number = broker["broker_id"]
        cause = causes[number]
        if cause and broker.get("is_fenced"):
            cause += "; the cluster has fenced it: the controller does not hear from it"
        yield _listener_result(number, _address(broker), cause, led[number], found.get(number))
    yield from judge_releases(list(found.values()))
    answering = [number for number, cause in causes.items() if cause is None]
    configs = broker_facts.configs_of_brokers(client.admin, answering)
    yield from judge_configs(configs)
    yield _check_optional_acl(
        bool(configs) if answering else None,  # of brokers that may not be asked, none is returned
        "ACL DescribeConfigs on Cluster",
        "whether brokers have a description plugin is derived from the records",
    )


def _address(broker: Mapping[str, Any]) -> str:
    host = f"[{broker['host']}]" if ":" in broker["host"] else broker["host"]
    return f"{host}:{broker['port']}"


def _listener_result(
    number: int, address: str, cause: str | None, led: Sequence[str], release: BrokerRelease | None
) -> Result:
    if cause is None:
        return ok(f"broker {number}", f"{address} answers" + (f"; {release.text}" if release else ""))
    partitions = f"; it leads, or alone has, {first_of(led, _NAMED)}" if led else "; it leads no partition"
    remedy = "the broker gives this address to clients: see its advertised.listeners"
    return failed(f"broker {number}", diagnose.of_one_broker(cause) + partitions, remedy)


def _partitions_of(client: StreamsGroupClient, brokers: Collection[int]) -> dict[int, list[str]]:
    """Return for each of these brokers the partitions that it leads, or that have no leader without it."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for topic in client.admin.describe_topics() if brokers else ():
        for partition in topic["partitions"]:
            leader = partition["leader_id"]
            for broker in [leader] if leader >= 0 else partition["offline_replicas"]:
                found[broker].append(f"{topic['name']}-{partition['partition_index']}")
    return defaultdict(list, {broker: sorted(found[broker]) for broker in brokers})


def judge_releases(found: Sequence[BrokerRelease]) -> Iterator[Result]:
    """Yield what the tables will not say since brokers of these releases do not tell it."""
    check = "Kafka release"
    if line := releases.without_streams_groups(found):
        yield warning(check, line, _ENABLE)
    reasons = [(one, reason) for one in releases.ABILITIES if (reason := releases.why_unknown(one, found))]
    for ability, reason in reasons:
        yield warning(check, reason, f"upgrade them to {ability.since} or later, or do without")
    if found and not reasons:
        yield ok(check, f"the brokers tell all there is: {', '.join(one.name for one in releases.ABILITIES)}")


def judge_configs(facts: Iterable[BrokerFact]) -> Iterator[Result]:
    """Yield what some brokers do not do as they are configured; nothing if their configs may not be read."""
    configs = releases.configs_by_broker((fact.subject, fact.name, fact.value) for fact in facts)
    for gap in releases.config_gaps(configs):
        yield warning("brokers' configs", gap, "give all brokers the same")


def _check_topic(client: StreamsGroupClient, _properties: Mapping[str, str], topic: str) -> Iterator[Result]:
    described = client.admin.describe_topics([topic])[0]
    code, name = described["error_code"], "topic"
    read, describe = f"ACL Read on Topic:{topic}", f"ACL Describe on Topic:{topic}"
    if code == TOPIC_AUTHORIZATION_FAILED:
        yield skipped(name, f"{topic} cannot be described")
        yield failed(describe, "missing", missing_acl_message("DESCRIBE", "Topic", topic))
        yield skipped(read, "not known without Describe")
        return
    if code == _UNKNOWN_TOPIC:
        yield warning(
            name,
            f"the brokers have no {topic}",
            "they create it when the first group commits, and the job waits until then; or --topic is wrong",
        )
        return
    if code:
        yield failed(name, f"{topic}: {GroupError(code)}")
        return
    without_leader = sum(partition["error_code"] != 0 for partition in described["partitions"])
    text = f"{topic} has {len(described['partitions'])} partitions"
    if without_leader:
        yield failed(name, f"{text}, {without_leader} of them without a leader", "start the brokers that hold them")
    else:
        yield ok(name, text)
    operations = described.get(_OPERATIONS)
    yield ok(describe, "granted")
    if _has(operations, _READ) is False:
        yield failed(read, "missing", missing_acl_message("READ", "Topic", topic))
    else:
        yield ok(read, "granted")
    yield _check_optional_acl(
        _has(operations, _DESCRIBE_CONFIGS),
        f"ACL DescribeConfigs on Topic:{topic}",
        "delete.retention.ms is taken to be Kafka's default, 24 hours",
    )


def _check_groups(client: StreamsGroupClient, _properties: Mapping[str, str], _topic: str) -> Iterator[Result]:
    check = f"ACL Describe on Group:{GROUP_PREFIX} (prefixed)"
    if client.admin.describe_topics([OFFSETS_TOPIC])[0]["error_code"] == _UNKNOWN_TOPIC:
        yield skipped(check, f"a request about a group would create {OFFSETS_TOPIC}")
        return
    name = f"{GROUP_PREFIX}-{uuid.uuid4()}"
    if _may_describe_group(client, name):
        yield ok(check, "granted")
    else:
        remedy = missing_acl_message("DESCRIBE", "Group", GROUP_PREFIX, " --resource-pattern-type prefixed")
        yield failed(check, "missing", remedy)
    yield _check_optional_acl(
        _may_describe_group(client, str(uuid.uuid4())),
        "ACL Describe on Group:*",
        "verify and the self-check can describe only groups that other ACLs allow",
        _VERIFY,
    )
    described = client.admin.describe_topics([f"streams-groups-{uuid.uuid4()}"])[0]
    yield _check_optional_acl(
        described["error_code"] != TOPIC_AUTHORIZATION_FAILED,
        "ACL Describe on Topic:*",
        "the reason why a group is NotReady is known only for topics that other ACLs allow",
        _APPLICATIONS,
    )
    for kind, unknown in _UNKNOWN_CONFIGS.items():
        granted = _may_describe_configs(client, kind)
        yield _check_optional_acl(granted, f"ACL DescribeConfigs on {kind.name.title()}:*", unknown, _FACTS)
    yield _check_optional_acl(
        _has(client.admin.describe_cluster().get(_OPERATIONS), _DESCRIBE),
        "ACL Describe on Cluster",
        "the size of internal topics that are left over is unknown",
        _FACTS,
    )
    yield _check_optional_acl(
        _may_describe_transactions(client),
        "ACL Describe on TransactionalId:*",
        "transactions that are open for too long, for which readers with read_committed wait, are unknown",
        _FACTS,
    )


def _may_describe_transactions(client: StreamsGroupClient) -> bool:
    """Return whether the principal may describe a transactional id, which need not exist: every broker checks that."""
    request = DescribeTransactionsRequest(transactional_ids=[f"streams-groups-{uuid.uuid4()}"])
    (state,) = client.admin.send_to_any(request).transaction_states
    return bool(state.error_code != _TRANSACTION_AUTHORIZATION_FAILED)


def _may_describe_configs(client: StreamsGroupClient, kind: ConfigResourceType) -> bool:
    """Return whether the principal may read the configs of a resource of this type, which need not exist."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind.value, resource_name=f"streams-groups-{uuid.uuid4()}", configuration_keys=[]
    )
    response = client.admin.send_to_any(DescribeConfigsRequest(resources=[resource]))
    return response.results[0].error_code not in AUTHORIZATION_CODES


def _may_describe_group(client: StreamsGroupClient, group_id: str) -> bool:
    """Return whether the principal may describe a group of this id, which need not exist."""
    (coordinator,) = client.admin.find_coordinators([group_id])
    return bool(coordinator.error_code != _GROUP_AUTHORIZATION_FAILED)


def _check_optional_acl(
    granted: bool | None,  # noqa: FBT001 - None: the broker does not say
    check: str,
    without: str,
    remedy: str = "",
) -> Result:
    if granted is False:
        return warning(check, f"missing, and optional: without it {without}{remedy}")
    return ok(check, "granted")


def _has(operations: Collection[str] | None, operation: str) -> bool | None:
    """Return whether an operation is among the authorized ones; None if the broker does not say."""
    return None if operations is None else operation in operations


def _check_clock(client: StreamsGroupClient, _properties: Mapping[str, str], topic: str) -> Iterator[Result]:
    described = client.admin.describe_topics([topic])[0]
    if described["error_code"]:
        yield skipped("clock", f"{topic} cannot be described")
        return
    led = [one for one in described["partitions"] if one["leader_id"] >= 0]
    partitions = [TopicPartition(topic, one["partition_index"]) for one in led]
    specs = dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP)

    def newest() -> float | None:
        found = client.admin.list_partition_offsets(specs)
        return max((offset.timestamp / 1000 for offset in found.values() if offset.timestamp >= 0), default=None)

    yield judge_clock(*sample_clock(newest))


def sample_clock(
    newest: Callable[[], float | None],
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[float | None, float, float | None]:
    """Return the broker's time of the newest record, and between which two times of this machine it was written.

    The earlier one is None if no record was written while this function waited: then only the later one is known.
    `newest` returns the broker's time of the newest record in seconds, None without records.
    """
    first, started = newest(), now()
    before = started
    while now() - started < _WAIT_FOR_RECORD_SECONDS:
        sleep(_POLL_SECONDS)
        asked_at = now()
        last = newest()
        if last is not None and (first is None or last > first):
            return last, now(), before
        before = asked_at
    return first, now(), None


def judge_clock(record_at: float | None, now: float, before: float | None) -> Result:
    """Return what the newest record says about the clocks: its time is the broker's, the others are this machine's."""
    check = "clock"
    if record_at is None:
        return skipped(check, "the topic has no record whose time could be compared")
    ahead = record_at - now
    behind = None if before is None else before - record_at
    remedy = "synchronize the clocks, for example with NTP"
    if ahead > _CLOCK_SECONDS:
        return warning(check, f"the brokers' clock is {ahead:.0f} s ahead of this machine's", remedy)
    if behind is not None and behind > _CLOCK_SECONDS:
        return warning(check, f"the brokers' clock is {behind:.0f} s behind this machine's", remedy)
    if behind is None:
        return ok(check, f"not ahead of this machine's; nothing was written for {-ahead:.0f} s, so it may be behind")
    return ok(check, f"the brokers' agrees with this machine's within {_CLOCK_SECONDS:.0f} s")


_CHECKS = {
    "brokers": _check_listeners,
    "topic": _check_topic,
    "ACLs": _check_groups,
    "clock": _check_clock,
}
