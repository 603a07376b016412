"""Kafka client properties (`security.protocol`, `sasl.*`, `ssl.*`) to the settings of kafka-python 3.

So one --command-config serves Kafka's own client, which Spark uses, and kafka-python. What kafka-python cannot do is
refused with a line that says what to do instead; nothing is ever ignored that would make a connection less safe.
"""

from __future__ import annotations

import ssl
import tempfile
from typing import Any

from streaming_app.protocol import oauth, stores
from streaming_app.protocol.jaas import jaas_options
from streaming_app.protocol.properties import Properties, SecurityError, read_properties, resolved

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
    """Keyword arguments for kafka-python's clients; others than security properties are left alone.

    Raises SecurityError for what kafka-python cannot do, and for what Kafka's own client would refuse, too.
    """
    properties = resolved(properties)
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SecurityError(f"security.protocol {protocol}: must be one of {', '.join(_PROTOCOLS)}")
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL_"):
        settings |= _sasl(properties)
    if protocol.endswith("SSL"):
        settings |= {"ssl_context": _ssl_context(properties)}
    return settings


def _sasl(properties: Properties) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()  # Kafka's default
    if mechanism == _OAUTH:
        provider = oauth.tokens(properties, _ssl_context)
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    if mechanism not in _PASSWORD_MECHANISMS:
        raise SecurityError(
            f"sasl.mechanism {mechanism} is known to Kafka's own client only, by which the job reads; here use "
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
    certificates = stores.trusted(properties)
    context = _trusting_only(certificates) if certificates else ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not properties.get("ssl.endpoint.identification.algorithm", "https").strip():
        context.check_hostname = False
    _limit_versions(context, properties.get("ssl.enabled.protocols"))
    if own := stores.identity(properties):
        _present(context, own)
    return context


def _limit_versions(context: ssl.SSLContext, enabled: str | None) -> None:
    if enabled is None:
        return
    wanted = sorted(_VERSIONS[name.strip()] for name in enabled.split(",") if name.strip() in _VERSIONS)
    if not wanted:
        raise SecurityError(f"ssl.enabled.protocols {enabled}: only {' and '.join(_VERSIONS)} are supported")
    context.minimum_version, context.maximum_version = wanted[0], wanted[-1]


def _trusting_only(certificates: str) -> ssl.SSLContext:
    """A context without the machine's own authorities: a trust store replaces them.

    Whatever is in the store is trusted, also what is no root: so does Java.
    """
    alone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    alone.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        alone.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(f"ssl.truststore: no PEM certificates ({_reason(error)})") from None
    return alone


def _present(context: ssl.SSLContext, own: stores.Identity) -> None:
    """Load key and chain; Python reads them from files only."""
    with tempfile.NamedTemporaryFile("w", encoding="ascii", errors="replace", suffix=".pem") as file:  # mode 600
        file.write(own.pem)
        file.flush()
        try:
            # The password is never None: OpenSSL would ask on the terminal.
            context.load_cert_chain(file.name, password=own.password)
        except (ssl.SSLError, ValueError) as error:
            raise SecurityError(
                f"ssl.keystore: no usable PEM key and certificate chain, or a wrong ssl.key.password ({_reason(error)})"
            ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
