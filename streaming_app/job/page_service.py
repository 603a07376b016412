"""The service that serves the page of a job. Whatever fails there is a line of the job's output, no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from streaming_app.job.service import Service
from streaming_app.report import Report

if TYPE_CHECKING:
    from streaming_app.config.settings import JobConfig

_RETRY_SECONDS = 30.0


class Server(Protocol):
    """A server that listens from its creation on."""

    def lines(self) -> Iterator[str]:
        """Yield what the user must know."""

    def run(self) -> None:
        """Serve until `stop` is called."""

    def stop(self) -> None:
        """Let `run` return; from any thread."""


class PageService(Service):
    """Serves the page until it is closed; if that fails, again after a while."""

    def __init__(self, make: Callable[[], Server], report: Report, retry_seconds: float = _RETRY_SECONDS) -> None:
        """Serve with what `make` returns. `report` gets a line when that begins, and for each new problem."""
        super().__init__("page", report, interval=retry_seconds)
        self._make, self._retry_seconds = make, retry_seconds
        self._lock = threading.Lock()
        self._server: Server | None = None

    def tick(self) -> None:
        """Serve until the job ends. Raises what the server raises."""
        server = self._make()
        with self._lock:
            self._server = server
            if self.stopping.is_set():
                server.stop()
        for line in server.lines():
            self.report(line)
        server.run()

    def failed(self, text: str) -> str:
        """Return the line about a server that failed."""
        return f"page: {text}; this is tried again every {self._retry_seconds:.0f} s"

    def interrupt(self) -> None:
        """Let the server end."""
        with self._lock:
            if self._server is not None:
                self._server.stop()


def make_page_service(config: JobConfig, report: Report, retry_seconds: float = _RETRY_SECONDS) -> PageService:
    """Return the page of a job that has `page.listen`."""
    listen = str(config.page.listen)

    def make() -> Server:
        from streaming_app.web.access import PageAccess  # noqa: PLC0415
        from streaming_app.web.descriptions import brokers_of  # noqa: PLC0415 - a job without the page
        from streaming_app.web.page_server import PageServer  # noqa: PLC0415 - does not load it

        brokers = brokers_of(config.bootstrap_server, config.command_config)
        settings = PageAccess.of(config.page, listen, brokers)
        return PageServer(config.warehouse, config.cluster, settings, lambda line: report(f"page: {line}"))

    return PageService(make, report, retry_seconds)
