"""Keeps a second stream running in a thread of its own. Whatever happens to it, the first one goes on.

The supervisor gives up a stream that fails repeatedly, since for the first one that ends the job. This one is then
tried again after a pause. With `--once` the job ends with its error, once the first stream is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from streaming_app.job.service import LinkedEvent
from streaming_app.job.supervisor import Stream, supervise

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_app.job.spark_progress import SparkProgress
    from streaming_app.stream.health import Health

_RETRY_SECONDS = 300.0
_CLOSE_SECONDS = 6.0  # after `stop` was set: the supervisor stops a query within less


class BackgroundStream:
    """A stream, supervised in a thread from `start` to `close`."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        stream: Stream,
        stop: LinkedEvent,
        report: Callable[[str], None],
        log_file: Path,
        *,
        health: Health,
        progress: SparkProgress,
        once: bool,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        """Prepare; `stop`, which `close` sets, is that of the stream, too."""
        self._stream, self._stop, self._report, self._log_file = stream, stop, report, log_file
        self._health, self._progress, self._once = health, progress, once
        self._retry_seconds = retry_seconds
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="offsets", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self) -> None:
        """Wait until the stream is done, with `once`. Raises its error."""
        while self._thread.is_alive() and not self._stop.is_set():
            self._thread.join(0.2)
        if self._error is not None and not self._stop.is_set():
            raise self._error

    def close(self) -> None:
        """Stop the stream and wait for the end of the thread, no longer than some seconds."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (error := self._supervise()) is not None:
            if self._once:
                self._error = error
                return
            self._health.failed(str(error))
            self._report(f"{str(error).rstrip('.')}. Trying again in {self._retry_seconds / 60:.0f} min.")
            if self._stop.wait(self._retry_seconds):
                return

    def _supervise(self) -> Exception | None:
        """Keep the stream running; return why it was given up, None if it is done or the job ends."""
        try:
            supervise(
                self._stream,
                self._stop,
                self._report,
                self._log_file,
                health=self._health,
                progress=self._progress,
                once=self._once,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the other stream goes on
            return None if self._stop.is_set() else error
        return None
