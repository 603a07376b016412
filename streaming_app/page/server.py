"""Runs the page with uvicorn until it is interrupted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from streaming_app.errors import reason_of
from streaming_app.page.app import Page
from streaming_app.page.broker_description import broker_descriptions
from streaming_app.page.labels import Labels
from streaming_app.page.settings import PageError, PageSettings
from streaming_app.page.source import SnapshotSource
from streaming_app.tables.location import Location
from streaming_app.text import split_address

_BACKLOG = 128
_MAX_HEADER_BYTES = 16_384
_MAX_CONNECTIONS = 1_000
_STOP_SECONDS = 5.0


class _Server(uvicorn.Server):
    """Ends the streams of events first: uvicorn would wait for them."""

    def __init__(self, config: uvicorn.Config, page: Page) -> None:
        super().__init__(config)
        self._page = page

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._page.live.close()
        await super().shutdown(sockets)


class PageServer:
    """The page, at an address that it listens at from its creation on."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        settings: PageSettings,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Listen. `report` gets a line for each new error of a page. Raises PageError if that is not possible."""
        self._settings = settings
        self._socket = _listen(settings.listen)
        descriptions = broker_descriptions(settings) if settings.bootstrap_server else None
        source = SnapshotSource(warehouse, cluster, labels=Labels(settings.labels))
        page = Page(source, settings, descriptions, report=report)
        config = uvicorn.Config(
            page.app,
            log_level="critical",  # what it logs about errors of requests is a traceback; `Page` reports a line
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
            limit_concurrency=_MAX_CONNECTIONS,
            lifespan="on",
            ws="none",
        )
        self._server = _Server(config, page)
        self._base_path = settings.base_path

    @property
    def url(self) -> str:
        """The address of the page, for this machine."""
        host, port = self._socket.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
        name = f"[{shown}]" if ":" in shown else shown
        return f"http://{name}:{port}{self._base_path}/"

    def lines(self) -> Iterator[str]:
        """Yield what the user must know: where it is, and who can read it."""
        yield f"The page is at {self.url}"
        if self._settings.is_open:
            yield (
                f"Anyone who can connect to {self._settings.listen} can read the page: use a file of users "
                "(--auth-file, page.auth_file), or a proxy with passwords"
            )

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM, in the main thread."""
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:  # uvicorn raises it again after an orderly end
            pass
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Let `run` return; from any thread."""
        self._server.should_exit = True

    @property
    def is_started(self) -> bool:
        """Whether it answers requests."""
        return bool(self._server.started)


@contextmanager
def serving(warehouse: Location | Path, cluster: str, settings: PageSettings) -> Iterator[str]:
    """Serve the page from another thread during the block, and give its address. Raises PageError."""
    server = PageServer(warehouse, cluster, settings)
    thread = threading.Thread(target=server.run, name="page", daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join(_STOP_SECONDS)


def serve(warehouse: Location | Path, cluster: str, settings: PageSettings, progress: Callable[[str], None]) -> None:
    """Serve the page until it is interrupted. `progress` gets lines for the user. Raises PageError."""
    server = PageServer(warehouse, cluster, settings, progress)
    where, *others = server.lines()
    for line in (f"{where} (Ctrl-C ends it)", *others):
        progress(line)
    server.run()


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener: Any = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = reason_of(error)
        raise PageError(
            f"Cannot serve the page at {address}: {reason}; choose another address (--listen, page.listen)"
        ) from None
    return listener  # type: ignore[no-any-return]
