"""Kafka client properties to settings of kafka-python."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from streaming_app.protocol.oauth import Tokens
from streaming_app.protocol.security import SecurityError, read_properties, security_settings
from tests.security.certificates import (
    KEY_PASSWORD,
    STORE_PASSWORD,
    authority,
    java_trust_store,
    jks_store,
    pem_store,
    pkcs12_store,
    signed,
)

EXAMPLES = Path(__file__).parents[2] / "deploy" / "kafka"

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FROM_ENVIRONMENT = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


def sasl(config: str, mechanism: str = "PLAIN") -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": config}


TOKENS = {
    **sasl(f"{OAUTH} required;", "OAUTHBEARER"),
    "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
}


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
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism GSSAPI is known to Kafka's own client only"),
        (sasl("", "OAUTHBEARER"), f"begin with {OAUTH}"),
        ({**TOKENS, "sasl.login.callback.handler.class": "com.example.Own"}, "Own is Java code"),
        ({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "ftp://x: must be an http, https or file URL"),
        (TOKENS, "token.endpoint.url is missing: must be"),
        ({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "http://x"}, "has no clientId and no clientSecret"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        (sasl(f'{PLAIN} required username="a" password="b"'), "end with a semicolon"),
        (sasl(f'{SCRAM} required username="a" password="b";'), f"begin with {PLAIN}"),
        (sasl(f'{PLAIN} required username="a";'), "has no password"),
        (sasl(f'{PLAIN} required username="a" password;'), "must be MODULE required"),
        (sasl(f'{PLAIN} required username="a" password="b;'), "cannot be read from character"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "gone.jks"}, "gone.jks: No such file"),
        ({"security.protocol": "SSL", "ssl.truststore.location": __file__}, "a wrong ssl.truststore.password, or no"),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "k", "ssl.keystore.type": "BCFKS"},
            "ssl.keystore.type BCFKS can be read by Java only: use PEM, JKS or PKCS12",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.certificates": "text"},
            "ssl.truststore.certificates needs ssl.truststore.type=PEM",
        ),
        ({"config.providers": "vault", "config.providers.vault.class": "a.Vault"}, "vault.class a.Vault: only"),
        ({**FROM_ENVIRONMENT, "ssl.key.password": "${env:NOT_SET_HERE}"}, "ssl.key.password: .* is not there"),
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


def test_secrets_come_from_environment_files_and_directories_as_kafka_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME_OF_USER", "alice")
    (tmp_path / "secrets.properties").write_text("password=s3cret\n", "utf-8")
    (tmp_path / "mounted").write_text("PLAIN", "utf-8")
    package = "org.apache.kafka.common.config.provider"
    kinds = {"env": "EnvVar", "file": "File", "dir": "Directory"}
    properties = {
        "config.providers": "env, file,dir",
        **{f"config.providers.{name}.class": f"{package}.{kind}ConfigProvider" for name, kind in kinds.items()},
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": f"${{dir:{tmp_path}:mounted}}",
        "sasl.jaas.config": f"{PLAIN} required username=${{env:NAME_OF_USER}} "
        f'password="${{file:{tmp_path}/secrets.properties:password}}${{other:x}}";',
    }
    told = security_settings(properties)
    assert told["sasl_mechanism"] == "PLAIN"
    assert told["sasl_plain_username"] == "alice"
    assert told["sasl_plain_password"] == "s3cret${other:x}"  # noqa: S105 - of this test
    named = security_settings({**properties, "config.providers": "", "sasl.mechanism": "PLAIN"})
    assert named["sasl_plain_username"] == "${env:NAME_OF_USER}"


def test_a_token_is_kept_until_most_of_its_life_is_over() -> None:
    asked: list[float] = []

    def ask(life: float) -> str:
        asked.append(life)
        claims = json.dumps({"exp": time.time() + life}).encode()
        return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.x"

    lasting, ended = Tokens(lambda: ask(3600), {"a": "b"}), Tokens(lambda: ask(0), {})
    assert lasting.token() == lasting.token()
    assert lasting.extensions() == {"a": "b"}
    assert len(asked) == 1
    assert ended.token()
    assert ended.token()
    assert len(asked) == 3


def test_no_key_and_no_file_is_left_behind(pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = signed(authority(), "job")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = pkcs12_store(pem / "own.p12", own, authority())
    jks = jks_store(pem / "own.jks", store)
    common = {"security.protocol": "SSL", "ssl.keystore.password": STORE_PASSWORD}
    assert security_settings({**common, "ssl.keystore.location": str(store)})["ssl_context"]
    either = {**common, "ssl.keystore.location": str(jks), "ssl.key.password": KEY_PASSWORD}
    assert security_settings(either)["ssl_context"]
    for wrong in ({"ssl.key.password": "other"}, {"ssl.keystore.password": "other"}):
        with pytest.raises(SecurityError, match=r"a wrong ssl\.keystore\.password or ssl\.key\.password"):
            security_settings({**either, **wrong})
    assert list(tmp_path.iterdir()) == []


def test_the_certificates_of_a_jks_store_are_read_without_its_password_too(tmp_path: Path) -> None:
    store = java_trust_store(tmp_path / "trust.jks", "JKS", authority())
    settings = security_settings({"security.protocol": "SSL", "ssl.truststore.location": str(store)})
    assert len(settings["ssl_context"].get_ca_certs()) == 1


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.properties")), ids=lambda path: path.stem)
def test_the_examples_can_be_followed(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, own = authority(), signed(authority(), "streams-groups")
    pem_store(tmp_path / "ca.pem", trusted=ca)
    pem_store(tmp_path / "client.pem", of=own)
    pkcs12_store(tmp_path / "client.p12", own, ca)
    pkcs12_store(tmp_path / "trust.p12", own, ca)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "client-secret").write_text("x", "utf-8")
    (tmp_path / "secrets.properties").write_text("password=x\n", "utf-8")
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    monkeypatch.setenv("KAFKA_KEY_PASSWORD", "")
    monkeypatch.setenv("KAFKA_STORE_PASSWORD", STORE_PASSWORD)
    given = read_properties(example)
    settings = security_settings(
        {name: value.replace("/etc/streams-groups", str(tmp_path)) for name, value in given.items()}
    )
    assert settings["security_protocol"] == given["security.protocol"]
    assert settings["ssl_context"].verify_mode == ssl.CERT_REQUIRED
    assert settings["ssl_context"].check_hostname
