"""The service that keeps a second stream running. Whatever happens to that stream, the first one goes on.

The supervisor gives up a stream that fails repeatedly, since for the first one that ends the job. This one is then
tried again after a pause. With `--once` the job ends with its error, once the first stream is done.
"""

from __future__ import annotations

from typing import ClassVar

from streaming_app.job.service import Service
from streaming_app.job.supervisor import Supervisor


class BackgroundStream(Service):
    """A stream that is supervised from `start` to `close`."""

    close_seconds: ClassVar[float] = 6.0  # the supervisor lets a batch end, and stops a query within less
    retry_seconds: ClassVar[float] = 300.0
    """How long after the stream was given up it is tried again."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Prepare; `close` sets the supervisor's `stop`."""
        super().__init__("offsets", supervisor.report, interval=None, describe_error=str, stopping=supervisor.stop)
        self._supervisor = supervisor
        self._is_done = False
        self._error: Exception | None = None

    def tick(self) -> None:
        """Keep the stream running. Raises why it was given up, but for `once`."""
        self.report_failure.clear()  # it is reported each time that it is given up
        try:
            self._supervisor.run()
        except Exception as error:
            if not self._supervisor.once:
                raise
            self._error = error
        self._is_done = True

    def pause(self, seconds: float) -> float | None:
        """Return the time until a stream that was given up is tried again."""
        del seconds
        return None if self._is_done else self.retry_seconds

    def failed(self, text: str) -> str:
        """Note why the stream was given up, and return the line about that."""
        self._supervisor.health.failed(text)
        return f"{text.rstrip('.')}. Trying again in {self.retry_seconds / 60:.0f} min."

    def finish(self) -> None:
        """Wait until the stream is done, with `once`. Raises its error."""
        while not self.join(0.2) and not self.stopping.is_set():
            pass
        if self._error is not None and not self.stopping.is_set():
            raise self._error
