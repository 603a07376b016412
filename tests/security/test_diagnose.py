"""Each failure between client and broker is one line that says what to do."""

import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_app.errors import JobError, UnreachableError
from streaming_app.kafka import connection, diagnose
from streaming_app.sandbox.child_process import reserve_port
from tests.security.conftest import ClientConfig
from tests.security.security_harness import PASSWORD, SECRETS, SecurityHarness
from tests.support.certificates import (
    STORE_PASSWORD,
    create_authority,
    create_certificate,
    create_java_trust_store,
    write_pem_store,
)
from tests.support.job_runner import error_line, streams_groups
from tests.support.offsets_topic import describe_offsets_topic

pytestmark = [
    pytest.mark.broker,
    # kafka-python 3.0 does not close a socket whose TLS handshake failed; the garbage collector does.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # else it warns in another test


ClientConfigs = Mapping[str, ClientConfig]
MakeConfig = Callable[[ClientConfigs, str, Path], ClientConfig]
"""Returns the client configuration of a mechanism with something wrong in it."""


def with_wrong(secret: str) -> MakeConfig:
    def make(configs: ClientConfigs, name: str, _directory: Path) -> ClientConfig:
        jaas = configs[name].properties["sasl.jaas.config"]
        assert secret in jaas
        return configs[name].with_properties(sasl_jaas_config=jaas.replace(secret, "0ther"))

    return make


with_wrong_password = with_wrong(PASSWORD.replace('"', '\\"'))


def without_client_certificate(configs: ClientConfigs, name: str, _directory: Path) -> ClientConfig:
    properties = configs[name].properties
    return ClientConfig("MUTUAL", {key: properties[key] for key in properties if "keystore" not in key})


def with_untrusted_client_certificate(configs: ClientConfigs, name: str, directory: Path) -> ClientConfig:
    untrusted = create_certificate(create_authority("untrusted"), "job")
    path = write_pem_store(directory / "untrusted.pem", own=untrusted)
    return configs[name].with_properties(ssl_keystore_location=str(path))


def with_other_authority(configs: ClientConfigs, name: str, directory: Path) -> ClientConfig:
    path = write_pem_store(directory / "other.pem", trusted=create_authority("other"))
    return configs[name].with_properties(ssl_truststore_location=str(path))


def at(listener: str, protocol: str | None = None) -> MakeConfig:
    def make(configs: ClientConfigs, name: str, _directory: Path) -> ClientConfig:
        properties = dict(configs[name].properties)
        properties["security.protocol"] = protocol or properties["security.protocol"]
        return ClientConfig(listener, properties)

    return make


_REJECTED = diagnose.CLIENT_CERTIFICATE_REJECTED
CASES: Mapping[str, tuple[MakeConfig, str, str]] = {
    "wrong password": (with_wrong_password, "PLAIN", diagnose.CREDENTIALS_REJECTED),
    "mechanism not enabled": (at("SASL", "SASL_PLAINTEXT"), "SCRAM-SHA-512", diagnose.MECHANISM_NOT_ENABLED),
    "wrong client secret": (
        with_wrong("client-s3cret"),
        "token from an endpoint",
        "returned no token: HTTP status 401",
    ),
    "no client certificate": (without_client_certificate, "certificate in PEM", _REJECTED),
    "untrusted client certificate": (with_untrusted_client_certificate, "certificate in PEM", _REJECTED),
    "expired certificate": (at("EXPIRED", "SSL"), "PLAIN", diagnose.CERTIFICATE_EXPIRED),
    "certificate of another host": (at("WRONGHOST", "SSL"), "PLAIN", diagnose.HOST_NAME_MISMATCH),
    "untrusted authority": (with_other_authority, "PLAIN", diagnose.UNTRUSTED_AUTHORITY),
    "TLS to a listener without": (at("SASL"), "PLAIN", diagnose.LISTENER_WITHOUT_TLS),
    "plaintext to a listener with TLS": (at("SECURE", "PLAINTEXT"), "PLAIN", diagnose.LISTENER_WITH_TLS),
    "no SASL to a listener with": (at("SECURE", "SSL"), "PLAIN", diagnose.LISTENER_WITH_SASL),
    "SASL to a listener without": (at("PLAINTEXT", "SASL_PLAINTEXT"), "PLAIN", diagnose.LISTENER_WITHOUT_SASL),
    "no listener": (at("NONE"), "PLAIN", diagnose.NO_LISTENER),
    "unknown host": (at("UNKNOWN HOST"), "PLAIN", diagnose.UNKNOWN_HOST),
}


@pytest.mark.parametrize("case", CASES)
def test_a_failure_is_one_line_and_the_job_waits_where_that_may_help(
    secured: SecurityHarness,
    client_configs: ClientConfigs,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    make_config, name, cause = CASES[case]
    config = make_config(client_configs, name, tmp_path)
    with reserve_port() as free:
        unused = f"127.0.0.1:{free.getsockname()[1]}"
    addresses = {
        "NONE": unused,
        "UNKNOWN HOST": "no-such-host.invalid:9092",
        "PLAINTEXT": secured.broker.bootstrap_server,
    }
    address = addresses.get(config.listener) or secured.broker.address(config.listener)
    expected = cause.partition("{detail}")[0].format(servers=address, server=address)
    if cause == diagnose.MECHANISM_NOT_ENABLED:  # kafka-python does not always get the broker's reason
        expected = "does not enable"

    monkeypatch.setattr(connection, "CONNECT_SECONDS", 2.0)  # some failures are a time-out
    with pytest.raises(JobError) as raised:
        describe_offsets_topic(spark, {**config.properties, "bootstrap.servers": address}, "__consumer_offsets")
    line = str(raised.value)
    assert expected in line
    assert "\n" not in line
    assert all(secret not in line for secret in SECRETS)
    may_pass = (
        cause.startswith("No Kafka broker answers")
        or "returned no token" in cause
        or cause == diagnose.LISTENER_WITHOUT_TLS  # which looks like a balancer whose brokers are down
    )
    assert isinstance(raised.value, UnreachableError) == may_pass


def test_tls_that_fails_has_its_line_also_where_only_javas_client_supports_the_properties(
    spark: SparkSession, secured: SecurityHarness, tmp_path: Path
) -> None:
    store = create_java_trust_store(tmp_path / "other.jceks", "JCEKS", secured.keys.client)
    address = secured.broker.address("SECURE")
    properties = {
        "bootstrap.servers": address,
        "security.protocol": "SSL",
        "ssl.truststore.type": "JCEKS",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    with pytest.raises(JobError) as raised:
        describe_offsets_topic(spark, properties, "__consumer_offsets")
    assert str(raised.value) == diagnose.UNTRUSTED_AUTHORITY.format(server=address)


def test_a_wrong_password_is_the_cause_also_if_another_server_is_away(
    secured: SecurityHarness, client_configs: ClientConfigs, tmp_path: Path
) -> None:
    config = with_wrong_password(client_configs, "PLAIN", tmp_path)
    address = secured.broker.address(config.listener)
    with reserve_port() as closed:
        servers = f"127.0.0.1:{closed.getsockname()[1]},{address}"
        failure = diagnose.explain(servers, config.properties)
    assert failure.line.startswith(f"{address} rejected the credentials")
    assert not failure.may_pass


def test_an_error_about_a_setting_does_not_contain_its_secret(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text('security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=Plain password="p4ss"\n')
    tables = tmp_path / "warehouse"
    line = error_line(
        streams_groups("verify", "--bootstrap-server", "127.0.0.1:1", "--warehouse", tables, "--command-config", config)
    )
    assert "p4ss" not in line
