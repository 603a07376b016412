"""Kafka client properties to settings of kafka-python."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from streaming_app.local.answering import reserve
from streaming_app.local.broker import LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.member import Member
from streaming_app.protocol.security import SecurityError, read_properties, security_settings
from streaming_app.protocol.topology import subtopology, topology

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def sasl(config: str, mechanism: str = "PLAIN") -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": config}


def test_nothing_said_is_plaintext() -> None:
    assert security_settings({"client.id": "x", "request.timeout.ms": "1"}) == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_passwords_are_taken_from_the_jaas_line(mechanism: str, module: str) -> None:
    assert security_settings(sasl(f'{module} required username="alice" password="s3cret";', mechanism)) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "s3cret",
    }


@pytest.mark.parametrize(
    ("spelled", "password"),
    [
        (r'"a\"b;c=d\\"', r'a"b;c=d' + "\\"),
        ("'it is'", "it is"),
        ("bare-word", "bare-word"),
        ('""', ""),
        ('"pä ss"', "pä ss"),
    ],
)
def test_a_password_may_be_quoted_in_every_way_of_java(spelled: str, password: str) -> None:
    told = security_settings(sasl(f"  {PLAIN}\n required\n username=alice\n password={spelled} ;"))
    assert told["sasl_plain_password"] == password


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol TLS: must be one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism GSSAPI is not supported"),
        (sasl("", "OAUTHBEARER"), "sasl.mechanism OAUTHBEARER is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        (sasl(f'{PLAIN} required username="a" password="b"'), "end with a semicolon"),
        (sasl(f'{SCRAM} required username="a" password="b";'), f"begin with {PLAIN}"),
        (sasl(f'{PLAIN} required username="a";'), "has no password"),
        (sasl(f'{PLAIN} required username="a" password;'), "must be MODULE required"),
        (sasl(f'{PLAIN} required username="a" password="b;'), "cannot be read from character"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "trust.jks"}, "ssl.truststore.type JKS .*use PEM"),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "k.p12", "ssl.keystore.type": "PKCS12"},
            "ssl.keystore.type PKCS12 .*use PEM",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/no/such"},
            "/no/such: No such file",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "none"},
            "no PEM certificates",
        ),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1"}, "ssl.enabled.protocols TLSv1: only"),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.key": "key"},
            "needs ssl.keystore.certificate.chain",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_that_names_the_property(properties: dict[str, str], words: str) -> None:
    with pytest.raises(SecurityError, match=words) as refused:
        security_settings(properties)
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key encrypted with `secret` and its own certificate, in one file as Kafka wants it; `server`: not encrypted."""
    directory = tmp_path_factory.mktemp("pem")
    password, whom = ("-passin", "pass:secret"), ("-subj", "/CN=localhost", "-days", "2")
    names = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    for command in (
        ("genpkey", "-algorithm", "RSA", "-aes-256-cbc", "-pass", "pass:secret", "-out", "key"),
        ("req", "-x509", "-key", "key", *password, *whom, *names, "-out", "chain"),
        ("pkey", "-in", "key", *password, "-out", "bare"),
    ):
        subprocess.run(["openssl", *command], cwd=directory, check=True, capture_output=True)
    (directory / "both").write_text((directory / "key").read_text() + (directory / "chain").read_text())
    (directory / "server").write_text((directory / "bare").read_text() + (directory / "chain").read_text())
    return directory


def test_a_trust_store_replaces_the_machines_authorities(pem: Path) -> None:
    system = security_settings({"security.protocol": "SSL"})["ssl_context"]
    own = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(pem / "chain")}
    trusting = security_settings(own)["ssl_context"]
    assert len(trusting.get_ca_certs()) == 1
    assert len(system.get_ca_certs()) != 1
    assert trusting.verify_mode == system.verify_mode == ssl.CERT_REQUIRED
    assert trusting.check_hostname
    assert not security_settings({**own, "ssl.endpoint.identification.algorithm": ""})["ssl_context"].check_hostname
    only = security_settings({**own, "ssl.enabled.protocols": "TLSv1.3"})["ssl_context"]
    assert only.minimum_version == ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("inline", [False, True])
def test_a_client_certificate_is_read_from_a_file_or_from_the_properties(pem: Path, inline: bool) -> None:
    given = (
        {"ssl.keystore.key": (pem / "key").read_text(), "ssl.keystore.certificate.chain": (pem / "chain").read_text()}
        if inline
        else {"ssl.keystore.location": str(pem / "both")}
    )
    properties = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.key.password": "secret", **given}
    assert security_settings(properties)["ssl_context"]
    for wrong in ({**properties, "ssl.key.password": "other"}, {**properties, "ssl.key.password": ""}):
        with pytest.raises(SecurityError, match=r"wrong ssl\.key\.password"):
            security_settings(wrong)


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# ours\nsasl.jaas.config={PLAIN} required \\\n  username=\\u0061 ;\n", "utf-8")
    assert read_properties(file) == {"sasl.jaas.config": f"{PLAIN} required username=a ;"}
    with pytest.raises(SecurityError, match="nowhere: No such file"):
        read_properties(tmp_path / "nowhere")


@pytest.fixture
def secured(start_broker: Callable[..., LocalBroker], pem: Path) -> str:
    """The address at which a broker wants TLS and a password; its other listener is as ever."""
    with ExitStack() as held:
        plain, controller, secure = (held.enter_context(reserve()).getsockname()[1] for _ in range(3))
    addresses = {"PLAINTEXT": plain, "CONTROLLER": controller, "SECURE": secure}
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in addresses.items()]
    start_broker(
        port=plain,
        properties={
            "listeners": ",".join(listeners),
            "advertised.listeners": f"{listeners[0]},{listeners[2]}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} required user_alice="s;\\"x";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pem / "server"),  # in the clear: Java's security providers differ in ciphers
        },
    )
    return f"127.0.0.1:{secure}"


@pytest.mark.broker
def test_a_broker_that_wants_tls_and_a_password_is_reached_by_properties_alone(secured: str, pem: Path) -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="alice" password="s;\\"x";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem / "chain"),
    }
    with StreamsGroupClient(secured, **security_settings(properties)) as client:
        Member(client, "g", topology(subtopology("0", source_topics=["gone"]))).join()
        assert client.list_groups() == {"g": "NotReady"}
