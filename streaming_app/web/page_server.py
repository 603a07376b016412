"""The page at an address: what the user is told about it, and until when it is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streaming_app.report import Report
from streaming_app.tables.location import Location
from streaming_app.web.access import PageAccess
from streaming_app.web.descriptions import broker_descriptions
from streaming_app.web.live import MAX_VIEWERS
from streaming_app.web.page import Page
from streaming_app.web.server import HttpServer, Limits
from streaming_app.web.source import SnapshotSource
from streaming_app.web.words import Labels

_LIMITS = Limits(waiting=256, unread=64, requests=MAX_VIEWERS + 100)
_END_SECONDS = 1


class PageServer(HttpServer):
    """The page, at an address that it listens at from its creation on."""

    def __init__(
        self, warehouse: Location | Path, cluster: str, settings: PageAccess, report: Report = lambda _line: None
    ) -> None:
        """Listen. `report` gets a line for each new error of a page. Raises SetupError if that is not possible."""
        self._settings = settings
        descriptions = broker_descriptions(settings.brokers) if settings.brokers else None
        source = SnapshotSource(warehouse, cluster, labels=Labels(settings.labels))
        page = Page(source, settings, descriptions, report=report)
        super().__init__(
            settings.listen,
            page.app,
            what="the page",
            advice="choose another address (--listen, page.listen)",
            limits=_LIMITS,
            has_lifespan=True,
            end_seconds=_END_SECONDS,
            on_end=page.live.close,  # the streams of events: their ends would be waited for
        )

    @property
    def url(self) -> str:
        """The address of the page, for this machine."""
        return f"{super().url}{self._settings.base_path}/"

    def lines(self) -> Iterator[str]:
        """Yield what the user must know: where it is, and who can read it."""
        yield f"The page is at {self.url}"
        if self._settings.is_open:
            yield (
                f"Anyone who can connect to {self._settings.listen} can read the page: use a file of users "
                "(--auth-file, page.auth_file), or a proxy with passwords"
            )


def serve(warehouse: Location | Path, cluster: str, settings: PageAccess, progress: Report) -> None:
    """Serve the page until it is interrupted. `progress` gets lines for the user. Raises SetupError."""
    server = PageServer(warehouse, cluster, settings, progress)
    where, *others = server.lines()
    for line in (f"{where} (Ctrl-C ends it)", *others):
        progress(line)
    server.run()
