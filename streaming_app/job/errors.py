"""The one error of the job."""


class JobError(Exception):
    """The job cannot start or go on. Its text is one clear line that says what to do."""
