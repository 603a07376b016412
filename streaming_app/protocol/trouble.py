"""Why brokers do not answer: found out by asking once more, step by step, and told in one line that says what to do.

Kafka's clients tell a wrong port, a wrong protocol and a broker that is away by the same time-out, and kafka-python a
wrong password, too.
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

from streaming_app.protocol.properties import Properties, SecurityError
from streaming_app.protocol.security import security_settings

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 5.0

NOBODY, NO_HOST, SILENT = "nobody", "no host", "silent"
SPEAKS_TLS, NO_TLS = "speaks tls", "no tls"
EXPIRED, NOT_YET, UNKNOWN_AUTHORITY, OTHER_NAME = "expired", "not yet", "unknown authority", "other name"
CLIENT_CERTIFICATE, NO_COMMON_VERSION, CREDENTIALS, MECHANISM = "client certificate", "version", "credentials", "sasl"
WANTS_SASL, NO_SASL = "wants sasl", "no sasl"

_AWAY = "No Kafka broker answers at {servers}"
_TLS = "TLS with {server} failed"
LINES: Mapping[str, str] = {
    NOBODY: f"{_AWAY}: nothing listens there; is the address right, and does the broker run?",
    NO_HOST: f"{_AWAY}: there is no such host; is the name right?",
    SILENT: f"{_AWAY}: is the address right, and does the listener's security protocol match --command-config?",
    SPEAKS_TLS: f"{_AWAY} without TLS: that listener speaks TLS; set security.protocol to SSL or SASL_SSL in "
    "--command-config",
    NO_TLS: f"{_TLS}: that listener does not speak TLS; give the port of one that does, or set security.protocol to "
    "PLAINTEXT or SASL_PLAINTEXT in --command-config",
    EXPIRED: f"{_TLS}: the broker's certificate has expired; have it renewed",
    NOT_YET: f"{_TLS}: the broker's certificate is not valid yet; are the clocks right?",
    UNKNOWN_AUTHORITY: f"{_TLS}: the broker's certificate is by no authority that is trusted here; put that one's "
    "certificate into ssl.truststore of --command-config",
    OTHER_NAME: f"{_TLS}: the broker's certificate is for another name than this; give --bootstrap-server, and the "
    "broker's advertised.listeners, a name that the certificate holds",
    CLIENT_CERTIFICATE: "{server} refused the client certificate of --command-config, or misses one: ssl.keystore "
    "must hold a key and certificate that the broker's truststore trusts ({told})",
    NO_COMMON_VERSION: f"{_TLS}: no version or cipher in common; look at ssl.enabled.protocols at both ends ({{told}})",
    CREDENTIALS: "{server} refused the credentials of --command-config: {told}",
    MECHANISM: "{server} does not offer the sasl.mechanism of --command-config: {told}",
    WANTS_SASL: f"{_AWAY} without a login: that listener may want one; set security.protocol to SASL_SSL or "
    "SASL_PLAINTEXT, and sasl.mechanism and sasl.jaas.config, in --command-config",
    NO_SASL: "{server} takes no login: set security.protocol to SSL or PLAINTEXT in --command-config, or give the port "
    "of a listener that does",
}
"""One line by kind of trouble. `servers` are all that were given, `server` is one of them."""

# What OpenSSL calls what went wrong, by number (X509_V_ERR_*) ...
_VERIFY_CODES = {9: NOT_YET, 10: EXPIRED, 62: OTHER_NAME, 64: OTHER_NAME}
_UNKNOWN_CODES = frozenset({2, 7, 18, 19, 20, 21})
# ... and by name; the first that is found counts.
_TLS_REASONS = (
    (re.compile("WRONG_VERSION_NUMBER|UNEXPECTED_EOF|RECORD_LAYER_FAILURE|PACKET_LENGTH|HTTP_REQUEST"), NO_TLS),
    (re.compile("ALERT_(BAD_|UNSUPPORTED_)?CERTIFICATE|ALERT_UNKNOWN_CA|ALERT_HANDSHAKE_FAILURE"), CLIENT_CERTIFICATE),
    (re.compile("PROTOCOL|VERSION|CIPHER"), NO_COMMON_VERSION),
)


def reason(servers: str, properties: Properties) -> str | None:
    """A line that says why a client with these properties gets no answer; None where no reason is to be seen.

    Of several servers the first one is told of, unless another one answers.
    """
    try:
        settings: Mapping[str, Any] | None = security_settings(properties)
    except SecurityError:
        settings = None  # not for kafka-python: where a listener is, and whether it speaks TLS, can be seen without
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    found = []
    for server in (one.strip() for one in servers.split(",")):
        trouble = _look(server, protocol, settings)
        if trouble is None:
            return None
        kind, told = trouble
        found.append(LINES[kind].format(servers=servers, server=server, told=told) if kind in LINES else told)
    return found[0]


_Trouble = tuple[str, str]


def _look(server: str, protocol: str, settings: Mapping[str, Any] | None) -> _Trouble | None:
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS) as connected:
            if protocol.endswith("SSL"):
                trouble = _shake_hands(connected, host, settings["ssl_context"] if settings else _blind())
            else:
                trouble = (SPEAKS_TLS, "") if _speaks_tls(connected) else None
    except (socket.gaierror, UnicodeError):
        return NO_HOST, ""
    except (OSError, ValueError, OverflowError):
        return NOBODY, ""
    if trouble or settings is None:
        return trouble
    return _log_in(server, settings)


def _blind() -> ssl.SSLContext:
    """To see whether TLS is spoken, whoever speaks it; nothing is sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _speaks_tls(connected: socket.socket) -> bool:
    try:
        with _blind().wrap_socket(connected):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _shake_hands(connected: socket.socket, host: str, context: ssl.SSLContext) -> _Trouble | None:
    try:
        with context.wrap_socket(connected, server_hostname=host):
            return None
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _UNKNOWN_CODES:
            return UNKNOWN_AUTHORITY, ""
        return _VERIFY_CODES.get(error.verify_code, ""), f"TLS with {host} failed: {error.verify_message}"
    except ssl.SSLError as error:
        return _tls_trouble(error.reason or str(error)) or ("", f"TLS with {host} failed: {error.reason or error}")
    except TimeoutError:
        return SILENT, ""
    except OSError:
        return NO_TLS, ""  # it hung up at the first word


def _tls_trouble(words: str) -> _Trouble | None:
    told = words.upper().replace(" ", "_")
    return next(((kind, words) for pattern, kind in _TLS_REASONS if pattern.search(told)), None)


def _log_in(server: str, settings: Mapping[str, Any]) -> _Trouble | None:
    """Connect as kafka-python does, once, and tell what it fails by."""
    greeted = False
    with closing(KafkaNetClient(bootstrap_servers=server, **settings)) as client:
        manager = client._manager  # noqa: SLF001 - kafka-python's bootstrap keeps the reason to itself
        node = manager.cluster.bootstrap_brokers()[0].node_id

        async def connect() -> None:
            nonlocal greeted
            connection = manager.get_connection(node, timeout_ms=1000 * _ANSWER_SECONDS, pop_on_close=False)
            try:
                await connection
            finally:
                greeted = connection.broker_version_data is not None
            await manager.cluster.refresh_metadata(node)

        try:
            manager.run(connect)
        except SecurityError as error:
            return "", f"--command-config: {error}"
        except (KafkaError, OSError) as error:
            return _refusal(error, settings, greeted=greeted)
    return None


def _refusal(error: Exception, settings: Mapping[str, Any], *, greeted: bool) -> _Trouble:
    words, mechanism = " ".join(str(error).split()), settings.get("sasl_mechanism")
    if isinstance(error, IllegalSaslStateError):
        return NO_SASL, words
    if isinstance(error, UnsupportedSaslMechanismError):
        return MECHANISM, words
    if isinstance(error, SaslAuthenticationFailedError):
        return CREDENTIALS, words
    if trouble := _tls_trouble(words):
        return trouble
    if mechanism and greeted:  # it hung up after the login; kafka-python drops the reason that came right before
        return CREDENTIALS, f"they are wrong, or that listener does not offer sasl.mechanism {mechanism}"
    return (SILENT if mechanism or not greeted else WANTS_SASL), words
