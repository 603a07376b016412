"""What `check` says about each ACL: with all of them, without the optional ones, without each of the others."""

from collections.abc import Callable, Mapping

import pytest
from kafka import KafkaProducer
from kafka.admin import ACLOperation, ACLResourcePatternType, ResourcePattern, ResourceType

from streaming_app.checks.brokers import check_brokers
from streaming_app.checks.result import FAILED, OK, WARNING, Result
from streaming_app.config.settings import JobConfig
from streaming_app.job.first_look import look
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from tests.security.conftest import ClientConfig
from tests.security.security_harness import SecurityHarness

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("without_acls")]
TOPIC = ResourcePattern(ResourceType.TOPIC, "__consumer_offsets")
OWN_GROUPS = ResourcePattern(ResourceType.GROUP, "streams-groups", ACLResourcePatternType.PREFIXED)
ALL_GROUPS, ALL_TOPICS = ResourcePattern(ResourceType.GROUP, "*"), ResourcePattern(ResourceType.TOPIC, "*")
CLUSTER = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
REQUIRED = ((ACLOperation.READ, TOPIC), (ACLOperation.DESCRIBE, OWN_GROUPS))
OPTIONAL = {
    "ACL Describe on Group:*": (ACLOperation.DESCRIBE, ALL_GROUPS),
    "ACL Describe on Topic:*": (ACLOperation.DESCRIBE, ALL_TOPICS),
    "ACL DescribeConfigs on Topic:__consumer_offsets": (ACLOperation.DESCRIBE_CONFIGS, TOPIC),
    "ACL DescribeConfigs on Cluster": (ACLOperation.DESCRIBE_CONFIGS, CLUSTER),
    "ACL DescribeConfigs on Group:*": (ACLOperation.DESCRIBE_CONFIGS, ALL_GROUPS),
    "ACL DescribeConfigs on Topic:*": (ACLOperation.DESCRIBE_CONFIGS, ALL_TOPICS),
    "ACL Describe on TransactionalId:*": (
        ACLOperation.DESCRIBE,
        ResourcePattern(ResourceType.TRANSACTIONAL_ID, "*"),
    ),
    "ACL Read on Topic:*": (ACLOperation.READ, ALL_TOPICS),
}


@pytest.fixture
def properties(secured: SecurityHarness, client_configs: Mapping[str, ClientConfig]) -> dict[str, str]:
    return client_configs["PLAIN"].at(secured)


def results(properties: dict[str, str], topic: str = "__consumer_offsets") -> dict[str, Result]:
    return {result.check: result for result in check_brokers(properties, topic)}


def test_what_is_only_optional_is_a_warning_and_with_all_acls_everything_is_right(
    secured: SecurityHarness, properties: dict[str, str]
) -> None:
    secured.allow(*REQUIRED, *OPTIONAL.values())
    found = results(properties)
    assert {check: result for check, result in found.items() if result.status != OK} == {}
    assert set(found) == {
        "broker 1",
        "Kafka release",
        "topic",
        "ACL Describe on Topic:__consumer_offsets",
        "ACL Read on Topic:__consumer_offsets",
        "ACL Describe on Group:streams-groups (prefixed)",
        *OPTIONAL,
    }
    secured.allow(*REQUIRED)
    found = results(properties)
    assert FAILED not in {result.status for result in found.values()}
    warned = {check: result.remedy for check, result in found.items() if result.status == WARNING}
    assert warned.keys() == OPTIONAL.keys()
    for check, remedy in warned.items():
        assert f"kafka-acls.sh --add --allow-principal User:... --operation {check.split()[1]} " in remedy
    assert "--operation Describe --group '*'" in warned["ACL Describe on Group:*"]


@pytest.mark.parametrize(
    ("allowed", "missing", "remedy"),
    [
        (
            [(ACLOperation.DESCRIBE, TOPIC), REQUIRED[1]],
            "ACL Read on Topic:__consumer_offsets",
            "--operation Read --topic __consumer_offsets",
        ),
        ([REQUIRED[1]], "ACL Describe on Topic:__consumer_offsets", "--operation Describe --topic __consumer_offsets"),
        (
            [REQUIRED[0]],
            "ACL Describe on Group:streams-groups (prefixed)",
            "--operation Describe --group streams-groups --resource-pattern-type prefixed",
        ),
    ],
)
def test_each_missing_acl_is_named_with_the_command_that_grants_it(
    secured: SecurityHarness,
    properties: dict[str, str],
    allowed: list[tuple[ACLOperation, ResourcePattern]],
    missing: str,
    remedy: str,
) -> None:
    secured.allow(*allowed)
    failures = {check: result for check, result in results(properties).items() if result.status == FAILED}
    assert list(failures) == [missing], failures
    assert remedy in failures[missing].remedy


def test_a_topic_that_does_not_exist_yet_is_a_warning_since_the_job_waits_for_it(
    secured: SecurityHarness, properties: dict[str, str]
) -> None:
    secured.allow(*REQUIRED, *OPTIONAL.values())
    found = results(properties, "missing")
    assert found["topic"].status == WARNING


def test_what_the_job_would_say_names_the_groups_and_topics_that_are_hidden_from_it(
    secured: SecurityHarness, properties: dict[str, str], group_id: str, unique: Callable[[str], str]
) -> None:
    topic = unique("hidden")
    secured.client.create_topic(topic)
    with KafkaProducer(bootstrap_servers=secured.broker.bootstrap_server) as producer:
        producer.send(topic, b"x")
    member = SimulatedMember(secured.client, group_id, topology(subtopology("0", source_topics=[topic])))
    member.join()
    settle([member])
    secured.client.commit_offsets(group_id, {(topic, 0): 1}, member.member_id, member.epoch)
    config = JobConfig.model_validate({"bootstrap_server": properties["bootstrap.servers"]})
    only_topics = (*REQUIRED, (ACLOperation.DESCRIBE, ALL_TOPICS))  # whether its commit was aborted is in the log
    for allowed in ((*REQUIRED, (ACLOperation.DESCRIBE, ALL_GROUPS)), REQUIRED, only_topics):
        secured.allow(*allowed)
        found = look(properties, config, [].append)
        assert found.status == WARNING
        assert "for lack of Describe" in found.text
        assert "for lack of Read" not in found.text
        assert "--operation Describe --" in found.remedy
    secured.allow(*REQUIRED, (ACLOperation.DESCRIBE, ALL_GROUPS), (ACLOperation.DESCRIBE, ALL_TOPICS))
    found = look(properties, config, [].append)
    assert "for lack of" not in found.text
    assert (found.status, found.remedy) == (OK, "")
    member.leave()
    secured.client.delete_groups([group_id])
