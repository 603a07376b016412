"""The job, `verify` and the reasons of NotReady through every mechanism, with the ACLs of the README and no others."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import javaproperties
import pytest
from click.testing import CliRunner, Result
from kafka.admin import ACLOperation, ACLResourcePatternType, ResourcePattern, ResourceType

from streaming_app.cli.main import main
from streaming_app.job.errors import JobError
from streaming_app.job.run import JobConfig, run_with
from streaming_app.job.source import WANTED, client_properties, examine, read_once
from streaming_app.job.topics import Topics
from streaming_app.serve.warehouse import Warehouse
from tests.job.running import run_job
from tests.security.conftest import Access
from tests.security.scene import SECRETS, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
TOPIC = "__consumer_offsets"
_TOPIC = ResourcePattern(ResourceType.TOPIC, TOPIC)
DESCRIBE_TOPIC = (ACLOperation.DESCRIBE, _TOPIC)
READ_TOPIC = (ACLOperation.READ, _TOPIC)
DESCRIBE_OWN_GROUPS = (
    ACLOperation.DESCRIBE,
    ResourcePattern(ResourceType.GROUP, "streams-groups", ACLResourcePatternType.PREFIXED),
)
DESCRIBE_APPLICATIONS = (ACLOperation.DESCRIBE, ResourcePattern(ResourceType.TOPIC, "missing"))
DESCRIBE_GROUPS = (ACLOperation.DESCRIBE, ResourcePattern(ResourceType.GROUP, "g"))
JOB = (DESCRIBE_TOPIC, READ_TOPIC, DESCRIBE_OWN_GROUPS)
EVERYTHING = (*JOB, DESCRIBE_APPLICATIONS, DESCRIBE_GROUPS)
NAMES = (
    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "token of an endpoint", "token of a file", "token of nobody",
    "certificate in PEM", "certificate in PKCS12", "certificate in JKS",
)  # fmt: skip


@pytest.fixture(autouse=True)
def kafka_log() -> Iterator[None]:
    """The commands silence kafka-python; other tests may want to hear it."""
    level = logging.getLogger("kafka").level
    yield
    logging.getLogger("kafka").setLevel(level)


@pytest.fixture(scope="module")
def warehouse(scene: Scene, ways: Mapping[str, Access], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that the command made with the ACLs of the job alone, its password from a config provider."""
    directory, access = tmp_path_factory.mktemp("command"), ways["SCRAM-SHA-512"]
    secrets = directory / "secrets"
    with secrets.open("w", encoding="utf-8") as file:
        javaproperties.dump({"line": access.properties["sasl.jaas.config"]}, file)
    provided = {
        **access.properties,
        "sasl.jaas.config": f"${{file:{secrets}:line}}",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "group.id": "of-another-tool",
        "request.timeout.ms": "60000",
    }
    scene.allow(*JOB)
    config = properties_file(directory, provided)
    ran = run_job(scene.broker.address(access.listener), directory / "tables", "--command-config", config)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert all(secret not in ran.stdout for secret in SECRETS)
    return directory / "tables"


def properties_file(directory: Path, properties: Mapping[str, str]) -> Path:
    path = directory / "client.properties"
    with path.open("w", encoding="utf-8") as file:
        javaproperties.dump(properties, file, timestamp=False)
    return path


def verified(address: str, config: Path, warehouse: Path) -> Result:
    where = ["--bootstrap-server", address, "--warehouse", str(warehouse), "--timeout", "2"]
    return CliRunner().invoke(main, ["verify", *where, "--command-config", str(config)])


def test_the_command_runs_with_the_acls_of_the_job_alone(warehouse: Path) -> None:
    rows = Warehouse(warehouse).rows("SELECT group_id, state FROM groups")
    assert rows == [{"group_id": "g", "state": "NotReady"}]


@pytest.mark.parametrize("name", NAMES)
def test_every_way_in_serves_the_job_the_reasons_and_verify_alike_and_no_secret_is_left_anywhere(
    scene: Scene, ways: Mapping[str, Access], spark: SparkSession, warehouse: Path, tmp_path: Path, name: str
) -> None:
    scene.allow(*EVERYTHING)
    access, lines = ways[name], []
    address = scene.broker.address(access.listener)
    config = properties_file(tmp_path, access.properties)
    settings = JobConfig(bootstrap_server=address, warehouse=warehouse, command_config=config, once=True)
    run_with(spark, settings, lines.append, Event(), tmp_path / "spark.log")
    assert "resuming from the checkpoint" in lines[0]
    assert lines[-1] == "Done: everything there was is processed."
    properties = client_properties(address, config)
    topic = examine(spark, properties, TOPIC)
    assert 0 < read_once(spark, properties, topic).where(WANTED).count() <= topic.offsets

    topics = Topics(properties, lines.append)
    assert topics(["missing"]) == {}
    topics.close()
    ran = verified(address, config, warehouse)
    assert (ran.exit_code, ran.output) == (0, "1 groups agree, 0 differ\n")

    written = [path.read_bytes() for path in warehouse.rglob("*") if path.is_file()]
    written += [spark_log(spark).read_bytes(), *(line.encode() for line in lines)]
    for secret in SECRETS:
        assert not any(secret.encode() in content for content in written)


def spark_log(spark: SparkSession) -> Path:
    jvm = spark._jvm
    assert jvm is not None
    settings = Path(jvm.java.net.URI(jvm.java.lang.System.getProperty("log4j2.configurationFile")).getPath())
    return settings.with_name("spark.log")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (DESCRIBE_TOPIC, f"lacks the ACL DESCRIBE on Topic:{TOPIC}"),
        (READ_TOPIC, f"lacks the ACL READ on Topic:{TOPIC}"),
        (DESCRIBE_OWN_GROUPS, "lacks the ACL DESCRIBE on Group:streams-groups"),
    ],
)
def test_the_job_names_the_acl_that_is_missing(
    scene: Scene,
    ways: Mapping[str, Access],
    spark: SparkSession,
    missing: tuple[ACLOperation, ResourcePattern],
    words: str,
) -> None:
    scene.allow(*(one for one in JOB if one is not missing and missing is not DESCRIBE_TOPIC))
    access = ways["PLAIN"]
    properties = {**access.properties, "bootstrap.servers": scene.broker.address(access.listener)}
    with pytest.raises(JobError, match=words) as refused:
        examine(spark, properties, TOPIC)
    assert "\n" not in str(refused.value)


def test_verify_names_the_acls_that_it_lacks(
    scene: Scene, ways: Mapping[str, Access], warehouse: Path, tmp_path: Path
) -> None:
    access = ways["PLAIN"]
    address, config = scene.broker.address(access.listener), properties_file(tmp_path, access.properties)
    for allowed, words in (
        (JOB, "lacks the ACL DESCRIBE on Group:g;"),
        ((DESCRIBE_GROUPS, DESCRIBE_OWN_GROUPS), f"lacks the ACL DESCRIBE on Topic:{TOPIC};"),
    ):
        scene.allow(*allowed)
        refused = verified(address, config, warehouse)
        assert refused.exit_code == 1
        assert words in refused.output
        assert refused.output.count("\n") == 1, refused.output


def test_topics_that_may_not_be_seen_are_not_taken_for_missing(scene: Scene, ways: Mapping[str, Access]) -> None:
    scene.allow(*JOB)
    access, lines = ways["PLAIN"], []
    topics = Topics({**access.properties, "bootstrap.servers": scene.broker.address(access.listener)}, lines.append)
    assert topics(["missing"]) is None
    topics.close()
    assert lines == []


def test_properties_that_only_other_tools_need_are_left_out(tmp_path: Path) -> None:
    config = properties_file(tmp_path, {"group.id": "x", "key.deserializer": "y", "client.id": "z"})
    assert client_properties("a:1", config) == {"client.id": "z", "bootstrap.servers": "a:1"}
