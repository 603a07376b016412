"""Errors of requests to brokers as one line that says what to do: of Kafka's Java client, and of kafka-python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.errors import KafkaError

from streaming_app.errors import JobError, MissingTopicError, NotAuthorizedError, SomeUnreachableError, UnreachableError
from streaming_app.kafka import AUTHORIZATION_CODES, GROUP_PREFIX, diagnose
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, GroupError


def missing_acl_message(operation: str, resource_type: str, name: str, options: str = "") -> str:
    """Return the message about an ACL that the principal lacks. `options` are added to the kafka-acls.sh command."""
    return (
        f"Not authorized: the principal lacks the ACL {operation} on {resource_type}:{name}; grant it with "
        f"kafka-acls.sh --add --allow-principal User:... --operation {operation.title()} --{resource_type.lower()} "
        f"{name}{options}"
    )


_BY_CLASS: Mapping[str, tuple[type[JobError], str]] = {
    "SaslAuthenticationException": (JobError, diagnose.CREDENTIALS_REJECTED),
    "UnsupportedSaslMechanismException": (JobError, diagnose.MECHANISM_NOT_ENABLED),
    "IllegalSaslStateException": (JobError, diagnose.LISTENER_WITHOUT_SASL),
    "InvalidTopicException": (JobError, "--topic {topic}: Kafka does not allow this topic name"),
    "TopicAuthorizationException": (NotAuthorizedError, missing_acl_message("DESCRIBE", "Topic", "{topic}")),
    "GroupAuthorizationException": (
        NotAuthorizedError,
        missing_acl_message("DESCRIBE", "Group", GROUP_PREFIX, " --resource-pattern-type prefixed"),
    ),
    "UnknownTopicOrPartitionException": (
        MissingTopicError,
        "{servers} has no topic {topic}: no group has committed offsets there yet, or --topic is wrong",
    ),
}
_UNRESOLVED_BOOTSTRAP = "No resolvable bootstrap"
_RETRIABLE = "RetriableException"  # of Kafka: an election, a coordinator that is loading
_WRAPPER, _WRAPPER_MESSAGE = "KafkaException", "Failed to create new"  # an exception whose cause has the reason


def to_job_error(error: Any, properties: Mapping[str, str], topic: str) -> JobError:  # noqa: ANN401 - a Java exception
    """Return the JobError for an exception of Kafka's client.

    UnreachableError if the brokers may only be down, MissingTopicError, NotAuthorizedError, else JobError itself.
    """
    servers = properties["bootstrap.servers"]
    causes = list(_causes(error))
    class_name, message = causes[-1]
    class_names = {name for name, _ in causes}
    if class_name == "TimeoutException" or "LoginException" in class_names or message.startswith(_UNRESOLVED_BOOTSTRAP):
        failure = diagnose.explain(servers, properties)
        return (SomeUnreachableError if failure.some_answer else UnreachableError)(failure.line)
    error_type, template = _BY_CLASS.get(class_name, (JobError, ""))
    if not template and "SslAuthenticationException" in class_names:
        template = diagnose.tls_cause(" ".join(map(": ".join, causes)))
    if template:
        return error_type(template.format(servers=servers, server=servers, topic=topic, detail=message))
    if _is_retriable(error):
        return UnreachableError(f"{servers}: {class_name}: {message}.")
    if causes[0][0] == _WRAPPER:  # the client could not be created
        said = [one.rpartition("Exception: ")[2] for _, one in causes if not one.startswith(_WRAPPER_MESSAGE)]
        line = ": ".join([*dict.fromkeys(said)][:2])  # which setting, and why
        return JobError(f"--command-config: Kafka client setting refused: {line}")
    return JobError(f"{servers}: {class_name}: {message}")


def _is_retriable(error: Any) -> bool:  # noqa: ANN401 - a Java exception
    """Return whether Kafka's client would try again: the innermost exception is a RetriableException."""
    while error.getCause() is not None:
        error = error.getCause()
    java_class = error.getClass()
    while java_class is not None:
        if java_class.getSimpleName() == _RETRIABLE:
            return True
        java_class = java_class.getSuperclass()
    return False


def _causes(error: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a Java exception
    """Yield class name and message of an exception and of its causes, the innermost last."""
    while error is not None:
        name = error.getClass().getSimpleName()
        yield name, " ".join((error.getMessage() or name).split())
        error = error.getCause()


# --- kafka-python -----------------------------------------------------------------------------------------------------

REQUEST_ERRORS = (GroupError, KafkaError, OSError, ValueError)
"""What kafka-python and `StreamsGroupClient` raise."""


@contextmanager
def errors_as_lines(properties: Mapping[str, str], needs: str) -> Iterator[None]:
    """Raise the errors of requests in the block as JobError, with the line of `error_message`."""
    try:
        yield
    except SecurityError as error:
        raise JobError(f"--command-config: {error}") from None
    except REQUEST_ERRORS as error:
        raise JobError(error_message(error, properties, needs)) from None


def error_message(error: Exception, properties: Mapping[str, str], needs: str) -> str:
    """Return the line about one of `REQUEST_ERRORS`, with its cause where that can be determined.

    `properties` are Kafka client properties, with `bootstrap.servers`; `needs` says what whoever asked has to be
    allowed: `verify needs Describe on the groups`.
    """
    servers = properties["bootstrap.servers"]
    if isinstance(error, GroupError):
        if error.code in AUTHORIZATION_CODES and error.message:
            kind = "Topic" if error.code == TOPIC_AUTHORIZATION_FAILED else "Group"
            return missing_acl_message("DESCRIBE", kind, error.message)
        return f"{servers} returned an error: {error}"
    name, text = type(error).__name__, " ".join(str(error).split())
    if "Authorization" in name:
        return f"{servers} denied access: {text}; {needs}"
    if "Timeout" in name or "Connection" in name or "NoBrokers" in name or "Authentication" in name:
        return diagnose.explain(servers, properties).line
    return f"{servers}: {name}: {text}"
