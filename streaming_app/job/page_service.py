"""The page, served by the job from a thread of its own. Whatever fails there is a line of the job's output, no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from streaming_app.errors import UserError

if TYPE_CHECKING:
    from streaming_app.config.job_config import JobConfig

RETRY_SECONDS = 30.0
_CLOSE_SECONDS = 3.0


class Server(Protocol):
    """A server that listens from its creation on."""

    def lines(self) -> Iterator[str]:
        """Yield what the user must know."""

    def run(self) -> None:
        """Serve until `stop` is called."""

    def stop(self) -> None:
        """Let `run` return; from any thread."""


class PageService:
    """Serves the page until it is closed; if that fails, again after a while."""

    def __init__(
        self, make: Callable[[], Server], report: Callable[[str], None], retry_seconds: float = RETRY_SECONDS
    ) -> None:
        """Serve with what `make` returns. `report` gets a line when that begins, and for each new problem."""
        self._make, self._report, self._retry_seconds = make, report, retry_seconds
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the service; waits for some seconds at most."""
        with self._lock:
            self._closed.set()
            if self._server is not None:
                self._server.stop()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        reported = ""
        while not self._closed.is_set():
            try:
                reported = self._serve()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the job goes on without the page
                is_expected = isinstance(error, UserError)
                problem = " ".join(f"{'' if is_expected else f'{type(error).__name__}: '}{error}".split())
                if problem != reported:
                    self._report(f"page: {problem}; this is tried again every {self._retry_seconds:.0f} s")
                reported = problem
            self._closed.wait(self._retry_seconds)

    def _serve(self) -> str:
        server = self._make()
        with self._lock:
            self._server = server
            if self._closed.is_set():
                server.stop()
        for line in server.lines():
            self._report(line)
        server.run()
        return ""


@contextmanager
def serving_page(config: JobConfig, report: Callable[[str], None]) -> Iterator[None]:
    """Serve the page of a job during the block, if the configuration asks for it."""
    service = make_page_service(config, report)
    if service:
        service.start()
    try:
        yield
    finally:
        if service:
            service.close()


def make_page_service(config: JobConfig, report: Callable[[str], None]) -> PageService | None:
    """Return the page of a job; None if the configuration does not ask for it."""
    listen = config.page.listen
    if listen is None or config.once:
        return None

    def make() -> Server:
        from streaming_app.page.broker_description import brokers_of  # noqa: PLC0415 - a job without the page
        from streaming_app.page.server import PageServer  # noqa: PLC0415 - does not load it
        from streaming_app.page.settings import PageSettings  # noqa: PLC0415

        brokers = brokers_of(config.bootstrap_server, config.command_config)
        settings = PageSettings.of(config.page, listen, brokers)
        return PageServer(config.warehouse, config.cluster, settings, lambda line: report(f"page: {line}"))

    return PageService(make, report)
