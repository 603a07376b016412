"""Checks the brokers: the listener and the release of each one, the topic, and every ACL."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest, DescribeProducersRequest, DescribeTransactionsRequest

from streaming_app.checks.result import FAILED, Result, failed, ok, skipped, warning
from streaming_app.errors import error_line
from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.kafka import AUTHORIZATION_CODES, GROUP_PREFIX, diagnose, fact_requests, releases
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.error_lines import REQUEST_ERRORS, grant_command, missing_acl_message
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED
from streaming_app.kafka.releases import BrokerRelease
from streaming_app.kafka.security import security_settings
from streaming_app.kafka.topic_reader import UNKNOWN_TOPIC, describe_topics, is_denied
from streaming_app.text import first_of
from streaming_app.threads import in_parallel

_NAMED = 3  # partitions that are named for an unreachable broker
_GROUP_AUTHORIZATION_FAILED, _TRANSACTION_AUTHORIZATION_FAILED = 30, 53
_ENABLE = "kafka-features.sh --bootstrap-server ... upgrade --feature streams.version=1 enables them, since Kafka 4.2"
_MIGRATION_BUG = (
    "4.2.0 cannot load groups that migrated from the classic protocol once compaction has removed what was before "
    "(KAFKA-20254); 4.2.1 can, and a broker does not say which of the two it is"
)
_OPTIONAL_ACLS = {
    "DescribeConfigs on Cluster": ("whether brokers have a description plugin is derived from the records", ""),
    "DescribeConfigs on Topic:{topic}": ("delete.retention.ms is taken to be Kafka's default, 24 hours", ""),
    "Describe on Group:*": (
        "verify does not compare groups that no other ACL allows, and the commits of these are read from the log alone",
        "VERIFY",
    ),
    "Describe on Topic:*": (
        "the lag of topics that no other ACL allows is unknown, and their readers are neither Idle nor Ok; the reason "
        "of a NotReady group may be unknown",
        "APPLICATIONS",
    ),
    "DescribeConfigs on Group:*": (
        "the configs of the streams groups are unknown, such as the number of standbys",
        "FACTS",
    ),
    "DescribeConfigs on Topic:*": (
        "the retention of topics is unknown, and so which records a group will lose, and when",
        "FACTS",
    ),
    "Describe on TransactionalId:*": (
        "transactions that have been open too long, and block read_committed consumers, are unknown",
        "FACTS",
    ),
    "Read on Topic:*": (
        "whether records wait, or only markers and aborted records of transactions, and for which producer "
        "groups wait, is known only for topics that other ACLs allow",
        "",
    ),
}
"""Optional ACL -> what is missing without it, and the variable with which deploy/kafka/acls.sh grants it."""
_OPTIONS = {"Group": "group", "Topic": "topic", "Cluster": "cluster", "TransactionalId": "transactional-id"}
"""Type of a resource -> the option of kafka-acls.sh."""


def check_brokers(properties: Mapping[str, str], topic: str) -> Generator[Result, None, tuple[bool, int | None]]:
    """Yield the results about a cluster; return whether none failed, and how many groups the principal may see.

    The Kafka client properties must contain `bootstrap.servers`. The number is None if it is not known.
    """
    servers = properties["bootstrap.servers"]
    try:
        security_settings(properties)
    except SecurityError as error:
        yield skipped("brokers", f"{error}; brokers, topic and ACLs can only be checked by the job itself")
        return True, None
    cause = diagnose.find_cause(servers, properties)  # faster than the time-out of a client
    if cause is None:
        try:
            client = StreamsGroupClient.of(properties)
        except REQUEST_ERRORS as error:
            cause = diagnose.find_cause(servers, properties) or f"{servers}: {error_line(error)}"
    if cause is not None:
        yield failed("brokers", cause)
        yield from (skipped(name, "no broker answers") for name in ("topic", "ACLs"))
        return False, None
    none_failed = True
    with client:
        checks = {
            "brokers": _check_listeners(client, properties),
            "topic": _check_topic(client, topic),
            "ACLs": _check_acls(client),
        }
        for name, results in checks.items():
            try:
                for one in results:
                    none_failed &= one.status != FAILED
                    yield one
            except REQUEST_ERRORS as error:  # noqa: PERF203 - the other checks still run
                none_failed = False
                yield failed(name, f"{servers}: {error_line(error)}")
        with suppress(*REQUEST_ERRORS):
            return none_failed, len(client.list_groups())
    return none_failed, None


def _check_listeners(admin: Admin, properties: Mapping[str, str]) -> Iterator[Result]:
    """Connect to the advertised listener of each broker, which is often not reachable from every machine."""
    brokers = {broker["broker_id"]: broker for broker in admin.describe_cluster()["brokers"]}
    found = {one.broker_id: one for one in releases.fetch(admin)}
    addresses = [diagnose.address_of(broker) for broker in brokers.values()]
    found_causes = in_parallel(lambda one: diagnose.find_cause(one, properties), addresses, diagnose.CONNECTIONS)
    causes = dict(zip(brokers, found_causes, strict=True))
    led = _partitions_of(admin, [number for number, cause in causes.items() if cause])
    for number, broker in sorted(brokers.items()):
        check, cause, release = f"broker {number}", causes[number], found.get(number)
        if cause is None:
            yield ok(check, f"{diagnose.address_of(broker)} answers" + (f"; {release.text}" if release else ""))
            continue
        fenced = "; the cluster has fenced it: the controller does not hear from it" if broker.get("is_fenced") else ""
        leads = (
            f"; partitions that need it: {first_of(led[number], _NAMED)}" if led[number] else "; it leads no partition"
        )
        remedy = "the broker gives this address to clients: see its advertised.listeners"
        yield failed(check, diagnose.of_one_broker(cause) + fenced + leads, remedy)
    yield from judge_releases(list(found.values()))
    answering = [number for number, cause in causes.items() if cause is None]
    configs = fact_requests.configs_of_brokers(admin, answering)
    by_broker = releases.configs_by_broker((fact.subject, fact.name, fact.value) for fact in configs)
    for gap in releases.config_gaps(by_broker):
        yield warning("brokers' configs", gap, "set the same value on all brokers")
    # without the ACL, brokers return no configs
    yield _optional_acl("DescribeConfigs on Cluster", granted=bool(configs) or not answering)


def _partitions_of(admin: Admin, brokers: Collection[int]) -> Mapping[int, Sequence[str]]:
    """Return broker -> the partitions that it leads, or that have no leader and are offline because of it."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name, topic in (describe_topics(admin, None) if brokers else {}).items():
        for partition, leader in topic.leaders.items():
            for broker in [leader] if leader >= 0 else topic.offline[partition]:
                found[broker].append(f"{name}-{partition}")
    return {broker: sorted(found[broker]) for broker in brokers}


def judge_releases(found: Sequence[BrokerRelease]) -> Iterator[Result]:
    """Yield a warning for each kind of fact that brokers of these releases do not provide."""
    check = "Kafka release"
    if line := releases.without_streams_groups(found):
        yield warning(check, line, _ENABLE)
    if any(one.release == "4.2" for one in found):
        yield warning(check, _MIGRATION_BUG, "the broker's log has its `Kafka version`; migrate no group before 4.2.1")
    reasons = [(one, reason) for one in releases.ABILITIES if (reason := releases.why_unknown(one, found))]
    for ability, reason in reasons:
        yield warning(check, reason, f"to have it, upgrade the brokers to {ability.since} or later")
    if found and not reasons:
        yield ok(check, f"the brokers provide everything: {', '.join(one.name for one in releases.ABILITIES)}")


def _check_topic(admin: Admin, topic: str) -> Iterator[Result]:
    described = describe_topics(admin, [topic], in_detail=True)[topic]
    error, name = described.error, "topic"
    read, describe = f"ACL Read on Topic:{topic}", f"ACL Describe on Topic:{topic}"
    if error and is_denied(error):
        yield skipped(name, f"{topic} cannot be described")
        yield failed(describe, "missing", missing_acl_message("DESCRIBE", "Topic", topic))
        yield skipped(read, "not known without Describe")
    elif error == UNKNOWN_TOPIC:
        remedy = "brokers create it when the first group commits, and the job waits for it; or --topic is wrong"
        yield warning(name, f"the brokers have no topic {topic}", remedy)
    elif error:
        yield failed(name, f"{topic}: {error}")
    else:
        text = f"{topic} has {len(described.leaders)} partitions"
        if without_leader := sum(leader < 0 for leader in described.leaders.values()):
            yield failed(name, f"{text}, {without_leader} of them without a leader", "start the brokers that have them")
        else:
            yield ok(name, text)
        yield ok(describe, "granted")
        remedy = missing_acl_message("READ", "Topic", topic)
        yield ok(read, "granted") if _has(described.rights, "READ") else failed(read, "missing", remedy)
        granted = _has(described.rights, "DESCRIBE_CONFIGS")
        yield _optional_acl("DescribeConfigs on Topic:{topic}", granted=granted, topic=topic)


def _check_acls(admin: Admin) -> Iterator[Result]:
    """Send requests about resources that need not exist: every broker checks the ACL first."""
    check, unknown = f"ACL Describe on Group:{GROUP_PREFIX} (prefixed)", f"{GROUP_PREFIX}-{uuid.uuid4()}"
    described = describe_topics(admin, [OFFSETS_TOPIC, unknown])
    if described[OFFSETS_TOPIC].error == UNKNOWN_TOPIC:
        yield skipped(check, f"a request about a group would create {OFFSETS_TOPIC}")
        return
    any_group = str(uuid.uuid4())
    codes = {one.key: one.error_code for one in admin.find_coordinators([unknown, any_group])}
    remedy = missing_acl_message("DESCRIBE", "Group", GROUP_PREFIX, " --resource-pattern-type prefixed")
    denied = codes.get(unknown) == _GROUP_AUTHORIZATION_FAILED
    yield failed(check, "missing", remedy) if denied else ok(check, "granted")
    yield _optional_acl("Describe on Group:*", granted=codes.get(any_group) != _GROUP_AUTHORIZATION_FAILED)
    yield _optional_acl("Describe on Topic:*", granted=not is_denied(described[unknown].error or ""))
    for kind in (ConfigResourceType.GROUP, ConfigResourceType.TOPIC):
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind.value, resource_name=unknown, configuration_keys=[]
        )
        (answer,) = admin.send_to_any(DescribeConfigsRequest(resources=[resource])).results
        granted = answer.error_code not in AUTHORIZATION_CODES
        yield _optional_acl(f"DescribeConfigs on {kind.name.title()}:*", granted=granted)
    (answer,) = admin.send_to_any(DescribeTransactionsRequest(transactional_ids=[unknown])).transaction_states
    granted = answer.error_code != _TRANSACTION_AUTHORIZATION_FAILED
    yield _optional_acl("Describe on TransactionalId:*", granted=granted)
    topics = [DescribeProducersRequest.TopicRequest(name=unknown, partition_indexes=[0])]
    (topic,) = admin.send_to_any(DescribeProducersRequest(topics=topics)).topics
    granted = topic.partitions[0].error_code != TOPIC_AUTHORIZATION_FAILED
    yield _optional_acl("Read on Topic:*", granted=granted)


def _optional_acl(acl: str, *, granted: bool, topic: str = "") -> Result:
    check, (without, variable) = f"ACL {acl.replace('{topic}', topic)}", _OPTIONAL_ACLS[acl]
    if granted:
        return ok(check, "granted")
    operation, _, resource = acl.replace("{topic}", topic).partition(" on ")
    kind, _, name = resource.partition(":")
    remedy = grant_command(operation, [(_OPTIONS[kind], f"'{name}'" if name == "*" else name)])
    script = f", or with {variable}=yes deploy/kafka/acls.sh" if variable else ""
    return warning(check, f"missing (optional): without it {without}", f"{remedy}{script}")


def _has(rights: Collection[str] | None, operation: str) -> bool:
    """Return whether an operation is authorized; also True if the broker does not return authorized operations."""
    return rights is None or operation in rights
