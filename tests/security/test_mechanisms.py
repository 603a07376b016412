"""The job, `verify` and topic metadata through every mechanism, with the ACLs of the README and no others."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import javaproperties
import pytest
from click.testing import CliRunner, Result
from kafka.admin import ACLOperation, ACLResourcePatternType, ResourcePattern, ResourceType
from pyspark.sql import SparkSession

from streaming_app.cli.main import main
from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError, MissingTopicError
from streaming_app.job.run import run_with
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.properties import client_properties
from streaming_app.kafka.topic_reader import PartitionCounts
from streaming_app.stream.source import WANTED_RECORDS, source_options
from streaming_app.tables.reader import WarehouseReader
from tests.security.conftest import ClientConfig
from tests.security.security_harness import PASSWORD, SECRETS, USER, SecurityHarness
from tests.support.job_runner import run_once
from tests.support.offsets_topic import describe_offsets_topic

pytestmark = pytest.mark.broker
TOPIC = "__consumer_offsets"
_TOPIC = ResourcePattern(ResourceType.TOPIC, TOPIC)
DESCRIBE_TOPIC = (ACLOperation.DESCRIBE, _TOPIC)
READ_TOPIC = (ACLOperation.READ, _TOPIC)
_OWN_GROUPS = ResourcePattern(ResourceType.GROUP, "streams-groups", ACLResourcePatternType.PREFIXED)
DESCRIBE_OWN_GROUPS = (ACLOperation.DESCRIBE, _OWN_GROUPS)
DESCRIBE_APPLICATIONS = (ACLOperation.DESCRIBE, ResourcePattern(ResourceType.TOPIC, "missing"))
DESCRIBE_GROUPS = (ACLOperation.DESCRIBE, ResourcePattern(ResourceType.GROUP, "g"))
JOB = (DESCRIBE_TOPIC, READ_TOPIC, DESCRIBE_OWN_GROUPS)
ALL = (*JOB, DESCRIBE_APPLICATIONS, DESCRIBE_GROUPS)
MECHANISMS = (
    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "token from an endpoint", "token from a file",
    "certificate in PEM", "certificate in PKCS12", "certificate in JKS",
)  # fmt: skip


@pytest.fixture(autouse=True)
def kafka_log() -> Iterator[None]:
    """Restore the level of kafka-python's logger, which the commands raise."""
    level = logging.getLogger("kafka").level
    yield
    logging.getLogger("kafka").setLevel(level)


@pytest.fixture(scope="module")
def warehouse(
    secured: SecurityHarness,
    client_configs: Mapping[str, ClientConfig],
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
    create_warehouse: Callable[[Path], Path],
) -> Path:
    """Tables of a job that ran with the ACLs of the job alone, its password from a config provider."""
    directory, client_config = tmp_path_factory.mktemp("command"), client_configs["SCRAM-SHA-512"]
    secrets = directory / "secrets"
    with secrets.open("w", encoding="utf-8") as file:
        javaproperties.dump({"jaas": client_config.properties["sasl.jaas.config"]}, file)
    properties = {
        **client_config.properties,
        "sasl.jaas.config": f"${{file:{secrets}:jaas}}",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "group.id": "of-another-tool",
        "request.timeout.ms": "60000",
    }
    secured.allow(*JOB)
    create_warehouse(directory / "tables")
    config = write_properties(directory, properties)
    everything: dict[str, Any] = {"offsets": {}, "lag": {}, "command_config": config}
    lines = run_once(spark, secured.broker.address(client_config.listener), directory / "tables", **everything)
    assert lines[-1] == "Done: all available records are processed."
    assert all(secret not in line for secret in SECRETS for line in lines)
    return directory / "tables"


def write_properties(directory: Path, properties: Mapping[str, str]) -> Path:
    path = directory / "client.properties"
    with path.open("w", encoding="utf-8") as file:
        javaproperties.dump(properties, file, timestamp=False)
    return path


def verify(address: str, config: Path, warehouse: Path) -> Result:
    options = ["--bootstrap-server", address, "--warehouse", str(warehouse), "--timeout", "60"]
    return CliRunner().invoke(main, ["verify", *options, "--command-config", str(config)])


def test_the_job_runs_with_the_acls_of_the_job_alone(warehouse: Path) -> None:
    rows = WarehouseReader(warehouse).rows("SELECT group_id, state FROM groups WHERE deleted_at IS NULL")
    assert rows == [{"group_id": "g", "state": "NotReady"}]


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_works_for_job_topic_metadata_and_verify_and_no_secret_is_written(
    secured: SecurityHarness,
    client_configs: Mapping[str, ClientConfig],
    spark: SparkSession,
    warehouse: Path,
    tmp_path: Path,
    name: str,
) -> None:
    secured.allow(*ALL)
    client_config, lines = client_configs[name], []
    address = secured.broker.address(client_config.listener)
    config = write_properties(tmp_path, client_config.properties)
    job_config = JobConfig(bootstrap_server=address, warehouse=warehouse, command_config=config, once=True)
    run_with(spark, job_config, lines.append, Event(), tmp_path / "spark.log")
    assert "resuming from the checkpoint" in lines[0]
    assert lines[-1] == "Done: all available records are processed."
    properties = client_properties(address, config)
    topic = describe_offsets_topic(spark, properties, TOPIC)
    records = spark.read.format("kafka").options(**source_options(properties, topic)).load()
    assert 0 < records.where(WANTED_RECORDS).count() <= topic.offsets

    with closing(SharedConnection(properties, Admin)) as connection:
        assert PartitionCounts(connection, lines.append)(["missing"]) == {}
    result = verify(address, config, warehouse)
    assert (result.exit_code, result.output) == (0, "1 group agrees, 0 differ\n")

    contents = [path.read_bytes() for path in warehouse.rglob("*") if path.is_file()]
    contents += [spark_log(spark).read_bytes(), *(line.encode() for line in lines)]
    for secret in SECRETS:
        assert not any(secret.encode() in content for content in contents)


def test_the_job_runs_with_a_login_that_only_the_java_client_supports(
    secured: SecurityHarness, spark: SparkSession, tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    """A JAAS file of the JVM stands for GSSAPI, and for login handlers of others."""
    secured.allow(*ALL)
    module, quoted = "org.apache.kafka.common.security.plain.PlainLoginModule", PASSWORD.replace('"', '\\"')
    jaas = f'KafkaClient {{ {module} required username="{USER}" password="{quoted}"; }};'
    (tmp_path / "jaas.conf").write_text(jaas, "utf-8")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    config, address = write_properties(tmp_path, login), secured.broker.address("SASL")
    warehouse, lines = create_warehouse(tmp_path / "warehouse"), list[str]()
    with pytest.raises(JobError, match=r"--command-config: sasl\.jaas\.config is missing"):
        describe_offsets_topic(spark, client_properties(address, config), TOPIC)
    with jaas_file(spark, tmp_path / "jaas.conf"):
        job_config = JobConfig(bootstrap_server=address, warehouse=warehouse, command_config=config, once=True)
        run_with(spark, job_config, lines.append, Event(), tmp_path / "spark.log")
        with pytest.raises(MissingTopicError, match="has no topic missing"):
            describe_offsets_topic(spark, client_properties(address, config), "missing")
    assert lines[-1] == "Done: all available records are processed."
    rows = WarehouseReader(warehouse).rows("SELECT group_id FROM groups WHERE deleted_at IS NULL")
    assert rows == [{"group_id": "g"}]
    assert not any("p4ss" in line for line in lines)


@contextmanager
def jaas_file(spark: SparkSession, file: Path) -> Iterator[None]:
    jvm = spark._jvm
    assert jvm is not None
    setting, configuration = "java.security.auth.login.config", jvm.javax.security.auth.login.Configuration
    jvm.java.lang.System.setProperty(setting, str(file))
    configuration.setConfiguration(None)  # it is read again
    try:
        yield
    finally:
        jvm.java.lang.System.clearProperty(setting)
        configuration.setConfiguration(None)


def spark_log(spark: SparkSession) -> Path:
    jvm = spark._jvm
    assert jvm is not None
    log_settings = Path(jvm.java.net.URI(jvm.java.lang.System.getProperty("log4j2.configurationFile")).getPath())
    return log_settings.with_name("spark.log")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (DESCRIBE_TOPIC, f"lacks the ACL DESCRIBE on Topic:{TOPIC}"),
        (READ_TOPIC, f"lacks the ACL READ on Topic:{TOPIC}"),
        (DESCRIBE_OWN_GROUPS, "lacks the ACL DESCRIBE on Group:streams-groups"),
    ],
)
def test_the_job_names_the_acl_that_is_missing(
    secured: SecurityHarness,
    client_configs: Mapping[str, ClientConfig],
    spark: SparkSession,
    missing: tuple[ACLOperation, ResourcePattern],
    message: str,
) -> None:
    secured.allow(*(acl for acl in JOB if acl is not missing and missing is not DESCRIBE_TOPIC))
    with pytest.raises(JobError, match=message) as raised:
        describe_offsets_topic(spark, client_configs["PLAIN"].at(secured), TOPIC)
    assert "\n" not in str(raised.value)


def test_topics_that_may_not_be_described_are_not_taken_for_missing(
    secured: SecurityHarness, client_configs: Mapping[str, ClientConfig]
) -> None:
    secured.allow(*JOB)
    lines: list[str] = []
    with closing(SharedConnection(client_configs["PLAIN"].at(secured), Admin)) as connection:
        assert PartitionCounts(connection, lines.append)(["missing"]) is None
    assert lines == []


def test_properties_for_other_tools_are_left_out(tmp_path: Path) -> None:
    config = write_properties(tmp_path, {"group.id": "x", "key.deserializer": "y", "client.id": "z"})
    assert client_properties("a:1", config) == {"client.id": "z", "bootstrap.servers": "a:1"}
