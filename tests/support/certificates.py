"""Certificate authorities, certificates and stores, created fast: elliptic-curve keys, valid for a day by default."""

import datetime as dt
import ipaddress
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

_DAY = dt.timedelta(days=1)
_NO_ENCRYPTION = serialization.NoEncryption()
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
STORE_PASSWORD, KEY_PASSWORD = "store-s3cret", "key-s3cret"


class KeyAndCertificate(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def key_pem(self, password: str = "") -> str:
        """Return the key as PEM, encrypted if there is a password."""
        encryption = serialization.BestAvailableEncryption(password.encode()) if password else _NO_ENCRYPTION
        private_bytes = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )
        return private_bytes.decode()

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def create_authority(name: str = "authority") -> KeyAndCertificate:
    return create_certificate(None, name)


def create_certificate(
    issuer: KeyAndCertificate | None, name: str, *, hosts: Iterable[str] = (), expired: bool = False
) -> KeyAndCertificate:
    """Create one signed by `issuer`, or by itself. `hosts` are its alternative names: addresses or host names."""
    key, is_authority = ec.generate_private_key(ec.SECP256R1()), issuer is None
    signing_key = issuer.key if issuer else key
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    not_after = dt.datetime.now(dt.timezone.utc) + (-_DAY if expired else _DAY)
    signs = dict.fromkeys(_USES, False) | {"key_cert_sign": is_authority, "digital_signature": not is_authority}
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_after - 3 * _DAY)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**signs), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names := [*map(_general_name, hosts)]:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return KeyAndCertificate(key, builder.sign(signing_key, hashes.SHA256()))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write_pem_store(
    path: Path, *, own: KeyAndCertificate | None = None, trusted: KeyAndCertificate | None = None
) -> Path:
    """Write key and certificate, or the certificate of an authority, into one PEM file as Kafka requires."""
    path.write_text((own.key_pem() + own.pem if own else "") + (trusted.pem if trusted else ""), "ascii")
    return path


def write_pkcs12_store(path: Path, own: KeyAndCertificate, issuer: KeyAndCertificate) -> Path:
    """Write key and certificate chain, encrypted with STORE_PASSWORD."""
    encryption = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"job", own.key, own.certificate, [issuer.certificate], encryption)
    )
    return path


def run_keytool(*arguments: object) -> None:
    """Run Java's keytool with STORE_PASSWORD in `PASS` and KEY_PASSWORD in `KEY`."""
    subprocess.run(
        ["keytool", *map(str, arguments)],
        env={**os.environ, "PASS": STORE_PASSWORD, "KEY": KEY_PASSWORD},
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )


def create_java_trust_store(path: Path, store_type: str, trusted: KeyAndCertificate) -> Path:
    """Create a store with the certificate of an authority, with keytool; `store_type` is JKS or PKCS12."""
    certificate = write_pem_store(path.with_suffix(".pem"), trusted=trusted)
    run_keytool(
        "-importcert", "-noprompt", "-alias", "ca", "-file", certificate, "-keystore", path, "-storetype", store_type,
        "-storepass:env", "PASS",
    )  # fmt: skip
    return path


def create_jks_store(path: Path, pkcs12: Path) -> Path:
    """Convert a PKCS12 store to JKS; the key gets its own password, KEY_PASSWORD."""
    run_keytool(
        "-importkeystore", "-noprompt", "-srckeystore", pkcs12, "-srcstorepass:env", "PASS", "-srcalias", "job",
        "-destkeystore", path, "-deststoretype", "JKS", "-deststorepass:env", "PASS", "-destkeypass:env", "KEY",
    )  # fmt: skip
    return path
