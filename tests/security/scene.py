"""A broker that wants to know who asks, by every mechanism that there is, and gives nobody anything unasked."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from streaming_app.local.broker import Guarded, LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from tests.security.certificates import Identity, authority, pem_store, signed

PASSWORD = 'p4ss;"w0rd'  # noqa: S105 - of these tests
SECRETS = (PASSWORD, "p4ss", "store-s3cret", "key-s3cret", "client-s3cret")
USER = "job"
_AUDIENCE, _ISSUER = "kafka", "https://issuer.example"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_ANYTHING = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_VALIDATOR = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"


class Authority(NamedTuple):
    """What the broker's certificates, the client's and the tokens are signed by."""

    ca: Identity
    client: Identity
    tokens: ec.EllipticCurvePrivateKey

    def token(self, lifetime: float = 300.0) -> str:
        """A JWT that the broker takes for the user's."""
        now = int(time.time())
        claims = {
            "sub": USER,
            "iat": now,
            "exp": now + int(lifetime),
            "scope": "kafka",
            "aud": _AUDIENCE,
            "iss": _ISSUER,
        }
        head = {"alg": "ES256", "kid": "1", "typ": "JWT"}
        signing = ".".join(_url64(json.dumps(part).encode()) for part in (head, claims))
        r, s = utils.decode_dss_signature(self.tokens.sign(signing.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signing}.{_url64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def key_set(self) -> str:
        """The key of the tokens as a JSON web key set."""
        point = self.tokens.public_key().public_numbers()
        numbers = {name: _url64(value.to_bytes(32, "big")) for name, value in (("x", point.x), ("y", point.y))}
        return json.dumps(
            {"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig", **numbers}]}
        )


class Scene(NamedTuple):
    """The broker, a client for whom no ACL counts, and who signs what."""

    broker: LocalBroker
    client: StreamsGroupClient
    authority: Authority
    directory: Path

    def allow(self, *allowed: tuple[ACLOperation, ResourcePattern]) -> None:
        """Let USER do this and nothing else."""
        every = ACLFilter(None, "*", ACLOperation.ANY, ACLPermissionType.ANY, _ANYTHING)
        self.client.admin.delete_acls([every])
        if allowed:
            self.client.admin.create_acls(
                [ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, what) for operation, what in allowed]
            )


@contextmanager
def guarded_broker(directory: Path) -> Iterator[Scene]:
    """Listeners: SECURE (SASL over TLS, all mechanisms), MUTUAL (TLS on both sides), SASL (in the clear), and two
    whose certificates are wrong, EXPIRED and ELSEWHERE. PLAINTEXT is for those who set the scene.
    """
    ca = authority()
    signs = Authority(ca, signed(ca, USER), ec.generate_private_key(ec.SECP256R1()))
    stores = {
        "": signed(signs.ca, "broker", host="127.0.0.1"),
        "listener.name.expired.": signed(signs.ca, "broker", host="127.0.0.1", expired=True),
        "listener.name.elsewhere.": signed(signs.ca, "broker", host="elsewhere.example"),
    }
    key_set = directory / "keys.json"
    key_set.write_text(signs.key_set(), "utf-8")
    trusted = pem_store(directory / "broker-trusts.pem", trusted=signs.ca)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "sasl.oauthbearer.expected.audience": _AUDIENCE,
        "sasl.oauthbearer.expected.issuer": _ISSUER,
        "sasl.oauthbearer.jwks.endpoint.url": key_set.as_uri(),
        **_mechanisms("secure", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
        **_mechanisms("sasl", ("PLAIN", "OAUTHBEARER")),
        # SECURE wants tokens that are signed; SASL takes any, as Kafka does unless told otherwise.
        "listener.name.secure.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
    }
    for number, (prefix, identity) in enumerate(stores.items()):
        properties[f"{prefix}ssl.keystore.type"] = "PEM"
        properties[f"{prefix}ssl.keystore.location"] = str(pem_store(directory / f"broker-{number}.pem", of=identity))
    guarded = Guarded(
        protocols={
            "SECURE": "SASL_SSL",
            "MUTUAL": "SSL",
            "SASL": "SASL_PLAINTEXT",
            "EXPIRED": "SSL",
            "ELSEWHERE": "SSL",
        },
        scram=[f"SCRAM-SHA-{bits}=[name={USER},iterations=4096,password={PASSWORD}]" for bits in (256, 512)],
        java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={key_set.as_uri()}"],
    )
    with (
        LocalBroker(directory / "broker", properties=properties, guarded=guarded) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        yield Scene(broker, client, signs, directory)


def _mechanisms(listener: str, names: tuple[str, ...]) -> Mapping[str, str]:
    quoted = PASSWORD.replace('"', '\\"')
    configs = {
        "PLAIN": f'{_PLAIN} required user_{USER}="{quoted}";',
        "OAUTHBEARER": f"{_OAUTH}.OAuthBearerLoginModule required;",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(names),
        **{f"{prefix}.{name.lower()}.sasl.jaas.config": configs[name] for name in names},
    }


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
