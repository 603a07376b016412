"""Kafka client properties (`security.protocol`, `sasl.*`, `ssl.*`) to the settings of kafka-python 3.

So one --command-config serves Kafka's own client, which Spark uses, and kafka-python. What kafka-python cannot do is
refused with a line that says what to do instead; nothing is ever ignored that would make a connection less safe.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties

Properties = Mapping[str, str]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PEM = "PEM"
_TO_PEM = (
    "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12; "
    "openssl pkcs12 -in FILE.p12 -out FILE.pem"
)
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class SecurityError(Exception):
    """The properties cannot be followed. Its text is one line that names the property, never a secret."""


def read_properties(file: Path) -> dict[str, str]:
    """The properties in a file. Raises SecurityError if it cannot be read."""
    try:
        with file.open(encoding="utf-8") as opened:
            return dict(javaproperties.load(opened))
    except (OSError, ValueError) as error:
        raise SecurityError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def security_settings(properties: Properties) -> dict[str, Any]:
    """Keyword arguments for kafka-python's clients; others than security properties are left alone.

    Raises SecurityError for what kafka-python cannot do, and for what Kafka's own client would refuse, too.
    """
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
    if mechanism not in _PASSWORD_MECHANISMS:
        raise SecurityError(
            f"sasl.mechanism {mechanism} is not supported here: use {', '.join(_PASSWORD_MECHANISMS)}, "
            "or TLS client certificates (security.protocol=SSL)"
        )
    options = _jaas_options(properties.get("sasl.jaas.config"), _PASSWORD_MECHANISMS[mechanism])
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise SecurityError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+)|([;=]))""", re.DOTALL)


def _jaas_options(config: str | None, module: str) -> dict[str, str]:
    """The options of a JAAS line `MODULE required NAME="VALUE" ...;`, read as Java's JaasConfig does."""
    if config is None:
        raise SecurityError("sasl.jaas.config is missing (a JAAS file named by a Java system property is not read)")
    tokens = _tokens(config)
    if len(tokens) < 2 or tokens[0] != module:  # noqa: PLR2004 - the module and its control flag
        raise SecurityError(f"sasl.jaas.config must begin with {module} required")
    if tokens[-1] != ";":
        raise SecurityError("sasl.jaas.config must end with a semicolon")
    rest = tokens[2:-1]
    if len(rest) % 3 or any(equals != "=" for equals in rest[1::3]):
        raise SecurityError('sasl.jaas.config must be MODULE required NAME="VALUE" ...;')
    return dict(zip(rest[::3], rest[2::3], strict=True))


def _tokens(config: str) -> list[str]:
    tokens, position, config = [], 0, config.strip()
    while position < len(config):
        found = _TOKEN.match(config, position)
        if found is None:
            raise SecurityError(f"sasl.jaas.config cannot be read from character {position + 1} on")
        quoted = found[1] if found[1] is not None else found[2]
        tokens.append((found[3] or found[4]) if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        position = found.end()
    return tokens


def _ssl_context(properties: Properties) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not properties.get("ssl.endpoint.identification.algorithm", "https").strip():
        context.check_hostname = False
    _limit_versions(context, properties.get("ssl.enabled.protocols"))
    if trusted := _pem(properties, "truststore", "certificates"):
        context = _trusting_only(context, trusted)
    if key := properties.get("ssl.keystore.key"):
        _must_be_pem(properties, "keystore")
        chain = properties.get("ssl.keystore.certificate.chain")
        if not chain:
            raise SecurityError("ssl.keystore.key needs ssl.keystore.certificate.chain")
        _present(context, f"{key}\n{chain}", properties)
    elif identity := _pem(properties, "keystore", "key"):
        _present(context, identity, properties)
    return context


def _limit_versions(context: ssl.SSLContext, enabled: str | None) -> None:
    if enabled is None:
        return
    wanted = sorted(_VERSIONS[name.strip()] for name in enabled.split(",") if name.strip() in _VERSIONS)
    if not wanted:
        raise SecurityError(f"ssl.enabled.protocols {enabled}: only {' and '.join(_VERSIONS)} are supported")
    context.minimum_version, context.maximum_version = wanted[0], wanted[-1]


def _pem(properties: Properties, store: str, inline: str) -> str | None:
    """The PEM text of a store, given in the property itself or in a file; None where there is no store."""
    prefix = f"ssl.{store}"
    if text := properties.get(f"{prefix}.{inline}"):
        _must_be_pem(properties, store)
        return text
    location = properties.get(f"{prefix}.location")
    if not location:
        return None
    _must_be_pem(properties, store)
    try:
        return Path(location).read_text("ascii")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no PEM file"
        raise SecurityError(f"{prefix}.location {location}: {reason}") from None


def _must_be_pem(properties: Properties, store: str) -> None:
    kind = properties.get(f"ssl.{store}.type", "JKS").upper()  # Kafka's default
    if kind != _PEM:
        raise SecurityError(
            f"ssl.{store}.type {kind} can be read by Java only: use PEM (ssl.{store}.type=PEM), made by: {_TO_PEM}"
        )


def _trusting_only(context: ssl.SSLContext, certificates: str) -> ssl.SSLContext:
    """The same settings without the machine's own authorities: a trust store replaces them."""
    alone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    alone.check_hostname = context.check_hostname
    alone.minimum_version, alone.maximum_version = context.minimum_version, context.maximum_version
    try:
        alone.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(f"ssl.truststore: no PEM certificates ({_reason(error)})") from None
    return alone


def _present(context: ssl.SSLContext, identity: str, properties: Properties) -> None:
    """Load key and chain; Python reads them from files only."""
    password = properties.get("ssl.key.password", "")  # never None: OpenSSL would ask on the terminal
    with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".pem") as file:  # mode 600, gone at once
        file.write(identity)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password)
        except (ssl.SSLError, ValueError) as error:
            raise SecurityError(
                f"ssl.keystore: no usable PEM key and certificate chain, or a wrong ssl.key.password ({_reason(error)})"
            ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
