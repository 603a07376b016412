"""A connection to a receiver: a strict limit on the time of the exchange, and TLS. For every protocol of the sinks."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

from pydantic import model_validator
from typing_extensions import Self

from streaming_app.errors import reason_of
from streaming_app.notify.sink import BaseSettings, SinkError, check_setting

_HINTS = {  # OpenSSL's message for a rejected certificate, and how to fix it
    "unable to get local issuer certificate": "set ca_file to the certificate of its authority",
    "self-signed certificate": "set ca_file to this certificate to trust it",
}


class Deadline:
    """Shuts the watched sockets down when the time is up, which unblocks the thread that reads from them.

    A socket's own timeout restarts with each byte; a receiver that sends one from time to time would block its caller
    for ever. The name lookup and the connect, before there is a socket to watch, are limited by the system's resolver
    and by the socket's timeout for each of the name's addresses.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def watch(self, connected: socket.socket) -> None:
        """Include this socket. It may be wrapped in TLS later: a duplicate of it is watched."""
        with self._lock:
            self._sockets.append(connected.dup())
        if self.expired:
            self._shut_down()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for watched in self._sockets:
                watched.close()
            self._sockets.clear()

    def _expire(self) -> None:
        self.expired = True
        self._shut_down()

    def _shut_down(self) -> None:
        with self._lock:
            for watched in self._sockets:
                with contextlib.suppress(OSError):  # the other side has closed it already
                    watched.shutdown(socket.SHUT_RDWR)


class CaSettings(BaseSettings):
    """The setting for a receiver with TLS, whose certificate is always verified. A PEM file."""

    ca_file: Path | None = None
    """Authorities to trust instead of the system's."""

    def ssl_context(self) -> ssl.SSLContext:
        """Return a new context, so that files can be replaced without a restart. Raises SinkError for invalid files."""
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise SinkError(f"ca_file {self.ca_file}: {_reason(error)}", retry=False) from None

    @model_validator(mode="after")
    def _authorities_are_valid(self) -> Self:
        if self.ca_file:
            check_setting(self.ssl_context)
        return self


class TlsSettings(CaSettings):
    """The same for a receiver that may require a certificate of the client."""

    cert_file: Path | None = None
    """The client's certificate, for receivers that require one."""
    key_file: Path | None = None
    """Its unencrypted key; it may be in `cert_file` instead."""

    def ssl_context(self) -> ssl.SSLContext:
        """Return a new context, with the client's certificate. Raises SinkError for invalid files."""
        context = super().ssl_context()
        if self.cert_file:
            try:
                # with a password, OpenSSL does not prompt for one at the terminal
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                key = f", key_file {self.key_file}" if self.key_file else ""
                raise SinkError(f"cert_file {self.cert_file}{key}: {_reason(error)}", retry=False) from None
        return context

    @model_validator(mode="after")
    def _files_are_valid(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("key_file requires cert_file")
        if self.cert_file:
            check_setting(self.ssl_context)
        return self


def tls_error(origin: str, error: ssl.SSLError) -> SinkError:
    """Return the error for a failed TLS connection to the receiver."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return SinkError(f"{origin}: no TLS connection: {_reason(error)}", retry=True)
    hint = next((hint for words, hint in _HINTS.items() if words in error.verify_message), "")
    why = f"{error.verify_message}: {hint}" if hint else error.verify_message
    return SinkError(f"{origin}: its certificate is rejected: {why}", retry=False)


def _reason(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return reason_of(error)
    return (error.reason or "not a valid PEM file").lower().replace("_", " ")
