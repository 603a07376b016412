"""A broker with a listener for every authentication mechanism, and an authorizer that denies by default."""

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

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker, SecureListeners
from tests.support.certificates import KeyAndCertificate, create_authority, create_certificate, write_pem_store
from tests.support.waiting import wait_until

PASSWORD = 'p4ss;"w0rd'  # noqa: S105 - of these tests
SECRETS = (PASSWORD, "p4ss", "store-s3cret", "key-s3cret", "client-s3cret")
USER = "job"
_ONLY_TLS = ("MUTUAL", "EXPIRED", "WRONGHOST")
_AUDIENCE, _ISSUER = "kafka", "https://issuer.example"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_ANY_RESOURCE = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
_ALL_ACLS = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, _ANY_RESOURCE)
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_VALIDATOR = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"


class Keys(NamedTuple):
    """The certificate authority, the client's certificate, and the key that signs tokens."""

    ca: KeyAndCertificate
    client: KeyAndCertificate
    token_key: ec.EllipticCurvePrivateKey

    def create_token(self) -> str:
        now = int(time.time())
        times = {"iat": now, "exp": now + 86_400}
        claims = {"sub": USER, "scope": "kafka", "aud": _AUDIENCE, "iss": _ISSUER, **times}
        header = {"alg": "ES256", "kid": "1", "typ": "JWT"}
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in (header, claims))
        r, s = utils.decode_dss_signature(self.token_key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def key_set(self) -> str:
        """The public key that verifies the tokens, as a JSON web key set."""
        point = self.token_key.public_key().public_numbers()
        numbers = {name: _base64url(value.to_bytes(32, "big")) for name, value in (("x", point.x), ("y", point.y))}
        key = {"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig", **numbers}
        return json.dumps({"keys": [key]})


class SecurityHarness(NamedTuple):
    """The broker, a client that is a super user, and the keys behind certificates and tokens."""

    broker: LocalBroker
    client: StreamsGroupClient
    keys: Keys
    directory: Path

    def allow(self, *allowed: tuple[ACLOperation, ResourcePattern]) -> None:
        """Allow USER these operations and no others; return once the broker applies it.

        The controller answers when it has stored the ACLs; the broker's authorizer gets them a moment later.
        """
        wanted = {ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, at) for operation, at in allowed}
        self.client.delete_acls([_ALL_ACLS])
        if wanted:
            self.client.create_acls(list(wanted))
        assert wait_until(lambda: set(self.client.describe_acls(_ALL_ACLS)[0]) == wanted)


@contextmanager
def start_secure_broker(directory: Path) -> Iterator[SecurityHarness]:
    """Start a broker with the listeners SECURE (SASL over TLS, all mechanisms), MUTUAL (TLS on both sides), SASL
    (without TLS), and two with invalid certificates, EXPIRED and WRONGHOST. PLAINTEXT is for the tests' own requests.
    """
    ca = create_authority()
    keys = Keys(ca, create_certificate(ca, USER), ec.generate_private_key(ec.SECP256R1()))
    certificates = {
        "": create_certificate(ca, "broker", hosts=("127.0.0.1",)),
        "listener.name.expired.": create_certificate(ca, "broker", hosts=("127.0.0.1",), expired=True),
        "listener.name.wronghost.": create_certificate(ca, "broker", hosts=("other.example",)),
    }
    key_set = directory / "keys.json"
    key_set.write_text(keys.key_set(), "utf-8")
    trust_store = write_pem_store(directory / "broker-trust.pem", trusted=ca)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.streams.session.timeout.ms": "3600000",  # the member of all modules sends one heartbeat
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust_store),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "sasl.oauthbearer.expected.audience": _AUDIENCE,
        "sasl.oauthbearer.expected.issuer": _ISSUER,
        "sasl.oauthbearer.jwks.endpoint.url": key_set.as_uri(),
        **_mechanisms("secure", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
        **_mechanisms("sasl", ("PLAIN",)),
        "listener.name.secure.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
    }
    for number, (prefix, certificate) in enumerate(certificates.items()):
        properties[f"{prefix}ssl.keystore.type"] = "PEM"
        key_store = write_pem_store(directory / f"broker-{number}.pem", own=certificate)
        properties[f"{prefix}ssl.keystore.location"] = str(key_store)
    listeners = SecureListeners(
        protocols={"SECURE": "SASL_SSL", "SASL": "SASL_PLAINTEXT", **dict.fromkeys(_ONLY_TLS, "SSL")},
        scram=[f"SCRAM-SHA-{bits}=[name={USER},iterations=4096,password={PASSWORD}]" for bits in (256, 512)],
        java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={key_set.as_uri()}"],
    )
    with (
        LocalBroker(directory / "broker", properties=properties, secure_listeners=listeners) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        yield SecurityHarness(broker, client, keys, directory)


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


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
