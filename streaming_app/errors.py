"""The errors that end a command or the job. The text of each is one clear line that says what to do.

Errors of a single package (a location that cannot be parsed, a sink that fails) stay in that package.
"""

from collections.abc import Iterable


class UserError(Exception):
    """An error that the user can fix. The command line prints its text as one line and exits with 1."""


class JobError(UserError):
    """The job cannot start or continue."""


class UnreachableError(JobError):
    """No broker answers."""


class SomeUnreachableError(UnreachableError):
    """A broker answers, and another one that is needed does not."""


class MissingTopicError(JobError):
    """The brokers answer, and have no topic of this name."""


class NotAuthorizedError(JobError):
    """An ACL that the job needs is missing."""


class OtherTopicError(JobError):
    """The topic is not the one that the tables are of."""


class OtherOwnerError(JobError):
    """Another job has taken over the cluster that this one wrote."""


class StorageError(JobError):
    """The tables or the checkpoint cannot be read or written."""


class NothingReadError(JobError):
    """Spark finds no partition of a topic that has some."""


class StreamChangedError(Exception):
    """The query of a stream must be started again; the text says why, in one line."""


class SetupError(UserError):
    """Something that the job, a broker or the page needs is missing on this machine: Java, a jar, a free port."""


class ConfigError(UserError):
    """An invalid file or variable; each of `lines` names one key and what its value must be."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class FlagError(ConfigError):
    """An invalid value of a flag, which is wrong usage of the command."""


class WarehouseError(UserError):
    """The tables cannot be read."""


def reason_of(error: BaseException) -> str:
    """Return why something failed: of an error of the operating system what that says, without its number and file."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def error_line(error: BaseException) -> str:
    """Return the kind of an error and its text, in one line: of one that nobody expected."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def java_error_message(error: BaseException) -> str:
    """Return the first line of the message of the innermost cause of a Spark or Java error."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    if java is None:
        return next(iter(str(error).splitlines()), type(error).__name__)
    kind, message = java.getClass().getSimpleName(), next(iter(str(java.getMessage() or "").splitlines()), "")
    return message if " " in message else f"{kind}: {message}" if message else kind
