"""Why brokers do not answer: found by connecting once more, step by step; described in one line that says what to do.

Kafka's clients report a wrong port, a wrong protocol and a broker that is down by the same timeout, and kafka-python
reports a wrong password by it, too.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kafka.errors import IllegalSaslStateError, KafkaError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.net.compat import KafkaNetClient

from streaming_app.kafka.connection import silence_log
from streaming_app.kafka.properties import Properties, SecurityError
from streaming_app.kafka.security import security_settings

_CONNECT_SECONDS = 3.0
_RESPONSE_SECONDS = 5.0

NO_LISTENER, UNKNOWN_HOST, NO_ANSWER = "no listener", "unknown host", "no answer"
LISTENER_WITH_TLS, LISTENER_WITHOUT_TLS = "listener with TLS", "listener without TLS"
CERTIFICATE_EXPIRED, CERTIFICATE_NOT_YET_VALID = "certificate expired", "certificate not yet valid"
UNTRUSTED_AUTHORITY, HOST_NAME_MISMATCH = "untrusted authority", "host name mismatch"
CLIENT_CERTIFICATE_REJECTED, NO_COMMON_TLS_VERSION = "client certificate rejected", "no common TLS version"
CREDENTIALS_REJECTED, MECHANISM_NOT_ENABLED = "credentials rejected", "mechanism not enabled"
LISTENER_WITH_SASL, LISTENER_WITHOUT_SASL = "listener with SASL", "listener without SASL"

_UNREACHABLE = "No Kafka broker answers at {servers}"
_TLS_FAILED = "TLS with {server} failed"
MESSAGES: Mapping[str, str] = {
    NO_LISTENER: f"{_UNREACHABLE}: nothing listens there; is the address right, and does the broker run?",
    UNKNOWN_HOST: f"{_UNREACHABLE}: the host name cannot be resolved; is it right?",
    NO_ANSWER: f"{_UNREACHABLE}: is the address right, and does the listener's security protocol match "
    "--command-config?",
    LISTENER_WITH_TLS: f"{_UNREACHABLE} without TLS: the listener uses TLS; set security.protocol to SSL or SASL_SSL "
    "in --command-config",
    LISTENER_WITHOUT_TLS: f"{_TLS_FAILED}: the listener does not use TLS; give the port of a listener that does, or "
    "set security.protocol to PLAINTEXT or SASL_PLAINTEXT in --command-config",
    CERTIFICATE_EXPIRED: f"{_TLS_FAILED}: the broker's certificate has expired; renew it",
    CERTIFICATE_NOT_YET_VALID: f"{_TLS_FAILED}: the broker's certificate is not valid yet; are the clocks right?",
    UNTRUSTED_AUTHORITY: f"{_TLS_FAILED}: the authority that signed the broker's certificate is not trusted; add its "
    "certificate to ssl.truststore of --command-config",
    HOST_NAME_MISMATCH: f"{_TLS_FAILED}: the broker's certificate is for another host name; use a name that the "
    "certificate contains in --bootstrap-server and in the broker's advertised.listeners",
    CLIENT_CERTIFICATE_REJECTED: "{server} rejected the client certificate of --command-config, or requires one: "
    "ssl.keystore must hold a key and a certificate that the broker's truststore trusts ({detail})",
    NO_COMMON_TLS_VERSION: f"{_TLS_FAILED}: no version or cipher suite in common; check ssl.enabled.protocols of "
    "client and broker ({detail})",
    CREDENTIALS_REJECTED: "{server} rejected the credentials of --command-config: {detail}",
    MECHANISM_NOT_ENABLED: "{server} does not enable the sasl.mechanism of --command-config: {detail}",
    LISTENER_WITH_SASL: f"{_UNREACHABLE} without authentication: the listener may require SASL; set security.protocol "
    "to SASL_SSL or SASL_PLAINTEXT, and sasl.mechanism and sasl.jaas.config, in --command-config",
    LISTENER_WITHOUT_SASL: "{server} does not support SASL: set security.protocol to SSL or PLAINTEXT in "
    "--command-config, or give the port of a listener that does",
}
"""Templates by cause. `servers` are all bootstrap servers, `server` is one of them, `detail` the library's message."""

# OpenSSL's certificate verification errors, by number (X509_V_ERR_*) ...
_CAUSE_BY_VERIFY_CODE = {
    9: CERTIFICATE_NOT_YET_VALID,
    10: CERTIFICATE_EXPIRED,
    62: HOST_NAME_MISMATCH,
    64: HOST_NAME_MISMATCH,
    **dict.fromkeys((2, 7, 18, 19, 20, 21), UNTRUSTED_AUTHORITY),
}
# ... and its other errors by name; the first match counts.
_TLS_CAUSES = (
    (
        re.compile("WRONG_VERSION_NUMBER|UNEXPECTED_EOF|RECORD_LAYER_FAILURE|PACKET_LENGTH|HTTP_REQUEST"),
        LISTENER_WITHOUT_TLS,
    ),
    (
        re.compile("ALERT_(BAD_|UNSUPPORTED_)?CERTIFICATE|ALERT_UNKNOWN_CA|ALERT_HANDSHAKE_FAILURE"),
        CLIENT_CERTIFICATE_REJECTED,
    ),
    (re.compile("PROTOCOL|VERSION|CIPHER"), NO_COMMON_TLS_VERSION),
)

_Failure = tuple[str, str]
"""Cause and detail; where the cause has no message of its own (""), the detail is the whole message."""


def describe_failure(servers: str, properties: Properties) -> str:
    """Return a line that says why a client with these properties gets no answer, and what to do."""
    return find_cause(servers, properties) or MESSAGES[NO_ANSWER].format(servers=servers)


def find_cause(servers: str, properties: Properties) -> str | None:
    """Return a line that says why a client with these properties gets no answer; None if no cause is found.

    Of several servers the line is about the first one; if another one answers, there is no cause.
    """
    try:
        settings: Mapping[str, Any] | None = security_settings(properties)
    except SecurityError:
        settings = None  # kafka-python does not support them; whether a listener exists and uses TLS is tested anyway
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    lines = []
    for server in (part.strip() for part in servers.split(",")):
        failure = _connect(server, protocol, settings)
        if failure is None:
            return None
        cause, detail = failure
        template = MESSAGES.get(cause)
        lines.append(template.format(servers=servers, server=server, detail=detail) if template else detail)
    return lines[0]


def _connect(server: str, protocol: str, settings: Mapping[str, Any] | None) -> _Failure | None:
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS) as connection:
            if protocol.endswith("SSL"):
                context = settings["ssl_context"] if settings else _unverified_context()
                failure = _shake_hands(connection, host, context)
            else:
                failure = (LISTENER_WITH_TLS, "") if _uses_tls(connection) else None
    except (socket.gaierror, UnicodeError):
        return UNKNOWN_HOST, ""
    except (OSError, ValueError, OverflowError):
        return NO_LISTENER, ""
    if failure or settings is None:
        return failure
    return _log_in(server, settings)


def _unverified_context() -> ssl.SSLContext:
    """Return a context that accepts every certificate, to test whether a listener uses TLS; nothing is sent with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _uses_tls(connection: socket.socket) -> bool:
    try:
        with _unverified_context().wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _shake_hands(connection: socket.socket, host: str, context: ssl.SSLContext) -> _Failure | None:
    try:
        with context.wrap_socket(connection, server_hostname=host):
            return None
    except ssl.SSLCertVerificationError as error:
        return _CAUSE_BY_VERIFY_CODE.get(error.verify_code, ""), f"TLS with {host} failed: {error.verify_message}"
    except ssl.SSLError as error:
        return _tls_failure(error.reason or str(error)) or ("", f"TLS with {host} failed: {error.reason or error}")
    except TimeoutError:
        return NO_ANSWER, ""
    except OSError:
        return LISTENER_WITHOUT_TLS, ""  # it closed the connection at the first message


def _tls_failure(message: str) -> _Failure | None:
    name = message.upper().replace(" ", "_")
    return next(((cause, message) for pattern, cause in _TLS_CAUSES if pattern.search(name)), None)


def _log_in(server: str, settings: Mapping[str, Any]) -> _Failure | None:
    """Connect as kafka-python does, once, and return how it fails."""
    silence_log()
    got_api_versions = False
    with closing(KafkaNetClient(bootstrap_servers=server, **settings)) as client:
        manager = client._manager  # noqa: SLF001 - kafka-python's bootstrap does not report the reason
        node = manager.cluster.bootstrap_brokers()[0].node_id

        async def connect() -> None:
            nonlocal got_api_versions
            connection = manager.get_connection(node, timeout_ms=1000 * _RESPONSE_SECONDS, pop_on_close=False)
            try:
                await connection
            finally:
                got_api_versions = connection.broker_version_data is not None
            await manager.cluster.refresh_metadata(node)

        try:
            manager.run(connect)
        except SecurityError as error:
            return "", f"--command-config: {error}"
        except (KafkaError, OSError) as error:
            return _login_failure(error, settings, got_api_versions=got_api_versions)
    return None


def _login_failure(error: Exception, settings: Mapping[str, Any], *, got_api_versions: bool) -> _Failure:
    message, mechanism = " ".join(str(error).split()), settings.get("sasl_mechanism")
    if isinstance(error, IllegalSaslStateError):
        return LISTENER_WITHOUT_SASL, message
    if isinstance(error, UnsupportedSaslMechanismError):
        return MECHANISM_NOT_ENABLED, message
    if isinstance(error, SaslAuthenticationFailedError):
        return CREDENTIALS_REJECTED, message
    if str(settings.get("security_protocol", "")).endswith("SSL") and (failure := _tls_failure(message)):
        return failure
    if mechanism and got_api_versions:  # closed after the login; kafka-python drops the reason that came right before
        return CREDENTIALS_REJECTED, f"they are wrong, or the listener does not enable sasl.mechanism {mechanism}"
    return (NO_ANSWER if mechanism or not got_api_versions else LISTENER_WITH_SASL), message
