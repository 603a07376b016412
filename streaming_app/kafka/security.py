"""Kafka client properties (`security.protocol`, `sasl.*`, `ssl.*`) as settings of kafka-python 3.

So one --command-config serves both Kafka's Java client, which Spark uses, and kafka-python. What kafka-python does not
support is rejected with a message that says what to do instead; no property that secures the connection is ignored.
"""

from __future__ import annotations

import ssl
import tempfile
from typing import Any

from streaming_app.kafka import keystores, oauth
from streaming_app.kafka.jaas import jaas_options
from streaming_app.kafka.properties import Properties, SecurityError, read_properties, resolve_config_providers

__all__ = ["Properties", "SecurityError", "read_properties", "security_settings"]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OAUTH = "OAUTHBEARER"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def security_settings(properties: Properties) -> dict[str, Any]:
    """Return keyword arguments for kafka-python's clients; properties that are not about security are ignored.

    Raises SecurityError for what kafka-python does not support, and for what Kafka's Java client rejects, too.
    """
    properties = resolve_config_providers(properties)
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SecurityError(f"security.protocol {protocol}: must be one of {', '.join(_PROTOCOLS)}")
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL_"):
        settings |= _sasl_settings(properties)
    if protocol.endswith("SSL"):
        settings |= {"ssl_context": _ssl_context(properties)}
    return settings


def _sasl_settings(properties: Properties) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()  # Kafka's default
    if mechanism == _OAUTH:
        provider = oauth.create_token_provider(properties, _ssl_context)
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    if mechanism not in _PASSWORD_MECHANISMS:
        raise SecurityError(
            f"sasl.mechanism {mechanism} is supported only by Kafka's Java client, with which the job reads; here use "
            f"{', '.join((*_PASSWORD_MECHANISMS, _OAUTH))}, or TLS client certificates (security.protocol=SSL)"
        )
    options = jaas_options(properties.get("sasl.jaas.config"), _PASSWORD_MECHANISMS[mechanism])
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise SecurityError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def _ssl_context(properties: Properties) -> ssl.SSLContext:
    certificates = keystores.load_trust_store(properties)
    context = _context_trusting_only(certificates) if certificates else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not properties.get("ssl.endpoint.identification.algorithm", "https").strip():
        context.check_hostname = False
    _limit_versions(context, properties.get("ssl.enabled.protocols"))
    if entry := keystores.load_key_store(properties):
        _load_client_certificate(context, entry)
    return context


def _limit_versions(context: ssl.SSLContext, enabled: str | None) -> None:
    if enabled is None:
        return
    versions = sorted(_VERSIONS[name.strip()] for name in enabled.split(",") if name.strip() in _VERSIONS)
    if not versions:
        raise SecurityError(f"ssl.enabled.protocols {enabled}: only {' and '.join(_VERSIONS)} are supported")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _context_trusting_only(certificates: str) -> ssl.SSLContext:
    """Return a context without the operating system's authorities: a trust store replaces them.

    Every certificate in the store is trusted, even if it is not a root: as in Java.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(f"ssl.truststore: no PEM certificates ({_reason(error)})") from None
    return context


def _load_client_certificate(context: ssl.SSLContext, entry: keystores.PrivateKeyEntry) -> None:
    """Load a private key and its certificate chain into a context. Python reads them from files only."""
    with tempfile.NamedTemporaryFile("w", encoding="ascii", errors="replace", suffix=".pem") as file:  # mode 600
        file.write(entry.pem)
        file.flush()
        try:
            # The password is never None: OpenSSL would ask for it on the terminal.
            context.load_cert_chain(file.name, password=entry.password)
        except (ssl.SSLError, ValueError) as error:
            raise SecurityError(
                f"ssl.keystore: no usable PEM key and certificate chain, or a wrong ssl.key.password ({_reason(error)})"
            ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
