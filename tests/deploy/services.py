"""Whether a service that a check started is there yet."""

from __future__ import annotations

from contextlib import suppress

from tests.job.running_job import status_of


def answers(url: str) -> bool:
    """Return whether the URL is answered with status 200."""
    with suppress(OSError):  # nothing listens there yet
        return status_of(url) == 200
    return False
