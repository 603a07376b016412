"""A warehouse with sample groups, the page on it, and a browser."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from streaming_app.web.access import Access
from streaming_app.web.page import Page, PageServer
from streaming_app.web.page_snapshot import SnapshotSource
from tests.support.browser import LONGEST_WAIT, find_chromium, launch
from tests.support.sample_groups import NOW, WRITTEN, beat, clock, write_sample
from tests.support.waiting import wait_until


@pytest.fixture(scope="session")
def sample_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample warehouse, whose job runs: do not write to it."""
    path = write_sample(tmp_path_factory.mktemp("page") / "warehouse", WRITTEN)
    beat(path, NOW)
    return path


@pytest.fixture
def sample(sample_template: Path, tmp_path: Path) -> Path:
    """A copy of the sample warehouse that a test may change."""
    return Path(shutil.copytree(sample_template, tmp_path / "warehouse"))


@pytest.fixture(scope="session")
def page(sample_template: Path) -> Page:
    """The application on the sample warehouse."""
    return Page(SnapshotSource(sample_template, "default", clock), Access(), clock)


@pytest.fixture(scope="session")
def serve_page() -> Iterator[Callable[..., str]]:
    """Serves a warehouse until the end of the session, at a free port and at `NOW`; `serve_page(path)` is the URL."""
    servers: list[PageServer] = []

    def serve(warehouse: Path, **settings: object) -> str:
        server = PageServer(warehouse, "default", Access(**{"listen": "127.0.0.1:0", **settings}), clock=clock)
        server.start()
        servers.append(server)
        assert wait_until(lambda: server._server.started, interval=0.01)
        return server.url

    yield serve
    for server in servers:
        server.stop()
    for server in servers:
        server._thread.join()


@pytest.fixture(scope="module")
def url(serve_page: Callable[..., str], sample_template: Path) -> str:
    """The page on the sample warehouse."""
    return serve_page(sample_template)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless Chromium that the tests of a module share; without one the test is skipped.

    Playwright keeps an event loop running in this thread until it stops, so that `asyncio.run` fails meanwhile, also in
    tests of other modules.
    """
    if find_chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    expect.set_options(timeout=LONGEST_WAIT)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()
