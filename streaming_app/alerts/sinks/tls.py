"""TLS as a client: whom to trust and who one is. For every sink that speaks it."""

from __future__ import annotations

import ssl
from pathlib import Path

from pydantic import model_validator
from typing_extensions import Self

from streaming_app.alerts.sinks.base import BaseSettings, SinkError, checked

_HINTS = {  # OpenSSL's words for a certificate that is refused, and what mends it
    "unable to get local issuer certificate": "name its authority's certificate by ca_file",
    "self-signed certificate": "name it by ca_file if it is to be trusted",
}


class TlsSettings(BaseSettings):
    """Certificates are PEM files. The receiver's is always checked."""

    ca_file: Path | None = None
    """Authorities to trust instead of the system's."""
    cert_file: Path | None = None
    """The client's certificate, for receivers that ask for one."""
    key_file: Path | None = None
    """Its key, not encrypted; may be in `cert_file` instead."""

    def context(self) -> ssl.SSLContext:
        """Make it anew, so that files can be exchanged without a restart. Raises SinkError for files of no use."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise SinkError(f"ca_file {self.ca_file}: {_reason(error)}", retry=False) from None
        if self.cert_file:
            try:
                # with a password at hand, OpenSSL does not ask for one at the terminal
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                key = f", key_file {self.key_file}" if self.key_file else ""
                raise SinkError(f"cert_file {self.cert_file}{key}: {_reason(error)}", retry=False) from None
        return context

    @model_validator(mode="after")
    def _files_can_be_read(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs cert_file")
        if self.ca_file or self.cert_file:
            checked(self.context)
        return self


def refused(origin: str, error: ssl.SSLError) -> SinkError:
    """Say why there is no TLS connection with the receiver."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return SinkError(f"{origin}: no TLS connection: {_reason(error)}", retry=True)
    hint = next((hint for words, hint in _HINTS.items() if words in error.verify_message), "")
    why = f"{error.verify_message}: {hint}" if hint else error.verify_message
    return SinkError(f"{origin}: its certificate is refused: {why}", retry=False)


def _reason(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return error.strerror or type(error).__name__
    return (error.reason or "not a PEM file that can be used").lower().replace("_", " ")
