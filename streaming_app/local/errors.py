"""The one error of this package: what keeps a server from running on this machine, and what to do about it."""


class LocalError(Exception):
    """Something this machine lacks or refuses. Its text is one clear line that says what to do."""
