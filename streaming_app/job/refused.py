"""What Kafka's own client threw at the job, in one line that says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from streaming_app.job.errors import JobError, UnreachableError
from streaming_app.protocol import trouble

GROUP_PREFIX = "streams-groups"  # Spark's consumers ask for offsets under such names; they join nothing, commit nothing


def missing_acl(operation: str, kind: str, name: str, how: str = "") -> str:
    """The line about an ACL that the principal lacks."""
    return (
        f"Not authorized: the principal lacks the ACL {operation} on {kind}:{name}; grant it with kafka-acls.sh --add "
        f"--allow-principal User:... --operation {operation.title()} --{kind.lower()} {name}{how}"
    )


_BY_CLASS: Mapping[str, str] = {
    "SaslAuthenticationException": trouble.LINES[trouble.CREDENTIALS],
    "UnsupportedSaslMechanismException": trouble.LINES[trouble.MECHANISM],
    "IllegalSaslStateException": trouble.LINES[trouble.NO_SASL],
    "InvalidTopicException": "--topic {topic}: Kafka allows no such name",
    "TopicAuthorizationException": missing_acl("DESCRIBE", "Topic", "{topic}"),
    "GroupAuthorizationException": missing_acl("DESCRIBE", "Group", GROUP_PREFIX, " --resource-pattern-type prefixed"),
    "UnknownTopicOrPartitionException": "{servers} has no topic {topic}: no group has committed there yet, or --topic "
    "names another one",
}
# By what Java says of a failed handshake, anywhere in the chain of causes; the first that is found counts.
_TLS = (
    ("CertificateExpiredException", trouble.EXPIRED),
    ("CertificateNotYetValidException", trouble.NOT_YET),
    ("PKIX path|unable to find valid certification path|trustAnchors", trouble.UNKNOWN_AUTHORITY),
    ("No subject alternative|No name matching", trouble.OTHER_NAME),
    (
        "fatal alert: (bad_|unsupported_)?certificate|fatal alert: (unknown_ca|handshake_failure)",
        trouble.CLIENT_CERTIFICATE,
    ),
    ("Unsupported or unrecognized SSL message", trouble.NO_TLS),
    ("protocol_version|No appropriate protocol|cipher suites", trouble.NO_COMMON_VERSION),
)
_NO_ADDRESS = "No resolvable bootstrap"
_WRAPPING, _NO_REASON = "KafkaException", "Failed to create new"  # an exception that only says there is another one


def explained(error: Any, properties: Mapping[str, str], topic: str) -> JobError:  # noqa: ANN401 - a Java exception
    """One line for what Kafka's client threw: UnreachableError where what it needs may only be away."""
    servers = properties["bootstrap.servers"]
    causes = list(_causes(error))
    kind, told = causes[-1]
    names = {name for name, _ in causes}
    if kind == "TimeoutException" or "LoginException" in names or told.startswith(_NO_ADDRESS):
        unseen = trouble.LINES[trouble.SILENT].format(servers=servers)
        return UnreachableError(trouble.reason(servers, properties) or unseen)
    if line := _BY_CLASS.get(kind):
        return JobError(line.format(servers=servers, server=servers, topic=topic, told=told))
    if "SslAuthenticationException" in names:
        return JobError(_tls_line(causes, servers))
    if causes[0][0] == _WRAPPING:  # the client could not even be made
        return JobError(f"--command-config: Kafka client setting refused: {_setting(causes)}")
    return JobError(f"{servers}: {kind}: {told}")


def _causes(error: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a Java exception
    """Class and message of an exception and of what caused it, the innermost last."""
    while error is not None:
        name = error.getClass().getSimpleName()
        yield name, " ".join((error.getMessage() or name).split())
        error = error.getCause()


def _tls_line(causes: list[tuple[str, str]], servers: str) -> str:
    said = " ".join(f"{name}: {told}" for name, told in causes)
    told = causes[-1][1]
    kind = next((kind for pattern, kind in _TLS if re.search(pattern, said)), None)
    if kind is None:
        return f"TLS with {servers} failed: {told}"
    return trouble.LINES[kind].format(servers=servers, server=servers, told=told)


def _setting(causes: list[tuple[str, str]]) -> str:
    """What is wrong with a setting: the message that names it, and the one that says why."""
    meant = [told for name, told in causes if not (name == _WRAPPING and told.startswith(_NO_REASON))]
    first = meant[0].rpartition("Exception: ")[2]
    second = next((told for told in meant[1:] if told not in meant[0]), "")
    return f"{first}: {second}" if second and second not in first else first
