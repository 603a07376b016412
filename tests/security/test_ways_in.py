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
from streaming_app.job.source import client_properties, examine
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
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, a cluster's name for each way in: tables are made once."""
    return tmp_path_factory.mktemp("warehouse")


def properties_file(directory: Path, properties: Mapping[str, str]) -> Path:
    path = directory / "client.properties"
    with path.open("w", encoding="utf-8") as file:
        javaproperties.dump(properties, file, timestamp=False)
    return path


def verified(address: str, config: Path, warehouse: Path, cluster: str) -> Result:
    where = ["--bootstrap-server", address, "--warehouse", str(warehouse), "--cluster", cluster, "--timeout", "2"]
    return CliRunner().invoke(main, ["verify", *where, "--command-config", str(config)])


@pytest.mark.parametrize("name", NAMES)
def test_every_way_in_serves_the_job_and_verify_alike_and_no_secret_is_left_anywhere(
    scene: Scene, ways: Mapping[str, Access], spark: SparkSession, warehouse: Path, tmp_path: Path, name: str
) -> None:
    scene.allow(*EVERYTHING)
    access, cluster, lines = ways[name], name.replace(" ", "-"), []
    address = scene.broker.address(access.listener)
    config = properties_file(tmp_path, access.properties)
    settings = JobConfig(
        bootstrap_server=address, warehouse=warehouse, cluster=cluster, command_config=config, once=True
    )
    run_with(spark, settings, lines.append, Event(), tmp_path / "spark.log")
    (row,) = Warehouse(warehouse).rows(
        f"SELECT group_id, state, not_ready_reason AS reason FROM groups WHERE cluster = '{cluster}'"
    )
    assert row["reason"] == "MISSING_SOURCE_TOPICS: Source topics missing are missing.", lines
    assert (row["group_id"], row["state"]) == ("g", "NotReady")

    ran = verified(address, config, warehouse, cluster)
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


def test_the_command_runs_with_the_acls_of_the_job_alone_and_verify_names_those_that_it_lacks(
    scene: Scene, ways: Mapping[str, Access], tmp_path: Path
) -> None:
    scene.allow(*JOB)
    access, warehouse = ways["SCRAM-SHA-512"], tmp_path / "warehouse"
    address = scene.broker.address(access.listener)
    provided = {  # by way of a config provider, as deploy/kafka has it
        **access.properties,
        "sasl.jaas.config": "${file:" + str(tmp_path / "secrets") + ":line}",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "group.id": "of-another-tool",
    }
    with (tmp_path / "secrets").open("w", encoding="utf-8") as file:
        javaproperties.dump({"line": access.properties["sasl.jaas.config"]}, file)
    config = properties_file(tmp_path, provided)
    ran = run_job(address, warehouse, "--command-config", config)
    assert (ran.returncode, ran.stderr) == (0, "")
    (row,) = Warehouse(warehouse).rows("SELECT state, not_ready_reason AS reason FROM groups")
    assert row["state"] == "NotReady"
    assert not (row["reason"] or "").startswith("MISSING")  # which topics there are was not to be known
    assert all(secret not in ran.stdout for secret in SECRETS)

    for allowed, words in (
        (JOB, "lacks the ACL DESCRIBE on Group:g"),
        ((DESCRIBE_GROUPS, DESCRIBE_OWN_GROUPS), f"lacks the ACL DESCRIBE on Topic:{TOPIC}"),
    ):
        scene.allow(*allowed)
        refused = verified(address, config, warehouse, "default")
        assert refused.exit_code == 1
        assert words in refused.output
        assert refused.output.count("\n") == 1, refused.output
    scene.allow(*EVERYTHING)
    agreed = verified(address, config, warehouse, "default")
    assert (agreed.exit_code, agreed.output) == (0, "1 groups agree, 0 differ\n")


def test_properties_that_only_other_tools_need_are_left_out(tmp_path: Path) -> None:
    config = properties_file(tmp_path, {"group.id": "x", "key.deserializer": "y", "client.id": "z"})
    assert client_properties("a:1", config) == {"client.id": "z", "bootstrap.servers": "a:1"}
