"""What can be wrong between client and broker: one line that says what to do, from Kafka's client and kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_app.job import source
from streaming_app.job.errors import JobError
from streaming_app.job.topics import Topics
from streaming_app.local.answering import reserve
from streaming_app.protocol import trouble
from streaming_app.protocol.trouble import LINES
from tests.job.running import refusal, streams_groups
from tests.security.certificates import authority, pem_store, signed
from tests.security.conftest import Access
from tests.security.scene import PASSWORD, SECRETS, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
Ways = Mapping[str, Access]


def wrong_password(ways: Ways, name: str, _directory: Path) -> Access:
    line = ways[name].properties["sasl.jaas.config"]
    return ways[name].but(sasl_jaas_config=line.replace(PASSWORD.replace('"', '\\"'), "0ther"))


def certificate(kind: str | None) -> Callable[[Ways, str, Path], Access]:
    def given(ways: Ways, name: str, directory: Path) -> Access:
        if kind is None:
            properties = ways[name].properties
            return Access("MUTUAL", {key: properties[key] for key in properties if "keystore" not in key})
        stranger = pem_store(directory / "stranger.pem", of=signed(authority("stranger"), "job"))
        return ways[name].but(ssl_keystore_location=str(stranger))

    return given


def other_authority(ways: Ways, name: str, directory: Path) -> Access:
    other = pem_store(directory / "other.pem", trusted=authority("another"))
    return ways[name].but(ssl_truststore_location=str(other))


def at(listener: str, protocol: str | None = None) -> Callable[[Ways, str, Path], Access]:
    def moved(ways: Ways, name: str, _directory: Path) -> Access:
        properties = dict(ways[name].properties)
        properties["security.protocol"] = protocol or properties["security.protocol"]
        return Access(listener, properties)

    return moved


def bad_endpoint(ways: Ways, name: str, _directory: Path) -> Access:
    line = ways[name].properties["sasl.jaas.config"]
    return ways[name].but(sasl_jaas_config=line.replace("client-s3cret", "0ther"))


CASES: Mapping[str, tuple[Callable[[Ways, str, Path], Access], str, str]] = {
    "wrong password": (wrong_password, "PLAIN", trouble.CREDENTIALS),
    "wrong SCRAM password": (wrong_password, "SCRAM-SHA-512", trouble.CREDENTIALS),
    "mechanism not offered": (at("SASL", "SASL_PLAINTEXT"), "SCRAM-SHA-512", trouble.MECHANISM),
    "wrong client secret": (bad_endpoint, "token of an endpoint", "gives no token: it answers 401"),
    "no client certificate": (certificate(None), "certificate in PEM", trouble.CLIENT_CERTIFICATE),
    "unknown client certificate": (certificate("stranger"), "certificate in PEM", trouble.CLIENT_CERTIFICATE),
    "expired certificate": (at("EXPIRED", "SSL"), "PLAIN", trouble.EXPIRED),
    "certificate of another host": (at("ELSEWHERE", "SSL"), "PLAIN", trouble.OTHER_NAME),
    "unknown authority": (other_authority, "PLAIN", trouble.UNKNOWN_AUTHORITY),
    "TLS to a port without": (at("SASL"), "PLAIN", trouble.NO_TLS),
    "no TLS to a port with": (at("SECURE", "SASL_PLAINTEXT"), "PLAIN", trouble.SPEAKS_TLS),
    "plaintext to a port with TLS": (at("SECURE", "PLAINTEXT"), "PLAIN", trouble.SPEAKS_TLS),
    "no login to a port that wants one": (at("SECURE", "SSL"), "PLAIN", trouble.WANTS_SASL),
    "login to a port that takes none": (at("PLAINTEXT", "SASL_PLAINTEXT"), "PLAIN", trouble.NO_SASL),
    "TLS to nobody": (at("NOBODY"), "PLAIN", trouble.NOBODY),
    "no such host": (at("NO HOST"), "PLAIN", trouble.NO_HOST),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_one_line_from_either_client(
    scene: Scene, ways: Ways, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    given, name, kind = CASES[case]
    access = given(ways, name, tmp_path)
    with reserve() as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    elsewhere = {"NOBODY": nobody, "NO HOST": "no-such-host.invalid:9092", "PLAINTEXT": scene.broker.bootstrap_server}
    address = elsewhere.get(access.listener) or scene.broker.address(access.listener)
    begins = LINES[kind].partition("{told}")[0].format(servers=address, server=address) if kind in LINES else kind

    python = trouble.reason(address, access.properties)
    assert python is not None
    if kind == trouble.MECHANISM:  # kafka-python is not always told
        assert "does not offer" in python
    else:
        assert begins in python

    monkeypatch.setattr(source, "_ANSWER_MS", 1000)  # a time-out, where it is all that Kafka's client says
    with pytest.raises(JobError) as refused:
        source.examine(spark, {**access.properties, "bootstrap.servers": address}, "__consumer_offsets")
    java = str(refused.value)
    assert begins in java
    for line in (python, java):
        assert "\n" not in line
        assert all(secret not in line for secret in SECRETS)


def test_verify_says_the_same_and_the_reasons_of_not_ready_say_it_once(
    scene: Scene, ways: Ways, tmp_path: Path
) -> None:
    access = wrong_password(ways, "SCRAM-SHA-512", tmp_path)
    address = scene.broker.address(access.listener)
    said: list[str] = []
    topics = Topics({**access.properties, "bootstrap.servers": address}, said.append)
    assert topics(["orders"]) is None
    assert topics(["orders"]) is None
    (line,) = said
    assert "come from the log alone, as topics cannot be asked for" in line
    assert f"{address} refused the credentials of --command-config" in line


def test_a_secret_in_a_refused_setting_is_not_told(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text('security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=Plain password="p4ss"\n')
    tables = tmp_path / "warehouse"
    said = refusal(
        streams_groups("verify", "--bootstrap-server", "127.0.0.1:1", "--warehouse", tables, "--command-config", config)
    )
    assert "p4ss" not in said
