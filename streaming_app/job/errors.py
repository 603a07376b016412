"""The errors of the job. The text of each is one clear line that says what to do."""


class JobError(Exception):
    """The job cannot start or go on."""


class UnreachableError(JobError):
    """No broker answers."""
