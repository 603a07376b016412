"""One secured broker for all tests of this package, and the client configuration of each mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from tests.security.security_harness import PASSWORD, USER, SecurityHarness, start_secure_broker
from tests.security.token_endpoint import CLIENT_ID, CLIENT_SECRET, token_endpoint
from tests.support.certificates import (
    KEY_PASSWORD,
    STORE_PASSWORD,
    create_java_trust_store,
    create_jks_store,
    write_pem_store,
    write_pkcs12_store,
)

_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"


class ClientConfig(NamedTuple):
    """A listener of the secured broker, and client properties with which it accepts a connection."""

    listener: str
    properties: Mapping[str, str]

    def at(self, harness: SecurityHarness) -> dict[str, str]:
        return {**self.properties, "bootstrap.servers": harness.broker.address(self.listener)}

    def with_properties(self, **properties: str) -> ClientConfig:
        """The same with other properties: `ssl_keystore_type` for `ssl.keystore.type`."""
        changed = {name.replace("_", "."): value for name, value in properties.items()}
        return ClientConfig(self.listener, {**self.properties, **changed})


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurityHarness]:
    """The broker, with the group `g`, which is NotReady: its source topic is missing."""
    with start_secure_broker(tmp_path_factory.mktemp("secured")) as harness:
        SimulatedMember(harness.client, "g", topology(subtopology("0", source_topics=["missing"]))).join()
        yield harness


@pytest.fixture
def without_acls(secured: SecurityHarness) -> Iterator[None]:
    """Takes all ACLs away after the test."""
    yield
    secured.allow()


@pytest.fixture(scope="session")
def client_configs(secured: SecurityHarness) -> Iterator[Mapping[str, ClientConfig]]:
    directory, keys = secured.directory, secured.keys
    trust = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(write_pem_store(directory / "trust.pem", trusted=keys.ca)),
    }
    pkcs12_store = write_pkcs12_store(directory / "job.p12", keys.client, keys.ca)
    quoted = PASSWORD.replace('"', '\\"')

    def sasl(mechanism: str, module: str, options: str, **more: str) -> ClientConfig:
        login = {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {options};"}
        return ClientConfig("SECURE", {"security.protocol": "SASL_SSL", **login, **trust, **more})

    def oauth(url: str, options: str) -> ClientConfig:
        handler = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
        source = {"sasl.login.callback.handler.class": handler, "sasl.oauthbearer.token.endpoint.url": url}
        return sasl("OAUTHBEARER", _OAUTH, options, **source)

    def mutual_tls(store_type: str, trust_store: Path, key_store: Path, **passwords: str) -> ClientConfig:
        stores = {"truststore": trust_store, "keystore": key_store}
        locations = {f"ssl.{store}.location": str(path) for store, path in stores.items()}
        types = {f"ssl.{store}.type": store_type for store in stores}
        config = ClientConfig("MUTUAL", {"security.protocol": "SSL", **types, **locations})
        return config.with_properties(**passwords)

    passwords = {"ssl_truststore_password": STORE_PASSWORD, "ssl_keystore_password": STORE_PASSWORD}
    user = f'username="{USER}" password="{quoted}"'
    token = directory / "token"
    token.write_text(keys.create_token(), "utf-8")
    with token_endpoint(keys.create_token) as endpoint:
        yield {
            "PLAIN": sasl("PLAIN", f"{_MODULES}.plain.PlainLoginModule", user),
            "SCRAM-SHA-256": sasl("SCRAM-SHA-256", f"{_MODULES}.scram.ScramLoginModule", user),
            "SCRAM-SHA-512": sasl("SCRAM-SHA-512", f"{_MODULES}.scram.ScramLoginModule", user),
            "token from an endpoint": oauth(
                endpoint, f'clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" scope="kafka"'
            ),
            "token from a file": oauth(token.as_uri(), ""),
            "certificate in PEM": mutual_tls(
                "PEM", Path(trust["ssl.truststore.location"]), write_pem_store(directory / "job.pem", own=keys.client)
            ),
            "certificate in PKCS12": mutual_tls(
                "PKCS12", create_java_trust_store(directory / "trust.p12", "PKCS12", keys.ca), pkcs12_store, **passwords
            ),
            "certificate in JKS": mutual_tls(
                "JKS",
                create_java_trust_store(directory / "trust.jks", "JKS", keys.ca),
                create_jks_store(directory / "job.jks", pkcs12_store),
                **passwords,
                ssl_key_password=KEY_PASSWORD,
            ),
        }
