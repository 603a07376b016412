"""Makes authorities and certificates in a moment: an elliptic key each, valid for a day unless told otherwise."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

_DAY = dt.timedelta(days=1)
STORE_PASSWORD, KEY_PASSWORD = "store-s3cret", "key-s3cret"


class Identity(NamedTuple):
    """A key and its certificate, each also as PEM."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def authority(name: str = "authority") -> Identity:
    return _signed(name, None, x509.BasicConstraints(ca=True, path_length=None))


def signed(by: Identity, name: str, *, host: str | None = None, expired: bool = False) -> Identity:
    """A certificate of an authority. `host` is an address or name that it is for."""
    return _signed(name, by, x509.BasicConstraints(ca=False, path_length=None), host=host, expired=expired)


def _signed(
    name: str, by: Identity | None, basic: x509.BasicConstraints, *, host: str | None = None, expired: bool = False
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    ends = dt.datetime.now(dt.timezone.utc) + (-_DAY if expired else _DAY)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - 3 * _DAY)
        .not_valid_after(ends)
        .add_extension(basic, critical=True)
    )
    if host:
        try:
            named: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            named = x509.DNSName(host)
        made = made.add_extension(x509.SubjectAlternativeName([named]), critical=False)
    return Identity(key, made.sign(by.key if by else key, hashes.SHA256()))


def pem_store(path: Path, *, of: Identity | None = None, trusted: Identity | None = None) -> Path:
    """Key and certificate, or the certificate of an authority, as Kafka wants them in one PEM file."""
    path.write_text((of.key_pem + of.pem if of else "") + (trusted.pem if trusted else ""), "ascii")
    return path


def pkcs12_store(path: Path, of: Identity, by: Identity) -> Path:
    """Key and chain, under STORE_PASSWORD."""
    hidden = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"job", of.key, of.certificate, [by.certificate], hidden))
    return path


def keytool(*arguments: object) -> None:
    """Run Java's keytool with STORE_PASSWORD in `PASS`."""
    subprocess.run(
        ["keytool", *map(str, arguments)],
        env={**os.environ, "PASS": STORE_PASSWORD, "KEY": KEY_PASSWORD},
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )


def java_trust_store(path: Path, kind: str, trusted: Identity) -> Path:
    """The certificate of an authority in a store that keytool makes; `kind` is JKS or PKCS12."""
    certificate = pem_store(path.with_suffix(".pem"), trusted=trusted)
    keytool(
        "-importcert", "-noprompt", "-alias", "ca", "-file", certificate, "-keystore", path, "-storetype", kind,
        "-storepass:env", "PASS",
    )  # fmt: skip
    return path


def jks_store(path: Path, pkcs12: Path) -> Path:
    """A PKCS12 store's key and chain as JKS, the key under a password of its own, KEY_PASSWORD."""
    keytool(
        "-importkeystore", "-noprompt", "-srckeystore", pkcs12, "-srcstorepass:env", "PASS", "-srcalias", "job",
        "-destkeystore", path, "-deststoretype", "JKS", "-deststorepass:env", "PASS", "-destkeypass:env", "KEY",
    )  # fmt: skip
    return path
