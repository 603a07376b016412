"""The errors of the job. The text of each is one clear line that says what to do."""


class JobError(Exception):
    """The job cannot start or go on."""


class UnreachableError(JobError):
    """No broker answers."""


def java_line(error: Exception) -> str:
    """The line of a Spark or Java error that tells a person something: the first that the innermost cause says."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    said = str((java.getMessage() or java.getClass().getName()) if java is not None else error)
    return next(iter(said.splitlines()), type(error).__name__)
