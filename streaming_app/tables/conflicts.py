"""Repeats a commit that another one has overtaken, and no other: delta-rs raises the same error for each that fails.

Such an error may also mean that a store refuses the request, or that another tool has given the table a feature that
delta-rs cannot write. Then every attempt fails. A commit can only be overtaken by another one, so the version of the
table decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_when_event_set, wait_random
from tenacity.nap import sleep_using_event

if TYPE_CHECKING:
    from streaming_app.tables.kept_table import KeptTable

_ATTEMPTS = 12  # jobs for other clusters also cause conflicts
_PAUSE_SECONDS = 0.05, 0.5


class ConflictError(CommitFailedError):
    """Another commit came after the version on which this one was based."""


@contextmanager
def conflicts(kept: KeptTable) -> Iterator[None]:
    """Raise ConflictError instead of the error of a commit to this table that another one has overtaken."""
    try:
        yield
    except CommitFailedError as error:
        try:
            is_overtaken = kept.is_overtaken()
        except (DeltaError, OSError):  # the error of the commit says more
            is_overtaken = False
        if is_overtaken:
            raise ConflictError(str(error)) from None
        raise


def repeating(stop: Event | None = None) -> Retrying:
    """Return what calls a function again after a ConflictError, with pauses; not for ever, nor once `stop` is set."""
    stop = stop or Event()
    return Retrying(
        retry=retry_if_exception_type(ConflictError),
        stop=stop_after_attempt(_ATTEMPTS) | stop_when_event_set(stop),
        wait=wait_random(*_PAUSE_SECONDS),
        sleep=sleep_using_event(stop),
        reraise=True,
    )
