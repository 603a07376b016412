"""Reads key and trust stores of Kafka's `ssl.*` properties as PEM: from PEM, PKCS12, and JKS (with Java's keytool).

As in Java, the format of a JKS or PKCS12 store is detected, whatever `ssl.*.type` says. Private keys are never written
unencrypted: keytool's output file is encrypted with a random password, and deleted at once.
"""

import os
import secrets
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.java import java_home
from streaming_app.kafka.properties import Properties, SecurityError

_JKS_MAGIC = bytes.fromhex("feedfeed")
_KEYTOOL_SECONDS = 60
_PASSWORD_PROMPTS = 100  # the most keys in a store: keytool asks for the password of each


class PrivateKeyEntry(NamedTuple):
    """A private key and its certificate chain as PEM, and the password of the key."""

    pem: str
    password: str


def load_trust_store(properties: Properties) -> str | None:
    """Return the certificates of `ssl.truststore.*` as PEM; None without a trust store. Raises SecurityError."""
    if (text := properties.get("ssl.truststore.certificates")) and _is_pem(properties, "truststore", "certificates"):
        return text
    location = properties.get("ssl.truststore.location")
    if not location:
        return None
    if _is_pem(properties, "truststore"):
        return _read("truststore", location).decode("ascii", "replace")
    store = _open(properties, "truststore", location)
    certificates = [entry.certificate for entry in (store.cert, *store.additional_certs) if entry]
    if not certificates:
        raise SecurityError(f"ssl.truststore.location {location}: it contains no certificate")
    return "".join(map(_to_pem, certificates))


def load_key_store(properties: Properties) -> PrivateKeyEntry | None:
    """Return key and certificate chain of `ssl.keystore.*`; None without a key store. Raises SecurityError."""
    password = properties.get("ssl.key.password", "")
    if (key := properties.get("ssl.keystore.key")) and _is_pem(properties, "keystore", "key"):
        chain = properties.get("ssl.keystore.certificate.chain")
        if not chain:
            raise SecurityError("ssl.keystore.key needs ssl.keystore.certificate.chain")
        return PrivateKeyEntry(f"{key}\n{chain}", password)
    location = properties.get("ssl.keystore.location")
    if not location:
        return None
    if _is_pem(properties, "keystore"):
        return PrivateKeyEntry(_read("keystore", location).decode("ascii", "replace"), password)
    store = _open(properties, "keystore", location)
    if store.key is None or store.cert is None:
        raise SecurityError(f"ssl.keystore.location {location}: it contains no private key")
    random_password = secrets.token_hex()
    encryption = serialization.BestAvailableEncryption(random_password.encode())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    certificates = _order_chain(store.cert.certificate, [entry.certificate for entry in store.additional_certs])
    pem = store.key.private_bytes(encoding, form, encryption).decode() + "".join(map(_to_pem, certificates))
    return PrivateKeyEntry(pem, random_password)


def _is_pem(properties: Properties, store: str, inline: str = "") -> bool:
    """Return whether a store is PEM; it must be if the property `inline` has its content."""
    store_type = properties.get(f"ssl.{store}.type", "JKS").upper()  # Kafka's default
    if store_type != "PEM" and inline:
        raise SecurityError(f"ssl.{store}.{inline} needs ssl.{store}.type=PEM")
    if store_type not in {"PEM", "JKS", "PKCS12"}:
        raise SecurityError(f"ssl.{store}.type {store_type} can be read by Java only: use PEM, JKS or PKCS12")
    return store_type == "PEM"


def _read(store: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise SecurityError(f"ssl.{store}.location {location}: {reason_of(error)}") from None


def _open(properties: Properties, store: str, location: str) -> pkcs12.PKCS12KeyAndCertificates:
    content = _read(store, location)
    password = properties.get(f"ssl.{store}.password")
    key_password = properties.get("ssl.key.password", password) if store == "keystore" else password
    try:
        if not content.startswith(_JKS_MAGIC) and key_password == password:
            return pkcs12.load_pkcs12(content, password.encode() if password else None)
        random_password = secrets.token_hex()
        store_type = "JKS" if content.startswith(_JKS_MAGIC) else "PKCS12"
        converted = _convert_with_keytool(location, store_type, password, key_password, random_password)
        return pkcs12.load_pkcs12(converted, random_password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        extra = " or ssl.key.password" if "ssl.key.password" in properties and store == "keystore" else ""
        raise SecurityError(
            f"ssl.{store}.location {location}: a wrong ssl.{store}.password{extra}, or not a store that can be read"
        ) from None


def _convert_with_keytool(
    location: str, store_type: str, password: str | None, key_password: str | None, new_password: str
) -> bytes:
    """Return the store as PKCS12 under `new_password`. Raises ValueError if keytool does not accept the passwords."""
    try:
        keytool = java_home() / "bin" / "keytool"
    except SetupError as error:
        raise SecurityError(f"a JKS store needs Java's keytool; use PEM or PKCS12, or install Java: {error}") from None
    with tempfile.TemporaryDirectory() as directory:  # mode 700
        target = Path(directory, "store.p12")
        command = [str(keytool), "-importkeystore", "-noprompt", "-srckeystore", location, "-srcstoretype", store_type]
        command += ["-destkeystore", str(target), "-deststoretype", "PKCS12", "-deststorepass:env", "NEW_PASSWORD"]
        environment = {**os.environ, "NEW_PASSWORD": new_password}
        if password:  # without one keytool reads a trust store unchecked, as Kafka's Java client does
            command += ["-srcstorepass:env", "STORE_PASSWORD"]
            environment["STORE_PASSWORD"] = password
        answers = f"{key_password or ''}\n" * _PASSWORD_PROMPTS
        options: Any = {"env": environment, "input": answers, "text": True, "capture_output": True}
        try:
            result = subprocess.run(command, check=False, timeout=_KEYTOOL_SECONDS, **options)  # noqa: S603 - Java's own
        except (OSError, subprocess.SubprocessError) as error:
            raise SecurityError(f"{keytool} cannot read {location}: {type(error).__name__}") from None
        if result.returncode != 0 or not target.exists():
            raise ValueError
        return target.read_bytes()


def _order_chain(leaf: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """Return the leaf followed by its issuers, in order; a store may also contain unrelated certificates."""
    chain = [leaf]
    while issuers := [one for one in others if one.subject == chain[-1].issuer and one not in chain]:
        chain.append(issuers[0])
    return chain


def _to_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
