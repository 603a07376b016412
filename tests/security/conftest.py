"""One guarded broker for all of these tests, and the client properties of each mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from streaming_app.protocol.member import Member
from streaming_app.protocol.topology import subtopology, topology
from tests.security.certificates import (
    KEY_PASSWORD,
    STORE_PASSWORD,
    java_trust_store,
    jks_store,
    pem_store,
    pkcs12_store,
)
from tests.security.scene import PASSWORD, USER, Scene, guarded_broker
from tests.security.tokens import CLIENT, SECRET, token_endpoint

_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"


class Access(NamedTuple):
    """A listener of the guarded broker and the properties to be let in."""

    listener: str
    properties: Mapping[str, str]

    def but(self, **others: str) -> Access:
        """The same with other properties: `ssl_keystore_type` for `ssl.keystore.type`."""
        changed = {name.replace("_", "."): value for name, value in others.items()}
        return Access(self.listener, {**self.properties, **changed})


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The broker, with a group that is not ready."""
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as running:
        Member(running.client, "g", topology(subtopology("0", source_topics=["missing"]))).join()
        yield running


@pytest.fixture(scope="session")
def ways(scene: Scene) -> Iterator[Mapping[str, Access]]:
    """Every way in, by name."""
    directory, signs = scene.directory, scene.authority
    trust = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem_store(directory / "trust.pem", trusted=signs.ca)),
    }
    own = pkcs12_store(directory / "job.p12", signs.client, signs.ca)
    quoted = PASSWORD.replace('"', '\\"')

    def sasl(mechanism: str, module: str, options: str, **more: str) -> Access:
        line = {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {options};"}
        return Access("SECURE", {"security.protocol": "SASL_SSL", **line, **trust, **more})

    def by_token(url: str, options: str) -> Access:
        handler = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
        way = {"sasl.login.callback.handler.class": handler, "sasl.oauthbearer.token.endpoint.url": url}
        return sasl("OAUTHBEARER", _OAUTH, options, **way)

    def mutual(kind: str, trusted: Path, keys: Path, **passwords: str) -> Access:
        stores = {"truststore": trusted, "keystore": keys}
        located = {f"ssl.{store}.location": str(path) for store, path in stores.items()}
        kinds = {f"ssl.{store}.type": kind for store in stores}
        given = {name.replace("_", "."): value for name, value in passwords.items()}
        return Access("MUTUAL", {"security.protocol": "SSL", **kinds, **located, **given})

    passwords = {"ssl_truststore_password": STORE_PASSWORD, "ssl_keystore_password": STORE_PASSWORD}
    user = f'username="{USER}" password="{quoted}"'
    token = directory / "token"
    token.write_text(signs.token(), "utf-8")
    unsecured = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    unsecured["sasl.jaas.config"] = f'{_OAUTH} required unsecuredLoginStringClaim_sub="{USER}";'
    with token_endpoint(signs.token) as endpoint:
        yield {
            "PLAIN": sasl("PLAIN", f"{_MODULES}.plain.PlainLoginModule", user),
            "SCRAM-SHA-256": sasl("SCRAM-SHA-256", f"{_MODULES}.scram.ScramLoginModule", user),
            "SCRAM-SHA-512": sasl("SCRAM-SHA-512", f"{_MODULES}.scram.ScramLoginModule", user),
            "token of an endpoint": by_token(endpoint, f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="kafka"'),
            "token of a file": by_token(token.as_uri(), ""),
            "token of nobody": Access("SASL", unsecured),
            "certificate in PEM": mutual(
                "PEM", Path(trust["ssl.truststore.location"]), pem_store(directory / "job.pem", of=signs.client)
            ),
            "certificate in PKCS12": mutual(
                "PKCS12", java_trust_store(directory / "trust.p12", "PKCS12", signs.ca), own, **passwords
            ),
            "certificate in JKS": mutual(
                "JKS",
                java_trust_store(directory / "trust.jks", "JKS", signs.ca),
                jks_store(directory / "job.jks", own),
                **passwords,
                ssl_key_password=KEY_PASSWORD,
            ),
        }
