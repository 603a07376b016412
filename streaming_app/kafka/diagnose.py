"""Why brokers do not answer: found by connecting once more, step by step; described in one line that says what to do.

Kafka's clients report a wrong port, a wrong protocol and a broker that is down by the same timeout, and kafka-python
reports a wrong password by it, too.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

from kafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.compat import KafkaNetClient

from streaming_app.kafka.connection import connect, silence_log
from streaming_app.kafka.properties import Properties, SecurityError
from streaming_app.kafka.security import security_settings
from streaming_app.text import first_of

_CONNECT_SECONDS = 3.0
_RESPONSE_SECONDS = 5.0
_NAMED = 3  # servers that are away

CONNECTIONS = 16
"""How many servers are connected to at the same time."""
NO_LISTENER, UNKNOWN_HOST, NO_ANSWER = "no listener", "unknown host", "no answer"
LISTENER_WITH_TLS, LISTENER_WITHOUT_TLS = "listener with TLS", "listener without TLS"
CERTIFICATE_EXPIRED, CERTIFICATE_NOT_YET_VALID = "certificate expired", "certificate not yet valid"
UNTRUSTED_AUTHORITY, HOST_NAME_MISMATCH = "untrusted authority", "host name mismatch"
CLIENT_CERTIFICATE_REJECTED, NO_COMMON_TLS_VERSION = "client certificate rejected", "no common TLS version"
CREDENTIALS_REJECTED, MECHANISM_NOT_ENABLED = "credentials rejected", "mechanism not enabled"
LISTENER_WITH_SASL, LISTENER_WITHOUT_SASL = "listener with SASL", "listener without SASL"

_NOBODY = "No Kafka broker answers"
_UNREACHABLE = f"{_NOBODY} at {{servers}}"
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

_CAUSE_BY_ERROR: tuple[tuple[type[Exception], str], ...] = (
    (IllegalSaslStateError, LISTENER_WITHOUT_SASL),
    (UnsupportedSaslMechanismError, MECHANISM_NOT_ENABLED),
    (SaslAuthenticationFailedError, CREDENTIALS_REJECTED),
    # A broker that is slow to answer a login has rejected nothing.
    *((kind, NO_ANSWER) for kind in (KafkaTimeoutError, RequestTimedOutError, TimeoutError)),
)

_Failure = tuple[str, str]
"""Cause and detail; where the cause has no message of its own (""), the detail is the whole message."""


class Failure(NamedTuple):
    """Why a client gets no answer."""

    line: str
    """In one line, with what to do."""
    some_answer: bool
    """A broker does answer: another one does not."""


def explain(servers: str, properties: Properties) -> Failure:
    """Return why a client with these properties gets no answer."""
    away = find_away(servers, properties)
    if all(away.values()):
        return Failure(next(iter(away.values())) or "", some_answer=False)
    if not any(away.values()):
        away |= _find_away_in_cluster(properties)
    who = [server for server, line in away.items() if line is None]
    answering = f"{', '.join(who)} {'answer' if len(who) > 1 else 'answers'}"
    if silent := [f"{server} does not ({_reason(line, server)})" for server, line in away.items() if line]:
        return Failure(f"{answering}, {first_of(silent, _NAMED)}.", some_answer=True)
    return Failure(f"{answering}, but a request was not answered in time.", some_answer=True)


def describe_failure(servers: str, properties: Properties) -> str:
    """Return a line that says why a client with these properties gets no answer, and what to do."""
    return explain(servers, properties).line


def find_cause(servers: str, properties: Properties) -> str | None:
    """Return a line that says why a client with these properties gets no answer; None if no cause is found.

    Of several servers the line is about the first one; if another one answers, there is no cause.
    """
    lines = list(find_away(servers, properties).values())
    return lines[0] if lines and all(lines) else None


def find_away(servers: str, properties: Properties) -> dict[str, str | None]:
    """Return for each server the line that says why it does not answer; None for one that does."""
    try:
        settings: Mapping[str, Any] | None = security_settings(properties)
    except SecurityError:
        settings = None  # kafka-python does not support them; whether a listener exists and uses TLS is tested anyway
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()

    def try_server(server: str) -> str | None:
        failure = _connect(server, protocol, settings)
        if failure is None:
            return None
        cause, detail = failure
        template = MESSAGES.get(cause)
        return template.format(servers=servers, server=server, detail=detail) if template else detail

    names = [part.strip() for part in servers.split(",")]
    with ThreadPoolExecutor(CONNECTIONS) as threads:  # one that is paused is waited for
        return dict(zip(names, threads.map(try_server, names), strict=True))


def of_one_broker(line: str) -> str:
    """Return a line of `find_cause` about a single broker of a cluster, without the words that no broker answers."""
    return line.replace(_NOBODY, "does not answer", 1)


def _reason(line: str, server: str) -> str:
    """Return the reason in a line about one of several servers."""
    return line.partition(": ")[2] if line.startswith(_NOBODY) else line.replace(server, "it")


def _find_away_in_cluster(properties: Properties) -> dict[str, str | None]:
    """Return the same for the addresses that the brokers give to clients; empty where they do not say them."""
    try:
        admin = connect(properties, _RESPONSE_SECONDS)
    except (KafkaError, OSError, SecurityError):
        return {}
    with closing(admin):
        try:
            brokers = admin.describe_cluster()["brokers"]
        except (KafkaError, OSError):
            return {}
    addresses = [
        f"[{one['host']}]:{one['port']}" if ":" in one["host"] else f"{one['host']}:{one['port']}" for one in brokers
    ]
    return find_away(",".join(addresses), properties) if addresses else {}


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
    if cause := next((cause for kind, cause in _CAUSE_BY_ERROR if isinstance(error, kind)), None):
        return cause, message
    if str(settings.get("security_protocol", "")).endswith("SSL") and (failure := _tls_failure(message)):
        return failure
    if mechanism and got_api_versions:  # closed after the login; kafka-python drops the reason that came right before
        return CREDENTIALS_REJECTED, f"they are wrong, or the listener does not enable sasl.mechanism {mechanism}"
    return (NO_ANSWER if mechanism or not got_api_versions else LISTENER_WITH_SASL), message
