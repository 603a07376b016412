"""Turns errors of requests to brokers into one line that says what to do."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from kafka.errors import KafkaError

from streaming_app.errors import JobError, SomeUnreachableError, UnreachableError
from streaming_app.kafka import AUTHORIZATION_CODES, diagnose
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, GroupError


def missing_acl_message(operation: str, resource_type: str, name: str, options: str = "") -> str:
    """Return the message about an ACL that the principal lacks. `options` are added to the kafka-acls.sh command."""
    grants = grant_command(operation.title(), [(resource_type.lower(), name)])
    return f"Not authorized: the principal lacks the ACL {operation} on {resource_type}:{name}; {grants}{options}"


def grant_command(operation: str, resources: Iterable[tuple[str, str]]) -> str:
    """Return `grant it with kafka-acls.sh ...` for resources: pairs of an option of that tool, and a quoted name."""
    options = "".join(f" --{option}{f' {name}' if name else ''}" for option, name in resources)
    return f"grant it with kafka-acls.sh --add --allow-principal User:... --operation {operation}{options}"


REQUEST_ERRORS = (GroupError, KafkaError, OSError, ValueError)


@contextmanager
def errors_as_lines(properties: Mapping[str, str], needs: str) -> Iterator[None]:
    """Raise the errors of requests in the block as JobError, with the text of `error_message`."""
    try:
        yield
    except SecurityError as error:
        raise JobError(f"--command-config: {error}") from None
    except REQUEST_ERRORS as error:
        raise JobError(error_message(error, properties, needs)) from None


def error_message(error: Exception, properties: Mapping[str, str], needs: str) -> str:
    """Return the line about one of `REQUEST_ERRORS`, with its cause if that can be determined.

    `needs` names the permissions that the caller needs: `verify needs Describe on the groups`.
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
    if _is_no_answer(error):
        return diagnose.explain(servers, properties).line
    return f"{servers}: {name}: {text}"


def to_job_error(error: Exception, properties: Mapping[str, str]) -> JobError:
    """Return the job's error for one of `REQUEST_ERRORS`: UnreachableError if waiting may help, else JobError."""
    if not _is_no_answer(error):
        line = error_message(error, properties, "the job needs Describe and Read on the offsets topic")
        return UnreachableError(f"{line}.") if getattr(error, "retriable", False) else JobError(line)
    failure = diagnose.explain(properties["bootstrap.servers"], properties)
    if failure.some_answer:
        return SomeUnreachableError(failure.line)
    return (UnreachableError if failure.may_pass else JobError)(failure.line)


_NO_ANSWER = (
    *("Timeout", "TimedOut", "Connection", "NoBrokers", "Authentication", "Sasl", "InvalidReceive"),
    "NodeNotReady",  # while a broker restarts, kafka-python knows none to ask
)
"""In names of errors for which a new connection finds the cause: no answer, a failed login, or not a Kafka server."""


def _is_no_answer(error: Exception) -> bool:
    """Return whether an error says that nobody answers; kafka-python also raises it for a wrong password."""
    return any(word in type(error).__name__ for word in _NO_ANSWER)
