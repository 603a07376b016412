"""Finds out why brokers do not answer: connects once more, step by step, and explains it in one line with advice.

Kafka's clients report the same timeout for a wrong port, a wrong protocol and a broker that is down. kafka-python also
reports it for a wrong password.
"""

import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from streaming_app.kafka.connection import Admin, silence_log
from streaming_app.kafka.properties import Properties, SecurityError
from streaming_app.kafka.security import security_settings
from streaming_app.text import first_of
from streaming_app.threads import in_parallel

_CONNECT_SECONDS = 3.0
_RESPONSE_SECONDS = 5.0
_NAMED = 3  # servers that are away, in a line

CONNECTIONS = 16
"""How many servers are connected to at the same time."""

# The cause, and what to do. `servers` are all bootstrap servers, `server` is one of them, `detail` the library's
# message.
_NOBODY = "No Kafka broker answers"
_UNREACHABLE = f"{_NOBODY} at {{servers}}"
_TLS_FAILED = "TLS with {server} failed"
NO_LISTENER = f"{_UNREACHABLE}: nothing listens there; is the address right, and does the broker run?"
UNKNOWN_HOST = f"{_UNREACHABLE}: the host name cannot be resolved; is it right?"
NO_ANSWER = f"{_UNREACHABLE}: is the address right, and does the listener's security protocol match --command-config?"
LISTENER_WITH_TLS = (
    f"{_UNREACHABLE} without TLS: the listener uses TLS; set security.protocol to SSL or SASL_SSL in --command-config"
)
LISTENER_WITHOUT_TLS = (
    f"{_TLS_FAILED}: the listener does not use TLS; give the port of a listener that does, or set security.protocol to "
    "PLAINTEXT or SASL_PLAINTEXT in --command-config"
)
CERTIFICATE_EXPIRED = f"{_TLS_FAILED}: the broker's certificate has expired; renew it"
CERTIFICATE_NOT_YET_VALID = f"{_TLS_FAILED}: the broker's certificate is not valid yet; are the clocks right?"
UNTRUSTED_AUTHORITY = (
    f"{_TLS_FAILED}: the authority that signed the broker's certificate is not trusted; add its certificate to "
    "ssl.truststore of --command-config"
)
HOST_NAME_MISMATCH = (
    f"{_TLS_FAILED}: the broker's certificate is for another host name; use a name that the certificate contains in "
    "--bootstrap-server and in the broker's advertised.listeners"
)
CLIENT_CERTIFICATE_REJECTED = (
    "{server} rejected the client certificate of --command-config, or requires one: ssl.keystore must hold a key and a "
    "certificate that the broker's truststore trusts ({detail})"
)
NO_COMMON_TLS_VERSION = (
    "TLS with {server} failed: no version or cipher suite in common; check ssl.enabled.protocols of client and broker "
    "({detail})"
)
CREDENTIALS_REJECTED = "{server} rejected the credentials of --command-config: {detail}"
MECHANISM_NOT_ENABLED = "{server} does not enable the sasl.mechanism of --command-config: {detail}"
LISTENER_WITH_SASL = (
    f"{_UNREACHABLE} without authentication: the listener may require SASL; set security.protocol to SASL_SSL or "
    "SASL_PLAINTEXT, and sasl.mechanism and sasl.jaas.config, in --command-config"
)
LISTENER_WITHOUT_SASL = (
    "{server} does not support SASL: set security.protocol to SSL or PLAINTEXT in --command-config, or give the port "
    "of a listener that does"
)
OTHER_TLS = f"{_TLS_FAILED}: {{detail}}"

_MAY_PASS = frozenset(
    {
        NO_LISTENER,
        UNKNOWN_HOST,
        NO_ANSWER,
        LISTENER_WITH_TLS,
        LISTENER_WITHOUT_TLS,  # a load balancer without running brokers closes connections in the same way
        LISTENER_WITH_SASL,
    }
)
"""The causes that may end by waiting: the brokers may only be down."""

_TLS_CAUSES = (
    (
        "wrong version number|unexpected eof|eof occurred|connection has been closed|record layer failure|"
        "packet length|http request|unrecognized ssl message",
        LISTENER_WITHOUT_TLS,
    ),
    ("certificate has expired|certificateexpired", CERTIFICATE_EXPIRED),
    ("certificate is not yet valid|certificatenotyetvalid", CERTIFICATE_NOT_YET_VALID),
    ("(hostname|ip address) mismatch|no subject alternative|no name matching", HOST_NAME_MISMATCH),
    (
        "unable to (get|find|verify)|self.signed|certificate signature failure|pkix path|trustanchors",
        UNTRUSTED_AUTHORITY,
    ),
    ("alert:? (bad |unsupported )?certificate|alert:? (unknown ca|handshake failure)", CLIENT_CERTIFICATE_REJECTED),
    ("protocol|version|cipher", NO_COMMON_TLS_VERSION),
)
"""By the message of OpenSSL or Java, in lower case and with blanks; the first match counts."""

_LOGIN_CAUSES: tuple[tuple[type[Exception], str], ...] = (
    (IllegalSaslStateError, LISTENER_WITHOUT_SASL),
    (UnsupportedSaslMechanismError, MECHANISM_NOT_ENABLED),
    (SaslAuthenticationFailedError, CREDENTIALS_REJECTED),
    # A broker that does not answer the login in time has not rejected anything.
    *((kind, NO_ANSWER) for kind in (KafkaTimeoutError, RequestTimedOutError, TimeoutError)),
)


class Failure(NamedTuple):
    """The reason why a client gets no answer."""

    line: str
    """One line, with advice."""
    some_answer: bool
    """Whether another broker does answer."""
    may_pass: bool = True
    """Whether waiting may help: brokers, or the token endpoint, may only be down."""


def explain(servers: str, properties: Properties) -> Failure:
    """Return why a client with these properties gets no answer."""
    away = find_away(servers, properties)
    if all(away.values()):
        return _of_all({server: one for server, one in away.items() if one})
    if not any(away.values()):
        away |= _find_away_in_cluster(properties)
    who = [server for server, failure in away.items() if failure is None]
    answering = f"{', '.join(who)} {'answer' if len(who) > 1 else 'answers'}"
    if silent := [f"{server} does not ({_reason(one.line, server)})" for server, one in away.items() if one]:
        return Failure(f"{answering}, {first_of(silent, _NAMED)}.", some_answer=True)
    return Failure(f"{answering}, but a request was not answered in time.", some_answer=True)


def find_cause(servers: str, properties: Properties) -> str | None:
    """Return a line that says why a client with these properties gets no answer; None if one of the servers answers."""
    away = find_away(servers, properties)
    failures = {server: one for server, one in away.items() if one}
    return _of_all(failures).line if len(failures) == len(away) else None


def _of_all(failures: Mapping[str, Failure]) -> Failure:
    """Return why none of these servers answers: what does not pass by itself, or one cause, or the cause of each."""
    causes = [*failures.values()]
    if lasting := next((one for one in causes if not one.may_pass), None):
        return lasting
    if len({one.line for one in causes}) == 1:
        return causes[0]
    each = [f"{server} ({_reason(one.line, server)})" for server, one in failures.items()]
    return Failure(f"{_NOBODY}: {first_of(each, _NAMED)}", some_answer=False)


def find_away(servers: str, properties: Properties) -> dict[str, Failure | None]:
    """Return by server why it does not answer; None for a server that answers."""
    try:
        settings: Mapping[str, Any] | None = security_settings(properties)
    except SecurityError:
        settings = None  # kafka-python does not support them; the listener and its TLS are tested anyway
    uses_tls = properties.get("security.protocol", "PLAINTEXT").upper().endswith("SSL")

    def try_server(server: str) -> Failure | None:
        try:
            failure = _find_failure(server, uses_tls, settings)
        except SecurityError as error:
            return Failure(f"--command-config: {error}", some_answer=False)
        if failure is None:
            return None
        cause, detail = failure
        line = cause.format(servers=servers, server=server, detail=detail)
        return Failure(line, some_answer=False, may_pass=cause in _MAY_PASS)

    names = [part.strip() for part in servers.split(",")]
    return dict(zip(names, in_parallel(try_server, names, CONNECTIONS), strict=True))  # a paused one takes a time-out


def of_one_broker(line: str) -> str:
    """Return a line of `find_cause` for a single broker of a cluster, without the words that no broker answers."""
    return line.replace(_NOBODY, "does not answer", 1)


def tls_cause(text: str) -> str:
    """Return the template for an error of TLS; `text` is the message of OpenSSL or Java."""
    said = text.lower().replace("_", " ")
    return next((cause for pattern, cause in _TLS_CAUSES if re.search(pattern, said)), OTHER_TLS)


def _reason(line: str, server: str) -> str:
    return line.partition(": ")[2] if line.startswith(_NOBODY) else line.replace(server, "it")


def _find_away_in_cluster(properties: Properties) -> dict[str, Failure | None]:
    """Do the same for the advertised addresses of the brokers; empty if the brokers do not return them."""
    try:
        with Admin.of(properties, _RESPONSE_SECONDS) as admin:
            brokers = admin.describe_cluster()["brokers"]
    except (KafkaError, OSError, SecurityError):
        return {}
    return find_away(",".join(map(address_of, brokers)), properties) if brokers else {}


def address_of(broker: Mapping[str, Any]) -> str:
    """Return `HOST:PORT` of a broker as the cluster describes it; an address of IPv6 is in brackets."""
    host = f"[{broker['host']}]" if ":" in broker["host"] else broker["host"]
    return f"{host}:{broker['port']}"


def _find_failure(server: str, uses_tls: bool, settings: Mapping[str, Any] | None) -> tuple[str, str] | None:  # noqa: FBT001 - of the client
    """Return why a server does not answer, as a template and its detail; None if it answers."""
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    context = settings["ssl_context"] if settings and uses_tls else _unverified_context()
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS) as connection:
            failure = _tls_failure(connection, host, context)
    except (socket.gaierror, UnicodeError):
        return UNKNOWN_HOST, ""
    except (OSError, ValueError, OverflowError):
        return NO_LISTENER, ""
    if not uses_tls:  # a broker that accepts messages of this size waits for the rest of the message
        plain = failure and failure[0] in {LISTENER_WITHOUT_TLS, NO_ANSWER}
        failure = None if plain else (LISTENER_WITH_TLS, "")
    return failure if failure or settings is None else _log_in(server, settings)


def _unverified_context() -> ssl.SSLContext:
    """Return a context that accepts every certificate, to test whether a listener uses TLS; it sends no data."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _tls_failure(connection: socket.socket, host: str, context: ssl.SSLContext) -> tuple[str, str] | None:
    """Return why TLS with a listener fails, as a template and its detail; None if it succeeds."""
    try:
        with context.wrap_socket(connection, server_hostname=host):
            return None
    except ssl.SSLError as error:
        return tls_cause(str(error)), getattr(error, "verify_message", error.reason) or str(error)
    except TimeoutError:
        return NO_ANSWER, ""
    except OSError:
        return LISTENER_WITHOUT_TLS, ""  # it closed the connection after the first message


def _log_in(server: str, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Connect once, as kafka-python does, and return how it fails. Raises SecurityError if there is no token."""
    silence_log()
    network = NetworkSelector()
    manager = KafkaConnectionManager(network, bootstrap_servers=server, **settings)
    node = manager.cluster.bootstrap_brokers()[0].node_id
    connection = manager.get_connection(node, timeout_ms=1000 * _RESPONSE_SECONDS, pop_on_close=False)

    async def log_in() -> None:
        await connection
        await manager.cluster.refresh_metadata(node)

    try:
        manager.run(log_in)
    except (KafkaError, OSError) as error:
        return _login_cause(error, settings, got_versions=connection.broker_version_data is not None)
    finally:
        manager.close()
        network.close()
    return None


def _login_cause(error: Exception, settings: Mapping[str, Any], *, got_versions: bool) -> tuple[str, str]:
    message, mechanism = " ".join(str(error).split()), settings.get("sasl_mechanism")
    if cause := next((cause for kind, cause in _LOGIN_CAUSES if isinstance(error, kind)), None):
        return cause, message
    if "ssl_context" in settings and (tls := tls_cause(message)) != OTHER_TLS:
        return tls, message
    if mechanism and got_versions:  # closed after the login; kafka-python drops the reason that the broker sent before
        return CREDENTIALS_REJECTED, f"they are wrong, or the listener does not enable sasl.mechanism {mechanism}"
    return (NO_ANSWER if mechanism or not got_versions else LISTENER_WITH_SASL), message
