"""Kafka client properties as settings of kafka-python."""

import base64
import json
import socket
import ssl
import tempfile
import time
from pathlib import Path

import pytest

from streaming_app.kafka import diagnose
from streaming_app.kafka.properties import SecurityError, read_properties
from streaming_app.kafka.security import TokenProvider, security_settings
from tests.support.certificates import (
    KEY_PASSWORD,
    STORE_PASSWORD,
    create_authority,
    create_certificate,
    create_java_trust_store,
    create_jks_store,
    write_pem_store,
    write_pkcs12_store,
)

EXAMPLES = Path(__file__).parents[2] / "deploy" / "kafka"

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ENV_PROVIDER = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


def sasl(config: str, mechanism: str = "PLAIN") -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": config}


def tls(name: str, value: str) -> dict[str, str]:
    return {"security.protocol": "SSL", name: value}


OAUTH_LOGIN = {
    **sasl(f"{OAUTH} required;", "OAUTHBEARER"),
    "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
}
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a property
SUITE = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("value", "password"),
    [(r'"a\"b;c=d\\"', r'a"b;c=d' + "\\"), ("'it is'", "it is"), ("bare-word", "bare-word"), ('"pä ss"', "pä ss")],
)
def test_a_password_may_be_quoted_in_every_way_that_java_supports(value: str, password: str) -> None:
    assert security_settings(sasl(f"  {SCRAM}\n required\n username=alice\n password={value} ;", "SCRAM-SHA-256")) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol TLS: must be one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism GSSAPI is supported only by Kafka's Java client"),
        (sasl("", "OAUTHBEARER"), f"start with {OAUTH}"),
        ({**OAUTH_LOGIN, "sasl.login.callback.handler.class": "com.example.Own"}, "Own is Java code"),
        ({**OAUTH_LOGIN, "sasl.login.callback.handler.class": ""}, "handler.class is missing"),
        (OAUTH_LOGIN, "token.endpoint.url is missing: must be"),
        ({**OAUTH_LOGIN, TOKEN_URL: "htps://alice:pa55@x/token"}, "token.endpoint.url htps://x/token: must be"),
        ({**OAUTH_LOGIN, TOKEN_URL: "http://x"}, "has no clientId and no clientSecret"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        (sasl(f'{PLAIN} required username="a" password="b"'), "end with a semicolon"),
        (sasl(f'{PLAIN} required username="a";'), "has no password"),
        (tls("ssl.truststore.location", "gone.jks"), "gone.jks: No such file"),
        (tls("ssl.truststore.location", __file__), "a wrong ssl.truststore.password, or not a store"),
        (
            {**tls("ssl.keystore.location", "k"), "ssl.keystore.type": "BCFKS"},
            "ssl.keystore.type BCFKS can be read by Java only: use PEM, JKS or PKCS12",
        ),
        ({"config.providers": "vault", "config.providers.vault.class": "a.Vault"}, "vault.class a.Vault: only"),
        ({**ENV_PROVIDER, "ssl.key.password": "${env:NOT_SET_HERE}"}, "ssl.key.password: .* does not exist"),
        (tls("ssl.enabled.protocols", "TLSv1"), "ssl.enabled.protocols TLSv1: only"),
        ({**tls("ssl.keystore.type", "PEM"), "ssl.keystore.key": "key"}, "needs ssl.keystore.certificate.chain"),
        (
            {**tls("ssl.enabled.protocols", "TLSv1.2"), "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"},
            r"ssl\.cipher\.suites has no suite of a version of TLS",
        ),
        (tls("ssl.cipher.suites", "TLS_ODD"), r"ssl\.cipher\.suites TLS_ODD: this machine's OpenSSL has none of them$"),
    ],
)
def test_an_invalid_or_unsupported_property_is_one_line_that_names_it(properties: dict[str, str], message: str) -> None:
    with pytest.raises(SecurityError, match=message) as raised:
        security_settings(properties)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("suites", "of_tls_1_2", "has_tls_1_3"),
    [
        (
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_256_GCM_SHA384",
            {"ECDHE-ECDSA-AES256-GCM-SHA384", "AES256-GCM-SHA384"},
            False,
        ),
        (f"TLS_AES_256_GCM_SHA384,{SUITE}", {"ECDHE-RSA-AES128-GCM-SHA256"}, True),
        ("TLS_AES_256_GCM_SHA384", None, True),
    ],
)
def test_only_the_named_suites_are_offered(suites: str, of_tls_1_2: set[str] | None, has_tls_1_3: bool) -> None:
    made = security_settings(tls("ssl.cipher.suites", suites))["ssl_context"]
    highest = made.maximum_version
    assert has_tls_1_3 == (highest in {ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.MAXIMUM_SUPPORTED})
    if of_tls_1_2 is None:
        assert made.minimum_version == ssl.TLSVersion.TLSv1_3
    else:
        assert made.minimum_version == ssl.TLSVersion.TLSv1_2
        assert {one["name"] for one in made.get_ciphers() if not one["name"].startswith("TLS_")} == of_tls_1_2


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`both`: a key encrypted with `secret` and its certificate in one file; `key` and `chain`: each alone."""
    directory, own = tmp_path_factory.mktemp("pem"), create_authority("localhost")
    key = own.key_pem("secret")
    for name, text in {"key": key, "chain": own.pem, "both": key + own.pem}.items():
        (directory / name).write_text(text, "ascii")
    return directory


def test_a_user_may_turn_off_the_check_of_host_names_and_the_older_version_of_tls() -> None:
    chosen = {"ssl.endpoint.identification.algorithm": "", "ssl.enabled.protocols": "TLSv1.3"}
    made = security_settings({"security.protocol": "SSL", **chosen})["ssl_context"]
    assert (made.check_hostname, made.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert made.minimum_version == ssl.TLSVersion.TLSv1_3


def test_a_client_certificate_is_read_from_a_file_or_from_the_properties(pem: Path) -> None:
    inline = {name: (pem / name).read_text() for name in ("key", "chain")}
    for source in (
        {"ssl.keystore.key": inline["key"], "ssl.keystore.certificate.chain": inline["chain"]},
        {"ssl.keystore.location": str(pem / "both")},
    ):
        properties = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", **source}
        assert security_settings({**properties, "ssl.key.password": "secret"})["ssl_context"]
        for wrong in ("other", ""):
            with pytest.raises(SecurityError, match=r"wrong ssl\.key\.password"):
                security_settings({**properties, "ssl.key.password": wrong})


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# a comment\nsasl.jaas.config={PLAIN} required \\\n  username=\\u0061 ;\n", "utf-8")
    assert read_properties(file) == {"sasl.jaas.config": f"{PLAIN} required username=a ;"}
    with pytest.raises(SecurityError, match="missing: No such file"):
        read_properties(tmp_path / "missing")


def test_config_providers_read_the_environment_files_and_directories_as_in_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME_OF_USER", "alice")
    (tmp_path / "secrets.properties").write_text("password=s3cret\n", "utf-8")
    (tmp_path / "mounted").write_text("PLAIN", "utf-8")
    package = "org.apache.kafka.common.config.provider"
    classes = {"env": "EnvVar", "file": "File", "dir": "Directory"}
    properties = {
        "config.providers": "env, file,dir",
        **{f"config.providers.{name}.class": f"{package}.{prefix}ConfigProvider" for name, prefix in classes.items()},
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": f"${{dir:{tmp_path}:mounted}}",
        "sasl.jaas.config": f"{PLAIN} required username=${{env:NAME_OF_USER}} "
        f'password="${{file:{tmp_path}/secrets.properties:password}}${{other:x}}";',
    }
    settings = security_settings(properties)
    assert settings["sasl_mechanism"] == "PLAIN"
    assert settings["sasl_plain_username"] == "alice"
    assert settings["sasl_plain_password"] == "s3cret${other:x}"  # noqa: S105 - of this test
    unresolved = security_settings({**properties, "config.providers": "", "sasl.mechanism": "PLAIN"})
    assert unresolved["sasl_plain_username"] == "${env:NAME_OF_USER}"


def test_a_token_is_cached_until_most_of_its_lifetime_is_over() -> None:
    requests: list[float] = []

    def request_token(lifetime: float) -> str:
        requests.append(lifetime)
        claims = json.dumps({"exp": time.time() + lifetime}).encode()
        return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.x"

    valid, expired = TokenProvider(lambda: request_token(3600), {"a": "b"}), TokenProvider(lambda: request_token(0), {})
    assert valid.token() == valid.token()
    assert valid.extensions() == {"a": "b"}
    assert len(requests) == 1
    assert expired.token()
    assert expired.token()
    assert len(requests) == 3


def test_no_line_shows_the_user_of_a_token_endpoint() -> None:
    config = {"sasl.jaas.config": f'{OAUTH} required clientId="id" clientSecret="secret";'}
    settings = security_settings({**OAUTH_LOGIN, **config, TOKEN_URL: "http://alice:pa55@127.0.0.1:1/token"})
    with pytest.raises(SecurityError) as refused:
        settings["sasl_oauth_token_provider"].token()
    assert "http://127.0.0.1:1/token returned no token" in str(refused.value)
    assert not any(secret in str(refused.value) for secret in ("pa55", "alice"))


@pytest.mark.java  # keytool
def test_stores_of_java_are_read_and_no_key_and_no_file_is_left_behind(
    pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = create_certificate(create_authority(), "job")
    trust = create_java_trust_store(pem / "trust.jks", "JKS", create_authority())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = write_pkcs12_store(pem / "own.p12", own, create_authority())
    jks = create_jks_store(pem / "own.jks", store)
    common = {"security.protocol": "SSL", "ssl.keystore.password": STORE_PASSWORD}
    assert security_settings({**common, "ssl.keystore.location": str(store)})["ssl_context"]
    from_jks = {**common, "ssl.keystore.location": str(jks), "ssl.key.password": KEY_PASSWORD}
    assert security_settings(from_jks)["ssl_context"]
    for wrong in ({"ssl.key.password": "other"}, {"ssl.keystore.password": "other"}):
        with pytest.raises(SecurityError, match=r"a wrong ssl\.keystore\.password or ssl\.key\.password"):
            security_settings({**from_jks, **wrong})
    without_password = security_settings(tls("ssl.truststore.location", str(trust)))["ssl_context"]
    assert len(without_password.get_ca_certs()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.properties")), ids=lambda path: path.stem)
def test_the_example_properties_are_valid(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, own = create_authority(), create_certificate(create_authority(), "streams-groups")
    write_pem_store(tmp_path / "ca.pem", trusted=ca)
    write_pem_store(tmp_path / "client.pem", own=own)
    write_pkcs12_store(tmp_path / "client.p12", own, ca)
    write_pkcs12_store(tmp_path / "trust.p12", own, ca)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "client-secret").write_text("x", "utf-8")
    (tmp_path / "secrets.properties").write_text("password=x\n", "utf-8")
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    monkeypatch.setenv("KAFKA_KEY_PASSWORD", "")
    monkeypatch.setenv("KAFKA_STORE_PASSWORD", STORE_PASSWORD)
    properties = read_properties(example)
    settings = security_settings(
        {name: value.replace("/etc/streams-groups", str(tmp_path)) for name, value in properties.items()}
    )
    assert settings["security_protocol"] == properties["security.protocol"]
    assert settings["ssl_context"].verify_mode == ssl.CERT_REQUIRED
    assert settings["ssl_context"].check_hostname


def test_a_listener_that_waits_for_the_rest_of_a_message_is_asked_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """To Kafka a ClientHello begins a message of 369 MB, which `socket.request.max.bytes` may allow."""
    monkeypatch.setattr(diagnose, "_CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(diagnose, "_log_in", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert diagnose.find_cause(f"127.0.0.1:{listener.getsockname()[1]}", {}) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ssl.SSLEOFError, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006)"),
        (
            ssl.SSLZeroReturnError,
            "TLS/SSL connection has been closed (EOF) (_ssl.c:992)",
        ),  # Python 3.11.2, of Debian 12
    ],
)
def test_a_listener_that_closes_the_connection_does_not_use_tls(
    monkeypatch: pytest.MonkeyPatch, kind: type[ssl.SSLError], text: str
) -> None:
    def wrap_socket(*_: object, **_named: object) -> None:
        error = kind(8, text)
        error.reason = "UNKNOWN"
        raise error

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_socket)
    monkeypatch.setattr(diagnose, "_log_in", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"127.0.0.1:{listener.getsockname()[1]}"
        assert diagnose.find_cause(server, {}) is None
        cause = diagnose.find_cause(server, {"security.protocol": "SSL"})
        assert cause == diagnose.LISTENER_WITHOUT_TLS.format(server=server)
